"""Traces of a real service, received by a collector over a socket; and nothing of it all where they are off."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

from kvshelf_client import Client, NamespaceSpec, Plan, Provenance, RecordClass, Slot, StoreRecord
from kvshelf_client.request_ids import HEADER
from tests.integration.process.conftest import Serve
from tests.support.engine import BLOCK, PROFILE, register, tokens
from tests.support.otlp_collector import OtlpCollector, attributes_of, otlp_collector
from tests.support.pages import ROOT, run_examples
from tests.support.served import Served, eventually

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT = f"00-{TRACE:032x}-00f067aa0ba902b7-01"
PROMPT = tokens(9 * BLOCK)
AT_ONCE = {"OTEL_BSP_SCHEDULE_DELAY": "50"}


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpCollector]:
    with otlp_collector() as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, collector: OtlpCollector) -> Iterator[Served]:
    settings = {"KVSHELF_TRACING__EXPORTER": "otlp", "KVSHELF_TRACING__ENDPOINT": collector.url, **AT_ONCE}
    made = Served(tmp_path_factory.mktemp("traced"), "--grpc-port", "0", **settings)
    made.start()
    yield made
    made.close()


def test_a_request_of_rest_and_what_it_does_are_spans_below_the_callers(
    served: Served, collector: OtlpCollector
) -> None:
    register(served.http)
    headers = {"traceparent": PARENT, HEADER: "of-a-trace", "content-type": "application/octet-stream"}
    assert served.http.post("/v1/namespaces/ns/plan", content=PROMPT, headers=headers).status_code == 200
    request, plan = "POST /v1/namespaces/{name}/plan", "plan"
    spans = eventually(lambda: found if request in (found := collector.of_trace(TRACE)) else None, 10)
    assert spans is not None
    assert set(spans) == {request, plan, "ssd hold"}
    assert spans[request].parent_span_id.hex() == "00f067aa0ba902b7"
    assert spans[plan].parent_span_id == spans[request].span_id
    assert spans["ssd hold"].parent_span_id == spans[plan].span_id, "also across the worker threads"
    assert {attributes_of(span)["kvshelf.request_id"] for span in spans.values()} == {"of-a-trace"}
    assert attributes_of(spans[request])["kvshelf.status"] == "200"
    assert collector.services == {"kvshelf"}


def test_failures_are_marked_and_probes_are_no_traces(served: Served, collector: OtlpCollector) -> None:
    assert served.http.get("/healthz").status_code == served.http.get("/metrics").status_code == 200
    assert served.http.get("/v1/namespaces/none").status_code == 404
    name = "GET /v1/namespaces/{name}"
    found = eventually(lambda: [span for span in collector.spans if span.name == name], 10)
    assert attributes_of(found[0])["kvshelf.status"] == "404"
    assert found[0].status.code == 0, "what a client did wrong is no failure of the service"
    assert not [span.name for span in collector.spans if "healthz" in span.name or "metrics" in span.name]


@pytest.mark.parametrize("face", ["rest", "grpc"])
def test_the_client_passes_the_callers_span_on(served: Served, collector: OtlpCollector, face: str) -> None:
    found = re.search(r"grpc://\S+", served.server.said)
    assert found
    url = served.url if face == "rest" else found.group()
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("engine")
    with Client(url, strict=True, budget_seconds=20, local=False) as client:
        with tracer.start_as_current_span("turn") as turn:
            serve_twice(client, f"of-{face}")
        trace_id = turn.get_span_context().trace_id
    fetch = {"rest": "GET /v1/leases/{lease_id}/fetch", "grpc": "kvshelf.v1.Kvshelf/Fetch"}[face]
    release = {"rest": "DELETE /v1/leases/{lease_id}", "grpc": "kvshelf.v1.Kvshelf/Release"}[face]
    expected = {"plan", "fetch", "store", "release", fetch, release, "ssd hold", "dram hold", "ssd write", "ssd read"}
    eventually(lambda: expected <= set(collector.of_trace(trace_id)), 10)
    spans = collector.of_trace(trace_id)
    assert int.from_bytes(spans[fetch].parent_span_id, "big") == turn.get_span_context().span_id


def test_the_page_does_what_it_says(served: Served, collector: OtlpCollector) -> None:
    ended = run_examples(ROOT / "docs/tracing.md", **{"127.0.0.1:8710": served.url.removeprefix("http://")})
    assert (ended.returncode, ended.stderr) == (0, "")
    found = re.fullmatch(r"trace ([0-9a-f]{32}), request ([0-9a-f]{32})\n", ended.stdout)
    assert found
    trace_id, request_id = int(found.group(1), 16), found.group(2)
    eventually(lambda: {"plan", "ssd hold"} <= set(collector.of_trace(trace_id)), 10)
    assert attributes_of(collector.of_trace(trace_id)["plan"])["kvshelf.request_id"] == request_id


def serve_twice(client: Client, name: str) -> None:
    """Store a prompt's blocks, and load them."""
    namespace = client.register(name, NamespaceSpec("default", name, "1", PROFILE, BLOCK, 512))
    assert namespace is not None
    first = client.plan(namespace, tokens=PROMPT)
    records = [
        StoreRecord(RecordClass.BLOCK, key, BLOCK * end, bytes(namespace.block_bytes), Provenance.EXACT)
        for end, key in enumerate(first.keys, 1)
    ]
    client.store(namespace, records, ran=first.resume)
    client.release(first, first.resume)
    second = client.plan(namespace, tokens=PROMPT)
    loaded = client.fetch_into(second, room_for(second))
    assert loaded.verified_tokens
    client.release(second, loaded.resume)


