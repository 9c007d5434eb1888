"""The page for people at ``/``: its own files and nothing from elsewhere; what it shows comes from ``/v1/overview``."""

from pathlib import Path

from fastapi import APIRouter, Response

from service.faces.problems import ProblemError

router = APIRouter(include_in_schema=False)

_FILES = Path(__file__).parents[1] / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
_PAGE = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in _FILES.iterdir() if path.suffix in _TYPES}
_READING = ["GET", "HEAD"]
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@router.api_route("/", methods=_READING)
async def page() -> Response:
    """The page."""
    return _file("index.html")


@router.api_route("/page/{name}", methods=_READING)
async def part(name: str) -> Response:
    """A script or style of the page."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in _PAGE:
        raise ProblemError(404, f"the page has no file {name!r}")
    content, kind = _PAGE[name]
    return Response(content, media_type=kind, headers=_HEADERS)
