"""Sends rings through a Celery broker. Workers that the `celery` command starts answer them."""

from __future__ import annotations

import logging
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING

from kombu.exceptions import KombuError

from holdfast.celery.app import make_app, make_arguments, make_queue, task_name
from holdfast.errors import HoldfastError
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kombu import Connection, Queue

    from holdfast.engine import Ring
    from holdfast.engine.schedulers.base import SchedulerSettings, Worker

log = logging.getLogger("holdfast")

RETRY_SECONDS = 5.0  # after the broker could not be reached
NO_ARGUMENTS = repr(())
COUNT_SECONDS = 2.0  # how long the number of messages in a queue is remembered while the queue has room


class CeleryScheduler:
    """Keeps a few rings in each queue. If the broker is down, work waits in the database and rings follow later."""

    needs_rings = True

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._rings_per_queue = settings.workers * settings.rings_per_worker
        self._app = make_app(settings, ())
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._queues: dict[str, Queue] = {}
        self._counted: dict[str, tuple[float, int]] = {}  # by kind: when it was counted, and the room that is left
        self._next_try = 0.0  # monotonic; zero while the broker is reachable

    def start(self, worker: Worker) -> None:
        """Do nothing: the `celery` command starts the workers."""

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - the broker knows better
        """Return how many rings the queue lacks, or 0 if the broker is down.

        Slots that a worker claimed without their own ring leave that ring in the queue, so the queue is counted.
        """
        with self._mutex:
            now = time.monotonic()
            if now < self._next_try:
                return 0
            counted_at, left = self._counted.get(kind, (0.0, 0))
            if left > 0 and now < counted_at + COUNT_SECONDS:
                return left
            try:
                waiting = self._count_messages(kind)
            except self._errors as error:
                self._disconnect(error)
                return 0
            if self._next_try:
                log.info("broker.reachable broker=%s", self._address)
                self._next_try = 0.0
            room = self._rings_per_queue - waiting
            self._counted[kind] = (now, room)
            return room

    def count_messages(self) -> dict[str, int]:
        """Return the number of messages in each queue that was used, by kind; nothing while the broker is down."""
        with self._mutex:
            if time.monotonic() < self._next_try:
                return {}
            try:
                return {kind: self._count_messages(kind) for kind in tuple(self._queues)}
            except self._errors as error:
                self._disconnect(error)
                return {}

    def carry(self, rings: Sequence[Ring]) -> None:
        """Send rings. After an error the rest is lost, and the reconciler rings again."""
        with self._mutex:
            try:
                connection = self._connect()
                with connection.Producer() as producer:
                    for ring in rings:
                        counted_at, left = self._counted.get(ring.kind, (0.0, 0))
                        self._counted[ring.kind] = (counted_at, left - 1)
                        arguments = make_arguments(ring)
                        self._app.send_task(
                            task_name(ring.kind),
                            kwargs=arguments,
                            argsrepr=NO_ARGUMENTS,
                            kwargsrepr=repr(arguments),  # short, so that Celery need not shorten it, which is slow
                            queue=self._declare(ring.kind),
                            producer=producer,
                            retry=False,
                            ignore_result=True,
                        )
            except self._errors as error:
                self._disconnect(error)

    def stop(self) -> None:
        with self._mutex:
            self._close()

    @property
    def _address(self) -> str:
        return mask_secrets(self._settings.broker)

    @cached_property
    def _errors(self) -> tuple[type[BaseException], ...]:
        transport = self._app.connection_for_write()
        return (KombuError, OSError, *transport.connection_errors, *transport.channel_errors)

    def _connect(self) -> Connection:
        if self._connection is None:
            connection = self._app.connection_for_write()
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=RETRY_SECONDS)
            self._connection = connection
        return self._connection

    def _declare(self, kind: str) -> Queue:
        """Return the queue of a kind, declared once for each connection."""
        if kind not in self._queues:
            queue = make_queue(self._settings, kind)
            queue(self._connect().default_channel).declare()
            self._queues[kind] = queue
        return self._queues[kind]

    def _count_messages(self, kind: str) -> int:
        queue = self._declare(kind)
        count: int = (
            self._connect()
            .default_channel.queue_declare(
                queue=queue.name, durable=True, auto_delete=False, arguments=queue.queue_arguments
            )
            .message_count
        )
        return count

    def _disconnect(self, error: BaseException) -> None:
        """Close the connection after an error. Log only the first error of an outage."""
        if not self._next_try:
            problem = HoldfastError(
                "broker_unreachable", broker=self._address, detail=str(error), seconds=int(RETRY_SECONDS)
            )
            log.error("broker.unreachable broker=%s error=%s", self._address, problem)
        self._next_try = time.monotonic() + RETRY_SECONDS
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._queues = {}
        self._counted = {}
        if connection is not None:
            try:
                connection.release()
            except self._errors as error:
                log.debug("broker.not_closed error=%s", error)
