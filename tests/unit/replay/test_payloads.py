"""Payloads that prove themselves: every part of a record's name counts, and a served claim may be too low only."""

import hashlib

import pytest

from kvshelf_client.words import Provenance, RecordClass
from service.replay.errors import WrongBytesError
from service.replay.payloads import check_payload, payload_of

_KEY = hashlib.sha256(b"a block").digest()


def _check(payload: bytes, served: Provenance) -> None:
    check_payload(RecordClass.BLOCK, _KEY, 1, served, bytearray(payload))


def _payload(computed: Provenance, length_bytes: int = 64) -> bytes:
    return payload_of(RecordClass.BLOCK, _KEY, 1, computed, length_bytes)


def test_each_part_of_the_name_makes_another_payload() -> None:
    names = [
        (RecordClass.BLOCK, _KEY, 0, Provenance.EXACT),
        (RecordClass.SNAPSHOT, _KEY, 0, Provenance.EXACT),
        (RecordClass.BLOCK, _KEY[::-1], 0, Provenance.EXACT),
        (RecordClass.BLOCK, _KEY, 1, Provenance.EXACT),
        (RecordClass.BLOCK, _KEY, 0, Provenance.REPLAYED),
    ]
    payloads = [payload_of(*name, 1000) for name in names]
    assert len(set(payloads)) == len(names)
    assert {len(payload) for payload in payloads} == {1000}
    assert payloads == [payload_of(*name, 1000) for name in names]


@pytest.mark.parametrize(
    ("computed", "served"),
    [
        (Provenance.EXACT, Provenance.EXACT),
        (Provenance.REPLAYED, Provenance.REPLAYED),
        (Provenance.EXACT, Provenance.REPLAYED),
    ],
)
def test_what_was_stored_is_right(computed: Provenance, served: Provenance) -> None:
    _check(_payload(computed), served)


def test_replayed_kv_served_as_exact_is_wrong() -> None:
    with pytest.raises(WrongBytesError, match=rf"block {_KEY.hex()[:12]}, shard 1, served as exact"):
        _check(_payload(Provenance.REPLAYED), Provenance.EXACT)


@pytest.mark.parametrize("position", [0, 31, 63])
def test_one_other_bit_is_wrong(position: int) -> None:
    payload = bytearray(_payload(Provenance.EXACT))
    payload[position] ^= 0x10
    with pytest.raises(WrongBytesError):
        _check(bytes(payload), Provenance.EXACT)


@pytest.mark.parametrize(
    ("kind", "key", "shard"),
    [(RecordClass.BLOCK, bytes(32), 1), (RecordClass.BLOCK, _KEY, 0), (RecordClass.SNAPSHOT, _KEY, 1)],
)
def test_another_records_payload_is_wrong(kind: RecordClass, key: bytes, shard: int) -> None:
    with pytest.raises(WrongBytesError):
        check_payload(kind, key, shard, Provenance.EXACT, _payload(Provenance.EXACT))
