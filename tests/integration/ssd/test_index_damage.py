"""Damage inside the index file, LMDB's own pages too: found at opening, what is whole is kept, the rest is a miss."""

import random
import shutil
import struct
from pathlib import Path

import pytest

from kvshelf_client.words import MissReason
from storage.ssd.rows import SLOT_BYTES
from storage.ssd.salvage import inspect_index, mend_index
from tests.support.records import fetch, make_id, make_records
from tests.support.ssd import SsdShelf, ids

RECORDS = 400
SIZE = 500
LIVE = [number for number in range(RECORDS) if number % 9]
LEAF_ROWS = 40
"""A leaf page has fewer rows than that."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with some history, closed."""
    shelf = SsdShelf(tmp_path_factory.mktemp("sound") / "data")
    tier = shelf.open()
    for start in range(0, RECORDS, 50):
        tier.write(make_records(range(start, start + 50), size=SIZE), durable=False)
    tier.delete([make_id(number) for number in range(0, RECORDS, 9)])
    tier.touch(ids(range(100, 200)))
    shelf.finish()
    return shelf.directory


@pytest.fixture
def shelf(sound: Path, tmp_path: Path) -> SsdShelf:
    shutil.copytree(sound, tmp_path / "data")
    return SsdShelf(tmp_path / "data")


def index_of(shelf: SsdShelf) -> Path:
    return shelf.directory / "index" / "data.mdb"


def check_all(shelf: SsdShelf) -> dict[int, MissReason]:
    """Open, read everything, use and close it; says why live records are missing. No byte may be wrong."""
    tier = shelf.open()
    missing = {}
    for number, result in enumerate(fetch(tier, ids(range(RECORDS)))):
        if isinstance(result, MissReason):
            missing[number] = result
        else:
            assert number in LIVE, "a deleted record is back"
            assert result == make_records([number], size=SIZE)[0].payload
    tier.check_integrity()
    tier.write(make_records(range(1000, 1200), size=SIZE), durable=True)
    tier.delete(ids(range(0, RECORDS, 2)))
    tier.maintain()
    tier.check_integrity()
    tier.close()
    again = shelf.open()
    assert again.usage().records > 0
    again.check_integrity()
    again.close()
    return {number: missing[number] for number in LIVE if number in missing}


def test_a_sound_index_is_left_as_it_is(shelf: SsdShelf) -> None:
    before = index_of(shelf).read_bytes()
    found = inspect_index(index_of(shelf))
    assert (found.is_sound, found.kept, found.lost) == (True, len(LIVE), [])
    assert index_of(shelf).read_bytes() == before
    assert check_all(shelf) == {}
    assert shelf.observer.events == []


@pytest.mark.parametrize("number", LIVE[::25])
@pytest.mark.parametrize("part", ["key", "row", "both"])
def test_64_flipped_bytes_of_an_index_entry_are_a_corrupt_miss(shelf: SsdShelf, number: int, part: str) -> None:
    data = bytearray(index_of(shelf).read_bytes())
    key = make_id(number).key + bytes(2)
    node = struct.pack("<HHHH", SLOT_BYTES, 0, 0, len(key)) + key
    start = len(node) + {"key": -44, "row": 0, "both": -32}[part]
    at = data.find(node)
    while at >= 0:  # every version of the entry
        for offset in range(at + start, at + start + 64):
            data[offset] ^= 0x5A
        at = data.find(node, at + len(node))
    index_of(shelf).write_bytes(data)
    missing = check_all(shelf)
    assert set(missing.values()) == {MissReason.CORRUPT}
    assert number in missing
    assert len(missing) < LEAF_ROWS, "its page and no other"
    assert shelf.observer.evicted_records["corrupt"] >= 1
    assert [event for event, _ in shelf.observer.events][:2] == ["index_damaged", "index_repaired"]


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_in_the_index_is_survived(shelf: SsdShelf, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(index_of(shelf).read_bytes())
    start = chance.randrange(len(data))
    if seed % 4 == 0:
        data[start] ^= 1 << chance.randrange(8)
    elif seed % 4 == 1:
        data[start : start + 64] = bytes(byte ^ 0xFF for byte in data[start : start + 64])
    elif seed % 4 == 2:
        data[start & ~4095 : (start & ~4095) + 4096] = chance.randbytes(4096)
    else:
        for _ in range(64):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    index_of(shelf).write_bytes(data)
    missing = check_all(shelf)
    assert set(missing.values()) <= {MissReason.CORRUPT, MissReason.NEVER_STORED}


@pytest.mark.parametrize("damage", ["no index at all", "zeros", "empty"])
def test_an_index_in_which_nothing_is_found_starts_empty(shelf: SsdShelf, damage: str) -> None:
    size = index_of(shelf).stat().st_size
    index_of(shelf).write_bytes({"zeros": bytes(size), "empty": b""}.get(damage, b"no index" * (size // 8)))
    tier = shelf.open()
    assert set(fetch(tier, ids(range(RECORDS)))) == {MissReason.NEVER_STORED}
    tier.write(make_records(range(5), size=SIZE), durable=True)
    tier.check_integrity()
    assert shelf.observer.events[0][0] == "index_damaged"
    tier.close()


@pytest.mark.parametrize("kept_bytes", [8192, 50_000, 50_000 // 4096 * 4096, 90_000])
def test_of_an_index_that_was_cut_off_is_kept_what_is_there(shelf: SsdShelf, kept_bytes: int) -> None:
    index_of(shelf).write_bytes(index_of(shelf).read_bytes()[:kept_bytes])
    missing = check_all(shelf)
    assert missing.keys() <= set(LIVE)
    assert shelf.observer.events[0][0] == "index_damaged"


def test_a_kill_between_mending_and_repair_is_made_up_for(shelf: SsdShelf) -> None:
    """The new file is in place, the accounts are not rebuilt yet."""
    data = bytearray(index_of(shelf).read_bytes())
    at = data.find(make_id(1).key)
    data[at - 8 : at + 60] = bytes(68)
    index_of(shelf).write_bytes(data)
    mend_index(shelf.directory / "index", 1 << 28)
    assert inspect_index(index_of(shelf)).damages == 0
    tier = shelf.open()
    tier.check_integrity()
    assert tier.usage().records > len(LIVE) - LEAF_ROWS
    tier.close()
    assert check_all(shelf).keys() < set(LIVE)
