"""Sends the stored response again if a request repeats an `Idempotency-Key`.

The body is spooled to a temporary file first: its digest shows whether the key is used for another request.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from holdfast.api import problems
from holdfast.api.auth import authenticate, get_server_state
from holdfast.api.uploads import spool_body
from holdfast.auth import FirstRequest, InFlight, Mismatch, Replay, StoredResponse
from holdfast.errors import RETRY_AFTER_SECONDS, HoldfastError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from starlette.types import Message

    from holdfast.auth import Caller, IdempotencyStore

log = logging.getLogger("holdfast")

IDEMPOTENCY_HEADER = "idempotency-key"
REPLAYED_HEADERS = {"Idempotency-Replayed": "true"}
BLOCK_BYTES = 1 << 16
NOTE_ON_REPEAT = (
    "This request repeats an earlier one with the same Idempotency-Key. Only the first response contained the secret. "
    "If you lost it, revoke the key and create a new one, or rotate the secret of the webhook."
)


class IdempotentRoute(APIRoute):
    """A route whose POST requests clients can repeat safely with an `Idempotency-Key`."""

    def body_to_store(self, body: bytes) -> bytes:
        """Return the body that is stored for repeated requests."""
        return body

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_once(request: Request) -> Response:
            key = request.headers.get(IDEMPOTENCY_HEADER)
            if key is None or request.method != "POST":
                return await handle(request)
            caller = await run_in_threadpool(authenticate, request)
            digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
            async with spool_body(request, digest.update) as body:
                named = (caller, key, digest.hexdigest())
                response, begun = await _respond_once(request, _with_body(request, body), handle, named)
                if begun is not None:
                    await run_in_threadpool(
                        self._store_response, get_server_state(request).library.idempotency, begun, response
                    )
                return response

        return handle_once

    def _store_response(self, store: IdempotencyStore, first: FirstRequest, response: Response) -> None:
        """Store a response. After a server error, and for a stream, release the key, so that a repeat runs again."""
        body = getattr(response, "body", None)
        with _ignoring_store_errors():
            if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or body is None:
                store.release(first)
                return
            stored = self.body_to_store(bytes(body))
            store.finish(
                first, StoredResponse(status=response.status_code, headers=dict(response.headers), body=stored)
            )


@contextmanager
def _ignoring_store_errors() -> Iterator[None]:
    """Log an error of the store: the request was processed, so its response is valid, also if it cannot be stored.

    The key is free again when its lease expires. A repeat then runs the request once more.
    """
    try:
        yield
    except StoreError as error:
        log.warning("idempotency.not_stored error=%s", error)


class SecretIdempotentRoute(IdempotentRoute):
    """A route whose response contains a secret. The stored response does not."""

    def body_to_store(self, body: bytes) -> bytes:
        content = json.loads(body)
        if "secret" not in content:
            return body
        return json.dumps({**content, "secret": None, "note": NOTE_ON_REPEAT}, ensure_ascii=False).encode()


async def _respond_once(
    request: Request,
    again: Request,
    handle: Callable[[Request], Coroutine[Any, Any, Response]],
    named: tuple[Caller, str, str],
) -> tuple[Response, FirstRequest | None]:
    """Return the response; for a first request also the record under which to store it."""
    store = get_server_state(request).library.idempotency
    begun = await run_in_threadpool(store.begin, *named)
    match begun:
        case Replay(response=stored):
            return Response(stored.body or b"", stored.status, {**stored.headers, **REPLAYED_HEADERS}), None
        case InFlight():
            wait = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return problems.build_problem_response(request, HTTPStatus.CONFLICT, "in_flight", headers=wait), None
        case Mismatch():
            return problems.build_problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "key_reused"), None
        case FirstRequest():
            try:
                return await _respond(request, again, handle), begun
            except BaseException:
                with _ignoring_store_errors():
                    await run_in_threadpool(store.release, begun)
                raise


async def _respond(
    request: Request, again: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Process a request and return its response, also if that is an error of the request."""
    try:
        return await handle(again)
    except (HoldfastError, HTTPException, RequestValidationError) as error:
        return problems.build_error_response(request, error)


def _with_body(request: Request, body: Any) -> Request:
    """Return the request with a body that is read from this file."""

    async def receive() -> Message:
        block = body.read(BLOCK_BYTES)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request(request.scope, receive)
