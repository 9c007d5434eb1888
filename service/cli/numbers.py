"""Numbers on the command line: taken within bounds, or refused with the bounds."""

import argparse
from collections.abc import Callable


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
