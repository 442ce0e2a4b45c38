"""Repeats the stored response to a request with the same `Idempotency-Key`.

The body is spooled to a file while it arrives, because its digest shows whether a key is used for another request.
"""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from holdfast.api import problems
from holdfast.api.auth import authenticate, get_server_state
from holdfast.auth import FirstRequest, InFlight, Mismatch, Replay, StoredResponse
from holdfast.disk import IN_TEMPORARY_FOLDER, reporting_full_disk
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Message

    from holdfast.auth import Caller, IdempotencyStore

IDEMPOTENCY_HEADER = "idempotency-key"
REPLAYED_HEADERS = {"Idempotency-Replayed": "true"}
MAX_BYTES_IN_MEMORY = 1 << 20
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
        answer = super().get_route_handler()

        async def repeatable(request: Request) -> Response:
            key = request.headers.get(IDEMPOTENCY_HEADER)
            if key is None or request.method != "POST":
                return await answer(request)
            who = await run_in_threadpool(authenticate, request)
            with reporting_full_disk(IN_TEMPORARY_FOLDER), SpooledTemporaryFile(max_size=MAX_BYTES_IN_MEMORY) as body:
                digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
                async for block in request.stream():
                    digest.update(block)
                    body.write(block)
                body.seek(0)
                named = (who, key, digest.hexdigest())
                response, begun = await _respond_once(request, _with_body(request, body), answer, named)
                if begun is not None:
                    await run_in_threadpool(
                        self._store_response, get_server_state(request).library.idempotency, begun, response
                    )
                return response

        return repeatable

    def _store_response(self, repeats: IdempotencyStore, fresh: FirstRequest, response: Response) -> None:
        """Store a response; after a server error, or for a stream, the request may be sent again."""
        body = getattr(response, "body", None)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or body is None:
            repeats.release(fresh)
        else:
            kept = self.body_to_store(bytes(body))
            repeats.finish(
                fresh, StoredResponse(status=response.status_code, headers=dict(response.headers), body=kept)
            )


class SecretIdempotentRoute(IdempotentRoute):
    """A route that shows a secret once: the response is stored without it."""

    def body_to_store(self, body: bytes) -> bytes:
        told = json.loads(body)
        if "secret" not in told:
            return body
        return json.dumps({**told, "secret": None, "note": NOTE_ON_REPEAT}, ensure_ascii=False).encode()


async def _respond_once(
    request: Request,
    again: Request,
    answer: Callable[[Request], Coroutine[Any, Any, Response]],
    named: tuple[Caller, str, str],
) -> tuple[Response, FirstRequest | None]:
    """Return the stored response, or process the first request and return what to store it under."""
    repeats = get_server_state(request).library.idempotency
    begun = await run_in_threadpool(repeats.begin, *named)
    match begun:
        case Replay(response=kept):
            return Response(kept.body or b"", kept.status, {**kept.headers, **REPLAYED_HEADERS}), None
        case InFlight():
            detail = "The same request is being answered; ask again in a moment."
            wait = {"Retry-After": str(problems.RETRY_AFTER_SECONDS)}
            return problems.build_problem_response(
                request, HTTPStatus.CONFLICT, "in_flight", detail, headers=wait
            ), None
        case Mismatch():
            detail = "This Idempotency-Key was used for another request; take a new one for each."
            return problems.build_problem_response(request, HTTPStatus.UNPROCESSABLE_ENTITY, "key_reused", detail), None
        case FirstRequest():
            try:
                return await _respond(request, again, answer), begun
            except BaseException:
                await run_in_threadpool(repeats.release, begun)
                raise


async def _respond(
    request: Request, again: Request, answer: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Process a request; errors of the request are responses that are stored, too."""
    try:
        return await answer(again)
    except (HoldfastError, HTTPException, RequestValidationError) as error:
        return problems.build_error_response(request, error)


def _with_body(request: Request, body: Any) -> Request:
    """Return the request with its body from the start."""

    async def receive() -> Message:
        block = body.read(BLOCK_BYTES)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request(request.scope, receive)
