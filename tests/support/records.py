"""Made-up records whose bytes follow from their number, and short words for what a tier answers about them."""

import hashlib
import random
from collections.abc import Iterable, Sequence

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason, Provenance
from storage.base import Entry, Loaded, Miss, Record, RecordId, Tier

EXACT, REPLAYED = Provenance.EXACT, Provenance.REPLAYED


def make_id(number: int, shard: int = 0) -> RecordId:
    """The id of made-up record ``number``."""
    return RecordId(hashlib.sha256(b"record %d" % number).digest(), shard)


def make_payload(number: int, size: int) -> bytearray:
    """``size`` bytes that follow from ``number``."""
    return bytearray(random.Random(number).randbytes(size))


def make_record(
    number: int,
    *,
    size: int = 1000,
    provenance: Provenance = EXACT,
    shard: int = 0,
    owner: str = "",
    supersedes: bytes | None = None,
    content: int | None = None,
) -> Record:
    """A sound record of id ``number`` with the bytes of ``content`` (``number`` itself when None)."""
    payload = make_payload(number if content is None else content, size)
    return Record(make_id(number, shard), payload, checksum_of(payload), provenance, owner, supersedes)


def make_records(numbers: Iterable[int], *, size: int = 1000) -> list[Record]:
    """One exact record a number."""
    return [make_record(number, size=size) for number in numbers]


def entry_named(number: int) -> Entry:
    """The entry of made-up record ``number``, stored nowhere."""
    return Entry(make_id(number), EXACT, 0, checksum_of(b""), 1, 0.0, 0.0)


def ids_of(records: Iterable[Record]) -> list[RecordId]:
    """The ids of records, in order."""
    return [record.id for record in records]


def reasons(results: Sequence[Entry | Loaded | Miss]) -> list[MissReason | None]:
    """Each result's miss reason, None for what is there."""
    return [result.reason if isinstance(result, Miss) else None for result in results]


def look(tier: Tier, *numbers: int) -> list[MissReason | None]:
    """Look records up by number: each one's miss reason, None for what is there."""
    return reasons(tier.lookup([make_id(number) for number in numbers]))


def fetch(tier: Tier, ids: Sequence[RecordId]) -> list[bytes | MissReason]:
    """Hold, read everything, release: each record's bytes or its miss reason."""
    hold = tier.hold(ids)
    try:
        results = hold.read(0, len(ids))
        return [bytes(one.payload) if isinstance(one, Loaded) else one.reason for one in results]
    finally:
        hold.release()


def entry_of(tier: Tier, record_id: RecordId) -> Entry:
    """The entry of a record that must be there."""
    (found,) = tier.lookup([record_id])
    assert isinstance(found, Entry), f"{record_id} is a miss: {found.reason}"
    return found
