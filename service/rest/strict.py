"""Query parameters are taken by name or refused: a misspelt one must not pass for a default."""

import difflib
from collections import Counter

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from service.faces.problems import ProblemError


async def strict_query(request: Request) -> None:
    """A dependency of routes: raises a 422 on a parameter that the route does not have, or that comes twice."""
    sent = Counter(name for name, _ in request.query_params.multi_items())
    route = request.scope.get("route")
    if not sent or not isinstance(route, APIRoute):
        return
    known = _names(route.dependant)
    for name, count in sent.items():
        shown = name[:64]
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known)) or 'none'}"
            raise ProblemError(422, f"this route has no parameter {shown!r}; {hint}", field=f"query.{shown}")
        if count > 1:
            raise ProblemError(422, f"the parameter {shown} comes {count} times", field=f"query.{shown}")


def _names(dependant: Dependant) -> set[str]:
    """The query parameters of a route and of what it depends on."""
    names = set[str]()
    for parameter in dependant.query_params:
        kind = parameter.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= set(kind.model_fields)
        else:
            names.add(parameter.alias)
    return names.union(*(_names(inner) for inner in dependant.dependencies))
