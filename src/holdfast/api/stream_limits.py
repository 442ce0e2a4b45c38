"""Limits of event streams per key and per process, so that streams never block other requests."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.api.problems import RequestRejected

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE_DIVISOR = 2  # at most 1/N of the connections are streams, and 1/N of the streams belong to one key
RETRY_SECONDS = 10


class StreamLimits:
    """Counts open streams by key; `None` stands for callers without a key."""

    def __init__(self, *, connections: int, most: int, per_key: int) -> None:
        self.max_streams = min(most, max(1, connections // SHARE_DIVISOR))
        self.max_per_key = min(per_key, max(1, self.max_streams // SHARE_DIVISOR))
        self._mutex = threading.Lock()
        self._open_streams: Counter[int | None] = Counter()

    @contextmanager
    def reserve(self, key: int | None) -> Iterator[None]:
        """Count one stream until the end of the block, or reject it."""
        with self._mutex:
            if self._open_streams[key] >= self.max_per_key:
                raise _too_many_streams(
                    f"This key has {self.max_per_key} event streams open, which is the limit for one key. Close one of "
                    "them, or raise HOLDFAST_STREAMS_PER_KEY and the limit of open files (ulimit -n) of the server."
                )
            if self._open_streams.total() >= self.max_streams:
                raise _too_many_streams(
                    f"The server has {self.max_streams} event streams open, which is its limit. Try again later, or "
                    "raise HOLDFAST_STREAMS and the limit of open files (ulimit -n) of the server."
                )
            self._open_streams[key] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._open_streams[key] -= 1
                if not self._open_streams[key]:
                    del self._open_streams[key]


def _too_many_streams(detail: str) -> RequestRejected:
    # The connection is closed, so that a refused stream frees its file descriptor at once.
    return RequestRejected(
        HTTPStatus.TOO_MANY_REQUESTS,
        detail,
        code="too_many_streams",
        headers={"Retry-After": str(RETRY_SECONDS), "Connection": "close"},
    )
