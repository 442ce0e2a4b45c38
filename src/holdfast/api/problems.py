"""Every error as a problem of RFC 9457: what happened, why, what to do next, and a code to branch on.

The status and the code of an error are attributes of its class in `holdfast.errors`. An unexpected error is logged
with its trace, which the response does not contain.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from holdfast import errors
from holdfast.api import PROBLEM_JSON
from holdfast.llm.failures import BUDGET_SPENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

log = logging.getLogger("holdfast")

RETRYABLE_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY})


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One part of a request that cannot be read."""

    pointer: str  # as in RFC 6901
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why a request was not carried out; nothing was changed."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    retryable: bool
    subcode: str | None = None  # which of the mistakes that the code stands for
    params: dict[str, str] = field(default_factory=dict)  # what the sentence names
    instance: str = ""
    errors: list[FieldError] = field(default_factory=list)
    verdict: str | None = None  # of a conflict: joined, skipped or rejected
    state: str | None = None  # of a conflict: how the document stands
    document: int | None = None  # of a conflict: the one that stands in the way
    job: str | None = None  # of a conflict: the active one
    generation: int | None = None  # of a document that has changed: the one it has now


# What the framework refuses by itself.
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


# What the framework says in two words, in a sentence.
DETAILS_BY_STATUS = {
    HTTPStatus.NOT_FOUND: "There is nothing at this address; /api/v1/openapi.json describes what there is.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This address does not know this method; /api/v1/openapi.json tells which it knows.",
}


class ProblemResponse(JSONResponse):
    """A problem as JSON; what is not valid Unicode in the words of a request is written as an escape."""

    media_type = PROBLEM_JSON

    def render(self, content: Any) -> bytes:
        """Write the body."""
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


class RequestRejected(HTTPException):
    """A request that is refused before it reaches what it is about."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code or CODES_BY_STATUS[status]


def add_exception_handlers(app: FastAPI) -> None:
    """Let an app tell every error as a problem."""
    for kind in (errors.HoldfastError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, build_error_response)


def build_error_response(request: Request, error: Exception) -> JSONResponse:
    """Tell an error."""
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
    """Make the answer."""
    body: dict[str, Any] = {
        "type": f"urn:holdfast:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": int(status),
        "detail": detail,
        "code": code,
        "request_id": getattr(request.state, "request_id", ""),
        "retryable": int(status) in RETRYABLE_STATUSES,
        "subcode": None,
        "params": {},
        "instance": request.url.path,
        "errors": [],
        "verdict": None,
        "state": None,
        "document": None,
        "job": None,
        "generation": None,
    }
    return ProblemResponse(body | more, int(status), dict(headers or {}))


def _build_holdfast_response(request: Request, error: errors.HoldfastError) -> JSONResponse:
    if error.http_status is None:
        return _build_internal_error_response(request, error)
    status, code, wait = error.http_status, error.code, error.http_retry_after
    params = {name: value for name, value in error.params.items() if name != "message"}
    more: dict[str, Any] = {"subcode": error.subcode or None, "params": params}
    if isinstance(error, errors.WorkError):
        more["retryable"] = isinstance(error, errors.Transient)  # a refused key or an unknown model stays so
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
    """Return what tells one generation of a document from the others."""
    return f'"g{generation}"'


def _build_validation_response(request: Request, error: RequestValidationError) -> JSONResponse:
    found = [
        {"pointer": "/" + "/".join(_escape_pointer(str(part)) for part in one["loc"]), "detail": str(one["msg"])}
        for one in error.errors()
    ]
    detail = "; ".join(f"{one['pointer']}: {one['detail']}" for one in found[:3]) or "The request cannot be read."
    return build_problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", detail, errors=found)


def _build_unreadable_body_response(request: Request, cause: BaseException | None) -> JSONResponse:
    """Say why the parser could not read the body as JSON; the framework says only that it could not."""
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
    """Name the route of a request as it is described: the path itself may hold the words of a document."""
    return f"{request.method} {getattr(request.scope.get('route'), 'path', '')}"


def _escape_pointer(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _seconds_until_midnight() -> int:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, int((midnight - now).total_seconds()))
