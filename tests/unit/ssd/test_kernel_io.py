"""Requests that the kernel does: the right bytes under the right number, and a short or failed one is told."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.ssd.format import PAGE_BYTES
from storage.ssd.images import Images
from storage.ssd.kernel_io import KernelIO, Request

PAGES = 64


@pytest.fixture
def reads() -> Iterator[KernelIO]:
    made = KernelIO(8)
    yield made
    made.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A file of pages, each of its own number."""
    path = tmp_path / "pages"
    path.write_bytes(b"".join(bytes([number]) * PAGE_BYTES for number in range(PAGES)))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def image() -> memoryview:
    """Two pages."""
    return Images().take(PAGE_BYTES + 1)


def all_of(reads: KernelIO, count: int) -> dict[int, int]:
    ended = dict[int, int]()
    while len(ended) < count:
        ended |= dict(reads.wait())
    return ended


def test_each_read_fills_its_own_images(reads: KernelIO, descriptor: int) -> None:
    wanted = [Request(number, descriptor, number * PAGE_BYTES, [image(), image()]) for number in range(8)]
    assert reads.begin(wanted) == 8
    assert all_of(reads, 8) == dict.fromkeys(range(8), 4 * PAGE_BYTES)
    for one in wanted:
        came = b"".join(bytes(each) for each in one.images)
        assert came == b"".join(bytes([one.number + page]) * PAGE_BYTES for page in range(4))


def test_each_write_goes_to_its_own_place(reads: KernelIO, tmp_path: Path) -> None:
    path = tmp_path / "written"
    path.write_bytes(bytes(8 * PAGE_BYTES))
    opened = os.open(path, os.O_RDWR)
    images = [image() for _ in range(3)]
    for number, one in enumerate(images):
        one[:] = bytes([number + 1]) * len(one)
    first = Request(1, opened, 0, images[:2], is_write=True)
    second = Request(2, opened, 6 * PAGE_BYTES, images[2:], is_write=True)
    assert reads.begin([first, second]) == 2
    assert all_of(reads, 2) == {1: 4 * PAGE_BYTES, 2: 2 * PAGE_BYTES}
    os.close(opened)
    assert path.read_bytes()[::PAGE_BYTES] == bytes([1, 1, 2, 2, 0, 0, 3, 3])


def test_what_is_not_whole_is_told(reads: KernelIO, descriptor: int, tmp_path: Path) -> None:
    write_only = os.open(tmp_path / "closed", os.O_WRONLY | os.O_CREAT)
    at_the_end = Request(1, descriptor, (PAGES - 1) * PAGE_BYTES, [image()])
    behind_it = Request(2, descriptor, PAGES * PAGE_BYTES, [image()])
    assert reads.begin([at_the_end, behind_it]) == 2
    assert all_of(reads, 2) == {1: PAGE_BYTES, 2: 0}
    assert reads.begin([at_the_end, Request(3, write_only, 0, [image()])]) == 1, "what cannot be begun is not"
    assert all_of(reads, 1) == {1: PAGE_BYTES}
    os.close(write_only)


def test_a_descriptor_may_be_closed_once_a_read_has_begun(reads: KernelIO, descriptor: int) -> None:
    own = os.dup(descriptor)
    wanted = Request(5, own, 0, [image()])
    assert reads.begin([wanted]) == 1
    os.close(own)
    assert all_of(reads, 1) == {5: 2 * PAGE_BYTES}


def test_a_kernel_that_takes_none_takes_none(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    reads = KernelIO(8)
    assert reads.begin([Request(1, descriptor, 0, [image()])]) == 0
    assert reads.wait() == []
    reads.close()


def test_closed_it_takes_none(descriptor: int) -> None:
    reads = KernelIO(8)
    reads.close()
    assert reads.begin([Request(1, descriptor, 0, [image()])]) == 0
