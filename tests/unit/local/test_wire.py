"""The vectors of docs/local-path.md, computed here with nothing but the standard library; and what is no message."""

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvshelf_client.errors import FrameError
from kvshelf_client.local.wire import (
    HEADER_BYTES,
    MAX_RANGES,
    MAX_TEXT_BYTES,
    Header,
    Kind,
    Open,
    Read,
    Refusal,
    VersionError,
    pack_alive,
    pack_header,
    pack_hello,
    pack_open,
    pack_range,
    pack_ranges,
    pack_read,
    pack_refusal,
    pack_renew,
    unpack_alive,
    unpack_header,
    unpack_hello,
    unpack_open,
    unpack_ranges,
    unpack_read,
    unpack_refusal,
    unpack_renew,
)
from kvshelf_client.words import Provenance

TEXT = (Path(__file__).parents[3] / "docs/local-path.md").read_text()
INSTANCE = bytes(range(16))
RANGE = (b"\xaa" * 32, 4224, 113_920, 7, 8, 128, 3, 0, int(Provenance.EXACT))


def vector(name: str) -> bytes:
    """The bytes that the document gives for a line of its table."""
    found = re.search(rf"^\| {re.escape(name)} \| `([0-9a-f]+)`", TEXT, re.M)
    assert found, name
    return bytes.fromhex(found.group(1))


def message(kind: int, body: bytes, descriptors: int = 0) -> bytes:
    return b"KVSL" + struct.pack("<BBHQ", 1, kind, descriptors, len(body)) + body


@pytest.mark.parametrize(
    ("name", "kind", "expected", "packed"),
    [
        ("HELLO, token `secret`", Kind.HELLO, INSTANCE + b"secret", pack_hello(INSTANCE, "secret")),
        (
            "OPEN, lease `abc`, shard 3",
            Kind.OPEN,
            struct.pack("<iI", 3, 0) + b"abc",
            pack_open(Open("abc", 3, False)),
        ),
        (
            "OPEN, lease `abc`, all shards, the fallback",
            Kind.OPEN,
            struct.pack("<iI", -1, 1) + b"abc",
            pack_open(Open("abc", None, True)),
        ),
        (
            "OPEN, lease `abc`, shard 3, request id `r-1`",
            Kind.OPEN,
            struct.pack("<iBBH", 3, 0, 3, 0) + b"r-1abc",
            pack_open(Open("abc", 3, False, "r-1")),
        ),
        (
            "READ, lease `abc`, shard 3, blocks 5 and 6, of the fallback",
            Kind.READ,
            struct.pack("<HHII", 3, 1, 5, 2) + b"abc",
            pack_read(Read("abc", 3, 5, 2, True)),
        ),
        ("RENEW, lease `abc`", Kind.RENEW, b"abc", pack_renew("abc")),
        ("ALIVE, 60 s", Kind.ALIVE, struct.pack("<d", 60), pack_alive(60)),
        (
            "REFUSED, unknown lease, text `over`",
            Kind.REFUSED,
            struct.pack("<H", 6) + b"over",
            pack_refusal(Refusal.UNKNOWN_LEASE, "over"),
        ),
    ],
)
def test_vectors(name: str, kind: Kind, expected: bytes, packed: bytes) -> None:
    assert packed == expected
    assert vector(name) == message(kind, expected) == pack_header(kind, len(packed)) + packed


def test_the_vector_with_a_range() -> None:
    body = struct.pack("<II", 1, 1) + struct.pack("<32sQQQQIHHB7x", *RANGE)
    name = (
        "RANGES with one descriptor, the last part: key 32 bytes `aa`, offset 4224, length 113920, generation 7,"
        " checksum 8, end 128, shard 3, file 0, exact"
    )
    assert vector(name) == message(Kind.RANGES, body, descriptors=1)
    assert pack_ranges([pack_range(*RANGE)], is_last=True, fell_back=False) == body
    assert unpack_ranges(bytearray(body), 1) == (True, False, [RANGE])


def test_the_instance_and_the_words_of_the_document() -> None:
    assert vector("instance used below") == INSTANCE
    for kind in Kind:
        assert re.search(rf"^\| {kind.value} {kind.name} \| ", TEXT, re.M)
    for reason in Refusal:
        line = re.search(rf"^\| {reason.value} \| `{reason.name.lower()}`.*", TEXT, re.M)
        assert line
        assert ("hangs up" in line.group()) == reason.ends_connection


