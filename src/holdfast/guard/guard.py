"""One database and the works guarded in it; opened where it is used, once in each process."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.clock import SystemClock
from holdfast.engine import Operation
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.store import LARGEST_BATCH
from holdfast.engine.store.factory import open_store
from holdfast.errors import BadSettings
from holdfast.guard.work import Work
from holdfast.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from holdfast.engine import Ring
    from holdfast.engine.store import SqlStore
    from holdfast.guard.answers import Finished
    from holdfast.guard.lock import EarlyLock

log = logging.getLogger("holdfast")


class Guard:
    """The guard of an app: `Guard("postgresql+psycopg://…")`.

    Nothing is opened until the first use, and again after a fork: a web server's workers and Celery's children each
    have their own connections.
    """

    def __init__(self, settings: Settings | str | None = None, *, lock: EarlyLock | None = None) -> None:
        if not isinstance(settings, Settings):
            given = Settings.from_environment()
            settings = replace(given, database=settings) if settings else given
        self.settings = settings
        self.lock = lock
        self.clock = SystemClock()
        self.works: dict[str, Work] = {}
        # By process: connections made before a fork belong to the parent, and letting go of them would close them.
        self._opened_by_pid: dict[int, tuple[SqlStore, Reconciler]] = {}

    def work(
        self,
        name: str,
        *,
        operation: Operation | str = Operation.INDEX,
        on_finished: Callable[[Finished], None] | None = None,
    ) -> Work:
        """Name a piece of work.

        `operation` is what a plain request means: `index` skips what is done, `force` does it again but never twice
        at once. `on_finished` is told of the end of every job, at least once, when the next may already be asked for.
        """
        if name in self.works:
            raise BadSettings(f"The work {name!r} is already guarded; choose another name.")
        made = self.works[name] = Work(self, name, Operation(operation), on_finished)
        return made

    @property
    def store(self) -> SqlStore:
        """The store of this process."""
        return self._open()[0]

    def reconcile(self) -> timedelta | None:
        """Do one pass over what needs work; return how long until something is due.

        Takes over from the dead, gives up what is spent, sends again what a broker lost, tells of ends untold.
        """
        pause = self._open()[1].reconcile()
        for work in self.works.values():
            work.notify_late()
        return pause

    def close(self) -> None:
        """Close what this process opened, the early lock included."""
        if self.lock is not None:
            self.lock.close()
        opened = self._opened_by_pid.pop(os.getpid(), None)
        if opened is not None:
            opened[0].close()

    def _open(self) -> tuple[SqlStore, Reconciler]:
        """Find or open what belongs to this process; a mutex here might be copied locked by a fork."""
        opened = self._opened_by_pid.get(os.getpid())
        if opened is not None:
            return opened
        settings = self.settings
        store = open_store(settings.database, rules=settings.rules, clock=self.clock)
        tending = Reconciler(
            store, _ResendingScheduler(self, store), self.works, settings.rules, retention=settings.retention
        )
        opened = self._opened_by_pid.setdefault(os.getpid(), (store, tending))
        if opened[0] is not store:  # another thread was faster
            store.close()
        return opened


class _ResendingScheduler:
    """The scheduler that the guard's reconciler sees: it sends the messages of jobs again."""

    def __init__(self, guard: Guard, store: SqlStore) -> None:
        self._guard = guard
        self._store = store

    def room(self, kind: str) -> int:
        """Take a batch; where nobody carries messages, none."""
        return LARGEST_BATCH if self._guard.works[kind].resend is not None else 0

    def carry(self, rings: Sequence[Ring]) -> None:
        """Send a message for each; one that cannot be sent is rung again later."""
        for job in self._store.list_jobs_of_rings(rings):
            send = self._guard.works[job.base].resend
            assert send is not None  # noqa: S101 - there was room for it
            try:
                send(job)
            except Exception:
                log.exception("ring.not_sent work=%s key=%s job=%s", job.base, job.owner, job.id)
                return
