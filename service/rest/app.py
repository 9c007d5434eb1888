"""Make the REST face of a service."""

from typing import Any

from fastapi import Depends, FastAPI

from service.faces.context import Context
from service.rest.drain import ANSWERED_WHILE_DRAINING, Drain
from service.rest.gate import OPEN_PATHS, Gate
from service.rest.problems import Problem, install_handlers, problem_responses
from service.rest.request_ids import RequestIds
from service.rest.routes import erasures, leases, local, namespaces, operate, page, plans, records, scrub, stores
from service.rest.strict import strict_query
from service.shelf.parts import Parts
from service.tracing.faces import TracedRequests
from service.version import __version__


def create_app(parts: Parts) -> FastAPI:
    """The ASGI application over ``parts``. Its ``state.context`` is closed by whoever runs it."""
    app = FastAPI(
        title="kvshelf",
        version=__version__,
        summary="Tiered KV-cache persistence for LLM inference servers, with resume plans and bounded replay.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Its own traces may hold bodies and messages; ours (service/tracing) hold names and numbers.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.context = Context(parts)
    app.add_middleware(Drain, context=app.state.context)
    app.add_middleware(Gate, parts=parts)
    if parts.tracing is not None:
        app.add_middleware(TracedRequests, tracing=parts.tracing)
    app.add_middleware(RequestIds)
    app.router.routes.insert(0, leases.PLAIN_FETCH)
    strict = [Depends(strict_query)]
    api = (namespaces, plans, leases, stores, records, local, erasures, scrub)
    for module in api:
        app.include_router(module.router, dependencies=strict)
    app.include_router(operate.router)
    app.include_router(page.router)
    routers = [module.router for module in (*api, operate, page)]
    install_handlers(app, [route for router in routers for route in router.routes])
    generate = app.openapi
    app.openapi = lambda: app.openapi_schema or _with_problems(generate())  # type: ignore[method-assign]
    return app


def _with_problems(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the problem document to the OpenAPI schemas, and let it stand for FastAPI's own validation error.

    Every operation may be refused while the service stops, and to whom the access rules do not allow it.
    """
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    components.update(problem.pop("$defs", {}))
    components["Problem"] = problem
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            statuses = {422} if "422" in operation["responses"] else set()
            statuses |= {503} if path not in ANSWERED_WHILE_DRAINING else set()
            statuses |= {401, 403, 421} if path not in OPEN_PATHS else set()
            operation["responses"] |= {str(status): problem_responses(status)[status] for status in statuses}
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    return schema
