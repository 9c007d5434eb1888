"""What does not fit the wire is refused with the field's name, and never cut or padded to fit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvshelf_client import Client, StoreRecord
from kvshelf_client.frames import FrameHeader, FrameKind, pack_header, unpack_header
from kvshelf_client.hashing import bind_hashes, block_keys
from kvshelf_client.upload import frame_parts
from kvshelf_client.words import Provenance, RecordClass
from tests.support.scripted_server import Reply, ScriptedServer, answer
from tests.support.wire import NAMESPACE

KEY = b"k" * 32
HEADER = FrameHeader(FrameKind.BLOCK, KEY, 3, 4, Provenance.EXACT)
RECORD = StoreRecord(RecordClass.BLOCK, KEY, 128, b"payload", Provenance.EXACT)
WRONG_KEYS = [b"", b"k" * 20, b"k" * 31, b"k" * 33, b"k" * 40]
MOST = {"shard": 2**16 - 1, "end_tokens": 2**32 - 1, "length_bytes": 2**64 - 1, "generation": 2**64 - 1}
MOST["checksum"] = 2**64 - 1


@pytest.mark.parametrize("key", [*WRONG_KEYS, "k" * 32, memoryview(bytes(128)).cast("I")])
def test_a_header_takes_no_key_of_another_length(key: Any) -> None:
    with pytest.raises(ValueError, match=r"^key has 32 bytes, got"):
        pack_header(HEADER._replace(key=key))


@pytest.mark.parametrize("key", [bytearray(KEY), memoryview(KEY)])
def test_a_key_may_be_in_any_buffer(key: Any) -> None:
    (head,) = frame_parts([RECORD._replace(key=key)])
    assert bytes(head) == b"".join(frame_parts([RECORD]))
    assert block_keys(key, bytes(16), 4) == block_keys(KEY, bytes(16), 4)


@pytest.mark.parametrize(("field", "most"), MOST.items())
def test_a_header_takes_no_number_out_of_range(field: str, most: int) -> None:
    def packed(value: Any) -> bytes:
        changes: dict[str, Any] = {field: value}
        return pack_header(HEADER._replace(**changes))

    for fits in (0, most):
        assert getattr(unpack_header(packed(fits)), field) == fits
    for wrong in (-1, most + 1, 1.5, None):
        with pytest.raises(ValueError, match=f"^{field} is a whole number from 0 to {most}, got {wrong}$"):
            packed(wrong)


@pytest.mark.parametrize("kind", [FrameKind.BLOCK, FrameKind.SNAPSHOT])
def test_a_record_has_a_provenance(kind: FrameKind) -> None:
    with pytest.raises(ValueError, match=r"^provenance is needed"):
        pack_header(HEADER._replace(kind=kind, provenance=None))


WRONG_RECORDS = [
    (RECORD._replace(key=b"k" * 40), "key has 32 bytes, got 40"),
    (RECORD._replace(key=b"k" * 20), "key has 32 bytes, got 20"),
    (RECORD._replace(shard=2**16), "shard is"),
    (RECORD._replace(end_tokens=-1), "end_tokens is"),
]


@pytest.mark.parametrize(("record", "text"), WRONG_RECORDS)
def test_a_store_of_a_wrong_record_sends_nothing(record: StoreRecord, text: str) -> None:
    with ScriptedServer([Reply(answer(b"{}"))]) as server, Client(server.url) as client:
        with pytest.raises(ValueError, match=f"^{text}"):
            client.store(NAMESPACE, [RECORD, record])
        assert server.seen == []
        client.stats()
    assert [seen.method for seen in server.seen] == ["GET"]


@pytest.mark.parametrize(("record", "text"), WRONG_RECORDS)
def test_a_wrong_record_ends_a_stream_of_frames(record: StoreRecord, text: str) -> None:
    def records() -> Iterator[StoreRecord]:
        yield RECORD._replace(payload=bytes(1 << 16))
        yield record

    parts = frame_parts(records())
    assert [len(next(parts)), len(next(parts))] == [80, 1 << 16]
    with pytest.raises(ValueError, match=f"^{text}"):
        next(parts)


CALLS: dict[str, Callable[[Client, bytes], object]] = {
    r"hashes\[1\]": lambda client, key: client.plan(NAMESPACE, hashes=[KEY, key], prompt_tokens=256),
    "supersedes": lambda client, key: client.store(NAMESPACE, [], supersedes=key),
    r"keys\[0\]": lambda client, key: client.touch(NAMESPACE, RecordClass.BLOCK, [key]),
    r"keys\[2\]": lambda client, key: client.delete(NAMESPACE, RecordClass.BLOCK, iter([KEY, KEY, key])),
}


@pytest.mark.parametrize("key", WRONG_KEYS, ids=len)
@pytest.mark.parametrize("field", CALLS)
def test_a_call_takes_no_key_of_another_length(field: str, key: bytes) -> None:
    with pytest.raises(ValueError, match=f"^{field} has 32 bytes, got {len(key)}"):
        CALLS[field](Client("http://127.0.0.1:1"), key)


def test_hashes_in_one_piece_are_whole() -> None:
    with pytest.raises(ValueError, match="32 bytes each, got 40"):
        Client("http://127.0.0.1:1").plan(NAMESPACE, hashes=b"k" * 40, prompt_tokens=256)


@pytest.mark.parametrize("wrong", WRONG_KEYS, ids=len)
def test_hashing_takes_no_fingerprint_or_hash_of_another_length(wrong: bytes) -> None:
    with pytest.raises(ValueError, match=r"^fingerprint has 32 bytes"):
        block_keys(wrong, bytes(16), 4)
    with pytest.raises(ValueError, match=r"^fingerprint has 32 bytes"):
        bind_hashes(wrong, [KEY])
    with pytest.raises(ValueError, match=r"^hashes\[1\] has 32 bytes"):
        bind_hashes(KEY, [KEY, wrong])


@pytest.mark.parametrize("hashes_per_block", [0, -1])
def test_a_block_has_one_hash_at_least(hashes_per_block: int) -> None:
    with pytest.raises(ValueError, match="hashes_per_block must be at least 1"):
        bind_hashes(KEY, [KEY], hashes_per_block)
