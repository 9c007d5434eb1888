"""Mapped files: known by what they are, bounded, and gone when nobody looks at them any more."""

import mmap
import os
from pathlib import Path

import pytest

from kvshelf_client.errors import FrameError
from kvshelf_client.local import segments as module
from kvshelf_client.local.residency import PAGE_BYTES, address_of, pages_in_memory
from kvshelf_client.local.segments import Segments


def made(directory: Path, name: str, pages: int = 4) -> int:
    """A descriptor of a new file, whose pages have their numbers."""
    path = directory / name
    path.write_bytes(b"".join(bytes([number]) * PAGE_BYTES for number in range(pages)))
    return os.open(path, os.O_RDONLY)


def mappings(directory: Path) -> int:
    """How many files of a directory this process has mapped."""
    return sum(str(directory) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_file_is_mapped_once_and_its_descriptors_are_closed(tmp_path: Path) -> None:
    known = Segments()
    first = made(tmp_path, "a")
    (segment,) = known.take([first])
    with pytest.raises(OSError):
        os.fstat(first)
    again = [os.open(tmp_path / "a", os.O_RDONLY) for _ in range(3)]
    assert known.take(again) == [segment] * 3
    assert (len(known), mappings(tmp_path)) == (1, 1)
    assert bytes(segment.view(PAGE_BYTES - 1, 2)) == b"\0\1"
    assert segment.view(0, 4 * PAGE_BYTES).readonly
    for beyond in ((0, 4 * PAGE_BYTES + 1), (4 * PAGE_BYTES, 1), (1 << 60, 1)):
        with pytest.raises(FrameError):
            segment.view(*beyond)


def test_a_new_file_of_the_same_name_is_another(tmp_path: Path) -> None:
    known = Segments()
    (old,) = known.take([made(tmp_path, "a")])
    (tmp_path / "a").unlink()
    (tmp_path / "other").write_bytes(b"x")  # It would get the number of the file that is gone, were that not mapped.
    (new,) = known.take([made(tmp_path, "a", pages=2)])
    assert new is not old
    assert (old.size_bytes, new.size_bytes) == (4 * PAGE_BYTES, 2 * PAGE_BYTES)
    assert bytes(old.view(3 * PAGE_BYTES, 1)) == b"\3"


def test_no_more_stay_mapped_than_may_and_a_view_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SEGMENTS", 3)
    known = Segments()
    view = known.take([made(tmp_path, "0")])[0].view(PAGE_BYTES, 1)
    for number in range(1, 10):
        known.take([made(tmp_path, str(number))])
    assert (len(known), mappings(tmp_path)) == (3, 4)
    assert bytes(view) == b"\1"
    view.release()
    assert mappings(tmp_path) == 3
    known.forget()
    assert mappings(tmp_path) == 0


def test_an_empty_file_and_what_is_no_file_are_refused_and_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    reader, writer = os.pipe()
    with pytest.raises((OSError, ValueError)):
        Segments().take([made(tmp_path, "a"), reader])
    with pytest.raises((OSError, ValueError)):
        Segments().take([made(tmp_path, "b", pages=0)])
    os.close(writer)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_pages_in_memory(tmp_path: Path) -> None:
    descriptor = made(tmp_path, "a", pages=64)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    with mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        address = address_of(mapping)
        assert pages_in_memory(address, 0, 64 * PAGE_BYTES) == bytes(64)
        assert mapping[40 * PAGE_BYTES] == 40
        there = pages_in_memory(address, 0, 64 * PAGE_BYTES)
        assert there[40] == 1
        assert pages_in_memory(address, 40 * PAGE_BYTES + 7, 1) == b"\1"
        assert pages_in_memory(address, 39 * PAGE_BYTES + 4095, 2) == there[39:41]
        assert pages_in_memory(address, 63 * PAGE_BYTES, PAGE_BYTES) == there[63:]
    os.close(descriptor)
