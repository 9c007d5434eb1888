"""A seal holds a record to its bytes and to what it says of itself."""

import os

import pytest

from storage.sealed import SEAL_BYTES, TenantKeys
from storage.sealed.keys import NONCE_BYTES
from storage.sealed.seal import Claims, seal, unseal
from tests.support.records import make_id

KEY, NONCE = bytes(range(32)), bytes(range(NONCE_BYTES))
PLAIN = b"secret state " * 100
CLAIMS = Claims(make_id(1), 2, len(PLAIN), 7, b"s" * 32)


def test_what_was_sealed_is_opened_and_cannot_be_read_without() -> None:
    sealed = seal(KEY, CLAIMS, PLAIN, NONCE)
    assert len(sealed) == len(PLAIN) + SEAL_BYTES
    assert PLAIN[:16] not in sealed
    assert sealed[:NONCE_BYTES] == NONCE
    assert unseal(KEY, CLAIMS, sealed) == bytearray(PLAIN)
    assert unseal(KEY, CLAIMS, memoryview(bytes(sealed))) == bytearray(PLAIN)


def test_nothing_is_sealed_too() -> None:
    claims = CLAIMS._replace(length_bytes=0)
    assert unseal(KEY, claims, seal(KEY, claims, b"", NONCE)) == bytearray()


@pytest.mark.parametrize(
    "other",
    [
        CLAIMS._replace(id=make_id(2)),
        CLAIMS._replace(id=make_id(1, shard=1)),
        CLAIMS._replace(provenance=1),
        CLAIMS._replace(key_number=8),
        CLAIMS._replace(supersedes=None),
        CLAIMS._replace(supersedes=b"t" * 32),
        CLAIMS._replace(length_bytes=len(PLAIN) - 1),
    ],
)
def test_a_record_cannot_pass_for_another(other: Claims) -> None:
    assert unseal(KEY, other, seal(KEY, CLAIMS, PLAIN, NONCE)) is None


@pytest.mark.parametrize("at", [0, NONCE_BYTES - 1, NONCE_BYTES, 700, len(PLAIN) + SEAL_BYTES - 1])
def test_no_flipped_bit_goes_unseen(at: int) -> None:
    sealed = seal(KEY, CLAIMS, PLAIN, NONCE)
    sealed[at] ^= 1
    assert unseal(KEY, CLAIMS, sealed) is None


def test_another_key_opens_nothing() -> None:
    assert unseal(bytes(32), CLAIMS, seal(KEY, CLAIMS, PLAIN, NONCE)) is None


def test_one_payload_under_two_ids_looks_like_two_even_with_one_nonce() -> None:
    first = seal(KEY, CLAIMS, PLAIN, NONCE)
    second = seal(KEY, CLAIMS._replace(id=make_id(2)), PLAIN, NONCE)
    same = sum(a == b for a, b in zip(first[NONCE_BYTES:], second[NONCE_BYTES:], strict=True))
    assert same < len(PLAIN) // 50, "each id has a key of its own"


@pytest.mark.parametrize(
    ("keys", "message"),
    [({}, "at least one"), ({0: KEY}, "from 1"), ({1 << 16: KEY}, "from 1"), ({1: KEY[:-1]}, "32 bytes, has 31")],
)
def test_bad_keys_are_refused(keys: dict[int, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TenantKeys(keys)


def test_keys_do_not_show() -> None:
    key = os.urandom(32)
    keys = TenantKeys({2: key, 1: KEY})
    assert (repr(keys), keys.newest, keys.numbers) == ("TenantKeys(numbers=[1, 2])", 2, [1, 2])
    assert (keys[2], 3 in keys) == (key, False)
