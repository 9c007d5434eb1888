"""Numbers on the command line: taken within bounds, or refused with the bounds."""

import argparse
import re
from collections.abc import Callable

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"": 1, "B": 1, **{f"{unit}B": 1000**power for power, unit in enumerate("KMGTP", 1)}}
_BYTES |= {f"{unit}iB": 1 << 10 * power for power, unit in enumerate("KMGTP", 1)}
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
    """A duration, as ``90``, ``90s``, ``5m``, ``72h`` or ``3d``; raises ArgumentTypeError."""
    value = _with_unit(text, _SECONDS)
    if value is not None and 0 < value <= _MAX_SECONDS:
        return value
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no duration above 0, such as 90s, 5m, 72h, 3d")


def byte_count(text: str) -> int:
    """A size, as ``4096``, ``64GB`` (decimal) or ``64GiB`` (binary), or 0; raises ArgumentTypeError."""
    value = _with_unit(text, _BYTES)
    if value is not None and value <= _MAX_BYTES:
        return round(value)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size, such as 4096, 64GB, 64GiB, 1.5TB")


def bytes_per_token(text: str) -> int | None:
    """The size of a miniature's records; None for ``full`` or 0, the profile's own; raises ArgumentTypeError."""
    return None if text in ("full", "0") else count(text)


def _with_unit(text: str, units: dict[str, int]) -> float | None:
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?) ?([A-Za-z]*)", text, re.ASCII)
    return float(found[1]) * units[found[2]] if found and found[2] in units else None
