"""A guarded database with its kinds of work. Each process opens it at first use."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from holdfast.clock import SystemClock
from holdfast.engine import Operation
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.liveness import make_holder_name
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.store import LARGEST_BATCH, estimate_from_last_runs
from holdfast.errors import BadRequest, BadSettings
from holdfast.extras import importing_extra
from holdfast.guard.callbacks import Callbacks, deliver_due
from holdfast.guard.job_lookup import read_job
from holdfast.guard.page import GuardPage
from holdfast.guard.place import GuardDatabase
from holdfast.guard.spending import SpendingLine, sum_spending
from holdfast.guard.threads import GuardThreads
from holdfast.guard.work import Work
from holdfast.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy import Engine

    from holdfast.engine import Ring
    from holdfast.engine.store import SqlStore
    from holdfast.guard.answers import Finished, JobStatus
    from holdfast.guard.lock import EarlyLock
    from holdfast.metrics import RenderedMetrics

log = logging.getLogger("holdfast")

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """The guard of an app: `Guard("postgresql+psycopg://…")`, or `Guard(engine=engine)` with the engine of the app.

    The database is opened at first use, and again after a fork: each worker of a web server and each child of Celery
    has its own connections.

    The guard has tables of its own: on PostgreSQL in the schema `guard`, on SQLite with the prefix `guard_`. `schema`
    and `prefix` change that. With `create_tables=False` it never creates or upgrades them; `holdfast guard ddl` prints
    the SQL for that.

    Example:
        guard = Guard(engine=engine, schema="indexing", create_tables=False)
    """

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        engine: Engine | None = None,
        schema: str | None = None,
        prefix: str | None = None,
        create_tables: bool = True,
        lock: EarlyLock | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        if not isinstance(settings, Settings):
            given = Settings.from_environment()
            settings = replace(given, database=settings) if settings else given
        self.settings = settings
        self.place = GuardDatabase(settings, engine, schema=schema, prefix=prefix, create_tables=create_tables)
        self.lock = lock
        self.callbacks = callbacks
        self._threads = GuardThreads(settings.database_pool)
        self.clock = SystemClock()
        self.works: dict[str, Work] = {}
        # By process id. Connections from before a fork belong to the parent; dropping the reference would close them.
        self._opened_by_pid: dict[int, _Opened] = {}

    def work(
        self,
        name: str,
        *,
        operation: Operation | str = Operation.INDEX,
        on_finished: Callable[[Finished], None] | None = None,
        key: str | Callable[..., str] | None = None,
    ) -> Work:
        """Register a kind of work, or guard a function with it.

        `operation` is the default of requests: `index` skips a key that is done, `force` does it again, but never twice
        at once. `on_finished` is called at least once for each ended job, after the slot is free for the next.

        Example:
            invoices = guard.work("invoices", on_finished=lambda end: notify(end.requester, end.outcome))

            @guard.work("report", key="tenant")
            def build_report(run: Run, tenant: str) -> str: ...

        `key` is for functions: the name of the parameter that identifies the work, or a function of the arguments; by
        default, the first parameter after the run.
        """
        if name in self.works:
            raise BadSettings("work_name_taken", name=name)
        made = self.works[name] = Work(self, name, Operation(operation), on_finished, key)
        return made

    @property
    def store(self) -> SqlStore:
        """The store of this process."""
        return self._open().store

    @property
    def heartbeat(self) -> Heartbeat:
        """The heartbeat of this process. It runs from the first claim of the process until `close`."""
        heartbeat = self._open().heartbeat
        heartbeat.start()
        return heartbeat

    def reconcile(self) -> timedelta | None:
        """Run the reconciler once; return the time until something is due.

        It frees slots of dead workers, fails slots without attempts left, sends lost messages again, and calls
        `on_finished` for jobs that were not reported. It also calls the addresses of requesters.
        """
        pause = self._open().reconciler.reconcile()
        for work in self.works.values():
            work.notify_late()
            if work.send_due_answers is not None:
                work.send_due_answers()
        if self.callbacks is not None:
            deliver_due(self, self.callbacks)
        return pause

    def job(self, job: str) -> JobStatus:
        """Return a job by its id alone, of whatever work. Raises `UnknownJob`.

        Example:
            guard.job(admission.job).as_dict()
        """
        return read_job(self.store, job)

    def spending(self, days: int = 30) -> list[SpendingLine]:
        """Sum what works have spent, by requester, project and day of the request (UTC), newest day first."""
        return sum_spending(self, days)

    def page(self) -> GuardPage:
        """Return a read-only page of all works, as an ASGI app to mount in yours.

        Example:
            app.mount("/guard", guard.page())
        """
        return GuardPage(self)

    def check_callback(self, address: str | None) -> str | None:
        """Refuse an address that could never be called."""
        if address is None:
            return None
        if self.callbacks is None:
            raise BadSettings("callbacks_not_set")
        if not address.startswith(("https://", "http://")):
            raise BadRequest("callback_address_invalid", address=address)
        return address

    def deliver_soon(self, job: str) -> None:
        """Call the address of a job that has ended, in a thread. If that fails, the reconciler calls it again."""
        if self.callbacks is not None and self.store.is_callback_due(job):
            self._threads.start(deliver_due, self, self.callbacks)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a call of the guard in a thread, so that it does not block the event loop.

        At most `database_pool` calls run at once. If the caller is cancelled, a call that has begun still ends.

        Example:
            asked = await guard.in_thread(index_document.delay, 42, user_id=7)  # a guarded Celery task
        """
        return await self._threads.run(call, *args, **options)

    def metrics(self, accept: str = "") -> RenderedMetrics:
        """Read the metrics of all processes, for Prometheus. `accept` is the header of its request.

        Example:
            body, content_type = guard.metrics(request.headers.get("accept", ""))
        """
        with importing_extra("metrics"):
            from holdfast.metrics import Exposition, SlotCollector  # noqa: PLC0415 - needs an extra

        return Exposition(SlotCollector(self.store)).render(accept)

    def close(self) -> None:
        """Close the connections and threads of this process, and the early lock."""
        self._threads.close()
        if self.lock is not None:
            self.lock.close()
        opened = self._opened_by_pid.pop(os.getpid(), None)
        if opened is not None:
            opened.heartbeat.stop()
            opened.store.close()

    def _open(self) -> _Opened:
        """Return the store of this process; open it if needed. No mutex: a fork could copy it while it is locked."""
        opened = self._opened_by_pid.get(os.getpid())
        if opened is not None:
            return opened
        settings = self.settings
        store = self.place.open(self.clock)
        store.estimate_costs = estimate_from_last_runs
        reconciler = Reconciler(
            store, _ResendingScheduler(self, store), self.works, settings.rules, retention=settings.retention
        )
        heartbeat = Heartbeat(store, self.clock, settings.rules, make_holder_name())
        opened = self._opened_by_pid.setdefault(os.getpid(), _Opened(store, reconciler, heartbeat))
        if opened.store is not store:  # another thread opened it first
            store.close()
        return opened


class _Opened(NamedTuple):
    """What one process has opened."""

    store: SqlStore
    reconciler: Reconciler
    heartbeat: Heartbeat


class _ResendingScheduler:
    """The scheduler of the guard's reconciler: it sends the messages of jobs again."""

    needs_rings = True

    def __init__(self, guard: Guard, store: SqlStore) -> None:
        self._guard = guard
        self._store = store

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:
        """Return the rest of a batch, or 0 for work that has no way to send messages."""
        return LARGEST_BATCH - outstanding() if self._guard.works[kind].resend is not None else 0

    def carry(self, rings: Sequence[Ring]) -> None:
        """Send the message of each ring. After a failure, stop: the reconciler rings again later."""
        for job in self._store.list_jobs_of_rings(rings):
            send = self._guard.works[job.base].resend
            assert send is not None  # noqa: S101 - else `room` was 0
            try:
                send(job)
            except Exception:
                log.exception("ring.not_sent work=%s key=%s job=%s", job.base, job.owner, job.id)
                return
