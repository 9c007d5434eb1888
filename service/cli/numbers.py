"""Numbers on the command line: taken within bounds, or refused with the bounds."""

import argparse
from collections.abc import Callable
from contextlib import suppress

from service.units import bytes_of, seconds_of

_MAX_SECONDS, _MAX_BYTES = 10 * 366 * 86_400.0, 1 << 60


def count(text: str) -> int:
    """A whole number from 1 on; raises ArgumentTypeError."""
    value = int(text) if text.isdecimal() and len(text) < 19 else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 on")
    return value


def number_from(low: float, high: float, *, or_zero: bool = False) -> Callable[[str], float]:
    """Takes a number from ``low`` to ``high``, or 0 where that is allowed; what it returns raises ArgumentTypeError."""

    def number(text: str) -> float:
        """The number that ``text`` says; raises ArgumentTypeError."""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if low <= value <= high or (or_zero and value == 0):
            return value
        zero = "that is 0 or " if or_zero else ""
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number {zero}from {low:g} to {high:g}")

    return number


def seconds(text: str) -> float:
    """A duration above 0, as :func:`service.units.seconds_of` reads it; raises ArgumentTypeError."""
    with suppress(ValueError):
        value = seconds_of(text)
        if 0 < value <= _MAX_SECONDS:
            return value
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no duration above 0, such as 90s, 5m, 72h, 3d")


def byte_count(text: str) -> int:
    """A size or 0, as :func:`service.units.bytes_of` reads it; raises ArgumentTypeError."""
    with suppress(ValueError):
        value = bytes_of(text)
        if value <= _MAX_BYTES:
            return value
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size, such as 4096, 64GB, 64GiB, 1.5TB")


def bytes_per_token(text: str) -> int | None:
    """The size of a miniature's records; None for ``full`` or 0, the profile's own; raises ArgumentTypeError."""
    return None if text in ("full", "0") else count(text)
