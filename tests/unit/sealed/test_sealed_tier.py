"""The tier that seals: keys that come, change and go, and records that somebody meddled with below it."""

import itertools
import os

import pytest

from kvshelf_client.frames import checksum_of
from kvshelf_client.words import MissReason
from storage.base import Entry, Loaded, RecordId, WriteOutcome
from storage.clock import ManualClock
from storage.memory import MemoryTier
from storage.sealed import SEAL_BYTES, TenantKeys
from storage.sealed.tier import NAMESPACE_ID_BYTES, SealedTier
from tests.support.observers import RecordingObserver
from tests.support.records import EXACT, REPLAYED, fetch, look, make_id, make_record, make_records, reasons

ONE, TWO = bytes([1]) * 32, bytes([2]) * 32


class Vault:
    """A sealed tier over an in-process one. ``keys`` are those of every tenant that is not ``keyless``."""

    def __init__(self) -> None:
        self.observer = RecordingObserver()
        self.inner = MemoryTier(
            clock=ManualClock(), ttl_seconds=60, budget_bytes=1 << 20, observer=self.observer, name="ssd"
        )
        self.keys: TenantKeys | None = TenantKeys({1: ONE})
        self.keyless: set[bytes] = set()
        self.tier = SealedTier(self.inner, self._keys_of, os.urandom, self.observer)

    def _keys_of(self, namespace_id: bytes) -> TenantKeys | None:
        return None if namespace_id in self.keyless else self.keys

    def sealed(self, record_id: RecordId) -> Loaded:
        """The record as the tier below has it."""
        (found,) = self.inner.hold([record_id]).read(0, 1)
        assert isinstance(found, Loaded)
        return found


@pytest.fixture
def vault() -> Vault:
    return Vault()


def test_the_tier_below_sees_no_plain_byte_and_no_plain_checksum(vault: Vault) -> None:
    first, second = make_record(1, content=7), make_record(2, content=7)
    vault.tier.write([first, second], durable=True)
    sealed = [vault.sealed(record.id) for record in (first, second)]
    assert bytes(first.payload[:16]) not in bytes(sealed[0].payload)
    assert {one.entry.length_bytes for one in sealed} == {1000 + SEAL_BYTES}
    assert len({first.checksum, *(one.entry.checksum for one in sealed)}) == 3, "equal payloads do not show as such"
    assert fetch(vault.tier, [first.id, second.id]) == [first.payload] * 2


def test_the_newest_key_seals_and_older_ones_open(vault: Vault) -> None:
    vault.tier.write([make_record(1)], durable=True)
    vault.keys = TenantKeys({1: ONE, 2: TWO})
    vault.tier.write([make_record(2)], durable=True)
    assert [vault.sealed(make_id(number)).entry.label for number in (1, 2)] == [1, 2]
    assert look(vault.tier, 1, 2) == [None, None]
    vault.keys = TenantKeys({2: TWO})
    assert look(vault.tier, 1, 2) == [MissReason.EVICTED, None]
    assert fetch(vault.tier, [make_id(1), make_id(2)]) == [MissReason.EVICTED, make_record(2).payload]


def test_what_cannot_be_opened_gives_way_to_a_new_record(vault: Vault) -> None:
    vault.tier.write([make_record(1)], durable=True)
    vault.keys = TenantKeys({2: TWO})
    assert vault.tier.touch([make_id(1)]) == 0
    (result,) = vault.tier.write([make_record(1, content=5)], durable=True)
    assert result.outcome is WriteOutcome.STORED
    assert fetch(vault.tier, [make_id(1)]) == [make_record(1, content=5).payload]


def test_plain_records_of_before_are_not_believed(vault: Vault) -> None:
    """Else whoever can write to the disk could put a plain record in a sealed one's place."""
    vault.inner.write([make_record(1)], durable=True)
    assert look(vault.tier, 1) == [MissReason.EVICTED]
    assert vault.tier.write([make_record(1)], durable=True)[0].outcome is WriteOutcome.STORED
    assert vault.sealed(make_id(1)).entry.label == 1


def test_a_tenant_without_keys_stores_and_finds_nothing(vault: Vault) -> None:
    vault.tier.write(make_records([1, 2]), durable=True)
    vault.keyless.add(make_id(1).key[:NAMESPACE_ID_BYTES])
    assert look(vault.tier, 1, 2) == [MissReason.EVICTED, None]
    outcomes = [one.outcome for one in vault.tier.write([*make_records([1, 3]), make_record(4)], durable=True)]
    assert outcomes == [WriteOutcome.NO_KEY, WriteOutcome.STORED, WriteOutcome.STORED]
    assert vault.tier.delete([make_id(1)]) == 1, "to erase takes no key"


def test_a_key_that_goes_while_a_record_is_held_ends_it(vault: Vault) -> None:
    vault.tier.write(make_records([1, 2]), durable=True)
    hold = vault.tier.hold([make_id(1), make_id(2)])
    assert all(isinstance(one, Entry) for one in hold.entries)
    vault.keyless.add(make_id(1).key[:NAMESPACE_ID_BYTES])
    assert reasons(hold.read(0, 2)) == [MissReason.EVICTED, None]
    hold.release()


def meddle(vault: Vault, into: int, source: int, **changes: object) -> None:
    """Put the sealed record ``source`` in the place of ``into``, with changes, sound for the tier below."""
    loaded = vault.sealed(make_id(source))
    forged = make_record(into)._replace(
        payload=bytes(loaded.payload), checksum=loaded.entry.checksum, label=loaded.entry.label
    )
    vault.inner.delete([make_id(into)])
    vault.inner.write([forged._replace(**changes)], durable=True)  # type: ignore[arg-type]


def test_swapped_relabelled_and_changed_records_are_corrupt_and_go(vault: Vault) -> None:
    vault.keys = TenantKeys({1: ONE, 2: TWO})
    vault.tier.write([*make_records([1, 2, 5]), make_record(3, provenance=REPLAYED), make_record(4)], durable=True)
    meddle(vault, into=1, source=2)
    meddle(vault, into=3, source=3, provenance=EXACT)
    meddle(vault, into=4, source=4, label=1)
    payload = bytearray(vault.sealed(make_id(5)).payload)
    payload[500] ^= 1
    meddle(vault, into=5, source=5, payload=payload, checksum=checksum_of(payload))
    found = fetch(vault.tier, [make_id(number) for number in range(1, 6)])
    corrupt = MissReason.CORRUPT
    assert found == [corrupt, make_record(2).payload, corrupt, corrupt, corrupt]
    assert look(vault.inner, 1, 2, 3, 4, 5) == [corrupt, None, corrupt, corrupt, corrupt], "they are dropped"
    assert vault.observer.faults["corrupt"] == 4
    assert [event for event, _ in vault.observer.events] == ["seal_broken"] * 4


def test_no_nonce_is_used_twice(vault: Vault) -> None:
    numbers = itertools.count()
    tier = SealedTier(
        vault.inner, lambda _: vault.keys, lambda size: next(numbers).to_bytes(size, "big"), vault.observer
    )
    tier.write(make_records(range(20)), durable=True)
    nonces = {bytes(vault.sealed(make_id(number)).payload[:12]) for number in range(20)}
    assert len(nonces) == 20, "one from the source of randomness for each record"
