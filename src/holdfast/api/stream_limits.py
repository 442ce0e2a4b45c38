"""Limits the event streams per key and per process, so that streams never block other requests."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.api.problems import RequestRejected

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE_DIVISOR = 2  # at most 1/N of the connections are streams, and at most 1/N of the streams belong to one key
RETRY_SECONDS = 10
# The server closes the connection, so that a rejected stream frees its file descriptor at once.
REJECTED_HEADERS = {"Retry-After": str(RETRY_SECONDS), "Connection": "close"}


class StreamLimits:
    """Counts open streams by key; the key of callers without one is None."""

    def __init__(self, *, connections: int, most: int, per_key: int) -> None:
        self.max_streams = min(most, max(1, connections // SHARE_DIVISOR))
        self.max_per_key = min(per_key, max(1, self.max_streams // SHARE_DIVISOR))
        self._mutex = threading.Lock()
        self._open_streams: Counter[int | None] = Counter()

    def count(self) -> int:
        """Return the number of open streams."""
        with self._mutex:
            return self._open_streams.total()

    @contextmanager
    def reserve(self, key: int | None) -> Iterator[None]:
        """Count one stream until the end of the block; raise `RequestRejected` at a limit."""
        with self._mutex:
            if self._open_streams[key] >= self.max_per_key:
                raise RequestRejected(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too_many_streams",
                    subcode="too_many_streams_of_key",
                    headers=REJECTED_HEADERS,
                    limit=self.max_per_key,
                )
            if self._open_streams.total() >= self.max_streams:
                raise RequestRejected(
                    HTTPStatus.TOO_MANY_REQUESTS, "too_many_streams", headers=REJECTED_HEADERS, limit=self.max_streams
                )
            self._open_streams[key] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._open_streams[key] -= 1
                if not self._open_streams[key]:
                    del self._open_streams[key]
