"""Ask for a resume plan."""

import asyncio
import threading

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.faces.problems import too_large
from service.faces.prompts import Prompt, most_prompt_bytes, plan_prompt
from service.faces.questions import PlanQuestion, checked
from service.grpc import messages
from service.grpc.call import Call
from service.shelf.planning import Planned

_PROMPT = ("namespace", "tokens", "hashes", "supports", "extra")


async def plan(call: Call, request: pb.PlanRequest) -> pb.PlanResponse:
    """Answer what the engine should load and where it should run, and lease what that needs.

    When the caller does not wait for the answer any more, work that has not begun is not done, and the lease of work
    that had begun is let go: nobody knows its name.
    """
    parts = call.context.parts
    namespace = parts.namespaces.get(call.principal, request.namespace)
    fields = messages.present(request, without=_PROMPT)
    if request.HasField("supports"):
        fields["supports"] = ",".join(request.supports.names)
    question = checked(PlanQuestion, fields)
    kind = request.WhichOneof("prompt")
    most_bytes, setting = most_prompt_bytes(parts.settings.limits, is_hashed=kind == "hashes")
    if max(len(request.tokens), len(request.hashes)) > most_bytes:
        raise too_large(most_bytes, setting)
    prompt = Prompt(
        tokens=request.tokens if kind == "tokens" else None,
        hashes=request.hashes if kind == "hashes" else None,
        extra=request.extra,
    )
    is_abandoned = threading.Event()

    def work() -> Planned:
        if is_abandoned.is_set():
            raise _AbandonedError
        return plan_prompt(parts, call.principal, namespace, prompt, question)

    working = asyncio.ensure_future(call.context.run(work))

    def abandon() -> None:
        is_abandoned.set()
        working.add_done_callback(lambda done: _let_go(call, done))

    call.undo = abandon
    return messages.plan(await asyncio.shield(working))


class _AbandonedError(Exception):
    """Nobody waits for this plan any more."""


def _let_go(call: Call, done: "asyncio.Future[Planned]") -> None:
    """End the lease of an answer that nobody got. Its request is not counted: it may ask again under its name."""
    if not done.cancelled() and done.exception() is None:
        lease_id = done.result().lease.lease_id
        call.context.begin(call.context.parts.leases.release, call.principal.tenant, lease_id)
