"""Answers `/metrics` in roles that serve no other requests, and checks who may read."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from holdfast.auth import Scope
from holdfast.errors import HoldfastError
from holdfast.metrics.access import has_metrics_token, read_bearer

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.auth import Caller
    from holdfast.metrics.exposition import RenderedMetrics

log = logging.getLogger("holdfast")

PLAIN = "text/plain; charset=utf-8"


class MetricsAnswer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


class MetricsEndpoint:
    """`/metrics` of one process. It needs the token, or a key that reads all bases where a key is needed."""

    def __init__(
        self,
        render: Callable[[str], RenderedMetrics],
        *,
        token: str,
        needs_key: Callable[[], bool],
        find_caller: Callable[[str], Caller | None],
    ) -> None:
        self._render = render
        self._token = token
        self._needs_key = needs_key
        self._find_caller = find_caller

    def answer(self, authorization: str, accept: str) -> MetricsAnswer:
        """Answer a request with these headers."""
        try:
            refused = self._refuse(authorization)
            if refused is not None:
                return MetricsAnswer(refused, PLAIN, f"{refused.phrase}\n".encode())
            body, content_type = self._render(accept)
        except HoldfastError as error:
            log.warning("metrics.not_read error=%s", error)
            return MetricsAnswer(HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"The metrics cannot be read. See the log.\n")
        return MetricsAnswer(HTTPStatus.OK, content_type, body)

    def _refuse(self, authorization: str) -> HTTPStatus | None:
        """Return the status of the refusal; None: the caller may read."""
        if has_metrics_token(authorization, self._token):
            return None
        if not self._token and not self._needs_key():
            return None
        secret = read_bearer(authorization)
        caller = None if secret is None else self._find_caller(secret)
        if caller is None:
            return HTTPStatus.UNAUTHORIZED
        return None if caller.may(Scope.READ) and caller.bases is None else HTTPStatus.FORBIDDEN
