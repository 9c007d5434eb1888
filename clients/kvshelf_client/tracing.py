"""W3C trace context of the caller, if the caller traces with OpenTelemetry. Imports nothing for it."""

import sys


def trace_fields() -> list[tuple[str, str]]:
    """``traceparent``, and ``tracestate`` if there is one, of the caller's current span; nothing where there is none.

    Who traces has imported OpenTelemetry already; where it was not imported, there is no span.
    """
    current_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if current_span is None:
        return []
    context = current_span().get_span_context()
    if not context.is_valid:
        return []
    fields = [("traceparent", f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}")]
    return [*fields, ("tracestate", context.trace_state.to_header())] if context.trace_state else fields
