"""How many event streams one key and one process may hold open, so that streams never block other requests."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.api.problems import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE = 2  # at most 1/SHARE of the connections are streams, and 1/SHARE of the streams belong to one key
RETRY_SECONDS = 10


class Streams:
    """Counts open streams by key; `None` stands for callers without a key."""

    def __init__(self, *, connections: int, most: int, per_key: int) -> None:
        self.most = min(most, max(1, connections // SHARE))
        self.per_key = min(per_key, max(1, self.most // SHARE))
        self._mutex = threading.Lock()
        self._open: Counter[int | None] = Counter()

    @contextmanager
    def one(self, key: int | None) -> Iterator[None]:
        """Count one stream until the end of the block, or refuse it."""
        with self._mutex:
            if self._open[key] >= self.per_key:
                raise _refused(
                    f"This key has {self.per_key} event streams open, which is the limit for one key. Close one of "
                    "them, or raise HOLDFAST_STREAMS_PER_KEY and the limit of open files (ulimit -n) of the server."
                )
            if self._open.total() >= self.most:
                raise _refused(
                    f"The server has {self.most} event streams open, which is its limit. Try again later, or raise "
                    "HOLDFAST_STREAMS and the limit of open files (ulimit -n) of the server."
                )
            self._open[key] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]


def _refused(detail: str) -> Refused:
    # The connection is closed, so that a refused stream frees its file descriptor at once.
    return Refused(
        HTTPStatus.TOO_MANY_REQUESTS,
        detail,
        code="too_many_streams",
        headers={"Retry-After": str(RETRY_SECONDS), "Connection": "close"},
    )
