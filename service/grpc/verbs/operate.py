"""For those who run the service: statistics. Health and reflection are services of their own."""

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.grpc.call import Call
from service.shelf.condition import health as health_of
from service.shelf.condition import statistics


async def stats(call: Call, request: pb.StatsRequest) -> pb.StatsResponse:  # noqa: ARG001 - it asks for everything
    """Usage of each tier, leases, health, retention reached, as far as the caller may know it."""
    return pb.StatsResponse(
        stats=ParseDict(await call.context.run(statistics, call.context.parts, call.principal), Struct())
    )


async def health(call: Call, request: pb.HealthRequest) -> pb.HealthResponse:  # noqa: ARG001 - it asks for everything
    """Health with its causes, as far as the caller may know them."""
    state = health_of(call.context.parts)
    return pb.HealthResponse(status=state.status, causes=state.causes)
