"""What each request is in HTTP, and what its answer means. Knows nothing of connections."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from kvshelf_client import answers, requests
from kvshelf_client.documents import Document
from kvshelf_client.frames import MEDIA_TYPE
from kvshelf_client.upload import frame_parts
from kvshelf_client.words import RecordClass

if TYPE_CHECKING:
    from typing_extensions import Buffer

HASHES_MEDIA_TYPE = "application/vnd.kvshelf.hashes.v1"
CREATED = 201
_ACCEPT_FRAMES = {"accept": MEDIA_TYPE}
_JSON, _OCTETS = "application/json", "application/octet-stream"

Decode = Callable[[int, bytes], Any]
"""From a status below 300 and a body to the answer; raises AnswerError."""


class HttpRequest(NamedTuple):
    """A request as it is sent.

    ``body`` is sent part after part, from where it is; ``decode`` is None for a fetch, whose body is frames.
    """

    method: str
    target: str
    decode: Decode | None
    body: Iterable["Buffer"] = ()
    body_bytes: int = 0
    headers: Mapping[str, str] = {}


def encode(request: requests.Request[Any]) -> HttpRequest:
    """The HTTP request of a request."""
    return _ENCODERS[type(request)](request)


def _register(request: requests.Register) -> HttpRequest:
    def decode(status: int, body: bytes) -> answers.Namespace:
        return answers.namespace_of(Document.parse(body), created=status == CREATED)

    body = json.dumps(asdict(request.spec)).encode()
    return _with_body("PUT", _namespace(request.name), decode, body, _JSON)


def _hash_tokens(request: requests.HashTokens) -> HttpRequest:
    target = _namespace(request.namespace) + "/hash"
    return _with_body("POST", target, _document(answers.hashed_tokens_of), request.tokens, _OCTETS)


def _plan(request: requests.AskPlan) -> HttpRequest:
    query = {
        "request_id": request.request_id,
        "prompt_tokens": request.prompt_tokens,
        "hbm_tokens": request.hbm_tokens,
        "hbm_exact_tokens": request.hbm_exact_tokens,
        "hbm_state": request.hbm_state,
        "allow_approximate": request.allow_approximate,
        "supports": None if request.supports is None else ",".join(request.supports),
        "max_load_bytes_per_saved_token": request.max_load_bytes_per_saved_token,
        "lease_ttl_seconds": request.lease_ttl_seconds,
        "extra": request.extra.hex() or None,
    }
    target = _namespace(request.namespace) + "/plan" + _query(query)
    decode = _document(answers.plan_of)
    if request.tokens is not None:
        return _with_body("POST", target, decode, request.tokens, _OCTETS)
    return _with_body("POST", target, decode, request.hashes or b"", HASHES_MEDIA_TYPE)


def _fetch(request: requests.Fetch) -> HttpRequest:
    target = _lease(request.lease_id) + "/fetch"
    if request.shard is not None or request.fallback:
        target += _query({"shard": request.shard, "fallback": request.fallback or None})
    return HttpRequest("GET", target, None, headers=_ACCEPT_FRAMES)


def _store(request: requests.Store) -> HttpRequest:
    query = {
        "plan_id": request.plan_id,
        "durability": "durable" if request.durable else "relaxed",
        "supersedes": request.supersedes.hex() if request.supersedes is not None else None,
    }
    return HttpRequest(
        "POST",
        _namespace(request.namespace) + "/store" + _query(query),
        _document(answers.store_result_of),
        frame_parts(request.records),
        request.length_bytes,
        {"content-type": MEDIA_TYPE},
    )


def _keys(request: requests.TouchRecords | requests.DeleteRecords) -> HttpRequest:
    keys = {"class": RecordClass(request.record_class).name.lower(), "keys": [key.hex() for key in request.keys]}
    target = f"{_namespace(request.namespace)}/{request.verb}"
    return _with_body("POST", target, _document(answers.count_of), json.dumps(keys).encode(), _JSON)


def _renew(request: requests.Renew) -> HttpRequest:
    return _with_body("POST", _lease(request.lease_id) + "/touch", _document(answers.lease_of))


def _release(request: requests.Release) -> HttpRequest:
    return HttpRequest(
        "DELETE", _lease(request.lease_id) + _query({"ran": request.ran}), _document(answers.released_of)
    )


def _stats(_: requests.Stats) -> HttpRequest:
    return HttpRequest("GET", "/v1/stats", _document(lambda document: document.fields))


def _health(_: requests.CheckHealth) -> HttpRequest:
    return HttpRequest("GET", "/healthz", _document(answers.health_of))


def _find_local(_: requests.FindLocal) -> HttpRequest:
    return HttpRequest("GET", "/v1/local", _document(answers.local_address_of))


_ENCODERS: dict[type, Callable[[Any], HttpRequest]] = {
    requests.Register: _register,
    requests.HashTokens: _hash_tokens,
    requests.AskPlan: _plan,
    requests.Fetch: _fetch,
    requests.Store: _store,
    requests.TouchRecords: _keys,
    requests.DeleteRecords: _keys,
    requests.Renew: _renew,
    requests.Release: _release,
    requests.Stats: _stats,
    requests.CheckHealth: _health,
    requests.FindLocal: _find_local,
}


def _with_body(method: str, target: str, decode: Decode, body: "Buffer" = b"", content_type: str = "") -> HttpRequest:
    view = memoryview(body).cast("B")
    headers = {"content-type": content_type} if content_type else {}
    return HttpRequest(method, target, decode, [view] if len(view) else [], len(view), headers)


def _document(read: Callable[[Document], Any]) -> Decode:
    return lambda _, body: read(Document.parse(body))


def _namespace(name: str) -> str:
    return f"/v1/namespaces/{quote(name, safe='')}"


def _lease(lease_id: str) -> str:
    is_plain = lease_id.isalnum() and lease_id.isascii()
    return f"/v1/leases/{lease_id if is_plain else quote(lease_id, safe='')}"


def _query(values: Mapping[str, object]) -> str:
    """``?name=value`` of everything that is not None; booleans as ``true`` and ``false``."""
    given = {name: _text(value) for name, value in values.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
