"""Erased bytes are not in the files any more, nor are earlier copies of them once the dead space was wiped."""

from pathlib import Path

import pytest

from storage.base import Tier, TierAwayError
from tests.support.records import REPLAYED, fetch, make_id, make_record, make_records
from tests.support.ssd import Device, SsdShelf, alive, fill, ids

SIZE = 6000


def is_in_files(directory: Path, number: int, size: int = SIZE) -> bool:
    """Whether any piece of the record's payload is in any file."""
    payload = bytes(make_record(number, size=size).payload)
    pieces = [payload[start : start + 64] for start in range(0, size - 64, size // 4)]
    files = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    return any(piece in data for piece in pieces for data in files)


def wipe_all(tier: Tier) -> int:
    written, cursor = 0, 0
    while True:
        step = tier.wipe(cursor)
        written += step.written_bytes
        if step.cursor is None:
            return written
        cursor = step.cursor


def test_erased_bytes_are_not_in_the_files(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(5), size=SIZE), durable=True)
    assert is_in_files(shelf.directory, 2)
    tier.delete([make_id(1)])
    tier.erase([make_id(2)])
    assert [is_in_files(shelf.directory, number) for number in range(5)] == [True, True, False, True, True]
    assert make_id(2).key not in shelf.segments()[0].read_bytes(), "its header is gone, too"
    assert alive(tier, range(5)) == [0, 3, 4]
    tier.close()
    assert alive(shelf.open(), range(5)) == [0, 3, 4]


def test_wiping_takes_what_was_deleted_replaced_and_moved(shelf: SsdShelf) -> None:
    tier = shelf.open(16 << 20)
    tier.write([make_record(1, size=SIZE, provenance=REPLAYED, content=50)], durable=True)
    tier.write([make_record(1, size=SIZE), *make_records([2, 3], size=SIZE)], durable=True)
    tier.delete([make_id(2)])
    tier.touch([make_id(3)])
    fill(tier, 1000, 110)
    assert is_in_files(shelf.directory, 2) or is_in_files(shelf.directory, 50)
    tier.erase([make_id(3)])
    assert wipe_all(tier) > 0
    assert [is_in_files(shelf.directory, number) for number in (1, 2, 3, 50)] == [
        bool(alive(tier, range(1, 2))),
        *[False] * 3,
    ]
    live = alive(tier, range(1000, 1110))
    assert len(live) > 50
    assert wipe_all(tier) == 0, "nothing is written twice"
    tier.check_integrity()
    fill(tier, 3000, 100)
    tier.check_integrity()


def test_what_a_reader_holds_is_passed_by(shelf: SsdShelf) -> None:
    tier = shelf.open()
    replayed = make_record(1, size=SIZE, provenance=REPLAYED, content=50)
    tier.write([replayed], durable=True)
    hold = tier.hold([make_id(1)])
    tier.write([make_record(1, size=SIZE)], durable=True)
    step = tier.wipe(0)
    assert (step.is_held, step.written_bytes) == (True, 0)
    (loaded,) = hold.read(0, 1)
    assert bytes(loaded.payload) == replayed.payload  # type: ignore[union-attr]
    hold.release()
    assert wipe_all(tier) > 0
    assert not is_in_files(shelf.directory, 50)
    assert fetch(tier, [make_id(1)]) == [make_record(1, size=SIZE).payload]


def test_a_medium_that_takes_no_writes_is_told(shelf: SsdShelf) -> None:
    device = Device()
    tier = shelf.open(make_files=device)
    tier.write(make_records(range(5), size=SIZE), durable=True)
    with device.files.fails("write"):
        with pytest.raises(TierAwayError):
            tier.erase([make_id(2)])
        with pytest.raises(TierAwayError):
            tier.wipe(0)
    assert alive(tier, range(5)) == [0, 1, 3, 4], "it is out of the index all the same"
    assert is_in_files(shelf.directory, 2)
    assert wipe_all(tier) > 0
    assert not is_in_files(shelf.directory, 2)
    assert tier.erase(ids(range(5))) == 4
