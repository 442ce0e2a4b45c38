"""Converts every error to a problem of RFC 9457: what happened, why, what to do next, and a code to branch on.

The status and the code of an error are attributes of its class in `holdfast.errors`; the sentences are in
`holdfast.messages`. An unexpected error is logged with its trace, which the response does not contain.
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
from holdfast.messages import format_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

log = logging.getLogger("holdfast")

RETRYABLE_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY})
MAX_FIELD_ERRORS_IN_DETAIL = 3  # `errors` of the response has all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """A field of a request that is not valid."""

    pointer: str  # JSON pointer (RFC 6901)
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why a request failed. Nothing was changed."""

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
    verdict: str | None = None  # if a conflict: joined, skipped or rejected
    state: str | None = None  # if a conflict: the status of the document
    document: int | None = None  # if a conflict: the existing document
    job: str | None = None  # if a conflict: the active job
    generation: int | None = None  # if the document has changed: its current generation


# Codes of the errors that FastAPI and Starlette raise, except 400.
CODES_BY_STATUS = {
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "no_such_address",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.NOT_ACCEPTABLE: "not_acceptable",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
}


class ProblemResponse(JSONResponse):
    """A problem as JSON; text that is not valid Unicode is escaped."""

    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


class RequestRejected(HTTPException):
    """A request that the server rejects before its operation runs.

    As in `holdfast.errors`, the sentence is the text `problem.<subcode or code>` of the catalogue.

    Example:
        raise RequestRejected(HTTPStatus.MISDIRECTED_REQUEST, "wrong_host", host="example.org")
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        /,
        *,
        subcode: str = "",
        headers: Mapping[str, str] | None = None,
        **params: object,
    ) -> None:
        self.code = code
        self.subcode = subcode
        self.params = {name: str(value) for name, value in params.items()}
        super().__init__(status, format_message(f"problem.{subcode or code}", self.params), dict(headers or {}))


def add_exception_handlers(app: FastAPI) -> None:
    """Make an application return every error as a problem."""
    for kind in (errors.HoldfastError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, build_error_response)


def build_error_response(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, errors.HoldfastError):
        return _build_holdfast_response(request, error)
    if isinstance(error, RequestValidationError):
        return _build_validation_response(request, error)
    if isinstance(error, RequestRejected):
        return _build_rejected_response(request, error)
    if isinstance(error, HTTPException):
        unread = isinstance(error.__cause__, ValueError | RecursionError)
        return (
            _build_unreadable_body_response(request, error.__cause__)
            if unread
            else _build_framework_response(request, error)
        )
    return _build_internal_error_response(request, error)


def build_problem_response(
    request: Request,
    status: int,
    code: str,
    *,
    subcode: str | None = None,
    params: Mapping[str, str] | None = None,
    detail: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> JSONResponse:
    """Return a problem. Without `detail`, its sentence is the text `problem.<subcode or code>` of the catalogue.

    `more` are further fields of `ProblemDetails`.
    """
    params = dict(params or {})
    more.setdefault("retryable", int(status) in RETRYABLE_STATUSES)
    problem = ProblemDetails(
        type=f"urn:holdfast:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=int(status),
        detail=detail or format_message(f"problem.{subcode or code}", params),
        code=code,
        subcode=subcode,
        params=params,
        request_id=getattr(request.state, "request_id", ""),
        instance=request.url.path,
        **more,
    )
    return ProblemResponse(asdict(problem), problem.status, dict(headers or {}))


def _build_holdfast_response(request: Request, error: errors.HoldfastError) -> JSONResponse:
    if error.http_status is None:
        return _build_internal_error_response(request, error)
    status, code, wait = error.http_status, error.code, error.http_retry_after
    more: dict[str, Any] = {}
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
    return build_problem_response(
        request,
        status,
        code,
        subcode=error.subcode or None,
        params={name: value for name, value in error.params.items() if name != "message"},
        detail=str(error),
        headers=headers,
        **more,
    )


def format_etag(generation: int) -> str:
    """Return the entity tag of one generation of a document."""
    return f'"g{generation}"'


def _build_validation_response(request: Request, error: RequestValidationError) -> JSONResponse:
    found = [
        FieldError(pointer="/" + "/".join(_escape_pointer(str(part)) for part in flaw["loc"]), detail=str(flaw["msg"]))
        for flaw in error.errors()
    ]
    first = "; ".join(f"{flaw.pointer}: {flaw.detail}" for flaw in found[:MAX_FIELD_ERRORS_IN_DETAIL])
    return build_problem_response(
        request, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", params={"detail": first}, errors=found
    )


def _build_unreadable_body_response(request: Request, cause: BaseException | None) -> JSONResponse:
    """Return the reason why a body is not readable as JSON. FastAPI gives no reason, only the cause of its error."""
    why = "number_too_long"
    if isinstance(cause, RecursionError):
        why = "body_too_deep"
    elif isinstance(cause, UnicodeError):
        why = "body_not_utf8"
    return build_problem_response(
        request,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "bad_request",
        subcode="unreadable_body",
        params={"why": why},
    )


def _build_rejected_response(request: Request, error: RequestRejected) -> JSONResponse:
    return build_problem_response(
        request,
        error.status_code,
        error.code,
        subcode=error.subcode or None,
        params=error.params,
        headers=error.headers,
    )


def _build_framework_response(request: Request, error: HTTPException) -> JSONResponse:
    """Return an error of FastAPI or Starlette. Their words are a parameter of codes that cover many mistakes."""
    status = HTTPStatus(error.status_code)
    code = CODES_BY_STATUS.get(status)
    words = {"detail": str(error.detail).rstrip(".")}
    if status is HTTPStatus.BAD_REQUEST:
        return build_problem_response(
            request, status, "bad_request", subcode="malformed_body", params=words, headers=error.headers
        )
    if code is None:
        return build_problem_response(request, status, "refused", params=words, headers=error.headers)
    return build_problem_response(request, status, code, headers=error.headers)


def _build_internal_error_response(request: Request, error: Exception) -> JSONResponse:
    log.error("api.failed request=%s route=%s", request.state.request_id, describe_route(request), exc_info=error)
    return build_problem_response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error")


def describe_route(request: Request) -> str:
    """Return the route of a request as a pattern; the path itself may contain text of a document."""
    return f"{request.method} {find_route(request)}"


def find_route(request: Request) -> str:
    return str(getattr(request.scope.get("route"), "path", ""))


def _escape_pointer(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _seconds_until_midnight() -> int:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, int((midnight - now).total_seconds()))
