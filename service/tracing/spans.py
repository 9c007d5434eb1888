"""Spans by OpenTelemetry. Imported only where the settings ask for traces."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import Histogram

from service.request_ids import request_id_in_force
from service.settings.tracing import TracingSettings
from service.tracing.base import RequestSpan
from storage.clock import Clock

EXPORT_SECONDS = 2
"""How long a collector may take for a batch."""
BATCH_SPANS, QUEUE_SPANS = 1024, 2048
_NANOSECONDS = 1_000_000_000


class Spans:
    """See :class:`~service.tracing.base.Tracing`. Spans are sent in batches by a thread of the library.

    What a collector that is away or slow does not take is dropped; no request waits for it.
    """

    def __init__(self, settings: TracingSettings, version: str, clock: Clock) -> None:
        self._clock = clock
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.max_sampled_share)),
            resource=Resource.create({"service.name": "kvshelf", "service.version": version}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(_exporter(settings), max_queue_size=QUEUE_SPANS, max_export_batch_size=BATCH_SPANS)
        )
        self._tracer = self._provider.get_tracer("kvshelf", version)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, name: str, face: str, parent: dict[str, str]) -> Iterator[RequestSpan]:
        """See :meth:`Tracing.request <service.tracing.base.Tracing.request>`."""
        with self._tracer.start_as_current_span(
            name,
            self._propagator.extract(parent),
            SpanKind.SERVER,
            {"kvshelf.face": face},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _RequestSpan(span)
            finally:
                _name_request(span)

    def timed(self, histogram: Histogram, labels: tuple[str, ...]) -> Histogram:
        """See :meth:`Tracing.timed <service.tracing.base.Tracing.timed>`."""
        return cast("Histogram", _TimedHistogram(histogram, self._tracer, self._clock, labels))

    def close(self) -> None:
        """See :meth:`Tracing.close <service.tracing.base.Tracing.close>`."""
        self._provider.shutdown()


def _exporter(settings: TracingSettings) -> SpanExporter:
    if settings.exporter == "console":
        return ConsoleSpanExporter(out=sys.stdout, formatter=lambda span: span.to_json(indent=None) + "\n")
    return OTLPSpanExporter(settings.endpoint, timeout=EXPORT_SECONDS)


class _RequestSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def answered(self, status: str, *, is_failure: bool) -> None:
        self._span.set_attribute("kvshelf.status", status)
        if is_failure:
            self._span.set_status(StatusCode.ERROR)

    def renamed(self, name: str) -> None:
        self._span.update_name(name)


def _name_request(span: Span) -> None:
    request_id = request_id_in_force()
    if request_id is not None:
        span.set_attribute("kvshelf.request_id", request_id)


class _TimedHistogram:
    """Of a histogram what is used of one that times: its children by label."""

    def __init__(self, histogram: Histogram, tracer: Tracer, clock: Clock, labels: tuple[str, ...]) -> None:
        self._histogram, self._tracer, self._clock, self._labels = histogram, tracer, clock, labels

    def labels(self, *values: str) -> "_TimedChild":
        attributes = {f"kvshelf.{label}": value for label, value in zip(self._labels, values, strict=True)}
        return _TimedChild(self._histogram.labels(*values), self._tracer, self._clock, " ".join(values), attributes)


class _TimedChild:
    def __init__(self, child: Histogram, tracer: Tracer, clock: Clock, name: str, attributes: dict[str, str]) -> None:
        self._child, self._tracer, self._clock = child, tracer, clock
        self._name, self._attributes = name, attributes

    @contextmanager
    def time(self) -> Iterator[None]:
        with self._child.time(), self._tracer.start_as_current_span(self._name, attributes=self._attributes) as span:
            _name_request(span)
            yield

    def observe(self, seconds: float) -> None:
        """What was timed elsewhere, and has just ended."""
        self._child.observe(seconds)
        started = int((self._clock.now() - seconds) * _NANOSECONDS)
        span = self._tracer.start_span(self._name, attributes=self._attributes, start_time=started)
        _name_request(span)
        span.end(int(self._clock.now() * _NANOSECONDS))
