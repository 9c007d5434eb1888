"""How a route gets at what it works with."""

from typing import Annotated

from fastapi import Depends, Request

from service.faces.context import Context


async def context_of(request: Request) -> Context:
    """The app's context, as a dependency. It awaits nothing, but one that is no coroutine would cost a thread.

    The request's patience begins here, for all it does in worker threads.
    """
    context: Context = request.app.state.context
    context.begin_request()
    return context


InContext = Annotated[Context, Depends(context_of)]
