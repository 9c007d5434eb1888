"""The gate before all verbs: who asks, whether they may, how many there are; and every error in gRPC's own words.

A verb is served as a stream of bytes in both directions, whatever it is to its caller: so a caller is refused before a
byte of its message is taken, and bulk passes through untouched by protobuf.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from kvshelf_client.request_ids import HEADER
from service.access import ANYBODY, Principal
from service.faces.admission import source_of
from service.faces.context import Context
from service.faces.problems import RETRY_SECONDS, STOPPING, ProblemError, problem_of
from service.faces.tokens import bearer_token
from service.grpc.call import Call, Verb
from service.grpc.pace import Farewell, Pace, PacedMessages, cut_off
from service.grpc.problems import DETAILS_KEY, MAX_DETAIL_CHARACTERS, code_of, details_of
from service.grpc.tracing import traced_call
from service.grpc.verbs.table import VERBS
from service.request_ids import begin_request_id

_GONE = (grpc.aio.InternalError, grpc.aio.UsageError)
"""What a call of gRPC raises when the other side has ended it, and this task has yet to hear of it."""
SERVICE = pb.DESCRIPTOR.services_by_name["Kvshelf"]
Metadata = Mapping[str, Any]
_STALLED = 408
Rpc: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Gate:
    """Serves the verbs over a context, so many calls at a time; what is more is refused and may come again.

    ``port`` is where it is served, known once it listens. A client that leaves a call where it is for
    ``limits.stall_seconds`` is told so; one that does not take that either is cut off after as long again.
    """

    def __init__(self, context: Context, max_calls: int) -> None:
        self._context = context
        self._max_calls = max_calls
        self._calls = 0
        self._stall_seconds = context.parts.settings.limits.stall_seconds
        self.port = 0
        self._log = structlog.get_logger("kvshelf.grpc").bind()

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """The handlers of all verbs."""
        served = {
            method.name: grpc.stream_stream_rpc_method_handler(
                traced_call(
                    self._context.parts.tracing,
                    f"{SERVICE.full_name}/{method.name}",
                    self._serve(VERBS[method.name], GetMessageClass(method.input_type)),
                )
            )
            for method in SERVICE.methods
        }
        return grpc.method_handlers_generic_handler(SERVICE.full_name, served)

    def _serve(self, verb: Verb, request_class: type[Message]) -> Callable[[Any, Rpc], Awaitable[None]]:
        async def serve(messages: AsyncIterator[bytes], rpc: Rpc) -> None:
            """Answer one call: let it in, do it, say what it came to."""
            sent = dict(rpc.invocation_metadata() or ())
            named = ((HEADER, begin_request_id(sent.get(HEADER))),)
            rpc.set_trailing_metadata(named)
            farewell = Farewell(self._stall_seconds, partial(self._cut_off, rpc.peer()))
            rpc.add_done_callback(lambda _: farewell.over())  # type: ignore[arg-type]  # Of the stubs' own class.
            try:
                principal = self._admit(verb, sent)
                self._context.begin_request()
                self._calls += 1
                self._context.under_way += 1
                try:
                    with (
                        self._context.admission.admit(_source(principal, rpc)) as admitted,
                        self._context.parts.metrics.latency.labels(verb.label).time(),
                    ):
                        call = Call(self._context, principal, admitted)
                        await _answer(verb, request_class, call, Exchange(messages, rpc, self._stall_seconds))
                finally:
                    self._context.under_way -= 1
                    self._calls -= 1
                self._log.debug("answered", verb=verb.label, status="OK")
                farewell.begin()
            except _GONE:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it as a problem.
                problem = problem_of(error)
                if problem.status == _STALLED:
                    self._context.parts.metrics.refused.labels("slow").inc()
                self._log.debug("answered", verb=verb.label, status=code_of(problem).name)
                farewell.begin()
                with suppress(*_GONE):
                    await _refuse(rpc, problem, named)

        return serve

    def _cut_off(self, peer: str) -> None:
        self._context.parts.metrics.refused.labels("slow").inc()
        self._context.begin(cut_off, peer, self.port)

    def _admit(self, verb: Verb, sent: Metadata) -> Principal:
        """Who asks; raises unless they may, and there is room."""
        principal = ANYBODY
        if verb.scope is not None:
            principal = self._context.parts.access.authenticate(bearer_token(sent.get("authorization")))
            principal.require(verb.scope)
        if self._context.is_draining and not verb.while_draining:
            raise ProblemError(503, STOPPING)
        if self._calls >= self._max_calls:
            raise ProblemError(429, f"{self._calls} calls are under way; come again in {RETRY_SECONDS} s")
        return principal


def _source(principal: Principal, rpc: Rpc) -> str:
    """Who is to share with others: the tenant, or where there are none, the address (``ipv4:127.0.0.1:5000``)."""
    return source_of(principal.tenant, rpc.peer().partition(":")[2].rpartition(":")[0].strip("[]"))


class Exchange:
    """What goes to and fro in one call, at the client's pace as long as that is one."""

    def __init__(self, messages: AsyncIterator[bytes], rpc: Rpc, stall_seconds: float) -> None:
        self._pace = Pace(stall_seconds)
        self._rpc = rpc
        self.messages = PacedMessages(messages, self._pace)

    async def write(self, message: bytes) -> None:
        """Send a message; raises a 408 where the client does not take it."""
        await self._pace.owed(self._rpc.write(message), "the answer")
        self._pace.moved(len(message))


async def _answer(verb: Verb, request_class: type[Message], call: Call, exchange: Exchange) -> None:
    """Have a verb answer. What was begun for a caller that did not wait for it is undone."""
    try:
        if verb.upload is not None:
            await exchange.write((await verb.upload(call, exchange.messages)).SerializeToString())
        elif verb.download is not None:
            request = await _request(request_class, call, exchange.messages)
            async with aclosing(verb.download(call, request)) as answers:
                async for answer in answers:
                    await exchange.write(answer)
        elif verb.unary is not None:
            request = await _request(request_class, call, exchange.messages)
            await exchange.write((await verb.unary(call, request)).SerializeToString())
    except BaseException:  # The call may end at any point; it is told again.
        call.undo()
        raise


async def _request(request_class: type[Message], call: Call, messages: AsyncIterator[bytes]) -> Message:
    try:
        message = await anext(messages)
        await call.admitted.hold(len(message))
        return request_class.FromString(message)
    except StopAsyncIteration:
        raise ProblemError(400, "the call ended before its request came") from None
    except DecodeError:
        raise ProblemError(400, f"what came is no {request_class.DESCRIPTOR.full_name}") from None


async def _refuse(rpc: Rpc, problem: ProblemError, named: tuple[tuple[str, str]]) -> None:
    detail = problem.detail[:MAX_DETAIL_CHARACTERS]
    await rpc.abort(code_of(problem), detail, ((DETAILS_KEY, details_of(problem)), *named))
