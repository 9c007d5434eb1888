"""The memory of a process: its heap is in as few parts as was decided."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from service.runtime import ARENAS
from tests.integration.process.conftest import Serve

_PART_BYTES = 64 << 20
"""What glibc reserves for a part of the heap beside the main one, at a multiple of it."""


def parts_of_heap(process: int) -> int:
    """Parts beside the main one: each is memory in use with a reservation behind it."""
    areas = [_area(line) for line in Path(f"/proc/{process}/maps").read_text().splitlines()]
    return sum(
        used.start % _PART_BYTES == 0
        and (used.end, used.start + _PART_BYTES, "---p") == (behind.start, behind.end, behind.rights)
        for used, behind in pairwise(areas)
    )


class _Area(NamedTuple):
    """A line of the process's map of its memory."""

    start: int
    end: int
    rights: str


def _area(line: str) -> _Area:
    ends, rights, *_ = line.split()
    start, end = ends.split("-")
    return _Area(int(start, 16), int(end, 16), rights)


def test_no_thread_has_a_part_of_the_heap_of_its_own(serve: Serve) -> None:
    """Threads that begin while it starts are no exception."""
    assert parts_of_heap(serve().server.process.pid) < ARENAS
