"""Block keys against an independent computation, and what a chain promises."""

import hashlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvshelf_client.hashing import bind_hashes, block_keys, namespace_fingerprint
from tests.support.namespaces import namespace

U32 = st.integers(0, 2**32 - 1)
TOKENS = st.lists(U32, max_size=60)
BLOCK_TOKENS = st.integers(1, 9)
FINGERPRINT = st.binary(min_size=32, max_size=32)
EXTRA = st.binary(max_size=9)


def little_endian(tokens: list[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def reference(fingerprint: bytes, tokens: list[int], block_tokens: int, extra: bytes) -> list[bytes]:
    """The chain as the words say it, byte by byte."""
    keys: list[bytes] = []
    while len(tokens) >= block_tokens:
        data = b""
        for token in tokens[:block_tokens]:
            data += bytes([token & 255, token >> 8 & 255, token >> 16 & 255, token >> 24])
        keys.append(hashlib.sha256((keys[-1] if keys else fingerprint) + data + extra).digest())
        tokens = tokens[block_tokens:]
    return keys


def chain(hashes: int) -> list[bytes]:
    """What an engine might send: chained hashes of its own."""
    made, last = [], b"engine"
    for _ in range(hashes):
        last = hashlib.sha256(last).digest()
        made.append(last)
    return made


@given(FINGERPRINT, TOKENS, BLOCK_TOKENS, EXTRA)
def test_keys_equal_an_independent_computation(
    fingerprint: bytes, tokens: list[int], block_tokens: int, extra: bytes
) -> None:
    assert block_keys(fingerprint, little_endian(tokens), block_tokens, extra) == reference(
        fingerprint, tokens, block_tokens, extra
    )


@given(FINGERPRINT, TOKENS, BLOCK_TOKENS, EXTRA, st.integers(0, 60))
def test_the_keys_of_a_prefix_are_a_prefix_of_the_keys(
    fingerprint: bytes, tokens: list[int], block_tokens: int, extra: bytes, cut: int
) -> None:
    keys = block_keys(fingerprint, little_endian(tokens), block_tokens, extra)
    prefix = block_keys(fingerprint, little_endian(tokens[:cut]), block_tokens, extra)
    assert prefix == keys[: min(cut, len(tokens)) // block_tokens]


@given(FINGERPRINT, TOKENS, BLOCK_TOKENS, EXTRA)
def test_a_tail_that_fills_no_block_has_no_key(
    fingerprint: bytes, tokens: list[int], block_tokens: int, extra: bytes
) -> None:
    keys = block_keys(fingerprint, little_endian(tokens), block_tokens, extra)
    assert len(keys) == len(tokens) // block_tokens
    whole = tokens[: len(keys) * block_tokens]
    assert keys == block_keys(fingerprint, little_endian(whole), block_tokens, extra)


@given(FINGERPRINT, st.lists(U32, min_size=1, max_size=40), BLOCK_TOKENS, st.data())
def test_one_changed_token_changes_every_key_from_its_block_on(
    fingerprint: bytes, tokens: list[int], block_tokens: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens]
    changed[position] ^= 1 << data.draw(st.integers(0, 31))
    before = block_keys(fingerprint, little_endian(tokens), block_tokens)
    after = block_keys(fingerprint, little_endian(changed), block_tokens)
    same = position // block_tokens
    assert before[:same] == after[:same]
    assert set(before[same:]).isdisjoint(after)


@given(FINGERPRINT, TOKENS, BLOCK_TOKENS, st.binary(min_size=1, max_size=9))
def test_extra_changes_every_key(fingerprint: bytes, tokens: list[int], block_tokens: int, extra: bytes) -> None:
    plain = block_keys(fingerprint, little_endian(tokens), block_tokens)
    assert set(plain).isdisjoint(block_keys(fingerprint, little_endian(tokens), block_tokens, extra))


def test_equal_blocks_at_other_places_have_other_keys() -> None:
    keys = block_keys(bytes(32), bytes(4 * 10), 2)
    assert len(set(keys)) == 5


def test_any_kind_of_buffer_hashes_alike() -> None:
    data = little_endian(list(range(10)))
    words = memoryview(data).cast("I")
    assert (
        block_keys(bytes(32), words, 3) == block_keys(bytes(32), data, 3) == block_keys(bytes(32), memoryview(data), 3)
    )


@pytest.mark.parametrize(
    ("size", "block_tokens", "text"), [(5, 1, "5 bytes"), (4, 0, "block_tokens"), (4, -1, "at least 1")]
)
def test_nonsense_is_refused(size: int, block_tokens: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        block_keys(bytes(32), bytes(size), block_tokens)


@given(FINGERPRINT, st.integers(0, 20), st.integers(1, 5))
def test_an_engine_s_hash_at_the_end_of_a_block_is_bound_to_the_namespace(
    fingerprint: bytes, hashes: int, hashes_per_block: int
) -> None:
    sent = chain(hashes)
    keys = bind_hashes(fingerprint, sent, hashes_per_block)
    assert len(keys) == hashes // hashes_per_block
    for block, key in enumerate(keys):
        last = sent[(block + 1) * hashes_per_block - 1]
        assert key == hashlib.sha256(fingerprint + last).digest()
    assert set(keys).isdisjoint(sent)


@pytest.mark.parametrize(("hash_block_tokens", "per_block"), [(128, 1), (64, 2), (16, 8)])
def test_a_namespace_takes_engine_hashes_as_a_list_or_one_buffer(hash_block_tokens: int, per_block: int) -> None:
    engine = namespace(hash_scheme="vllm", hash_block_tokens=hash_block_tokens)
    sent = chain(3 * per_block + per_block - 1)
    keys = engine.keys_from_hashes(sent)
    assert len(keys) == 3
    assert keys == bind_hashes(engine.fingerprint, sent, per_block)
    for buffer in (b"".join(sent), bytearray(b"".join(sent)), memoryview(b"".join(sent))):
        assert engine.keys_from_hashes(buffer) == keys


@given(st.lists(st.text(max_size=5), min_size=2, max_size=2, unique=True), st.lists(U32, min_size=2, max_size=20))
def test_two_namespaces_never_share_a_key(salts: list[str], tokens: list[int]) -> None:
    prints = [namespace_fingerprint({"salt": salt}) for salt in salts]
    data = little_endian(tokens)
    assert set(block_keys(prints[0], data, 2)).isdisjoint(block_keys(prints[1], data, 2))
    assert set(bind_hashes(prints[0], chain(4))).isdisjoint(bind_hashes(prints[1], chain(4)))


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers(0, 2**40)), max_size=5))
def test_a_fingerprint_is_that_of_its_canonical_encoding(fields: dict[str, str | int]) -> None:
    encoded = "{" + ",".join(f"{json.dumps(key)}:{json.dumps(fields[key])}" for key in sorted(fields)) + "}"
    assert namespace_fingerprint(fields) == hashlib.sha256(b"kvshelf namespace v1\n" + encoded.encode()).digest()
    backwards = dict(reversed(fields.items()))
    assert namespace_fingerprint(backwards) == namespace_fingerprint(fields)
