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

from holdfast.webhooks.http_post import PostOptions, post

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.webhooks.deliveries import Attempt, DeliveryOutbox

log = logging.getLogger("holdfast")

THREADS = 8
MIN_STEP_INTERVAL = timedelta(seconds=1)  # between steps while something is due that cannot be begun yet


class Sender:
    """Any number may run side by side, in any number of processes."""

    def __init__(
        self,
        deliveries: DeliveryOutbox,
        line: PostOptions,
        *,
        threads: int = THREADS,
        chance: Callable[[], float] = random.random,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._deliveries = deliveries
        self._options = line
        self._threads = threads
        self._random = chance
        self._wake = wake
        self._mutex = threading.Lock()
        self._in_flight: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-webhook")

    def step(self) -> timedelta | None:
        """Begin what can be begun; return when to step again, None for not before somebody wakes."""
        wishes = [self._deliveries.collect_events()]
        free = self._threads - len(self._in_flight)
        for attempt in self._deliveries.claim(free):
            future = self._pool.submit(self._send, attempt)
            with self._mutex:
                self._in_flight.add(future)
            future.add_done_callback(self._on_finished)
        due = self._deliveries.delay_until_due()
        wishes.append(None if due is None else max(due, MIN_STEP_INTERVAL))
        return min((wish for wish in wishes if wish is not None), default=None)

    def wait_until_idle(self) -> None:
        """Wait until nothing is under way."""
        with self._mutex:
            pending = list(self._in_flight)
        wait(pending)

    def close(self) -> None:
        """Finish what is under way, and send nothing more."""
        self._pool.shutdown()

    def _send(self, attempt: Attempt) -> None:
        try:
            body = attempt.body.encode()
            answer = post(self._options, attempt.url, attempt.headers, body, attempt.claimed_at)
            self._deliveries.record_result(attempt, answer, self._random())
        except Exception:  # it is sent again when the claim has run out
            log.exception("webhook.unnoted webhook=%d delivery=%d", attempt.webhook, attempt.delivery)

    def _on_finished(self, future: Future[None]) -> None:
        with self._mutex:
            self._in_flight.discard(future)
        self._wake()
