"""What went wrong with a call, in the words that all transports share."""

from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from kvshelf_client.errors import AnswerError, DeadlineError, KvshelfError, ServiceError, UnreachableError
from kvshelf_client.grpc.codec import outcome_document
from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb

_DETAILS_KEY = "grpc-status-details-bin"
_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 413,
}
"""What a code without a problem comes to: something between here and the service answered, or gRPC by itself."""


def error_of(error: Any, where: str) -> KvshelfError:
    """The error of a call that ended with a status. ``error`` is a ``grpc.RpcError`` that is a call, too."""
    code, detail = error.code(), error.details() or ""
    problem, request_id, retry_after_seconds = _details(error)
    if problem is not None:
        return ServiceError(problem.status, _document(problem) | {"request_id": request_id}, retry_after_seconds)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineError(f"no answer from {where} in time")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return AnswerError(f"{where} does not speak kvshelf.v1: {detail}")
    if code in _STATUSES:
        return ServiceError(_STATUSES[code], {"status": _STATUSES[code], "detail": detail})
    return UnreachableError(f"talking to {where} failed: {detail or code}")


def _details(error: Any) -> tuple[pb.Problem | None, str | None, float | None]:
    """The problem among the details, the id of its request, and in how many seconds another try is worth while."""
    problem, request, retry_after_seconds = pb.Problem(), RequestInfo(), None
    encoded = dict(error.trailing_metadata() or ()).get(_DETAILS_KEY, b"")
    try:
        status = Status.FromString(encoded)
    except DecodeError:
        return None, None, None
    has_problem = False
    for detail in status.details:
        has_problem = detail.Unpack(problem) or has_problem
        detail.Unpack(request)
        retry = RetryInfo()
        if detail.Unpack(retry):
            retry_after_seconds = retry.retry_delay.ToTimedelta().total_seconds()
    return (problem if has_problem else None), request.request_id or None, retry_after_seconds


def _document(problem: pb.Problem) -> dict[str, object]:
    """A problem as REST says it."""
    document: dict[str, object] = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "errors": [{"field": fault.field, "message": fault.message} for fault in problem.errors],
    }
    if problem.HasField("reason"):
        document["reason"] = problem.reason
    if problem.differences:
        document["differences"] = [
            {
                "field": one.field,
                "registered": MessageToDict(one.registered),
                "requested": MessageToDict(one.requested),
            }
            for one in problem.differences
        ]
    if problem.outcomes:
        document["outcomes"] = [outcome_document(outcome) for outcome in problem.outcomes]
    return document
