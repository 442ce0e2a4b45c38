"""The memory of a process for search: one limit for all copies of the database.

Copies are derived, so each can be dropped at any time; the next query reads it again. When all copies together exceed
the limit, those that were used least recently are dropped. A copy that was used within the last seconds stays, or the
copies for one query would drop each other. Words have to fit into what the others leave.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

SEARCH_MEGABYTES = 512
KEPT_SECONDS = 10.0  # how long a copy stays after its last use


class Copy(NamedTuple):
    size: int  # bytes
    used_at: float
    drop: Callable[[], object]


class SearchMemory:
    """Counts the bytes of all copies, in the order of their last use."""

    def __init__(self, megabytes: float = SEARCH_MEGABYTES) -> None:
        self.limit = int(megabytes * 2**20)
        self._copies: OrderedDict[Hashable, Copy] = OrderedDict()
        self._mutex = threading.Lock()

    def use(self, key: Hashable, size: int, drop: Callable[[], object]) -> int:
        """Record that a copy is used and how large it is, and drop others until all fit.

        Return by how many bytes the remaining copies exceed the limit.
        """
        now = time.monotonic()
        with self._mutex:
            self._copies[key] = Copy(size, now, drop)
            self._copies.move_to_end(key)
            excess = sum(copy.size for copy in self._copies.values()) - self.limit
            dropped = []
            while excess > 0 and next(iter(self._copies.values())).used_at < now - KEPT_SECONDS:
                _, copy = self._copies.popitem(last=False)
                dropped.append(copy)
                excess -= copy.size
        for copy in dropped:
            copy.drop()
        return max(excess, 0)

    def forget(self, key: Hashable) -> None:
        """Record that a copy is gone."""
        with self._mutex:
            self._copies.pop(key, None)
