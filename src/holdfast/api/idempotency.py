"""Requests that are sent again under the same `Idempotency-Key` are answered as the first one was.

The body is kept on the side while it comes, so that a key which was used for another body can be told.
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
from holdfast.errors import RETRY_AFTER_SECONDS, HoldfastError

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
    """A route whose POST requests may be sent again."""

    def body_to_store(self, body: bytes) -> bytes:
        """Return what is kept of the body of an answer, and sent when the request is repeated."""
        return body

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
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
        """Keep an answer; what failed on our side, or cannot be kept, may be tried again."""
        body = getattr(response, "body", None)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or body is None:
            repeats.release(fresh)
        else:
            kept = self.body_to_store(bytes(body))
            repeats.finish(
                fresh, StoredResponse(status=response.status_code, headers=dict(response.headers), body=kept)
            )


class SecretIdempotentRoute(IdempotentRoute):
    """A route that tells a secret once: the answer is kept without it."""

    def body_to_store(self, body: bytes) -> bytes:
        """Leave the secret out of what is kept, and say so."""
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
    """Answer a request that nobody has answered yet, to be kept, or as it was answered."""
    repeats = get_server_state(request).library.idempotency
    begun = await run_in_threadpool(repeats.begin, *named)
    match begun:
        case Replay(response=kept):
            return Response(kept.body or b"", kept.status, {**kept.headers, **REPLAYED_HEADERS}), None
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
                return await _respond(request, again, answer), begun
            except BaseException:
                await run_in_threadpool(repeats.release, begun)
                raise


async def _respond(
    request: Request, again: Request, answer: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Answer; what is refused is an answer, too."""
    try:
        return await answer(again)
    except (HoldfastError, HTTPException, RequestValidationError) as error:
        return problems.build_error_response(request, error)


def _with_body(request: Request, body: Any) -> Request:
    """Return the request with its body from the beginning."""

    async def receive() -> Message:
        block = body.read(BLOCK_BYTES)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request(request.scope, receive)
