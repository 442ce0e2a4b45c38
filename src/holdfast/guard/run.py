"""The handle of guarded work: its key and fence, checkpoints, and publishing the result."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Connection

    from holdfast.engine.task import Task
    from holdfast.guard.reports import Report

RENEW_SECONDS = 1.0  # a checkpoint reads the database at most this often
NO_RESULT: Any = object()


class Run:
    """One attempt.

    `fence` rises with each claim and is never reused. Put it into the names of results that are stored outside the
    database, and let readers use the fence that `Work.served` returns: then a late write is never visible.

        with run.commit() as connection:
            connection.execute(insert(invoices).values(id=run.key, total=total))
    """

    def __init__(self, task: Task, report: Report, save: Callable[[Connection, Run, Any], None] | None = None) -> None:
        ticket = task.ticket
        self.key = ticket.key.owner
        self.job = ticket.job
        self.generation = ticket.generation
        self.fence = ticket.fence
        self.attempt = ticket.attempt
        self._task = task
        self._report = report
        self._save = save
        self._renewed_at = time.monotonic()

    def checkpoint(
        self,
        *,
        stage: str = "",
        step: int = 0,
        steps: int = 0,
        done: int = 0,
        total: int = 0,
        counters: Mapping[str, float] | None = None,
    ) -> None:
        """Report progress; raise `StopWork` if the work was cancelled, superseded, deleted or taken over.

        Call it between steps, and before each paid call. `counters` are numbers of your own, such as
        `{"qa_pairs": 12}`; a later value replaces an earlier one.
        """
        if counters:
            self._report.set_counters(counters)
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_SECONDS:
            self._renewed_at = now
            self._task.renew()
        self._task.checkpoint(stage=stage, step=step, steps=steps, done=done, total=total)

    def partial(self, value: Any) -> None:
        """Show a partial result, as JSON, until the job ends. A later one replaces it."""
        self._report.set_partial(value)

    def spent(self, *, tokens: int = 0, price: float = 0.0) -> None:
        """Add to what this job has spent. It also counts if the run fails or is replaced."""
        if tokens < 0 or price < 0 or not math.isfinite(price):
            raise BadRequest("spending_negative", tokens=tokens, price=price)
        self._report.add_spending(tokens, price)

    @property
    def published(self) -> bool:
        """Whether this run has published its result itself."""
        return self._task.published

    @contextmanager
    def commit(self, *, result: Any = NO_RESULT) -> Iterator[Connection]:
        """Open a transaction on the guard's database for your own rows; its end publishes the result with them.

        Both are committed or neither. A worker whose slot was taken over gets `StaleLease` before its first row.
        A Celery task can commit its return value, too, as `result`; otherwise this value is lost if the process is
        killed between the commit and the return.
        """
        with self._task.publish() as connection:
            yield connection
            self._save_result(connection, result)

    def commit_in(self, connection: Connection, *, result: Any = NO_RESULT) -> None:
        """Publish the result within your own transaction on the same PostgreSQL database.

        Your commit makes it durable. A worker whose slot was taken over gets `StaleLease` and must roll back.
        """
        self._task.publish_in(connection)
        self._save_result(connection, result)

    def _save_result(self, connection: Connection, result: Any) -> None:
        if result is not NO_RESULT and self._save is not None:
            self._save(connection, self, result)
