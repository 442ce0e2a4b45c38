"""Every error as a problem of RFC 9457: what happened, why, what to do next, and a code to branch on.

The status and the code of an error are attributes of its class in `holdfast.errors`. An unexpected error is logged
with its trace, which the response does not contain.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from holdfast import errors
from holdfast.api import PROBLEM_JSON
from holdfast.llm import BUDGET_SPENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

log = logging.getLogger("holdfast")

RETRYABLE_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY})


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """A part of a request that is not valid."""

    pointer: str  # as in RFC 6901
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why a request failed; nothing was changed."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    retryable: bool
    subcode: str | None = None  # which of several mistakes with this code
    params: dict[str, str] = field(default_factory=dict)  # the values in the message
    instance: str = ""
    errors: list[FieldError] = field(default_factory=list)
    verdict: str | None = None  # of a conflict: joined, skipped or rejected
    state: str | None = None  # of a conflict: the status of the document
    document: int | None = None  # of a conflict: the existing one
    job: str | None = None  # of a conflict: the active one
    generation: int | None = None  # of a document that has changed: the current one


# Errors that the framework raises itself.
CODES_BY_STATUS = {
    HTTPStatus.BAD_REQUEST: "bad_request",
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "no_such_address",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.NOT_ACCEPTABLE: "not_acceptable",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
    HTTPStatus.MISDIRECTED_REQUEST: "wrong_host",
    HTTPStatus.SERVICE_UNAVAILABLE: "draining",
}
# The framework has only two words for these.
DETAILS_BY_STATUS = {
    HTTPStatus.NOT_FOUND: "There is nothing at this address; /api/v1/openapi.json describes what there is.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This address does not know this method; /api/v1/openapi.json tells which it knows.",
}


class ProblemResponse(JSONResponse):
    """A problem as JSON; text that is not valid Unicode is escaped."""

    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


class RequestRejected(HTTPException):
    """A request that is rejected before it reaches its operation."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code or CODES_BY_STATUS[status]


def add_exception_handlers(app: FastAPI) -> None:
    """Make an application return every error as a problem."""
    for kind in (errors.HoldfastError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, build_error_response)


def build_error_response(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, errors.HoldfastError):
        return _build_holdfast_response(request, error)
    if isinstance(error, RequestValidationError):
        return _build_validation_response(request, error)
    if isinstance(error, HTTPException):
        unread = isinstance(error.__cause__, ValueError | RecursionError)
        return (
            _build_unreadable_body_response(request, error.__cause__)
            if unread
            else _build_http_response(request, error)
        )
    return _build_internal_error_response(request, error)


def build_problem_response(
    request: Request, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    more.setdefault("retryable", int(status) in RETRYABLE_STATUSES)
    problem = ProblemDetails(
        type=f"urn:holdfast:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=int(status),
        detail=detail,
        code=code,
        request_id=getattr(request.state, "request_id", ""),
        instance=request.url.path,
        **more,
    )
    return ProblemResponse(asdict(problem), problem.status, dict(headers or {}))


def _build_holdfast_response(request: Request, error: errors.HoldfastError) -> JSONResponse:
    if error.http_status is None:
        return _build_internal_error_response(request, error)
    status, code, wait = error.http_status, error.code, error.http_retry_after
    params = {name: value for name, value in error.params.items() if name != "message"}
    more: dict[str, Any] = {"subcode": error.subcode or None, "params": params}
    if isinstance(error, errors.WorkError):
        more["retryable"] = isinstance(error, errors.Transient)  # a wrong key or an unknown model needs a person
        if isinstance(error, errors.Transient):
            wait = max(1, int(error.retry_after.total_seconds())) if error.retry_after else wait
        elif code == BUDGET_SPENT:
            status = HTTPStatus.PAYMENT_REQUIRED
    if isinstance(error, errors.Conflict):
        more |= {"verdict": error.verdict, "state": error.status, "document": error.document, "job": error.job}
        if error.reason == "quota_exhausted":
            status, wait = HTTPStatus.TOO_MANY_REQUESTS, _seconds_until_midnight()
    headers = {"Retry-After": str(wait)} if wait else {}
    if isinstance(error, errors.PreconditionFailed):
        more |= {"generation": error.generation}
        headers = {"ETag": format_etag(error.generation)}
    return build_problem_response(request, status, code, str(error), headers=headers, **more)


def format_etag(generation: int) -> str:
    """Return the tag of one generation of a document."""
    return f'"g{generation}"'


def _build_validation_response(request: Request, error: RequestValidationError) -> JSONResponse:
    found = [
        FieldError(pointer="/" + "/".join(_escape_pointer(str(part)) for part in flaw["loc"]), detail=str(flaw["msg"]))
        for flaw in error.errors()
    ]
    detail = "; ".join(f"{flaw.pointer}: {flaw.detail}" for flaw in found[:3]) or "The request cannot be read."
    return build_problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=found)


def _build_unreadable_body_response(request: Request, cause: BaseException | None) -> JSONResponse:
    """Explain why the body is not readable as JSON; the framework gives no reason."""
    why = "a number in it has too many digits"
    if isinstance(cause, RecursionError):
        why = "it is nested too deeply"
    elif isinstance(cause, UnicodeError):
        why = "it is not valid UTF-8"
    detail = f"The body of the request cannot be read as JSON: {why}. Nothing was changed."
    return build_problem_response(
        request, HTTPStatus.UNPROCESSABLE_ENTITY, "bad_request", detail, subcode="unreadable_body"
    )


def _build_http_response(request: Request, error: HTTPException) -> JSONResponse:
    status = HTTPStatus(error.status_code)
    code = error.code if isinstance(error, RequestRejected) else CODES_BY_STATUS.get(status, "refused")
    detail = (
        str(error.detail) if isinstance(error, RequestRejected) else DETAILS_BY_STATUS.get(status, str(error.detail))
    )
    return build_problem_response(request, status, code, detail, headers=error.headers)


def _build_internal_error_response(request: Request, error: Exception) -> JSONResponse:
    log.error("api.failed request=%s route=%s", request.state.request_id, describe_route(request), exc_info=error)
    detail = "Something went wrong that was not foreseen; the server's log has it under the id of this request."
    return build_problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", detail)


def describe_route(request: Request) -> str:
    """Return the route of a request as a pattern; the path itself may contain text of a document."""
    return f"{request.method} {getattr(request.scope.get('route'), 'path', '')}"


def _escape_pointer(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _seconds_until_midnight() -> int:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, int((midnight - now).total_seconds()))
