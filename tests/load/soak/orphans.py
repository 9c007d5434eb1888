"""Processes whose parents died: a trial that hangs or is killed cannot take down the servers that it started."""

import ctypes
import os
import signal
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_PR_SET_CHILD_SUBREAPER = 36


class Orphans:
    """While it is entered, processes whose parents die become children of this one; at its end none is left.

    Source: prctl(2). Children that this process had before are nobody's orphans.
    """

    def __enter__(self) -> "Orphans":
        self._own = set(_children())
        _adopt(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(set())
        _adopt(0)

    def end(self, running: Set[int]) -> int:
        """Kill all but the ``running`` ones, their children in turn; returns how many were alive."""
        ended = 0
        while found := {process: state for process, state in _children().items() if process not in self._own | running}:
            for process, state in found.items():
                ended += state != "Z"
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        return ended


def _adopt(on: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


def _children() -> dict[int, str]:
    """All child processes of this one, with their states (proc(5))."""
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It ended meanwhile.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                found[int(path.parent.name)] = state
    return found
