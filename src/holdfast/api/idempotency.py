"""Repeats the stored response to a request with the same `Idempotency-Key`.

The body is spooled to a file while it arrives, because its digest shows whether a key is used for another request.
"""

from __future__ import annotations

import hashlib
import json
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
from holdfast.errors import RETRY_AFTER_SECONDS, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Message

    from holdfast.auth import Caller, IdempotencyStore

IDEMPOTENCY_HEADER = "idempotency-key"
REPLAYED_HEADERS = {"Idempotency-Replayed": "true"}
BLOCK_BYTES = 1 << 16
NOTE_ON_REPEAT = (
    "This repeats an earlier request with the same Idempotency-Key. The secret was in the first answer and cannot be "
    "shown again; if it was lost, revoke or rotate it and make a new one."
)


class IdempotentRoute(APIRoute):
    """A route whose POST requests may be repeated."""

    def body_to_store(self, body: bytes) -> bytes:
        """Return the part of the response body that is stored and sent to a repeated request."""
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
        """Store a response; after a server error, or for a stream, the request may be sent again."""
        body = getattr(response, "body", None)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or body is None:
            store.release(first)
        else:
            stored = self.body_to_store(bytes(body))
            store.finish(
                first, StoredResponse(status=response.status_code, headers=dict(response.headers), body=stored)
            )


class SecretIdempotentRoute(IdempotentRoute):
    """A route that shows a secret once: the response is stored without it."""

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
    """Return the stored response, or process the first request and return what to store it under."""
    store = get_server_state(request).library.idempotency
    begun = await run_in_threadpool(store.begin, *named)
    match begun:
        case Replay(response=stored):
            return Response(stored.body or b"", stored.status, {**stored.headers, **REPLAYED_HEADERS}), None
        case InFlight():
            detail = "The same request is being answered; ask again in a moment."
            wait = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return problems.build_problem_response(
                request, HTTPStatus.CONFLICT, "in_flight", detail, headers=wait
            ), None
        case Mismatch():
            detail = "This Idempotency-Key was used for another request; take a new one for each."
            return problems.build_problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "key_reused", detail), None
        case FirstRequest():
            try:
                return await _respond(request, again, handle), begun
            except BaseException:
                await run_in_threadpool(store.release, begun)
                raise


async def _respond(
    request: Request, again: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Process a request; errors of the request are responses that are stored, too."""
    try:
        return await handle(again)
    except (HoldfastError, HTTPException, RequestValidationError) as error:
        return problems.build_error_response(request, error)


def _with_body(request: Request, body: Any) -> Request:
    """Return the request with its body from the start."""

    async def receive() -> Message:
        block = body.read(BLOCK_BYTES)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request(request.scope, receive)
