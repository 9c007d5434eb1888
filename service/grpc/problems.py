"""Problems as gRPC says them: a status code, and the problem itself among the details of ``google.rpc.Status``."""

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from kvshelf_client.grpc.kvshelf.v1 import kvshelf_pb2 as pb
from service.faces.problems import RETRY_SECONDS, ProblemError, problem_document
from service.grpc import messages
from service.request_ids import request_id_in_force

DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "kvshelf"
MAX_DETAIL_CHARACTERS = 1000
MAX_OUTCOMES = 32
"""Details travel as a header, and a client takes some 8 KiB of headers at most."""

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""The code of each HTTP status; INTERNAL for any other. A checksum that does not hold is DATA_LOSS instead."""
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


def code_of(error: ProblemError) -> grpc.StatusCode:
    """The status code of a problem."""
    if error.extra.get("reason") == "corrupt":
        return grpc.StatusCode.DATA_LOSS
    return CODES.get(error.status, grpc.StatusCode.INTERNAL)


def details_of(error: ProblemError) -> bytes:
    """The encoded ``google.rpc.Status`` of a problem."""
    code = code_of(error)
    problem = _problem(error)
    details: list[Message] = [problem, ErrorInfo(reason=problem.title.upper().replace(" ", "_"), domain=DOMAIN)]
    if problem.errors:
        violations = [
            BadRequest.FieldViolation(field=fault.field, description=fault.message) for fault in problem.errors
        ]
        details.append(BadRequest(field_violations=violations))
    if code in _RETRIED:
        details.append(RetryInfo(retry_delay=Duration(seconds=RETRY_SECONDS)))
    details.append(RequestInfo(request_id=request_id_in_force()))
    status = Status(code=code.value[0], message=problem.detail)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    encoded: bytes = status.SerializeToString()
    return encoded


def _problem(error: ProblemError) -> pb.Problem:
    document = problem_document(error)
    return pb.Problem(
        title=document["title"],
        status=error.status,
        detail=error.detail[:MAX_DETAIL_CHARACTERS],
        errors=[pb.FieldError(**fault) for fault in document["errors"][:MAX_OUTCOMES]],
        reason=document.get("reason"),
        differences=[
            pb.Difference(
                field=one["field"],
                registered=ParseDict(one["registered"], Value()),
                requested=ParseDict(one["requested"], Value()),
            )
            for one in document.get("differences", ())
        ],
        outcomes=map(messages.outcome, document.get("outcomes", ())[:MAX_OUTCOMES]),
    )
