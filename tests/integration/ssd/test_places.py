"""Where held payloads are, for a reader in another process: the right bytes, read-only, and left alone while held."""

import mmap
import os
from collections.abc import Sequence

import pytest

from storage.base import Extent, FileHold, RecordId
from storage.ssd import SsdTier
from tests.support.records import make_id, make_payload, make_records
from tests.support.ssd import BLOCK_BYTES, SsdShelf, fill


def held(tier: SsdTier, ids: Sequence[RecordId]) -> FileHold:
    hold = tier.hold(ids)
    assert isinstance(hold, FileHold)
    return hold


def bytes_at(hold: FileHold, place: Extent, size: int) -> bytes:
    file, offset = place
    descriptor = hold.open_file(file)
    try:
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def test_the_places_have_the_payloads_in_order(shelf: SsdShelf) -> None:
    tier = shelf.open()
    for number in range(5):
        tier.write(make_records([number], size=1000 * (number + 1)), durable=False)
    hold = held(tier, [make_id(number) for number in (3, 0, 9, 3)])
    found = hold.extents(0, 4)
    assert [bytes_at(hold, found[position], 4000) == make_payload(3, 4000) for position in (0, 3)] == [True, True]
    assert bytes_at(hold, found[1], 1000) == make_payload(0, 1000)
    assert found[2][0] == 0, "a miss is nowhere"
    assert hold.extents(1, 3) == found[1:3]
    hold.keep(1, 2)
    assert hold.extents(0, 1) == found[1:2]
    hold.release()
    with pytest.raises(ValueError, match="released"):
        hold.extents(0, 1)


def test_a_descriptor_can_neither_write_nor_cut_nor_map_for_writing(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records([0], size=1000), durable=True)
    hold = held(tier, [make_id(0)])
    (place,) = hold.extents(0, 1)
    descriptor = hold.open_file(place[0])
    size = os.fstat(descriptor).st_size
    for attempt in (
        lambda: os.pwrite(descriptor, b"x", 0),
        lambda: os.ftruncate(descriptor, 0),
        lambda: os.posix_fallocate(descriptor, size, 1),
        lambda: mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close(),
    ):
        with pytest.raises(OSError):
            attempt()
    assert os.fstat(descriptor).st_size == size
    assert bytes_at(hold, place, 1000) == make_payload(0, 1000)
    os.close(descriptor)
    hold.release()


def test_a_held_place_stands_while_everything_else_is_recycled_and_no_file_is_ever_cut(shelf: SsdShelf) -> None:
    tier = shelf.open(budget_bytes=16 << 20)
    fill(tier, 0, 8)
    hold = held(tier, [make_id(number) for number in range(8)])
    places = hold.extents(0, 8)
    descriptors = {file: hold.open_file(file) for file, _ in places}
    sizes = {number: os.fstat(descriptor).st_size for number, descriptor in descriptors.items()}
    tier.delete([make_id(0)])
    fill(tier, 1000, 400)
    for number, place in enumerate(places):
        assert bytes_at(hold, place, BLOCK_BYTES) == make_payload(number, BLOCK_BYTES)
    hold.release()
    fill(tier, 2000, 400)
    read = [os.pread(descriptors[file], BLOCK_BYTES, offset) for file, offset in places]
    assert all(data != make_payload(number, BLOCK_BYTES) for number, data in enumerate(read)), "all was written over"
    assert {number: os.fstat(descriptor).st_size for number, descriptor in descriptors.items()} == sizes
    for descriptor in descriptors.values():
        os.close(descriptor)
