"""Sends what is due, a few at once, so that a slow receiver does not hold up the others.

A step makes deliveries of new events, claims as many as there are threads free, and does not wait for them. Whoever
has finished wakes the loop around it.
"""

from __future__ import annotations

import logging
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.webhooks.http_post import Line, post

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.webhooks.deliveries import Attempt, Deliveries

log = logging.getLogger("holdfast")

THREADS = 8
SPACING = timedelta(seconds=1)  # between steps while something is due that cannot be begun yet


class Sender:
    """Any number may run side by side, in any number of processes."""

    def __init__(
        self,
        deliveries: Deliveries,
        line: Line,
        *,
        threads: int = THREADS,
        chance: Callable[[], float] = random.random,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._deliveries = deliveries
        self._line = line
        self._threads = threads
        self._chance = chance
        self._wake = wake
        self._mutex = threading.Lock()
        self._under_way: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-webhook")

    def step(self) -> timedelta | None:
        """Begin what can be begun; return when to step again, None for not before somebody wakes."""
        wishes = [self._deliveries.collect()]
        free = self._threads - len(self._under_way)
        for attempt in self._deliveries.claim(free):
            future = self._pool.submit(self._send, attempt)
            with self._mutex:
                self._under_way.add(future)
            future.add_done_callback(self._finished)
        due = self._deliveries.next_due()
        wishes.append(None if due is None else max(due, SPACING))
        return min((wish for wish in wishes if wish is not None), default=None)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        with self._mutex:
            pending = list(self._under_way)
        wait(pending)

    def close(self) -> None:
        """Finish what is under way, and send nothing more."""
        self._pool.shutdown()

    def _send(self, attempt: Attempt) -> None:
        try:
            body = attempt.body.encode()
            answer = post(self._line, attempt.url, attempt.headers, body, attempt.at)
            self._deliveries.note(attempt, answer, self._chance())
        except Exception:  # it is sent again when the claim has run out
            log.exception("webhook.unnoted webhook=%d delivery=%d", attempt.webhook, attempt.delivery)

    def _finished(self, future: Future[None]) -> None:
        with self._mutex:
            self._under_way.discard(future)
        self._wake()
