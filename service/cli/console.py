"""The one module that prints. Results go to standard output, progress and errors to standard error."""

import sys


def say(text: str = "") -> None:
    """Print a line of the result."""
    print(text, flush=True)  # noqa: T201 - this module owns printing.


def warn(text: str) -> None:
    """Print a line for a person that is no part of the result."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - this module owns printing.
