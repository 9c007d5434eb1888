"""The verbs of a service, short, for tests that need no HTTP: fill the shelves, plan, fetch."""

import hashlib
from collections.abc import Iterable
from typing import Any

from kvshelf_client.frames import Frame, FrameAssembler, checksum_of
from kvshelf_client.words import Provenance, RecordClass
from service.leases.lease import Lease
from service.namespaces import Namespace
from service.planner import request_for
from service.shelf.fetching import Fetch, open_fetch
from service.shelf.parts import Parts
from service.shelf.planning import Ask, Planned, make_plan
from service.shelf.records import tier_of
from storage.base import Record

BLOCK = 128
KEYS = [hashlib.sha256(b"block %d" % number).digest() for number in range(400)]
"""The block keys of the one conversation there is; any prompt of L tokens has the first ``L // BLOCK`` of them."""
EXACT, REPLAYED = Provenance.EXACT, Provenance.REPLAYED


def payload_of(kind: RecordClass, number: int, shard: int, size: int) -> bytearray:
    """A payload that follows from its place."""
    return bytearray(hashlib.sha256(b"%d %d %d" % (kind, number, shard)).digest()[:1] * size)


def fill(
    parts: Parts,
    namespace: Namespace,
    kind: RecordClass,
    numbers: Iterable[int],
    *,
    provenance: Provenance = EXACT,
    shards: Iterable[int] | None = None,
    supersedes: int | None = None,
) -> None:
    """Put records on their shelf: blocks by number, snapshots by the number of the block they end with."""
    is_block = kind is RecordClass.BLOCK
    size = namespace.shard_block_bytes if is_block else namespace.shard_snapshot_bytes
    records = []
    for number in numbers:
        for shard in range(namespace.shards) if shards is None else shards:
            payload = payload_of(kind, number, shard, size)
            earlier = None if supersedes is None else namespace.record_id(KEYS[supersedes], shard).key
            record_id = namespace.record_id(KEYS[number], shard)
            records.append(Record(record_id, payload, checksum_of(payload), provenance, "", earlier))
    tier_of(parts, kind).write(records, durable=False)


def plan(
    parts: Parts,
    namespace: Namespace,
    prompt_tokens: int,
    *,
    request_id: str | None = None,
    lease_ttl_seconds: float = 60.0,
    **request: Any,
) -> Planned:
    """Plan a prompt of the conversation; a request of its own where none is named."""
    keys = KEYS[: prompt_tokens // BLOCK]
    asked = request_for(namespace.layout, prompt_tokens, **request)
    return make_plan(parts, Ask(namespace, asked, keys, request_id or parts.new_id(), lease_ttl_seconds))


def open_stream(parts: Parts, lease: Lease, shard: int | None = None, *, fall_back: bool = False) -> Fetch:
    """Open a fetch; a fallback frame carries the plan's id."""
    return open_fetch(parts, None, lease.lease_id, shard, _fallback_id, fall_back=fall_back)


def fetch(parts: Parts, lease: Lease, shard: int | None = None, *, fall_back: bool = False) -> list[Frame]:
    """Fetch, and check the announced length."""
    stream = open_stream(parts, lease, shard, fall_back=fall_back)
    data = b"".join(bytes(buffer) for batch in stream.batches for buffer in batch)
    assert len(data) == stream.length_bytes
    return [Frame(header, bytearray(payload)) for header, payload in FrameAssembler(1 << 30).feed(data)]


def _fallback_id(lease: Lease) -> bytes:
    return lease.fallback.plan_id.encode() if lease.fallback else b""
