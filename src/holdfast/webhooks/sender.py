"""Sends due deliveries in a thread pool, so that a slow receiver does not delay the others.

A step adds deliveries for new events, claims one delivery for each free thread, and does not wait for them. A finished
thread wakes the loop that calls `step`.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.tracing import NO_SPAN, NO_TRACER, SpanKind
from holdfast.webhooks.http_post import PostOptions, post

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from holdfast.tracing import Span, Tracer
    from holdfast.webhooks.deliveries import Attempt, DeliveryOutbox

log = logging.getLogger("holdfast")

THREADS = 8
MIN_STEP_INTERVAL = timedelta(seconds=1)  # between steps while a due delivery cannot be started


class DeliveryTraces(NamedTuple):
    """Continues the trace of a job in the messages about it."""

    tracer: Tracer = NO_TRACER
    find_traceparents: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {}

    def span(self, attempt: Attempt) -> Span:
        """Return the span around an attempt; its place is the `traceparent` that the receiver gets."""
        if not self.tracer.enabled:
            return NO_SPAN
        job = json.loads(attempt.body)["data"].get("job")
        traceparent = self.find_traceparents([job]).get(job) if job else None
        if traceparent is None:
            return NO_SPAN
        return self.tracer.span(
            "deliver webhook",
            kind=SpanKind.CLIENT,
            parent=traceparent,
            attributes={
                "holdfast.job": job,
                "holdfast.webhook": attempt.webhook,
                "holdfast.delivery": attempt.delivery,
                "holdfast.attempt": attempt.attempt_number,
            },
        )


class Sender:
    """Sends the deliveries of one outbox. Any number of senders may run, in any number of processes."""

    def __init__(
        self,
        deliveries: DeliveryOutbox,
        options: PostOptions,
        *,
        threads: int = THREADS,
        chance: Callable[[], float] = random.random,
        wake: Callable[[], None] = lambda: None,
        traces: DeliveryTraces = DeliveryTraces(),  # noqa: B008 - it never changes
    ) -> None:
        self._deliveries = deliveries
        self._options = options
        self._threads = threads
        self._random = chance
        self._wake = wake
        self._traces = traces
        self._mutex = threading.Lock()
        self._in_flight: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-webhook")

    def step(self) -> timedelta | None:
        """Start as many attempts as threads are free; return when to step again, None: when woken."""
        delays = [self._deliveries.collect_events()]
        free = self._threads - len(self._in_flight)
        for attempt in self._deliveries.claim(free):
            future = self._pool.submit(self._send, attempt)
            with self._mutex:
                self._in_flight.add(future)
            future.add_done_callback(self._on_finished)
        due = self._deliveries.delay_until_due()
        delays.append(None if due is None else max(due, MIN_STEP_INTERVAL))
        return min((delay for delay in delays if delay is not None), default=None)

    def wait_until_idle(self) -> None:
        with self._mutex:
            pending = list(self._in_flight)
        wait(pending)

    def close(self) -> None:
        """Wait for running attempts, and start no more."""
        self._pool.shutdown()

    def _send(self, attempt: Attempt) -> None:
        try:
            with self._traces.span(attempt) as span:
                headers = {**attempt.headers, **({"traceparent": span.traceparent} if span.traceparent else {})}
                result = post(self._options, attempt.url, headers, attempt.body.encode(), attempt.claimed_at)
                span.set({"http.response.status_code": result.status})
                if result.reason:
                    span.fail(result.reason)
            self._deliveries.record_result(attempt, result, self._random())
        except Exception:  # sent again when the lease has expired
            log.exception("webhook.outcome_not_recorded webhook=%d delivery=%d", attempt.webhook, attempt.delivery)

    def _on_finished(self, future: Future[None]) -> None:
        with self._mutex:
            self._in_flight.discard(future)
        self._wake()
