"""Figures in words, as people read them."""

from collections.abc import Mapping

DAY_SECONDS = 86_400.0


def percent(share: float) -> str:
    """Of 1."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def count(value: float) -> str:
    """With three digits."""
    return _scaled(value, {"billion": 1e9, "million": 1e6, "thousand": 1e3})


def many(value: float, noun: str) -> str:
    """So many of something."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def size(value: float) -> str:
    """Of bytes."""
    steps = {"TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0}
    return _scaled(value, steps, full=1023.5) if value else "0 B"


def duration(seconds: float) -> str:
    """In the unit that says most."""
    for unit, length in (("days", DAY_SECONDS), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def capital(text: str) -> str:
    """With a capital at the start."""
    return text[:1].upper() + text[1:]


def _scaled(value: float, steps: Mapping[str, float], full: float = 999.5) -> str:
    """In the largest unit of which there is one, after rounding."""
    units = [(unit, length) for unit, length in steps.items() if value >= length * full / (full + 0.5)]
    unit, length = units[0] if units else ("", 1.0)
    scaled = value / length
    return (f"{scaled:.3g} {unit}" if scaled < 999.5 else f"{scaled:.0f} {unit}").rstrip()
