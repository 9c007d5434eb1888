"""Flipped bytes anywhere in a record or in its row of the index: a miss, never wrong bytes, and the accounts hold."""

from pathlib import Path

import lmdb
import pytest

from kvshelf_client.words import MissReason
from storage.base import WriteOutcome
from storage.ssd.format import HEADER_BYTES, PAGE_BYTES
from tests.support.records import fetch, look, make_id, make_record, make_records
from tests.support.ssd import SsdShelf, alive, fill, ids

SIZE = 6000
RECORD_BYTES = 2 * PAGE_BYTES


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def flip_row(directory: Path, number: int, offset: int) -> None:
    """Flip a bit in the index entry of a record, and nothing else."""
    record_id = make_id(number)
    key = record_id.key + record_id.shard.to_bytes(2, "big")
    with (
        lmdb.open(str(directory / "index"), max_dbs=8, map_size=1 << 28) as env,
        env.begin(write=True, db=env.open_db(b"records")) as txn,
    ):
        value = bytearray(txn.get(key))  # type: ignore[arg-type]
        value[offset] ^= 0x10
        txn.put(key, bytes(value))


@pytest.mark.parametrize("offset", [*range(0, HEADER_BYTES, 5), HEADER_BYTES - 1, HEADER_BYTES, 4095, 4096, 6127])
def test_a_flipped_byte_of_a_record_is_a_corrupt_miss(shelf: SsdShelf, offset: int) -> None:
    tier = shelf.open()
    tier.write(make_records(range(5), size=SIZE), durable=True)
    flip(shelf.segments()[0], 2 * RECORD_BYTES + offset)
    assert fetch(tier, [make_id(2)]) == [MissReason.CORRUPT]
    assert look(tier, *range(5)) == [None, None, MissReason.CORRUPT, None, None]
    assert alive(tier, range(5)) == [0, 1, 3, 4]
    assert tier.usage().records == 4
    assert shelf.observer.faults == {"corrupt": 1}
    tier.check_integrity()
    (again,) = tier.write([make_record(2, size=SIZE)], durable=True)
    assert again.outcome is WriteOutcome.STORED
    assert alive(tier, range(5)) == list(range(5))


@pytest.mark.parametrize("offset", [0, 1, 63, 64, HEADER_BYTES - 64, HEADER_BYTES - 1, HEADER_BYTES, 4064, 4096, 6063])
def test_64_flipped_bytes_of_a_record_are_a_corrupt_miss(shelf: SsdShelf, offset: int) -> None:
    tier = shelf.open()
    tier.write(make_records(range(5), size=SIZE), durable=True)
    for at in range(offset, offset + 64):
        flip(shelf.segments()[0], 2 * RECORD_BYTES + at)
    assert fetch(tier, ids(range(5)))[2] is MissReason.CORRUPT
    assert look(tier, *range(5)) == [None, None, MissReason.CORRUPT, None, None]
    assert alive(tier, range(5)) == [0, 1, 3, 4]
    assert shelf.observer.faults == {"corrupt": 1}


def test_a_flipped_byte_of_the_padding_does_no_harm(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(3), size=SIZE), durable=True)
    flip(shelf.segments()[0], RECORD_BYTES + HEADER_BYTES + SIZE)
    assert alive(tier, range(3)) == [0, 1, 2]


@pytest.mark.parametrize("offset", range(0, 64, 3))
def test_a_flipped_byte_of_an_index_entry_is_a_corrupt_miss(shelf: SsdShelf, offset: int) -> None:
    tier = shelf.open()
    tier.write(make_records(range(5), size=SIZE), durable=True)
    tier.close()
    flip_row(shelf.directory, 2, offset)
    tier = shelf.open()
    assert tier.lookup(ids(range(5)))[2] == (make_id(2), MissReason.CORRUPT)
    assert look(tier, *range(5)) == [None, None, MissReason.CORRUPT, None, None]
    assert fetch(tier, [make_id(2)]) == [MissReason.CORRUPT]
    tier.maintain()
    assert (tier.usage().records, tier.usage().live_bytes) == (4, 4 * SIZE)
    tier.check_integrity()
    assert tier.write([make_record(2, size=SIZE)], durable=True)[0].outcome is WriteOutcome.STORED
    assert alive(tier, range(5)) == list(range(5))
    tier.check_integrity()


def test_writing_over_a_damaged_index_entry(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(5), size=SIZE), durable=True)
    tier.close()
    flip_row(shelf.directory, 2, 20)
    tier = shelf.open()
    assert tier.write([make_record(2, size=SIZE)], durable=True)[0].outcome is WriteOutcome.STORED
    assert alive(tier, range(5)) == list(range(5))
    tier.maintain()
    tier.check_integrity()


def test_a_page_of_another_record_is_never_believed(shelf: SsdShelf) -> None:
    """A misdirected write: whole, sound bytes of one record where another should be."""
    tier = shelf.open()
    tier.write(make_records(range(4), size=SIZE), durable=True)
    with shelf.segments()[0].open("r+b") as file:
        other = file.read(RECORD_BYTES)
        file.seek(2 * RECORD_BYTES)
        file.write(other)
    assert alive(tier, range(4)) == [0, 1, 3]


def test_damage_is_not_carried_forward(shelf: SsdShelf) -> None:
    tier = shelf.open(16 << 20)
    fill(tier, 0, 60)
    tier.touch(ids(range(60)))
    flip(shelf.segments()[0], HEADER_BYTES + 77)
    fill(tier, 1000, 90)
    assert look(tier, 0) == [MissReason.CORRUPT]
    assert 0 not in alive(tier, range(60))
    assert len(alive(tier, range(60))) > 20
    assert shelf.observer.faults == {"corrupt": 1}


def test_damage_in_many_records_at_once(shelf: SsdShelf) -> None:
    tier = shelf.open()
    tier.write(make_records(range(200), size=100), durable=True)
    for number in range(0, 200, 2):
        flip(shelf.segments()[0], number * PAGE_BYTES + HEADER_BYTES)
    results = fetch(tier, ids(range(200)))
    assert [isinstance(result, bytes) for result in results] == [False, True] * 100
    assert tier.usage().records == 100
    tier.check_integrity()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_written_without_a_sync_is_read_before_it_counts_as_durable(
    shelf: SsdShelf, is_restarted: bool
) -> None:
    """A crash of the machine may leave a row of such a record, and not its bytes."""
    tier = shelf.open()
    records = make_records(range(3), size=SIZE)
    tier.write(records, durable=False)
    flip(shelf.segments()[0], RECORD_BYTES + HEADER_BYTES + 99)
    if is_restarted:
        tier.close()
        tier = shelf.open()
    results = tier.write(records, durable=True)
    assert [result.outcome for result in results] == [
        WriteOutcome.DUPLICATE, WriteOutcome.STORED, WriteOutcome.DUPLICATE
    ]  # fmt: skip
    assert fetch(tier, ids(range(3))) == [record.payload for record in records]
    flip(shelf.segments()[0], HEADER_BYTES + 99)
    assert tier.write(records[:1], durable=True)[0].outcome is WriteOutcome.DUPLICATE, "read once, then believed"
