"""What an engine does at the REST face, spelled out with raw HTTP: an independent check of the shipped client."""

import struct
from collections.abc import Sequence
from typing import Any

import httpx

from kvshelf_client.frames import (
    HEADER_BYTES,
    MEDIA_TYPE,
    FrameHeader,
    FrameKind,
    checksum_of,
    pack_header,
    unpack_header,
)
from kvshelf_client.words import Provenance

BLOCK = 128
PROFILE = "deepseek-v4.1-flash/fp4"
BLOCK_BYTES, SNAPSHOT_BYTES = 128, 2560
"""Records of the profile's miniature of one byte a token."""


def register(http: httpx.Client, name: str = "ns", **changes: Any) -> dict[str, Any]:
    """Register a miniature namespace of 128-token blocks."""
    body = {"model": "m", "weights_revision": "1", "profile": PROFILE, "bytes_per_token": 1, "block_tokens": BLOCK}
    answer = http.put(f"/v1/namespaces/{name}", json=body | changes)
    assert answer.status_code in (200, 201), answer.text
    document: dict[str, Any] = answer.json()
    return document


def tokens(count: int, seed: int = 0) -> bytes:
    """A prompt as raw u32: the same seed makes prompts that share their prefix."""
    return struct.pack(f"<{count}I", *((seed * 1_000_003 + position) % 2**32 for position in range(count)))


def plan(http: httpx.Client, prompt: bytes, name: str = "ns", **query: Any) -> dict[str, Any]:
    """Ask for a plan."""
    answer = http.post(
        f"/v1/namespaces/{name}/plan",
        params=query,
        content=prompt,
        headers={"content-type": "application/octet-stream"},
    )
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def keys_of(http: httpx.Client, prompt: bytes, name: str = "ns", **query: Any) -> list[str]:
    """The service's own keys of a prompt."""
    answer = http.post(
        f"/v1/namespaces/{name}/hash",
        params=query,
        content=prompt,
        headers={"content-type": "application/octet-stream"},
    )
    assert answer.status_code == 200, answer.text
    found: list[str] = answer.json()["keys"]
    return found


def payload_of(key: str, size: int, shard: int = 0) -> bytes:
    """A payload that follows from its key."""
    return (bytes.fromhex(key) + bytes([shard]))[:1] * size


def frame(
    key: str,
    end_tokens: int,
    *,
    kind: FrameKind = FrameKind.BLOCK,
    provenance: Provenance = Provenance.EXACT,
    shard: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """A frame to be stored."""
    if payload is None:
        payload = payload_of(key, BLOCK_BYTES if kind is FrameKind.BLOCK else SNAPSHOT_BYTES, shard)
    header = FrameHeader(kind, bytes.fromhex(key), len(payload), checksum_of(payload), provenance, shard, end_tokens)
    return pack_header(header) + payload


def blocks(keys: Sequence[str], start: int = 0, provenance: Provenance = Provenance.EXACT) -> bytes:
    """Frames of the blocks of ``keys[start:]``."""
    return b"".join(
        frame(key, (number + 1) * BLOCK, provenance=provenance) for number, key in enumerate(keys) if number >= start
    )


def snapshot(keys: Sequence[str], boundary: int, provenance: Provenance = Provenance.EXACT) -> bytes:
    """The frame of the snapshot at a boundary."""
    return frame(keys[boundary // BLOCK - 1], boundary, kind=FrameKind.SNAPSHOT, provenance=provenance)


def store(http: httpx.Client, frames: bytes, name: str = "ns", **query: Any) -> dict[str, Any]:
    """Store frames."""
    answer = http.post(
        f"/v1/namespaces/{name}/store", params=query, content=frames, headers={"content-type": MEDIA_TYPE}
    )
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def fetch(http: httpx.Client, planned: dict[str, Any], **query: Any) -> list[tuple[FrameHeader, bytes]]:
    """Fetch a lease's records; every payload is checked against its checksum."""
    answer = http.get(f"/v1/leases/{planned['lease']['lease_id']}/fetch", params=query)
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["content-length"]) == len(answer.content)
    return split(answer.content)


def split(data: bytes) -> list[tuple[FrameHeader, bytes]]:
    """Cut a stream into frames, by hand."""
    found, at = [], 0
    while at < len(data):
        header = unpack_header(data[at : at + HEADER_BYTES])
        payload = data[at + HEADER_BYTES : at + HEADER_BYTES + header.length_bytes]
        assert checksum_of(payload) == header.checksum
        found.append((header, payload))
        at += HEADER_BYTES + header.length_bytes
    return found


def release(http: httpx.Client, planned: dict[str, Any], ran: str = "plan") -> dict[str, int]:
    """Release a plan's lease; the tokens by source that were counted."""
    answer = http.delete(f"/v1/leases/{planned['lease']['lease_id']}", params={"ran": ran})
    assert answer.status_code == 200, answer.text
    sources: dict[str, int] = answer.json()["tokens_by_source"]
    return sources


def serve_cold(http: httpx.Client, prompt: bytes, name: str = "ns") -> list[str]:
    """Run a prompt cold: store all its full blocks and the snapshot at the last boundary."""
    planned = plan(http, prompt, name)
    keys = keys_of(http, prompt, name)
    boundary = len(keys) * BLOCK
    store(http, blocks(keys) + snapshot(keys, boundary), name, plan_id=planned["plan"]["plan_id"])
    release(http, planned)
    return keys


def metric(http: httpx.Client, sample: str) -> float:
    """The value of one sample, such as ``kvshelf_requests_total``; raises KeyError when it is not exposed."""
    for line in http.get("/metrics").text.splitlines():
        name, _, value = line.rpartition(" ")
        if name == sample:
            return float(value)
    raise KeyError(sample)
