"""Answers rings in the processes of `celery worker`.

SIGTERM drains: running work stops at its next checkpoint and returns to the queue of the database. The parent process
closes a pipe for this, and each child waits for that, because Celery does not tell its children about a warm shutdown.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from celery.exceptions import Reject
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)

from holdfast.celery.app import make_app, parse_arguments, queue_name, task_name, time_limit
from holdfast.errors import BadSettings, HoldfastError, StoreError, StoreTooNew
from holdfast.health import answering_health
from holdfast.logs import set_log_format
from holdfast.wiring import Library, list_kinds, make_worker, open_configured_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery, Task
    from kombu import Connection

    from holdfast.engine import Ring
    from holdfast.engine.worker import LocalWorker
    from holdfast.metrics import MetricsAnswer
    from holdfast.settings import Settings

log = logging.getLogger("holdfast")

TIMEOUT_PER_QUEUE = (3, 12)  # the first RabbitMQ that accepts a consumer timeout for a queue


def make_worker_app(settings: Settings) -> Celery:
    """Return the application with its tasks, for the `celery` command."""
    if settings.scheduler != "celery":
        raise BadSettings("scheduler_not_celery", value=settings.scheduler)
    kinds = list_kinds()
    app = make_app(settings, kinds)
    process = CeleryProcess(app, settings, kinds)
    for kind in kinds:
        app.task(process.make_task(kind), name=task_name(kind), bind=True)
    after_setup_logger.connect(process.after_setup_logger, weak=False)
    after_setup_task_logger.connect(process.after_setup_logger, weak=False)
    worker_init.connect(process.before_start, weak=False)
    worker_process_init.connect(process.after_fork, weak=False)
    worker_ready.connect(process.after_start, weak=False)
    worker_shutting_down.connect(process.drain, weak=False)
    worker_process_shutdown.connect(process.close, weak=False)
    worker_shutdown.connect(process.close, weak=False)
    return app


class CeleryProcess:
    """The worker of this process. The first ring opens its database, so that each child has its own connections."""

    def __init__(self, app: Celery, settings: Settings, kinds: tuple[str, ...]) -> None:
        self._app = app
        self._settings = settings
        self._kinds = kinds
        self._mutex = threading.Lock()
        self._worker: LocalWorker | None = None
        self._parent = 0  # the process that the `celery` command started
        self._health = ExitStack()
        self._draining = threading.Event()
        self._drained_pipe: tuple[int, int] | None = None  # the write end is closed to drain

    def make_task(self, kind: str) -> Callable[..., None]:
        """Return the function of the task that answers rings of a kind."""

        def answer(task: Task[..., None], **arguments: Any) -> None:
            self._answer(task, parse_arguments(kind, arguments))

        return answer

    def _answer(self, task: Task[..., None], ring: Ring) -> None:
        """Answer a ring. Work of a newer version is returned to the queue, and this worker stops."""
        if self._draining.is_set():
            raise Reject("draining", requeue=True)
        try:
            self._get_worker().run(ring)
        except StoreTooNew as error:
            log.error("worker.too_old error=%s", error)  # noqa: TRY400 - no trace is needed
            self._app.control.shutdown(destination=[task.request.hostname])
            raise Reject(str(error), requeue=True) from error
        except StoreError as error:  # the reconciler rings again when the database is back
            log.warning("ring.not_answered kind=%s error=%s", ring.kind, error)

    def after_setup_logger(self, logger: logging.Logger, **_: Any) -> None:
        set_log_format(logger, self._settings.log_format)

    def before_start(self, sender: Any, **_: Any) -> None:
        """Check the options and the database before the worker starts its processes."""
        try:
            self._check_time_limits(sender)
            self._check_database()
        except HoldfastError as error:
            sys.exit(f"holdfast: {error}")
        self._parent = os.getpid()
        self._drained_pipe = os.pipe()

    def after_fork(self, **_: Any) -> None:
        """Keep only the read end of the pipe, so that the parent alone can close the write end.

        Some pools call this in the parent, because they start no processes.
        """
        if self._drained_pipe is not None and os.getpid() != self._parent:
            os.close(self._drained_pipe[1])

    def after_start(self, sender: Any, **_: Any) -> None:
        self._warn_of_consumer_timeout(sender.connection)
        settings = self._settings
        self._health.enter_context(
            answering_health(settings.host, settings.health_port, self._check_database, self._answer_metrics)
        )

    def drain(self, **_: Any) -> None:
        """Tell the workers of all processes to stop. Safe in a signal handler."""
        if self._drained_pipe is not None:
            with suppress(OSError):  # a second signal
                os.close(self._drained_pipe[1])

    def close(self, **_: Any) -> None:
        if os.getpid() == self._parent:
            self._health.close()
        with self._mutex:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def _get_worker(self) -> LocalWorker:
        with self._mutex:
            if self._worker is None:
                self._worker = worker = make_worker(self._settings, self._consumed_kinds())
                threading.Thread(
                    target=self._wait_for_drain, args=(worker,), name="holdfast-drain", daemon=True
                ).start()
            return self._worker

    def _consumed_kinds(self) -> tuple[str, ...]:
        """Return the kinds of the queues that this worker consumes, so that it works on no others."""
        consumed = self._app.amqp.queues.consume_from
        return tuple(kind for kind in self._kinds if queue_name(self._settings, kind) in consumed)

    def _wait_for_drain(self, worker: LocalWorker) -> None:
        if self._drained_pipe is not None:
            select.select([self._drained_pipe[0]], [], [])  # returns when the write end is closed
            self._draining.set()
            worker.stop()

    def _answer_metrics(self, authorization: str, accept: str) -> MetricsAnswer:
        """Answer `/metrics`. No connection stays open: processes that the pool starts later would inherit it."""
        store = open_configured_store(self._settings)
        try:
            return Library(store, self._settings).metrics_endpoint().answer(authorization, accept)
        finally:
            store.close()

    def _check_database(self) -> None:
        open_configured_store(self._settings).close()

    def _check_time_limits(self, worker: Any) -> None:
        """Refuse options that would end an attempt before its deadline."""
        least = int(time_limit(self._settings).total_seconds())
        limits = {"--time-limit": worker.time_limit, "--soft-time-limit": worker.soft_time_limit}
        for option, limit in limits.items():
            if limit and limit < least:
                raise BadSettings("celery_time_limit", name=option, value=limit, least=least)

    def _warn_of_consumer_timeout(self, connection: Connection) -> None:
        """Log what to set if RabbitMQ is too old to take the time limit from the declaration of a queue."""
        if connection.transport.driver_type != "amqp":
            return
        version = connection.connection.server_properties["version"]
        if tuple(map(int, version.split(".")[:2])) < TIMEOUT_PER_QUEUE:
            needed = int(time_limit(self._settings).total_seconds() * 1000)
            advice = BadSettings("consumer_timeout", version=version, milliseconds=needed)
            log.warning("broker.consumer_timeout version=%s needed_ms=%d advice=%s", version, needed, advice)