def test_what_is_packed_is_unpacked() -> None:
    assert unpack_hello(pack_hello(INSTANCE, None)) == (INSTANCE, None)
    assert unpack_hello(pack_hello(INSTANCE, "tökén")) == (INSTANCE, "tökén")
    for ask in (Open("", None, False), Open("x", 65_535, True), Open("x", 1, False, "y" * 128)):
        assert unpack_open(pack_open(ask)) == ask
    for read in (Read("", 0, 0, 0, False), Read("x", 65_535, 2**32 - 1, 2**32 - 1, True)):
        assert unpack_read(pack_read(read)) == read
    assert unpack_renew(pack_renew("lease")) == "lease"
    assert unpack_alive(pack_alive(1.5)) == 1.5
    assert unpack_refusal(pack_refusal(Refusal.BUSY, "x" * 5000)) == (Refusal.BUSY, "x" * MAX_TEXT_BYTES)
    assert unpack_header(pack_header(Kind.RANGES, 2**63, 250)) == Header(Kind.RANGES, 250, 2**63)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (message(1, b"").replace(b"KVSL", b"KVSF"), "starts with"),
        (message(0, b""), "no kind"),
        (message(10, b""), "no kind"),
    ],
)
def test_headers_that_are_none(data: bytes, what: str) -> None:
    with pytest.raises(FrameError, match=what):
        unpack_header(data)


def test_another_version_says_so() -> None:
    with pytest.raises(VersionError, match="version 2"):
        unpack_header(b"KVSL\x02" + bytes(11))


@pytest.mark.parametrize(
    ("unpack", "body"),
    [
        (unpack_hello, INSTANCE[:-1]),
        (unpack_hello, INSTANCE + b"\xff"),
        (unpack_open, bytes(7)),
        (unpack_open, struct.pack("<iI", -2, 0)),
        (unpack_open, struct.pack("<iI", 0, 2)),
        (unpack_open, bytes(8) + b"\xff"),
        (unpack_open, struct.pack("<iBBH", 0, 0, 4, 0) + b"abc"),
        (unpack_read, bytes(11)),
        (unpack_read, struct.pack("<HHII", 0, 2, 0, 0)),
        (unpack_renew, b"\xff"),
        (unpack_alive, bytes(7)),
        (unpack_alive, bytes(9)),
        (unpack_refusal, b"\x01"),
        (unpack_refusal, struct.pack("<H", 0)),
        (unpack_refusal, struct.pack("<H", 9)),
    ],
)
def test_bodies_that_are_none(unpack: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(FrameError):
        unpack(body)


def ranges(*fields: tuple[int, int], count: int | None = None, flags: int = 1) -> bytearray:
    packed = [struct.pack("<32sQQQQIHHB7x", *RANGE[:7], file, provenance) for file, provenance in fields]
    return bytearray(struct.pack("<II", flags, len(packed) if count is None else count) + b"".join(packed))


@pytest.mark.parametrize(
    "body",
    [
        bytearray(7),
        ranges((0, 1), flags=4),
        ranges((0, 1), count=2),
        ranges((0, 1), count=0),
        ranges((1, 1)),
        ranges((0, 1), (65_535, 1)),
        ranges((0, 0)),
        ranges((0, 3)),
        ranges(*[(0, 1)] * (MAX_RANGES + 1)),
    ],
)
def test_ranges_that_are_none(body: bytearray) -> None:
    with pytest.raises(FrameError):
        unpack_ranges(body, 1)


def test_ranges_at_their_bounds() -> None:
    assert len(unpack_ranges(ranges(*[(0, 2)] * MAX_RANGES), 1).ranges) == MAX_RANGES
    assert unpack_ranges(ranges(flags=3), 0) == (True, True, [])


@given(st.binary(max_size=400), st.integers(0, 3))
def test_whatever_comes_is_understood_or_refused(data: bytes, descriptors: int) -> None:
    def unpack_any_ranges(body: bytes) -> object:
        return unpack_ranges(bytearray(body), descriptors)

    unpacks: list[Callable[[bytes], object]] = [
        unpack_hello, unpack_open, unpack_read, unpack_renew, unpack_alive, unpack_refusal, unpack_any_ranges,
    ]  # fmt: skip
    if len(data) >= HEADER_BYTES:
        unpacks.append(lambda body: unpack_header(body[:HEADER_BYTES]))
    for unpack in unpacks:
        try:
            unpack(data)
        except FrameError:
            continue
