"""Spans of requests, for a collector."""

from typing import Literal

from pydantic import Field

from service.settings.base import Group


class TracingSettings(Group):
    """OpenTelemetry traces. Anything but ``none`` takes the extra ``tracing``."""

    exporter: Literal["none", "otlp", "console"] = Field(
        "none", description="Where spans go: nowhere, to a collector over OTLP/HTTP, or to standard output."
    )
    endpoint: str = Field(
        "http://127.0.0.1:4318/v1/traces",
        pattern=r"^https?://[^\s]+$",
        description="The collector's URL for traces.",
    )
    max_sampled_share: float = Field(
        1.0, ge=0, le=1, description="How many of the traces that begin here are kept; a caller's own decision stands."
    )
