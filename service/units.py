"""Sizes and durations as people write them: ``10GiB``, ``1.5 TB``, ``72h``. One reader for settings and options."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

_BINARY: Final = {f"{letter}iB": 1 << 10 * power for power, letter in enumerate("KMGTP", 1)}
_BYTES: Final = {"": 1, "B": 1, **{f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", 1)}, **_BINARY}
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_QUANTITY: Final = re.compile(r"(\d{1,24}(?:_\d{1,24}){0,8}(?:\.\d{1,9})?) ?([A-Za-z]*)", re.ASCII)


def bytes_of(text: str) -> int:
    """Bytes, from ``4096``, ``64GB`` (decimal) or ``64GiB`` (binary); raises ValueError, which does not repeat it."""
    value = _quantity(text, _BYTES)
    if value is None:
        raise ValueError("is no size, such as 4096, 64GB, 64GiB, 1.5TB")
    return round(value)


def seconds_of(text: str) -> float:
    """Seconds, from ``90``, ``90s``, ``5m``, ``72h`` or ``3d``; raises ValueError, which does not repeat it."""
    value = _quantity(text, _SECONDS)
    if value is None:
        raise ValueError("is no duration, such as 90s, 5m, 72h, 3d")
    return float(value)


def bytes_text(count: int) -> str:
    """A size in binary units, as :func:`bytes_of` reads it: ``16 MiB``."""
    name, unit = max(
        ((name, unit) for name, unit in _BINARY.items() if unit <= count), key=lambda one: one[1], default=("B", 1)
    )
    return f"{count / unit:.4g} {name}"


def seconds_text(seconds: float) -> str:
    """A duration in the largest unit that leaves no fraction, as :func:`seconds_of` reads it: ``72h``, ``0.25s``."""
    name, unit = next(
        ((name, unit) for name, unit in reversed(_SECONDS.items()) if seconds >= unit and seconds % unit == 0), ("s", 1)
    )
    return f"{seconds / unit:g}{name}"


def _quantity(text: str, units: Mapping[str, int]) -> Fraction | None:
    found = _QUANTITY.fullmatch(text)
    return Fraction(found[1].replace("_", "")) * units[found[2]] if found and found[2] in units else None
