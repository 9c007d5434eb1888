"""Each alert, in Prometheus' own test runner: it fires when it should, and is silent one step before."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.watch.rules import ALERTS

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "rules.yml"
NODE = 'job="kvshelf",instance="a"'
TTL = 259_200


class Case(NamedTuple):
    """Series at one sample a minute, as promtool writes them, under which an alert fires at ``minute`` and under which
    it does not.
    """

    minute: int
    fires: dict[str, str]
    silent: dict[str, str]
    labels: dict[str, str] = {}


def of(metric: str, labels: str = "") -> str:
    return f"{metric}{{{NODE}{',' + labels if labels else ''}}}"


def traffic(values: str) -> dict[str, str]:
    return {of("kvshelf_prompt_tokens_total", 'source="ssd"'): values}


def hits(values: str) -> dict[str, str]:
    return {of("kvshelf_hit_tokens_total"): values}


def snapshots(hit: str, evicted: str) -> dict[str, str]:
    return {
        of("kvshelf_lookups_total", 'class="snapshot",tier="dram",result="hit",reason="none"'): hit,
        of("kvshelf_lookups_total", 'class="snapshot",tier="dram",result="miss",reason="evicted"'): evicted,
    }


def durations(verb: str, slow_bound: str, fast_bound: str, slow: str, fast: str, total: str) -> dict[str, str]:
    name = "kvshelf_request_duration_seconds_bucket"
    return {
        of(name, f'verb="{verb}",le="{fast_bound}"'): fast,
        of(name, f'verb="{verb}",le="{slow_bound}"'): slow,
        of(name, f'verb="{verb}",le="+Inf"'): total,
    }


STORED = of("kvshelf_stored_records_total", 'class="block",outcome="stored",reason="none"')
LOST = of("kvshelf_stored_records_total", 'class="block",outcome="lost",reason="tier_down"')
CASES = {
    "KvshelfDown": Case(3, {f"up{{{NODE}}}": "0x10"}, {f"up{{{NODE}}}": "1x10"}, {"job": "kvshelf"}),
    "KvshelfHitRateFell": Case(
        125,
        traffic("0+1000x150") | hits("0+900x100 90000+100x50"),
        traffic("0+1000x100 100000+100x50") | hits("0+900x100 90000+10x50"),  # Nine tenths less traffic is no mismatch.
    ),
    "KvshelfStoresWithoutHits": Case(
        100,
        {STORED: "0+100x100"} | hits("0x100"),
        {STORED: "0+100x100"} | hits("0+1x100"),
    ),
    "KvshelfSnapshotAliveFell": Case(
        125,
        snapshots("0+90x100 9000+40x50", "0+10x100 1000+60x50"),
        snapshots("0+90x100 9000+80x50", "0+10x100 1000+20x50"),
    ),
    "KvshelfPoolEvicts": Case(40, snapshots("0+90x60", "0+10x60"), snapshots("0+99x60", "0+1x60")),
    "KvshelfRetentionShort": Case(
        40,
        {of("kvshelf_retention_reached_seconds"): "3600x60", of("kvshelf_tier_ttl_seconds", 'tier="ssd"'): f"{TTL}x60"},
        {
            of("kvshelf_retention_reached_seconds"): f"{TTL}x60",
            of("kvshelf_tier_ttl_seconds", 'tier="ssd"'): f"{TTL}x60",
        },
    ),
    "KvshelfDiskFullSoon": Case(
        380,
        {of("kvshelf_filesystem_free_bytes"): "600-1x400", of("kvshelf_filesystem_size_bytes"): "1000x400"},
        {of("kvshelf_filesystem_free_bytes"): "600-0.1x400", of("kvshelf_filesystem_size_bytes"): "1000x400"},
        {"job": "kvshelf"},
    ),
    "KvshelfExpiryBacklog": Case(
        30,
        {
            of("kvshelf_expiry_lag_seconds", 'tier="ssd"'): "14000x60",
            of("kvshelf_tier_ttl_seconds", 'tier="ssd"'): f"{TTL}x60",
        },
        {
            of("kvshelf_expiry_lag_seconds", 'tier="ssd"'): "2600x60",
            of("kvshelf_tier_ttl_seconds", 'tier="ssd"'): f"{TTL}x60",
        },
        {"tier": "ssd", "job": "kvshelf"},
    ),
    "KvshelfCorruption": Case(
        20,
        {of("kvshelf_tier_faults_total", 'tier="ssd",kind="corrupt"'): "0x10 1x20"},
        {of("kvshelf_tier_faults_total", 'tier="ssd",kind="corrupt"'): "5x30"},
        {"tier": "ssd"},
    ),
    "KvshelfDiskErrors": Case(
        15,
        {of("kvshelf_tier_faults_total", 'tier="ssd",kind="io"'): "0x10 3x20"},
        {of("kvshelf_tier_faults_total", 'tier="dram",kind="io"'): "0x10 3x20"},
    ),
    "KvshelfBreakerOpen": Case(
        10,
        {of("kvshelf_breaker_state", 'state="open"'): "0x5 1x20"},
        {of("kvshelf_breaker_state", 'state="open"'): "0x9 1x20"},  # Just opened: it has two minutes to close again.
        {"state": "open", "job": "kvshelf"},
    ),
    "KvshelfDegraded": Case(
        10,
        {of("kvshelf_health", 'state="ok"'): "0x20"},
        {of("kvshelf_health", 'state="ok"'): "1x20"},
        {"state": "ok", "job": "kvshelf"},
    ),
    "KvshelfStoresLost": Case(20, {LOST: "0x10 5x20"}, {LOST: "5x30"}),
    "KvshelfSlowPlans": Case(
        30,
        durations("plan", "0.5", "0.1", "0+100x60", "0+90x60", "0+100x60"),
        durations("plan", "0.5", "0.1", "0+100x60", "0+100x60", "0+100x60"),
        {"verb": "plan"},
    ),
    "KvshelfRefuses": Case(
        20,
        {of("kvshelf_refused_requests_total", 'reason="share"'): "0+120x30"},
        {
            of("kvshelf_refused_requests_total", 'reason="share"'): "0+50x30",
            of("kvshelf_refused_requests_total", 'reason="slow"'): "0+120x30",
        },
    ),
    "KvshelfSlowStores": Case(
        30,
        durations("store", "10", "2.5", "0+100x60", "0+50x60", "0+100x60"),
        durations("store", "10", "2.5", "0+100x60", "0+100x60", "0+100x60"),
        {"verb": "store"},
    ),
}


Step = tuple[dict[str, str], list[dict[str, Any]]]
"""Series, and the alerts that are firing under them."""


def promtool_test(directory: Path, alert: str, minute: int, *steps: Step) -> str:
    """Run tests of one alert at one minute; returns what promtool complains about."""
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": fired}],
            }
            for series, fired in steps
        ],
    }
    path = directory / "test.yml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def expected(alert: str, labels: dict[str, str]) -> list[dict[str, Any]]:
    (rule,) = [rule for rule in ALERTS if rule.name == alert]
    own = {"instance": "a", "severity": rule.severity, **labels}
    annotations = rule.document()["annotations"]
    filled = {
        name: text.replace("{{ $labels.instance }}", "a").replace("{{ $labels.tier }}", labels.get("tier", ""))
        for name, text in annotations.items()
    }
    return [{"exp_labels": own, "exp_annotations": filled}]


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", list(CASES))
def test_it_fires_and_it_does_not(alert: str, tmp_path: Path) -> None:
    case = CASES[alert]
    fires = (case.fires, expected(alert, case.labels))
    assert promtool_test(tmp_path, alert, case.minute, fires, (case.silent, [])) == ""


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    case = CASES["KvshelfDown"]
    assert promtool_test(tmp_path, "KvshelfDown", case.minute, (case.fires, [])) != ""
