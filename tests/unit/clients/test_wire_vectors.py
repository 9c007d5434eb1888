"""The vectors of docs/wire-format.md, computed here with nothing but the standard library and xxhash."""

import hashlib
import json
import re
import struct
from pathlib import Path

import xxhash

from kvshelf_client.frames import FrameHeader, FrameKind, checksum_of, pack_header, unpack_header
from kvshelf_client.hashing import bind_hashes, block_keys, namespace_fingerprint
from kvshelf_client.words import Provenance

TEXT = (Path(__file__).parents[3] / "docs/wire-format.md").read_text()
FINGERPRINT = bytes(range(32))
TOKENS = struct.pack("<9I", *range(9))


def vector(name: str) -> bytes:
    """The bytes that the document gives for a line of its table."""
    found = re.search(rf"^\| {re.escape(name)} \| `([0-9a-f]+)`", TEXT, re.M)
    assert found, name
    return bytes.fromhex(found.group(1))


def test_keys() -> None:
    first = hashlib.sha256(FINGERPRINT + TOKENS[:16]).digest()
    second = hashlib.sha256(first + TOKENS[16:32]).digest()
    assert [vector("key 0"), vector("key 1")] == [first, second] == block_keys(FINGERPRINT, TOKENS, 4)
    assert vector("fingerprint used below") == FINGERPRINT


def test_the_fingerprint_of_a_namespace() -> None:
    found = re.search(r"^\| fields of a namespace \| `(\{.*\})`", TEXT, re.M)
    assert found
    expected = hashlib.sha256(b"kvshelf namespace v1\n" + found.group(1).encode()).digest()
    assert vector("its fingerprint") == expected == namespace_fingerprint(json.loads(found.group(1)))


def test_extra_goes_into_every_key() -> None:
    expected = hashlib.sha256(FINGERPRINT + TOKENS[:16] + b"\xff").digest()
    assert vector("key 0 with `extra` = `ff`") == expected == block_keys(FINGERPRINT, TOKENS, 4, b"\xff")[0]


def test_bound_hashes() -> None:
    expected = hashlib.sha256(FINGERPRINT + b"\xaa" * 32).digest()
    assert vector("an engine's hash of 32 bytes `aa`, bound") == expected == bind_hashes(FINGERPRINT, [b"\xaa" * 32])[0]


def test_a_frame_header() -> None:
    payload = vector("payload of the frame below")
    fields = b"KVSF" + bytes([1, 1, 2, 0]) + struct.pack("<HHIQQ", 3, 0, 4, len(payload), 5)
    fields += vector("key 0") + struct.pack("<Q", xxhash.xxh3_64_intdigest(payload))
    expected = fields + struct.pack("<Q", xxhash.xxh3_64_intdigest(fields))
    header = FrameHeader(
        FrameKind.BLOCK, vector("key 0"), len(payload), checksum_of(payload), Provenance.EXACT, 3, 4, 5
    )
    assert vector("frame header: exact block, key 0, shard 3, end 4, generation 5") == expected == pack_header(header)
    assert unpack_header(expected) == header
