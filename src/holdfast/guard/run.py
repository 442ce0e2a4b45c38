"""What guarded work sees: who it is, where it may stop, and how it publishes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.engine.task import Task

RENEW_SECONDS = 1.0  # a checkpoint asks the database at most this often


class Run:
    """One attempt, in the hands of the work.

    `fence` is higher with each claim and never used twice. Results that are kept outside the database carry it in
    their name, and readers ask `Work.served` which one to read: then a late write is written and never seen.
    """

    def __init__(self, task: Task) -> None:
        ticket = task.ticket
        self.key = ticket.key.owner
        self.job = ticket.job
        self.generation = ticket.generation
        self.fence = ticket.fence
        self.attempt = ticket.attempt
        self._task = task
        self._renewed_at = time.monotonic()

    def checkpoint(self, *, stage: str = "", step: int = 0, steps: int = 0, done: int = 0, total: int = 0) -> None:
        """Report progress, and stop here if the work was cancelled, replaced, deleted or taken over.

        Call it between any two pieces of work, and before each call that costs money.
        """
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_SECONDS:
            self._renewed_at = now
            self._task.renew()
        self._task.checkpoint(stage=stage, step=step, steps=steps, done=done, total=total)

    def commit(self) -> AbstractContextManager[Connection]:
        """Open a transaction on the guard's database for your own rows; leaving it publishes the result with them.

        Both are kept or neither. A worker that was replaced gets `StaleLease` before its first row.
        """
        return self._task.publish()

    def commit_in(self, connection: Connection) -> None:
        """Publish the result within a transaction of your own on the same PostgreSQL database.

        It is kept when you commit. A worker that was replaced gets `StaleLease`: roll back then.
        """
        self._task.publish_in(connection)
