"""One server over HTTP: what is asked and answered there, as the library's own values and errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter, ValidationError

from holdfast import errors
from holdfast.errors import BadResponse
from holdfast.logs import mask_http_client_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

T = TypeVar("T")

API_PREFIX = "/api/v1"
TIMEOUT_SECONDS = 60.0  # for an answer; a server that is there says something sooner
# What the codes of problems mean here; any other is told by its status.
ERRORS_BY_CODE: Mapping[str, type[errors.HoldfastError]] = {
    "bad_request": errors.BadRequest,
    "invalid_request": errors.BadRequest,
    "bad_settings": errors.BadSettings,
    "forbidden": errors.Forbidden,
    "unauthorized": errors.Unauthorized,
    "database_busy": errors.StoreBusy,
    "database_unavailable": errors.StoreUnavailable,
    "database_failed": errors.StoreError,
    "disk_full": errors.StoreFull,
    "secret_key": errors.BadSecretKey,
    "draining": errors.StoreUnavailable,
}
# Errors that write their sentence themselves; here it comes from the server.
ERRORS_WITH_OWN_MESSAGE: Mapping[str, type[errors.HoldfastError]] = {
    "unknown_base": errors.UnknownBase,
    "unknown_document": errors.UnknownItem,
    "unknown_job": errors.UnknownJob,
    "unknown_index": errors.UnknownSlot,
    "unknown_entity": errors.UnknownEntity,
    "unknown_key": errors.UnknownKey,
    "unknown_webhook": errors.UnknownWebhook,
    "unknown_delivery": errors.UnknownDelivery,
    "base_failed": errors.BaseFailed,
    "name_taken": errors.NameTaken,
}
CONFLICT, TOO_MANY_REQUESTS = 409, 429


class HttpClient:
    """Asks one server."""

    def __init__(self, address: str, key: str | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        secure = not address.startswith("http://")  # whom to trust is read only where it is asked
        mask_http_client_log()
        self._client = httpx2.Client(
            base_url=address.rstrip("/") + API_PREFIX, headers=headers, timeout=TIMEOUT_SECONDS, verify=secure
        )

    def close(self) -> None:
        """Ask no more."""
        self._client.close()

    def get(self, kind: type[T], path: str, /, **params: Any) -> T:
        """Read something."""
        return _parse_response(kind, self._send("GET", path, params=_drop_none(params)))

    def post(self, kind: type[T], path: str, body: Any = None, /, **params: Any) -> T:
        """Ask for something."""
        return _parse_response(kind, self._send("POST", path, json=body, params=_drop_none(params)))

    def post_without_timeout(self, kind: type[T], path: str, /) -> T:
        """Ask for something that may take minutes."""
        return _parse_response(kind, self._send("POST", path, timeout=None))

    def post_if_match(self, kind: type[T], path: str, tags: Sequence[str], /, **params: Any) -> T:
        """Ask for something, if what it is about has one of these tags."""
        headers = {"If-Match": ", ".join(tags)}
        return _parse_response(kind, self._send("POST", path, params=_drop_none(params), headers=headers))

    def patch(self, kind: type[T], path: str, body: Any, /) -> T:
        """Change something."""
        return _parse_response(kind, self._send("PATCH", path, json=body))

    def delete(self, kind: type[T], path: str, /) -> T:
        """Remove something."""
        return _parse_response(kind, self._send("DELETE", path))

    def upload_files(self, kind: type[T], path: str, files: Any, data: Mapping[str, str], /, **params: Any) -> T:
        """Send files."""
        return _parse_response(
            kind, self._send("POST", path, files=files, data=data, params=_drop_none(params), timeout=None)
        )

    def upload_bytes(self, kind: type[T], path: str, content: Any, /, **params: Any) -> T:
        """Send bytes."""
        return _parse_response(kind, self._send("POST", path, content=content, params=_drop_none(params), timeout=None))

    def get_text(self, path: str, **params: Any) -> str:
        """Read a text."""
        return self._send("GET", path, params=_drop_none(params)).text

    def download(self, path: str, to: Any, **params: Any) -> int:
        """Write the bytes of an answer into a file as they come; return how many."""
        written = 0
        with self._stream("GET", path, params=_drop_none(params)) as answer:
            for block in answer.iter_bytes():
                written += to.write(block)
        return written

    def stream_events(self, path: str, body: Any) -> Iterator[tuple[str, Any]]:
        """Ask for something that is answered piece by piece; yield the name and content of each."""
        with self._stream("POST", path, json=body) as answer:
            name = ""
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name == "problem":
                    raise _error_from_problem(json.loads(value))
                elif field == "data":
                    yield name, json.loads(value)

    def _send(self, method: str, path: str, **how: Any) -> httpx2.Response:
        try:
            answer = self._client.request(method, path, **how)
        except httpx2.HTTPError as error:
            raise self._unreachable_error(error) from error
        _raise_for_problem(answer)
        return answer

    def _stream(self, method: str, path: str, **how: Any) -> _StreamedResponse:
        return _StreamedResponse(self, self._client.stream(method, path, timeout=None, **how))

    def _unreachable_error(self, error: Exception) -> errors.StoreUnavailable:
        return errors.StoreUnavailable(
            f"The server at {self._client.base_url.host} does not answer ({error}); see that it runs, and ask again."
        )


class _StreamedResponse:
    """An answer that is read as it comes."""

    def __init__(self, wire: HttpClient, stream: Any) -> None:
        self._client = wire
        self._stream = stream

    def __enter__(self) -> httpx2.Response:
        try:
            answer: httpx2.Response = self._stream.__enter__()
            if answer.is_error:
                answer.read()
        except httpx2.HTTPError as error:
            raise self._client._unreachable_error(error) from error  # noqa: SLF001 - a part of it
        _raise_for_problem(answer)
        return answer

    def __exit__(self, *ended: object) -> None:
        self._stream.__exit__(*ended)


def quote_path_segment(name: str) -> str:
    """Write a name as a part of a path."""
    return quote(name, safe="")


def _drop_none(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _parse_response(kind: type[T], answer: httpx2.Response) -> T:
    if kind is type(None):
        return None
    try:
        return TypeAdapter(kind).validate_json(answer.content)
    except ValidationError as error:
        raise BadResponse(
            f"The server at {answer.url.host} answered something that this version cannot read; see that both are of "
            "the same version of Holdfast."
        ) from error


def _raise_for_problem(answer: httpx2.Response) -> None:
    """Raise what a problem tells."""
    if not answer.is_error:
        return
    try:
        said = answer.json()
        told = _error_from_problem(said)
        told.code, told.subcode, told.params = said["code"], said.get("subcode") or "", said.get("params") or {}
    except (ValueError, KeyError, TypeError):
        raise BadResponse(
            f"The server at {answer.url.host} answered {answer.status_code}, and not as Holdfast does; see that the "
            "address is right."
        ) from None
    raise told


def _error_from_problem(told: Mapping[str, Any]) -> errors.HoldfastError:
    """Return the error that a problem tells of."""
    code, detail, status = told["code"], told["detail"], told["status"]
    if status in (CONFLICT, TOO_MANY_REQUESTS) and told.get("verdict"):
        return errors.Conflict(
            code,
            detail,
            verdict=told["verdict"],
            status=told["state"],
            document=told["document"],
            job=told["job"],
        )
    if code == "changed_meanwhile" and told.get("generation") is not None:
        return errors.PreconditionFailed(told["generation"])
    if code in ERRORS_WITH_OWN_MESSAGE:
        error = ERRORS_WITH_OWN_MESSAGE[code].__new__(ERRORS_WITH_OWN_MESSAGE[code])
        Exception.__init__(error, detail)
        return error
    if status == CONFLICT:
        return errors.StateConflict(code, detail)
    return ERRORS_BY_CODE.get(code, errors.HoldfastError)(detail)
