"""Records by key: look at one, read it, delete it; renew or delete many."""

from collections.abc import AsyncGenerator

from kvshelf_client.frames import KEY_BYTES, FrameHeader, FrameKind, checksum_of, pack_header
from kvshelf_client.grpc.chunks import pack_frame_chunk
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.words import Provenance, RecordClass
from service.faces.problems import ProblemError
from service.grpc.call import Call
from service.grpc.verbs.leases import chunks_of, read_ahead
from service.shelf import records
from storage.base import Loaded, Miss, Payload


async def read(call: Call, request: pb.RecordRequest) -> AsyncGenerator[bytes, None]:
    """The verified payload of a record as one frame; a miss is a frame that is marked as one and has no payload."""
    namespace = call.context.parts.namespaces.get(call.principal, request.namespace)
    kind, key = _class(request.record_class), _key(request.key)
    found = await call.context.run(records.read, call.context.parts, namespace, kind, key, request.shard)
    head, payload = _frame(kind, key, request.shard, found)
    chunks = chunks_of(iter([[head, payload]]))
    yield pack_frame_chunk(next(chunks), length_bytes=len(head) + len(payload))
    async for message in read_ahead(call, map(pack_frame_chunk, chunks)):
        yield message


def _frame(kind: RecordClass, key: bytes, shard: int, found: Loaded | Miss) -> tuple[bytes, Payload]:
    if isinstance(found, Loaded):
        entry = found.entry
        header = FrameHeader(
            FrameKind(kind), key, entry.length_bytes, entry.checksum, entry.provenance, shard, 0, entry.generation
        )
        return pack_header(header), found.payload
    header = FrameHeader(FrameKind(kind), key, 0, checksum_of(b""), Provenance.REPLAYED, shard, miss=found.reason)
    return pack_header(header), b""


async def look(call: Call, request: pb.RecordRequest) -> pb.RecordResponse:
    """What is known of a record. It reads no payload and renews nothing."""
    namespace = call.context.parts.namespaces.get(call.principal, request.namespace)
    kind, key = _class(request.record_class), _key(request.key)
    found = await call.context.run(records.look, call.context.parts, namespace, kind, key, request.shard)
    if isinstance(found, Miss):
        return pb.RecordResponse(miss=found.reason.value)
    return pb.RecordResponse(
        entry=pb.RecordEntry(
            length_bytes=found.length_bytes,
            checksum=found.checksum,
            provenance=found.provenance.name.lower(),
            generation=found.generation,
        )
    )


async def delete_one(call: Call, request: pb.RecordRequest) -> pb.CountResponse:
    """Forget one record of one shard; answers how many that was. A lease keeps it readable until it ends."""
    namespace = call.context.parts.namespaces.get_writable(call.principal, request.namespace)
    kind, key = _class(request.record_class), _key(request.key)
    there = await call.context.run(records.delete_shard, call.context.parts, namespace, kind, key, request.shard)
    return pb.CountResponse(records=int(there))


async def touch(call: Call, request: pb.KeysRequest) -> pb.CountResponse:
    """Renew the life of records, all shards of each; answers how many records are alive."""
    namespace = call.context.parts.namespaces.get(call.principal, request.namespace)
    kind, keys = _many(call, request)
    return pb.CountResponse(records=await call.context.run(records.touch, call.context.parts, namespace, kind, keys))


async def delete(call: Call, request: pb.KeysRequest) -> pb.CountResponse:
    """Forget records, all shards of each; answers how many records were there."""
    namespace = call.context.parts.namespaces.get_writable(call.principal, request.namespace)
    kind, keys = _many(call, request)
    return pb.CountResponse(records=await call.context.run(records.delete, call.context.parts, namespace, kind, keys))


def _many(call: Call, request: pb.KeysRequest) -> tuple[RecordClass, list[bytes]]:
    most = call.context.parts.settings.limits.max_list_items
    if len(request.keys) > most:
        raise ProblemError(413, f"at most {most} keys at a time", field="keys")
    return _class(request.record_class), [_key(key, "keys") for key in request.keys]


def _class(word: str) -> RecordClass:
    for kind in RecordClass:
        if word == kind.name.lower():
            return kind
    raise ProblemError(422, f"record_class is block or snapshot, got {word[:64]!r}", field="record_class")


def _key(key: bytes, field: str = "key") -> bytes:
    if len(key) != KEY_BYTES:
        raise ProblemError(422, f"{field} takes {KEY_BYTES} bytes, got {len(key)}", field=field)
    return key
