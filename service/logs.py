"""Logs: one event a line, JSON for machines or text for a person. Never a payload, token ids or a whole hash."""

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog

from service.request_ids import add_request_id
from service.settings import ServerSettings


class ForgivingStream:
    """A stream of lines whose disk may be full, or whose reader be gone: such a line is lost, and nothing else.

    Args:
        stream: where the lines go.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write it if that can be done."""
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush it if that can be done."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def configure_logs(settings: ServerSettings) -> None:
    """Send the logs of the service, and those of its libraries, to standard error."""
    stream = ForgivingStream(sys.stderr)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", stream)),
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(cast("TextIO", stream))
    handler.setFormatter(formatter)
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
