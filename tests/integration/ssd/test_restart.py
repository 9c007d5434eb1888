"""Opening a directory again: fast, with its true usage, and whatever a crash left behind put right."""

import shutil
from pathlib import Path

import lmdb
import pytest

from kvshelf_client.words import MissReason
from storage.base import WriteOutcome
from storage.ssd import UnusableDirectoryError
from storage.ssd.index import Index
from tests.support.records import REPLAYED, entry_of, look, make_id, make_record, make_records
from tests.support.ssd import BLOCK_BYTES, SsdShelf, alive, fill, ids

MIB = 1 << 20


def test_usage_is_the_same_after_a_restart(shelf: SsdShelf) -> None:
    tier = shelf.open()
    fill(tier, 0, 400)
    tier.write([make_record(1000, owner="acme", provenance=REPLAYED)], durable=True)
    tier.write([make_record(1000, owner="other", size=5)], durable=True)
    tier.delete(ids(range(395, 400)))
    entry, usage = entry_of(tier, make_id(1000)), tier.usage()
    tier.close()
    tier = shelf.open()
    assert tier.usage() == usage
    assert entry_of(tier, make_id(1000)) == entry
    tier.check_integrity()
    fill(tier, 2000, 50)
    assert entry_of(tier, make_id(2000)).generation > entry.generation


def test_generations_are_never_given_twice(shelf: SsdShelf) -> None:
    seen = set()
    for _ in range(5):
        tier = shelf.open()
        (result,) = tier.write([make_record(1)], durable=False)
        seen.add(result.generation)
        tier.delete([make_id(1)])
        tier.close()
    assert len(seen) == 5


def test_leftover_files_are_removed(shelf: SsdShelf) -> None:
    tier = shelf.open()
    fill(tier, 0, 30)
    tier.close()
    named = shelf.segments()
    folder = shelf.directory / "segments"
    for name in ("999999.seg", "000000.seg", "7.seg", "x.tmp"):
        (folder / name).write_bytes(b"left over")
    tier = shelf.open()
    assert sorted(folder.iterdir()) == named
    assert alive(tier, range(30)) == list(range(30))


@pytest.mark.parametrize("size", [None, 0, 4096, 600_000])
def test_a_segment_that_is_lost_or_cut_loses_only_its_records(shelf: SsdShelf, size: int | None) -> None:
    tier = shelf.open()
    fill(tier, 0, 30)
    tier.close()
    if size is None:
        shelf.segments()[1].unlink()
    else:
        with shelf.segments()[1].open("r+b") as file:
            file.truncate(size)
    tier = shelf.open()
    tier.check_integrity()
    lost = [number for number, reason in enumerate(look(tier, *range(30))) if reason is MissReason.CORRUPT]
    assert 0 < len(lost) <= (1 << 20) // BLOCK_BYTES
    assert alive(tier, range(30)) == [number for number in range(30) if number not in lost]
    fill(tier, 1000, 400)
    tier.check_integrity()


def test_a_lost_index_is_an_empty_cache(shelf: SsdShelf) -> None:
    tier = shelf.open()
    fill(tier, 0, 30)
    tier.close()
    shutil.rmtree(shelf.directory / "index")
    tier = shelf.open()
    assert tier.usage().records == 0
    assert look(tier, 1) == [MissReason.NEVER_STORED]
    assert shelf.segments() == []
    fill(tier, 0, 30)
    assert alive(tier, range(30)) == list(range(30))


def test_an_index_without_its_last_unused_page_opens(shelf: SsdShelf) -> None:
    directory = shelf.directory / "index"
    shelf.directory.mkdir()
    Index(directory, 1 << 28, shelf.clock).close()
    with lmdb.open(str(directory), max_dbs=8, map_size=1 << 28) as env:
        db = env.open_db(b"records")
        for value in (bytes(64), None):
            with env.begin(write=True, db=db) as txn:
                for number in range(2000):
                    key = b"%034d" % number
                    assert txn.delete(key) if value is None else txn.put(key, value)
        need = (env.info()["last_pgno"] + 1) * 4096
    with (directory / "data.mdb").open("r+b") as file:
        file.truncate(need - 4096)
    Index(directory, 1 << 28, shelf.clock).close()
    assert (directory / "data.mdb").stat().st_size == need


def test_another_format_is_refused_untouched(shelf: SsdShelf) -> None:
    tier = shelf.open()
    fill(tier, 0, 3)
    tier.close()
    (shelf.directory / "FORMAT").write_text('{"format": 99, "page_bytes": 4096}')
    files = shelf.segments()
    with pytest.raises(UnusableDirectoryError, match="format 99"):
        shelf.open()
    assert shelf.segments() == files


def test_a_budget_too_small_for_the_largest_record_is_refused(shelf: SsdShelf) -> None:
    with pytest.raises(ValueError, match="too small"):
        shelf.open(16 * MIB, max_record_bytes=5_000_000)
    assert not shelf.directory.exists()
    tier = shelf.open(64 * MIB, max_record_bytes=5_000_000)
    record = make_record(1, size=5_000_000)
    assert tier.write([record], durable=True)[0].outcome is WriteOutcome.STORED


@pytest.mark.parametrize("table", [b"segments", b"owners", b"meta", b"places"])
def test_a_damaged_account_is_rebuilt_from_the_records(shelf: SsdShelf, table: bytes) -> None:
    tier = shelf.open()
    tier.write([make_record(n, owner="acme") for n in range(1000, 1004)], durable=True)
    fill(tier, 0, 30)
    before = tier.usage()
    entry = entry_of(tier, make_id(1000))
    tier.close()
    flip_a_row(shelf.directory, table)
    tier = shelf.open()
    if table != b"places":
        assert (tier.usage().records, tier.usage().live_bytes) == (before.records, before.live_bytes)
        assert sum(tier.usage().owners.values()) == before.live_bytes
    assert entry_of(tier, make_id(1000)) == entry
    assert tier.write([make_record(5000)], durable=True)[0].generation > entry.generation
    fill(tier, 6000, 600)
    tier.check_integrity()
    assert tier.usage().used_bytes <= tier.usage().budget_bytes


def flip_a_row(directory: Path, table: bytes) -> None:
    """Flip a bit in the last value of a table of the index."""
    with lmdb.open(str(directory / "index"), max_dbs=8, map_size=1 << 28) as env:
        db = env.open_db(table)
        with env.begin(write=True, db=db) as txn:
            cursor = txn.cursor()
            assert cursor.last()
            key, value = bytes(cursor.key()), bytearray(cursor.value())
            value[len(value) // 2] ^= 4
            txn.put(key, bytes(value))


def test_relaxed_records_survive_an_orderly_restart(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(5)), durable=False)
    tier.close()
    assert alive(shelf.open(), range(5)) == list(range(5))
