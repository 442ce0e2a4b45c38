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
from holdfast.api.auth import caller, served
from holdfast.auth import Answer, Fresh, InFlight, Mismatch, Replay
from holdfast.disk import TEMPORARY, reporting_full_disk
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Message

    from holdfast.auth import Caller, Repeats

HEADER = "idempotency-key"
REPLAYED = {"Idempotency-Replayed": "true"}
IN_MEMORY = 1 << 20
BLOCK = 1 << 16
SHOWN_ONCE = (
    "This repeats an earlier request with the same Idempotency-Key. The secret was in the first answer and cannot be "
    "shown again; if it was lost, revoke or rotate it and make a new one."
)


class RepeatableRoute(APIRoute):
    """A route whose POST requests may be sent again."""

    def remembered(self, body: bytes) -> bytes:
        """Return what is kept of the body of an answer, and sent when the request is repeated."""
        return body

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def repeatable(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None or request.method != "POST":
                return await answer(request)
            who = await run_in_threadpool(caller, request)
            with reporting_full_disk(TEMPORARY), SpooledTemporaryFile(max_size=IN_MEMORY) as body:
                digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
                async for block in request.stream():
                    digest.update(block)
                    body.write(block)
                body.seek(0)
                named = (who, key, digest.hexdigest())
                response, begun = await _once(request, _again(request, body), answer, named)
                if begun is not None:
                    await run_in_threadpool(self._keep, served(request).library.repeats, begun, response)
                return response

        return repeatable

    def _keep(self, repeats: Repeats, fresh: Fresh, response: Response) -> None:
        """Keep an answer; what failed on our side, or cannot be kept, may be tried again."""
        body = getattr(response, "body", None)
        if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or body is None:
            repeats.release(fresh)
        else:
            kept = self.remembered(bytes(body))
            repeats.finish(fresh, Answer(status=response.status_code, headers=dict(response.headers), body=kept))


class SecretRoute(RepeatableRoute):
    """A route that tells a secret once: the answer is kept without it."""

    def remembered(self, body: bytes) -> bytes:
        """Leave the secret out of what is kept, and say so."""
        told = json.loads(body)
        if "secret" not in told:
            return body
        return json.dumps({**told, "secret": None, "note": SHOWN_ONCE}, ensure_ascii=False).encode()


async def _once(
    request: Request,
    again: Request,
    answer: Callable[[Request], Coroutine[Any, Any, Response]],
    named: tuple[Caller, str, str],
) -> tuple[Response, Fresh | None]:
    """Answer a request that nobody has answered yet, to be kept, or as it was answered."""
    repeats = served(request).library.repeats
    begun = await run_in_threadpool(repeats.begin, *named)
    match begun:
        case Replay(answer=kept):
            return Response(kept.body or b"", kept.status, {**kept.headers, **REPLAYED}), None
        case InFlight():
            detail = "The same request is being answered; ask again in a moment."
            wait = {"Retry-After": str(problems.A_MOMENT)}
            return problems.respond(request, HTTPStatus.CONFLICT, "in_flight", detail, headers=wait), None
        case Mismatch():
            detail = "This Idempotency-Key was used for another request; take a new one for each."
            return problems.respond(request, HTTPStatus.UNPROCESSABLE_ENTITY, "key_reused", detail), None
        case Fresh():
            try:
                return await _answered(request, again, answer), begun
            except BaseException:
                await run_in_threadpool(repeats.release, begun)
                raise


async def _answered(
    request: Request, again: Request, answer: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Answer; what is refused is an answer, too."""
    try:
        return await answer(again)
    except (HoldfastError, HTTPException, RequestValidationError) as error:
        return problems.told(request, error)


def _again(request: Request, body: Any) -> Request:
    """Return the request with its body from the beginning."""

    async def receive() -> Message:
        block = body.read(BLOCK)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request(request.scope, receive)
