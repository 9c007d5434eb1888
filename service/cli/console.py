"""The one module that prints. Results go to standard output, progress and errors to standard error."""

import os
import sys

from service.cli.errors import CommandError


class OutputClosedError(Exception):
    """Whoever read the results, such as ``head``, has seen enough. The command ends there, and well."""


def say(text: str = "") -> None:
    """Print a line of the result.

    Raises:
        OutputClosedError: nobody reads it any more.
        CommandError: it cannot be written, as on a full disk.
    """
    try:
        print(text, flush=True)  # noqa: T201 - this module owns printing.
    except BrokenPipeError:
        _discard_output()
        raise OutputClosedError from None
    except OSError as error:
        _discard_output()
        raise CommandError(f"cannot write the result: {error.strerror}") from None
    except UnicodeEncodeError:
        print(text.encode("ascii", "backslashreplace").decode(), flush=True)  # noqa: T201 - the terminal knows no more.


def warn(text: str) -> None:
    """Print a line for a person that is no part of the result."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - this module owns printing.


def redraw(line: str) -> None:
    """Draw a line for a person over the one drawn before. An empty line takes the last one away."""
    print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)  # noqa: T201 - this module owns printing.


def is_terminal() -> bool:
    """Whether a person sees standard error as it comes."""
    return sys.stderr.isatty()


def _discard_output() -> None:
    """Send what is still buffered to nowhere, so that the interpreter finds no fault in it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
