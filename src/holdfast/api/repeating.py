"""Requests that are sent again under the same `Idempotency-Key` are answered as the first one was.

The body is kept on the side while it comes, so that a key which was used for another body can be told.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from holdfast.access.repeats import Answer, Fresh, InFlight, Mismatch, Replay
from holdfast.api import problems
from holdfast.api.callers import caller, served
from holdfast.errors import HoldfastError
from holdfast.stores.disk import TEMPORARY, reporting_full_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Message

    from holdfast.access.callers import Caller

HEADER = "idempotency-key"
REPLAYED = {"Idempotency-Replayed": "true"}
IN_MEMORY = 1 << 20
BLOCK = 1 << 16


class RepeatableRoute(APIRoute):
    """A route whose POST requests may be sent again."""

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
                return await _once(request, _again(request, body), answer, (who, key, digest.hexdigest()))

        return repeatable


async def _once(
    request: Request,
    again: Request,
    answer: Callable[[Request], Coroutine[Any, Any, Response]],
    named: tuple[Caller, str, str],
) -> Response:
    """Answer a request that nobody has answered yet, or as it was answered."""
    repeats = served(request).library.repeats
    begun = await run_in_threadpool(repeats.begin, *named)
    match begun:
        case Replay(answer=kept):
            return Response(kept.body or b"", kept.status, {**kept.headers, **REPLAYED})
        case InFlight():
            detail = "The same request is being answered; ask again in a moment."
            return problems.respond(
                request, HTTPStatus.CONFLICT, "in_flight", detail, headers={"Retry-After": str(problems.A_MOMENT)}
            )
        case Mismatch():
            detail = "This Idempotency-Key was used for another request; take a new one for each."
            return problems.respond(request, HTTPStatus.UNPROCESSABLE_ENTITY, "key_reused", detail)
        case Fresh():
            try:
                response = await _answered(request, again, answer)
            except BaseException:
                await run_in_threadpool(repeats.release, begun)
                raise
            await run_in_threadpool(_keep, repeats, begun, response)
            return response


async def _answered(
    request: Request, again: Request, answer: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Answer; what is refused is an answer, too."""
    try:
        return await answer(again)
    except (HoldfastError, HTTPException, RequestValidationError) as error:
        return problems.told(request, error)


def _keep(repeats: Any, fresh: Fresh, response: Response) -> None:
    """Keep an answer; what failed on our side, or cannot be kept, may be tried again."""
    body = getattr(response, "body", None)
    if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or body is None:
        repeats.release(fresh)
    else:
        repeats.finish(fresh, Answer(status=response.status_code, headers=dict(response.headers), body=bytes(body)))


def _again(request: Request, body: Any) -> Request:
    """Return the request with its body from the beginning."""

    async def receive() -> Message:
        block = body.read(BLOCK)
        return {"type": "http.request", "body": block, "more_body": bool(block)}

    return Request(request.scope, receive)
