"""Health, readiness, metrics and OpenAPI."""

import os
import subprocess
from typing import Any

import httpx
import pytest

from service.rest.drain import ANSWERED_WHILE_DRAINING
from tests.support.engine import fetch, plan, register, release, tokens

PROMTOOL = os.environ.get("KVSHELF_TEST_PROMTOOL", "promtool")
EXPECTED = {
    "kvshelf_prompt_tokens_total", "kvshelf_requests_total", "kvshelf_hit_tokens_total",
    "kvshelf_replayed_tokens_total", "kvshelf_missed_tokens_total",
    "kvshelf_saved_tokens_total", "kvshelf_plans_total", "kvshelf_resumes_total", "kvshelf_request_duration_seconds",
    "kvshelf_local_bytes_total", "kvshelf_local_clients", "kvshelf_local_records_total", "kvshelf_local_refusals_total",
    "kvshelf_leases", "kvshelf_leased_records", "kvshelf_health", "kvshelf_lookups_total",
    "kvshelf_fetched_records_total", "kvshelf_fetches_total", "kvshelf_stored_records_total",
    "kvshelf_lowered_claims_total", "kvshelf_erased_records_total", "kvshelf_age_at_hit_seconds",
    "kvshelf_scrub_progress_ratio", "kvshelf_scrub_last_completed_timestamp_seconds", "kvshelf_scrubbed_bytes_total",
    "kvshelf_scrub_corrupt_records_total", "kvshelf_evictions_total",
    "kvshelf_evicted_bytes_total", "kvshelf_age_at_expiry_seconds", "kvshelf_tier_bytes_total",
    "kvshelf_tier_faults_total", "kvshelf_tier_duration_seconds", "kvshelf_tier_records", "kvshelf_tier_live_bytes",
    "kvshelf_tier_used_bytes", "kvshelf_tier_filled_bytes", "kvshelf_tier_budget_bytes", "kvshelf_tier_pinned_bytes",
    "kvshelf_tier_up",
    "kvshelf_access_denied_total", "kvshelf_refused_requests_total", "kvshelf_token_file_ok",
    "kvshelf_tier_ttl_seconds", "kvshelf_expiry_lag_seconds", "kvshelf_filesystem_size_bytes",
    "kvshelf_filesystem_free_bytes", "kvshelf_retention_reached_seconds", "kvshelf_breaker_state", "kvshelf_build_info",
}  # fmt: skip


def samples(http: httpx.Client) -> dict[str, float]:
    """Every sample of the exposition."""
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_it_is_well_and_ready(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok", "causes": []}
    assert http.get("/readyz").status_code == 204


def test_promtool_finds_nothing_to_complain_about(http: httpx.Client) -> None:
    register(http)
    release(http, plan(http, tokens(1000)))
    text = http.get("/metrics").content
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_every_metric_is_there_before_anything_happened(http: httpx.Client) -> None:
    text = http.get("/metrics").text
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert families == EXPECTED
    found = samples(http)
    for source in ("hbm", "dram", "ssd", "replay", "prefill"):
        assert found[f'kvshelf_prompt_tokens_total{{source="{source}"}}'] == 0
    for mode in ("full_attention", "resident", "snapshot", "bounded_replay", "exact_rebuild", "cold"):
        assert found[f'kvshelf_plans_total{{exact="false",mode="{mode}"}}'] == 0


def test_no_label_set_appears_later(http: httpx.Client) -> None:
    before = set(samples(http))
    register(http)
    planned = plan(http, tokens(1000))
    fetch(http, planned)
    release(http, planned)
    assert set(samples(http)) == before


@pytest.mark.parametrize("lengths", [(1,), (127, 128, 129), (5000, 1, 1000, 999)])
def test_sources_add_up_to_the_prompts(http: httpx.Client, lengths: tuple[int, ...]) -> None:
    register(http)
    for length in lengths:
        release(http, plan(http, tokens(length), hbm_tokens=length // 3))
    found = samples(http)
    total = sum(value for name, value in found.items() if name.startswith("kvshelf_prompt_tokens_total"))
    assert total == sum(lengths)
    assert found["kvshelf_requests_total"] == len(lengths)


def test_stats_say_what_is_held(http: httpx.Client) -> None:
    register(http)
    planned = plan(http, tokens(1000))
    stats = http.get("/v1/stats").json()
    assert stats["namespaces"] == 1
    assert stats["leases"] == {"count": 1, "records": 0}
    assert set(stats["tiers"]) == {"ssd", "dram"}
    assert stats["health"]["status"] == "ok"
    release(http, planned)


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every operation of an OpenAPI document, by method and path."""
    return {
        f"{method} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_openapi_is_complete(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    found = operations(document)
    assert len(found) >= 18
    for name, operation in found.items():
        assert operation["summary"], name
        assert operation["description"], name
        assert "503" in operation["responses"] or name.removeprefix("get ") in ANSWERED_WHILE_DRAINING, name
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert set(response["content"]) == {"application/problem+json"}, (name, status)
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "query":
                assert parameter.get("description") or parameter["schema"].get("description"), (name, parameter["name"])


def test_every_reference_of_openapi_resolves(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for value in node.values() for found in references(value)]
        return [found for value in node for found in references(value)] if isinstance(node, list) else []

    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= names
