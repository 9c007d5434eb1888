"""What a namespace accepts, what its fingerprint and its record ids depend on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from service.namespaces import KVSHELF_SCHEME, Namespace, NamespaceError, NamespaceSpec
from service.namespaces.spec import spec_from_document
from service.profiles import get_profile
from tests.support.namespaces import namespace, spec

FLASH = get_profile("deepseek-v4.1-flash/fp4")
ENGINE = {"hash_scheme": "vllm-sha256", "hash_block_tokens": 64}


def test_defaults() -> None:
    plain = NamespaceSpec("t", "m", "r", FLASH)
    assert (plain.block_tokens, plain.hash_scheme, plain.hash_block_tokens, plain.salt, plain.shards) == (
        128,
        "kvshelf-sha256",
        None,
        "",
        1,
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tenant": ""}, "tenant"),
        ({"tenant": "x" * 65}, "tenant"),
        ({"tenant": "ä" * 33}, "tenant"),
        ({"tenant": "a\nb"}, "tenant"),
        ({"tenant": "\ud800"}, "tenant"),
        ({"model": ""}, "model"),
        ({"model": "x" * 257}, "model"),
        ({"weights_revision": "\0"}, "weights_revision"),
        ({"salt": "x" * 257}, "salt"),
        ({"hash_scheme": ""}, "hash_scheme"),
        ({"hash_scheme": "x" * 65}, "hash_scheme"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"block_tokens": -128}, "block_tokens"),
        ({"block_tokens": 127}, "block_tokens"),
        ({"block_tokens": (1 << 16) + 2}, "block_tokens"),
        ({"hash_block_tokens": 64}, "hash_block_tokens"),
        (ENGINE | {"hash_block_tokens": 0}, "hash_block_tokens"),
        (ENGINE | {"hash_block_tokens": -64}, "hash_block_tokens"),
        (ENGINE | {"hash_block_tokens": 96}, "hash_block_tokens"),
        (ENGINE | {"hash_block_tokens": 256}, "hash_block_tokens"),
        ({"shards": 0}, "shards"),
        ({"shards": 1025}, "shards"),
        ({"shards": 3}, "shards"),
    ],
)
def test_fields_out_of_bounds_are_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(NamespaceError, match=field) as caught:
        spec(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "ä" * 32},
        {"salt": "x" * 256},
        {"model": "a model/with spaces"},
        {"block_tokens": 2},
        {"block_tokens": 1 << 16},
        ENGINE | {"hash_block_tokens": 1},
        ENGINE | {"hash_block_tokens": 128},
        {"shards": 8},
    ],
)
def test_fields_at_their_bounds_are_taken(fields: dict[str, Any]) -> None:
    taken = spec(**fields)
    assert {name: getattr(taken, name) for name in fields} == fields


def test_an_engine_hash_stands_for_a_whole_block_unless_said_otherwise() -> None:
    assert spec(hash_scheme="sglang") == spec(hash_scheme="sglang", hash_block_tokens=128)
    assert namespace(hash_scheme="sglang").hashes_per_block == 1
    assert namespace(**ENGINE).hashes_per_block == 2
    assert namespace().hashes_per_block == 1


def test_shards_must_divide_the_block_even_where_they_divide_the_snapshot() -> None:
    with pytest.raises(NamespaceError, match="a block of 1780 bytes"):
        spec(block_tokens=2, shards=8)
    with pytest.raises(NamespaceError, match="a snapshot of 1351680 bytes"):
        spec(block_tokens=7 * 128, shards=7)


def test_sizes_of_a_shard() -> None:
    sharded = namespace(shards=8)
    assert (sharded.shard_block_bytes, sharded.shard_snapshot_bytes) == (113_920 // 8, 1_351_680 // 8)
    assert (sharded.layout.block_bytes, sharded.layout.snapshot_bytes) == (113_920, 1_351_680)
    assert sharded.layout == FLASH.layout(128)


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tenant": {"tenant": "other"},
    "model": {"model": "other"},
    "weights_revision": {"weights_revision": "other"},
    "layout id": {"profile": FLASH.miniature(890)},
    "layout of equal sizes": {"profile": replace(FLASH, global_rows=FLASH.global_rows[::-1])},
    "profile": {"profile": get_profile("deepseek-v4.1-flash/fp8")},
    "block_tokens": {"block_tokens": 256},
    "hash_scheme": {"hash_scheme": "vllm"},
    "other hash_scheme": {"hash_scheme": "sglang"},
    "hash_block_tokens": {"hash_scheme": "vllm", "hash_block_tokens": 64},
    "salt": {"salt": "s"},
    "shards": {"shards": 2},
}


def test_every_field_changes_the_fingerprint_and_every_key() -> None:
    made = {change: namespace(**fields) for change, fields in CHANGES.items()}
    assert {len(one.fingerprint) for one in made.values()} == {32}
    assert len({one.fingerprint for one in made.values()}) == len(CHANGES)
    assert len({one.namespace_id for one in made.values()}) == len(CHANGES)
    keys = [_keys(one) for one in made.values()]
    assert len({key for some in keys for key in some}) == sum(map(len, keys))


def _keys(one: Namespace) -> Sequence[bytes]:
    if one.spec.hash_scheme == KVSHELF_SCHEME:
        return one.keys_from_tokens(bytes(4 * 512))
    return one.keys_from_hashes(bytes(range(256)))


def test_texts_that_join_to_the_same_string_make_different_fingerprints() -> None:
    assert spec(tenant="ab", model="c").fingerprint != spec(tenant="a", model="bc").fingerprint


def test_the_fingerprint_is_stable() -> None:
    """A change here means that every cache in the field must be dropped."""
    fixed = NamespaceSpec("tenant", "model", "revision", FLASH.miniature(1))
    assert fixed.fingerprint.hex() == "54d0aa7147a29b11724893bed1bc6cf75b3cb919788211343da59438f05f35a9"


@pytest.mark.parametrize("fields", CHANGES.values(), ids=CHANGES)
def test_documents_round_trip(fields: dict[str, Any]) -> None:
    again = spec_from_document(spec(**fields).document())
    assert again == spec(**fields)


@pytest.mark.parametrize("change", [{"other": 1}, {"salt": 7}])
def test_documents_with_other_fields_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        spec_from_document(spec().document() | change)


def test_record_ids_are_the_namespace_and_the_key_s_start() -> None:
    sharded = namespace(shards=2)
    key = bytes(range(32))
    assert sharded.record_id(key, 1) == (sharded.fingerprint[:8] + key[:24], 1)
    assert sharded.record_ids([key, key[::-1]], 1) == [sharded.record_id(key, 1), sharded.record_id(key[::-1], 1)]
    assert sharded.record_ids([], 0) == []


def test_a_namespace_cannot_name_another_s_records() -> None:
    one, other = namespace(), namespace(tenant="other")
    key = one.keys_from_tokens(bytes(512))[0]
    assert one.record_id(key) != other.record_id(key)


@pytest.mark.parametrize("shard", [-1, 2])
def test_a_shard_that_is_none_is_refused(shard: int) -> None:
    with pytest.raises(NamespaceError, match=r"shard: .*0 to 1"):
        namespace(shards=2).record_id(bytes(32), shard)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_keys_and_hashes_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(NamespaceError, match="32 bytes"):
        namespace().record_ids([bytes(32), bytes(size)])
    with pytest.raises(NamespaceError, match="32 bytes"):
        namespace().keys_from_hashes([bytes(32), bytes(size)])


def test_a_buffer_of_hashes_that_ends_inside_one_is_refused() -> None:
    with pytest.raises(NamespaceError, match="33 bytes is no multiple"):
        namespace().keys_from_hashes(bytes(33))


def test_tokens_are_refused_where_the_engine_hashes() -> None:
    with pytest.raises(NamespaceError, match="send its hashes"):
        namespace(**ENGINE).keys_from_tokens(bytes(512))


def test_tokens_that_are_no_whole_number_of_u32_are_refused() -> None:
    with pytest.raises(NamespaceError, match=r"tokens: .*513 bytes"):
        namespace().keys_from_tokens(bytes(513))


def test_extra_is_bounded() -> None:
    assert len(namespace().keys_from_tokens(bytes(512), bytes(1024))) == 1
    with pytest.raises(NamespaceError, match="extra"):
        namespace().keys_from_tokens(bytes(512), bytes(1025))


def test_hashes_of_the_own_scheme_are_the_keys() -> None:
    own = namespace()
    keys = own.keys_from_tokens(bytes(4 * 300))
    assert len(keys) == 2
    assert own.keys_from_hashes(keys) == keys
    assert own.keys_from_hashes(memoryview(b"".join(keys))) == keys
    assert own.keys_from_hashes(b"") == own.keys_from_hashes([]) == []
