"""Sends HTTP requests to one server, and converts responses to values of the library and problems to its errors."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from holdfast import errors
from holdfast.errors import BadResponse
from holdfast.logs import mask_http_client_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Params = Mapping[str, Any] | None

T = TypeVar("T")

API_PREFIX = "/api/v1"
TIMEOUT_SECONDS = 60.0
CONFLICT, TOO_MANY_REQUESTS = 409, 429

# A server never sends these, or `_make_error` needs more than a message to make them.
_BUILT_OTHERWISE = (errors.StateConflict, errors.PreconditionFailed, errors.StaleLease, errors.WorkError)
ERRORS_BY_CODE: Mapping[str, type[errors.HoldfastError]] = {
    **{
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError) and "code" in vars(kind)
        if not issubclass(kind, _BUILT_OTHERWISE)
    },
    "invalid_request": errors.BadRequest,
    "unknown_document": errors.UnknownItem,  # also the code of `UnknownOwner`
    "draining": errors.StoreUnavailable,
}


class HttpClient:
    """A connection pool to one server."""

    def __init__(self, address: str, key: str | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        secure = not address.startswith("http://")  # loading certificates is slow, and plain HTTP does not need them
        mask_http_client_log()
        self._client = httpx2.Client(
            base_url=address.rstrip("/") + API_PREFIX, headers=headers, timeout=TIMEOUT_SECONDS, verify=secure
        )

    def close(self) -> None:
        self._client.close()

    def request(self, returns: type[T], verb: str, path: str, **options: Any) -> T:
        """Send a request and return its result; the options are those of httpx. Parameters that are None are not sent.

        `client.request(Base, "GET", "/bases/handbook")` returns a `Base`, or raises the error that the server reports.
        """
        return _parse_response(returns, self._send(verb, path, **options))

    def get_text(self, path: str, **params: Any) -> str:
        return self._send("GET", path, params=params).text

    def download(self, path: str, to: Any, **params: Any) -> int:
        """Write a response to a file as it arrives; return the number of bytes."""
        written = 0
        with self._stream("GET", path, params=params) as response:
            for block in response.iter_bytes():
                written += to.write(block)
        return written

    def stream_events(self, path: str, body: Any) -> Iterator[tuple[str, Any]]:
        """Yield the name and the data of each server-sent event; raise the event `problem` as an error."""
        with self._stream("POST", path, json=body) as response:
            name = ""
            for line in response.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name == "problem":
                    raise _error_from_problem(json.loads(value))
                elif field == "data":
                    yield name, json.loads(value)

    def _send(
        self, verb: str, path: str, *, params: Mapping[str, Any] | None = None, **options: Any
    ) -> httpx2.Response:
        with self._reporting_unreachable():
            response = self._client.request(verb, path, params=_drop_none(params or {}), **options)
        _raise_for_problem(response)
        return response

    @contextmanager
    def _stream(self, verb: str, path: str, *, params: Params = None, **options: Any) -> Iterator[httpx2.Response]:
        with ExitStack() as stack:
            with self._reporting_unreachable():
                opened = self._client.stream(verb, path, params=_drop_none(params), timeout=None, **options)
                response = stack.enter_context(opened)
                if response.is_error:
                    response.read()
            _raise_for_problem(response)
            yield response

    @contextmanager
    def _reporting_unreachable(self) -> Iterator[None]:
        try:
            yield
        except httpx2.HTTPError as error:
            detail = str(error) or type(error).__name__
            raise errors.StoreUnavailable(
                "server_unreachable", host=self._client.base_url.host, detail=detail
            ) from error


def quote_path_segment(name: str) -> str:
    return quote(name, safe="")


def _drop_none(params: Params) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _parse_response(returns: type[T], response: httpx2.Response) -> T:
    try:
        return TypeAdapter(returns).validate_json(response.content or b"null")
    except ValidationError as error:
        raise BadResponse("other_version", host=response.url.host) from error


def _raise_for_problem(response: httpx2.Response) -> None:
    """Raise the error that a problem response describes."""
    if not response.is_error:
        return
    try:
        error = _error_from_problem(response.json())
    except (ValueError, KeyError, TypeError):
        raise BadResponse("not_holdfast", host=response.url.host, status=response.status_code) from None
    raise error


def _error_from_problem(problem: Mapping[str, Any]) -> errors.HoldfastError:
    """Return the error of the library, with the code, the parameters and the sentence of the server."""
    error = _make_error(problem)
    error.code = problem["code"]
    error.subcode = problem.get("subcode") or ""
    error.params = problem.get("params") or {}
    return error


def _make_error(problem: Mapping[str, Any]) -> errors.HoldfastError:
    code, detail, status = problem["code"], problem["detail"], problem["status"]
    if status in (CONFLICT, TOO_MANY_REQUESTS) and problem.get("verdict"):
        return errors.Conflict(
            code,
            detail,
            verdict=problem["verdict"],
            status=problem["state"],
            document=problem["document"],
            job=problem["job"],
        )
    if code == "changed_meanwhile" and problem.get("generation") is not None:
        return errors.PreconditionFailed(problem["generation"])
    if status == CONFLICT and code not in ERRORS_BY_CODE:
        return errors.StateConflict(code, detail)
    kind = ERRORS_BY_CODE.get(code, errors.HoldfastError)
    error = kind.__new__(kind)
    errors.HoldfastError.__init__(error, "", detail)  # constructors of subclasses take other arguments
    return error