def room_for(plan: Plan) -> "dict[Slot, bytearray]":
    return {slot: bytearray(plan.namespace.bytes_of(slot.record_class)) for slot in plan.slots(plan.resume)}


def test_a_collector_that_is_away_costs_no_request_and_little_of_a_stop(serve: Serve) -> None:
    served = serve(
        KVSHELF_TRACING__EXPORTER="otlp", KVSHELF_TRACING__ENDPOINT="http://127.0.0.1:1/v1/traces", **AT_ONCE
    )
    for _ in range(50):
        assert served.http.get("/v1/namespaces").status_code == 200
    started = time.monotonic()
    assert served.stop() == 0
    assert time.monotonic() - started < 10
    assert not [line for line in served.log() if line["event"] == "unexpected_error"]


def test_the_console(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "service.cli.main", "serve", "--port", "0", "--data-dir", f"{tmp_path}/data"]
    environment = {**os.environ, **AT_ONCE, "KVSHELF_TRACING__EXPORTER": "console"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        httpx.get(found.group() + "/v1/namespaces")
        span = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
    assert (span["name"], process.returncode) == ("GET /v1/namespaces", 0)


@pytest.mark.parametrize("exporter", ["otlp", "console"])
def test_where_the_extra_is_not_installed_it_is_named(tmp_path: Path, exporter: str) -> None:
    code = "import sys; sys.modules['opentelemetry.sdk'] = None; from service.cli.main import main; sys.exit(main())"
    ended = run(code, "serve", "--port", "0", "--data-dir", f"{tmp_path}/data", KVSHELF_TRACING__EXPORTER=exporter)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        f"kvshelf serve: tracing.exporter = '{exporter}' takes the extra `tracing` (pip install "
    )


def test_where_they_are_off_the_service_imports_nothing_that_makes_or_sends_spans(tmp_path: Path) -> None:
    code = """
import sys
from service.settings import load_settings
from service.shelf.assemble import open_service
from storage.clock import SystemClock
from tests.support.live import live
import httpx

parts = open_service(load_settings(flags={"store": {"data_dir": sys.argv[1]}}), SystemClock())
with live(parts) as face:
    assert httpx.get(face.url + "/v1/stats").status_code == 200
parts.close()
unwanted = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.proto", "service.tracing.spans")
assert not [name for name in sys.modules if name.startswith(unwanted)]
"""
    ended = run(code, f"{tmp_path}/data", KVSHELF_STORE__BUDGET_BYTES=str(64 << 20))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_client_imports_nothing_of_opentelemetry() -> None:
    code = """
import sys
from kvshelf_client import Client
from kvshelf_client.tracing import trace_fields

for scheme in ("http", "grpc"):
    with Client(f"{scheme}://127.0.0.1:1", budget_seconds=0.5) as client:
        assert client.stats() is None
assert trace_fields() == []
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    ended = run(code)
    assert (ended.returncode, ended.stderr) == (0, "")


def run(code: str, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """A process of its own, to its end."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
