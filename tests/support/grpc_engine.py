"""What an engine does over gRPC, spelled out with grpcio and protobuf: an independent check of the shipped client."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from kvshelf_client.frames import FrameHeader
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from tests.support.engine import BLOCK, PROFILE, blocks, snapshot, split

SERVICE = pb.DESCRIPTOR.services_by_name["Kvshelf"]
SECONDS = 20.0
M = TypeVar("M", bound=Message)


class RefusedError(Exception):
    """A call that ended with an error: its code, its problem, and its other details by the name of their type."""

    def __init__(self, error: grpc.RpcError) -> None:
        call = cast("grpc.Call", error)
        super().__init__(f"{call.code()}: {call.details()}")
        self.code = call.code()
        self.details: dict[str, Any] = {}
        self.metadata = dict(call.trailing_metadata() or ())
        status = Status.FromString(cast("bytes", self.metadata.get("grpc-status-details-bin", b"")))
        for packed in status.details:
            for kind in (pb.Problem, BadRequest, ErrorInfo, RequestInfo, RetryInfo):
                message = kind()
                if packed.Unpack(message):
                    self.details[kind.DESCRIPTOR.name] = message

    @property
    def problem(self) -> pb.Problem:
        """The problem among the details."""
        problem: pb.Problem = self.details["Problem"]
        return problem


class GrpcEngine:
    """Calls the verbs of a service at ``grpc://host:port``."""

    def __init__(self, url: str, token: str | None = None, credentials: grpc.ChannelCredentials | None = None) -> None:
        # A connection of its own: channels of one process share theirs otherwise.
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        address = url.partition("://")[2]
        self.channel = (
            grpc.secure_channel(address, credentials, options)
            if credentials
            else grpc.insecure_channel(address, options)
        )
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def raw(self, name: str, messages: Iterable[bytes], seconds: float | None = SECONDS) -> Iterator[bytes]:
        """Any call, as the bytes it sends and gets; iterating it may raise grpc.RpcError."""
        multicallable = self.channel.stream_stream(f"/{SERVICE.full_name}/{name}", None, None)
        return cast("Iterator[bytes]", multicallable(iter(messages), timeout=seconds, metadata=self.metadata))

    def call(self, name: str, request: Message, seconds: float = SECONDS) -> Any:
        """A unary call; returns the decoded answer, raises RefusedError."""
        answer = GetMessageClass(SERVICE.methods_by_name[name].output_type)
        try:
            (message,) = self.raw(name, [request.SerializeToString()], seconds)
        except grpc.RpcError as error:
            raise RefusedError(error) from None
        return answer.FromString(message)

    def stream(self, name: str, request: Message, seconds: float | None = SECONDS) -> Any:
        """Begin a download; iterating it gives decoded chunks."""
        multicallable = self.channel.unary_stream(f"/{SERVICE.full_name}/{name}", None, pb.FrameChunk.FromString)
        return multicallable(request.SerializeToString(), timeout=seconds, metadata=self.metadata)

    def download(self, name: str, request: Message) -> tuple[bool, list[tuple[FrameHeader, bytes]]]:
        """Whether a download fell back, and all its frames; their announced length is checked. Raises RefusedError."""
        try:
            chunks = list(self.stream(name, request))
        except grpc.RpcError as error:
            raise RefusedError(error) from None
        data = b"".join(chunk.frames for chunk in chunks)
        assert chunks[0].length_bytes == len(data)
        assert not any(chunk.length_bytes or chunk.fell_back for chunk in chunks[1:])
        return chunks[0].fell_back, split(data)

    def upload(self, chunks: Iterable[pb.StoreChunk], seconds: float = SECONDS) -> pb.StoreResponse:
        """Store chunks as they are; raises RefusedError."""
        encoded = (chunk.SerializeToString() for chunk in chunks)
        try:
            (message,) = self.raw("Store", encoded, seconds)
        except grpc.RpcError as error:
            raise RefusedError(error) from None
        return pb.StoreResponse.FromString(message)

    def register(self, name: str = "ns", **changes: Any) -> pb.Namespace:
        """Register a miniature namespace of 128-token blocks."""
        fields: dict[str, Any] = {
            "model": "m",
            "weights_revision": "1",
            "profile_id": PROFILE,
            "bytes_per_token": 1,
        } | changes
        answer: pb.Namespace = self.call("Register", pb.RegisterRequest(name=name, block_tokens=BLOCK, **fields))
        return answer

    def plan(self, prompt: bytes, name: str = "ns", **fields: Any) -> pb.PlanResponse:
        """Ask for a plan."""
        answer: pb.PlanResponse = self.call("Plan", pb.PlanRequest(namespace=name, tokens=prompt, **fields))
        return answer

    def keys_of(self, prompt: bytes, name: str = "ns") -> list[str]:
        """The service's own keys of a prompt, in hex."""
        return [key.hex() for key in self.call("Hash", pb.HashRequest(namespace=name, tokens=prompt)).keys]

    def fetch(self, planned: pb.PlanResponse, **fields: Any) -> list[tuple[FrameHeader, bytes]]:
        """Fetch a lease's records."""
        return self.download("Fetch", pb.FetchRequest(lease_id=planned.lease.lease_id, **fields))[1]

    def store(self, frames: bytes, name: str = "ns", **fields: Any) -> pb.StoreResponse:
        """Store frames, in a first message with the start alone and a second with all of them."""
        return self.upload([pb.StoreChunk(start=pb.StoreStart(namespace=name, **fields)), pb.StoreChunk(frames=frames)])

    def release(self, planned: pb.PlanResponse, **fields: Any) -> dict[str, int]:
        """Release a plan's lease; the tokens by source that were counted."""
        answer = self.call("Release", pb.ReleaseRequest(lease_id=planned.lease.lease_id, **fields))
        return dict(answer.tokens_by_source)

    def serve_cold(self, prompt: bytes) -> list[str]:
        """Run a prompt cold: store all its full blocks and the snapshot at the last boundary."""
        planned = self.plan(prompt)
        keys = self.keys_of(prompt)
        self.store(blocks(keys) + snapshot(keys, len(keys) * BLOCK), plan_id=planned.plan.plan_id)
        self.release(planned)
        return keys


@contextmanager
def grpc_engine(url: str | None, token: str | None = None) -> Iterator[GrpcEngine]:
    """An engine whose channel is closed at the end."""
    assert url is not None, "the service has no gRPC face"
    engine = GrpcEngine(url, token)
    try:
        yield engine
    finally:
        engine.channel.close()
