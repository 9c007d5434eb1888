"""Say where the local path is."""

from typing import Any

from fastapi import APIRouter

from kvshelf_client.local.wire import PROTOCOL_VERSION
from service.faces.problems import ProblemError
from service.local.handing import ElsewhereError, check_may_have_files
from service.rest import models
from service.rest.context import InContext
from service.rest.gate import Reader
from service.rest.problems import problem_responses

router = APIRouter(prefix="/v1/local", tags=["local"])


@router.get("", response_model=models.LocalAnswer, responses=problem_responses(404), summary="Where the local path is")
async def local(context: InContext, principal: Reader) -> dict[str, Any]:
    """Where an engine on the service's machine can get at what it leased without a copy through HTTP.

    Whoever finds the socket, and is welcomed under this `instance`, is on the same machine. 404 where there is no
    local path, or none for this tenant.
    """
    if context.local is None:
        raise ProblemError(404, "the local path is off")
    try:
        check_may_have_files(context.parts, principal)
    except ElsewhereError as error:
        raise ProblemError(404, str(error)) from None
    server = context.local
    return {"protocol": PROTOCOL_VERSION, "socket": str(server.path), "instance": server.instance.hex()}
