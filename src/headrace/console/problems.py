"""What went wrong, as HTTP says it: RFC 9457 problem details with the next step.

Every error that leaves this process is a `Problem`. Handlers raise HeadraceErrors, or
`ProblemError` where the status matters; `problem_of` is the one place that maps them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

from headrace.errors import (
    ConfigError,
    CorruptionError,
    DiskError,
    FencedError,
    HeadraceError,
    RequestError,
    RetriableError,
)
from headrace.wire import ErrorCode

__all__ = ["MEDIA_TYPE", "Problem", "ProblemError", "problem_of", "problem_response"]

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One failed request: what happened (`detail`) and what to do (`next_step`).

    `kind` is the last part of the problem's type, a stable name for programs; `members`
    are further fields of the answer, `headers` of the response.
    """

    status: int
    detail: str
    next_step: str = ""
    kind: str = ""
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The members of the problem document."""
        kind = self.kind or _KINDS.get(self.status, "error")
        return {
            "type": f"urn:headrace:problem:{kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "next": self.next_step or _NEXT.get(self.status, "correct the request and send it again"),
            **self.members,
        }


class ProblemError(RequestError):
    """A request that ends with this status; the other fields are those of `Problem`."""

    def __init__(self, status: int, detail: str, next_step: str = "", **fields: Any) -> None:
        super().__init__(detail)
        self.problem = Problem(status=status, detail=detail, next_step=next_step, **fields)

    @classmethod
    def of(cls, problem: Problem) -> "ProblemError":
        """To be raised with a problem that is there."""
        error = cls(problem.status, problem.detail)
        error.problem = problem
        return error


def problem_of(error: HeadraceError) -> Problem:
    """The problem that an error is answered with."""
    if isinstance(error, ProblemError):
        return error.problem
    status = _status(error)
    headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Problem(status=status, detail=str(error), headers=headers)


def problem_response(problem: Problem) -> Response:
    """The response that carries it."""
    body = orjson.dumps(problem.to_json(), option=orjson.OPT_NON_STR_KEYS)
    return Response(body, problem.status, headers=dict(problem.headers), media_type=MEDIA_TYPE)


def _status(error: HeadraceError) -> int:
    match error:
        case RequestError():
            return _OF_KAFKA.get(error.code, HTTPStatus.BAD_REQUEST)
        case RetriableError() | ConfigError():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case FencedError():
            return HTTPStatus.CONFLICT
        case DiskError():
            return HTTPStatus.INSUFFICIENT_STORAGE
        case CorruptionError():
            return HTTPStatus.BAD_GATEWAY
    return HTTPStatus.INTERNAL_SERVER_ERROR


# What a code of Kafka's is in HTTP; all others are a request that the log refuses.
_OF_KAFKA: dict[int, int] = {
    ErrorCode.unknown_topic_or_partition: HTTPStatus.NOT_FOUND,
    ErrorCode.unknown_topic_id: HTTPStatus.NOT_FOUND,
    ErrorCode.group_id_not_found: HTTPStatus.NOT_FOUND,
    ErrorCode.offset_out_of_range: HTTPStatus.GONE,
    ErrorCode.message_too_large: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.record_list_too_large: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ErrorCode.topic_already_exists: HTTPStatus.CONFLICT,
    ErrorCode.non_empty_group: HTTPStatus.CONFLICT,
    ErrorCode.inconsistent_topic_id: HTTPStatus.CONFLICT,
    ErrorCode.topic_authorization_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.group_authorization_failed: HTTPStatus.FORBIDDEN,
    ErrorCode.cluster_authorization_failed: HTTPStatus.FORBIDDEN,
}

_KINDS = {
    400: "bad-request",
    401: "not-logged-in",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    409: "conflict",
    410: "gone",
    413: "too-large",
    415: "media-type",
    421: "wrong-host",
    500: "defect",
    502: "damaged",
    503: "unavailable",
    507: "no-room",
}

_NEXT = {
    401: "send Authorization: Bearer TOKEN, or log in; create a token with `headrace console token add`",
    403: "ask an administrator for a token with the required role",
    404: "check the name; GET /v1 lists all paths",
    405: "use one of the methods in the Allow header",
    413: "send less at once",
    415: "send JSON, with Content-Type: application/json",
    500: "look up the incident in the console's log, and report it",
    502: "see the broker's log for the damaged range; the records around it can still be read",
    503: "try again in a moment; if the problem persists, check that the broker runs at that address",
    507: "free up disk space, then try again",
}
