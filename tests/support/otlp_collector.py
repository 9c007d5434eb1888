"""A collector of OpenTelemetry spans: takes OTLP over HTTP on a port of its own, and keeps what came."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpCollector:
    """What came so far. ``url`` is where spans are sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._requests: list[ExportTraceServiceRequest] = []

    def take(self, body: bytes) -> None:
        """Keep what an exporter sent."""
        self._requests.append(ExportTraceServiceRequest.FromString(body))

    @property
    def spans(self) -> list[Span]:
        """All spans, as they came."""
        return [
            span
            for request in list(self._requests)
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    @property
    def services(self) -> set[str]:
        """The names of those who sent."""
        return {
            attribute.value.string_value
            for request in list(self._requests)
            for of_resource in request.resource_spans
            for attribute in of_resource.resource.attributes
            if attribute.key == "service.name"
        }

    def of_trace(self, trace_id: int) -> dict[str, Span]:
        """The spans of a trace by name; of several with one name the last."""
        return {span.name: span for span in self.spans if int.from_bytes(span.trace_id, "big") == trace_id}


def attributes_of(span: Span) -> dict[str, str]:
    """The attributes of a span that are texts."""
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


@contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    """A collector that listens on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = OtlpCollector(f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
