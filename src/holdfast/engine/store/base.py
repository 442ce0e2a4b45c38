"""The store's contract: what it promises to whoever asks, works and tends.

Every verb is one transaction whose heart is one guarded statement. Within it the slot's event, its part of
`job.open` and the cached status of its owner are written too. Batches are the only form: a single one is a batch
of one. Where a ticket no longer holds its slot the verb writes the others, counts the refusal, and raises
`StaleLease` naming the refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.engine.admission import DEFAULT_PRIORITY
from holdfast.engine.queue import NO_PAUSES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.clock import Moment
    from holdfast.db import Transaction
    from holdfast.engine.admission import AdmissionResult, Request
    from holdfast.engine.effects import Event
    from holdfast.engine.plan import Expire
    from holdfast.engine.queue import BulkResult, Pause, Pauses, Quota
    from holdfast.engine.slot import BuildResult, Fault, JobId, OwnerId, Progress, Ring, Slot, Ticket
    from holdfast.engine.states import Operation, Outcome, Status
    from holdfast.engine.waiting import WaitReason

LARGEST_BATCH = 500  # rows of one write transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewal:
    """A sign of life: the ticket, how far it is, and whether it moved since the last one."""

    ticket: Ticket
    progress: Progress
    progressed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished build, to be published."""

    ticket: Ticket
    built: BuildResult


# The seam between the engine and the packages above it. The engine knows no rows but its own. Rows of another package
# that must be kept together with a move of a slot, or not at all, are written by one of two callbacks, inside the
# engine's transaction. Both may be called again when the transaction has to be run again, so they only write rows.
#
# - `RequestWriter` belongs to `admit_with`: it writes what a request is about (a new document, say) and returns the
#   requests that are then admitted.
# - `ResultWriter` belongs to `complete`: it writes the rows of results. It is called after the fence was checked, and
#   only with the results that are published.
RequestWriter = Callable[["Transaction"], "Sequence[Request]"]
ResultWriter = Callable[["Connection", "Sequence[Completion]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that came to nothing; with `delay` it may be tried again, without it is final."""

    ticket: Ticket
    fault: Fault
    delay: timedelta | None = None
    refund: bool = False  # the attempt is not held against the slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A slot given back by its worker."""

    ticket: Ticket
    refund: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An owner with its slots, read in one snapshot."""

    id: OwnerId
    base: str
    name: str
    generation: int
    fingerprint: str | None
    status: Status
    slots: tuple[Slot, ...]

    def slot(self, kind: str) -> Slot | None:
        """Return its slot of this kind, if it has one."""
        return next((slot for slot in self.slots if slot.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request and what came of it."""

    id: JobId
    owner_id: OwnerId
    base: str
    owner: str
    generation: int
    operation: Operation
    cause: str
    requester: str
    priority: int
    open: int
    outcome: Outcome | None
    results: Mapping[str, Mapping[str, Any]]
    created_at: Moment
    finished_at: Moment | None
    payload: str | None
    untold: bool  # it has ended, or will, and somebody waits to be told
    prioritised_at: Moment | None  # when a person last changed its priority


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event with its place in the log."""

    id: int
    at: Moment
    event: Event
    xid: int = 0  # of the transaction that wrote it, on PostgreSQL: there the order is (xid, id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that made no new work: who asked, what stood in its way, and what it would have cost."""

    id: int
    at: Moment
    base: str
    owner: str
    operation: Operation
    verdict: str
    reason: str
    job: JobId | None
    requester: str
    cost: float


class RefusalCount(NamedTuple):
    """How often one requester was refused for one reason in one base, and what that would have cost."""

    base: str
    requester: str
    reason: str
    times: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileBatch:
    """What a reconcile pass found, with the database's time of reading."""

    now: Moment
    slots: Sequence[Slot]
    next_due: Moment | None = None
    pauses: Pauses = NO_PAUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are listed. A state tells what an active job does, and then how it ended."""

    base: str | None = None
    requester: str | None = None
    states: frozenset[str] | None = None  # queued, indexing, deleting, and every Outcome
    owners: tuple[str, ...] | None = None  # of the base, by their names; one that is gone has no jobs here


ALL_JOBS = JobFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job as a page shows it."""

    job: Job
    state: str
    progress: Progress | None = None  # of what runs for it


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of jobs: the active ones in store order, then those that ended, newest first."""

    jobs: Sequence[ListedJob]
    cursor: str | None  # where the next page begins; None after the last
    total: int  # of all pages, counted up to a limit
    total_is_exact: bool  # False: there are more than `total`


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """How the queue does, of one reading."""

    now: Moment
    window: timedelta
    active: Mapping[str, int]  # jobs by state
    ended: Mapping[str, int]  # jobs that ended within the window, by outcome
    oldest_queued: Moment | None  # since when the slot waits that has waited longest
    pauses: Sequence[Pause]  # that hold now

    @property
    def per_hour(self) -> float:
        """Jobs that came to their own end, by the hour."""
        return self._finished_count / (self.window / timedelta(hours=1))

    @property
    def failure_rate(self) -> float | None:
        """The share of failed jobs among those that came to their own end; None where there was none."""
        return self.ended.get("failed", 0) / self._finished_count if self._finished_count else None

    @property
    def _finished_count(self) -> int:
        return sum(self.ended.get(outcome, 0) for outcome in ("success", "degraded", "failed"))


class Store(Protocol):
    """The only truth."""

    # -- whoever asks

    def admit(self, requests: Sequence[Request]) -> list[AdmissionResult]:
        """Answer each request, in order; what is accepted is durable when this returns."""
        ...

    def admit_with(self, write: RequestWriter) -> list[AdmissionResult]:
        """Answer the requests that `write` returns, in the transaction in which it wrote: both are kept or neither.

        They must be of different owners, at most `LARGEST_BATCH`.
        """
        ...

    # -- whoever controls the queue

    def reprioritise(self, jobs: Sequence[str], priority: int) -> list[AdmissionResult]:
        """Give active jobs another priority, 0 first and 9 last; what runs goes on."""
        ...

    def cancel_jobs(self, jobs: Sequence[str], requester: str = "") -> list[AdmissionResult]:
        """Cancel these jobs, each only while it is the active one of its owner."""
        ...

    def cancel_all(self, base: str | None = None, *, dry_run: bool = False, requester: str = "") -> BulkResult:
        """Cancel every active job of a base, or all; deletes go on."""
        ...

    def retry_all(
        self,
        base: str | None = None,
        *,
        degraded: bool = False,
        dry_run: bool = False,
        priority: int = DEFAULT_PRIORITY,
        requester: str = "",
    ) -> BulkResult:
        """Ask for a retry of every owner of a base, or of all, that failed, or also of those that lack something."""
        ...

    def pause(self, base: str | None = None, *, stop: bool = False, requester: str = "") -> bool:
        """Let nothing of a base, or nothing at all, be claimed; `stop` also calls back what runs."""
        ...

    def resume(self, base: str | None = None) -> bool:
        """End a pause; return whether there was one."""
        ...

    def pauses(self) -> list[Pause]:
        """Read the pauses that hold now."""
        ...

    def set_quota(self, base: str, per_day: int | None) -> None:
        """Let a base start so many build jobs a day (UTC), or any number."""
        ...

    def quota(self, base: str) -> Quota | None:
        """Read the quota of a base as it stands today."""
        ...

    # -- whoever works

    def claim(self, rings: Sequence[Ring], holder: str) -> list[Ticket]:
        """Claim what these rings name, as far as it may be claimed."""
        ...

    def claim_next(self, kinds: Sequence[str], holder: str, limit: int) -> list[Ticket]:
        """Claim the next slots in order of priority and age; one that failed before comes alone.

        At most `limit`; of slots that are deleted at most so many of each kind.
        """
        ...

    def extend(self, beats: Sequence[LeaseRenewal]) -> None:
        """Renew the leases and write the progress."""
        ...

    def register_worker(self, holder: str) -> None:
        """Note that a worker is there, and forget those who have been silent for long."""
        ...

    def unregister_worker(self, holder: str) -> None:
        """Note that a worker has gone."""
        ...

    def complete(self, completions: Sequence[Completion], write: ResultWriter | None = None) -> None:
        """Publish builds: they are served from now on, and what waited for them is queued.

        `write` adds the workers' own rows in the same transaction; it sees only the builds that are published, and may
        be called again where the transaction has to be.
        """
        ...

    def fail(self, failures: Sequence[Failure]) -> None:
        """Record failed attempts; what is final also fails what waited for it."""
        ...

    def release(self, surrenders: Sequence[Release]) -> None:
        """Free slots; the fence alone is checked, so that a superseded worker can do it."""
        ...

    def forget(self, tickets: Sequence[Ticket]) -> None:
        """Remove slots that are being deleted and have been cleaned up; the owner goes with the last."""
        ...

    def find_recalled(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Return those of these tickets whose work a pause wants to be given back."""
        ...

    def guarded(self, ticket: Ticket) -> AbstractContextManager[Connection]:
        """Open a transaction for a worker's own rows; it begins by proving that the ticket holds."""
        ...

    def publish_transaction(self, completion: Completion) -> AbstractContextManager[Connection]:
        """Open a transaction for a worker's own rows that publishes its build with them: both or neither."""
        ...

    def publish_in(self, connection: Connection, completion: Completion) -> None:
        """Publish a build within somebody else's transaction on the same PostgreSQL database."""
        ...

    # -- whoever tends

    def find_due(self, kind: str, limit: int) -> ReconcileBatch:
        """Read slots of this kind whose time has come, and when the next one will."""
        ...

    def find_unrung(self, kind: str, limit: int) -> ReconcileBatch:
        """Read queued slots that nobody was told of lately, in the order they are served."""
        ...

    def list_holders(self) -> list[str]:
        """Name everybody who holds a lease."""
        ...

    def find_held_by(self, holders: Collection[str], limit: int) -> ReconcileBatch:
        """Read the slots of these holders."""
        ...

    def count_outstanding_rings(self, kind: str) -> int:
        """Count the rings of this kind that were sent lately and not answered."""
        ...

    def ring(self, slots: Sequence[Slot]) -> list[Ring]:
        """Note that these are rung; return those to ring, the others were rung or moved meanwhile."""
        ...

    def expire(self, slots: Sequence[tuple[Slot, Expire]]) -> list[Slot]:
        """Take slots from their holders, if nothing moved since they were read."""
        ...

    def give_up(self, slots: Sequence[Slot]) -> list[Slot]:
        """Fail slots whose attempts are spent, if nothing moved since they were read."""
        ...

    def delete_old_history(self, keep: timedelta, limit: int) -> int:
        """Remove history past its retention, at most `limit` rows of each table; return how many."""
        ...

    # -- whoever looks

    def owner(self, base: str, name: str) -> Owner:
        """Read an owner with its slots, or raise `UnknownOwner`."""
        ...

    def slot(self, base: str, name: str, kind: str) -> Slot:
        """Read one slot, or raise `UnknownSlot`."""
        ...

    def job(self, job: str) -> Job:
        """Read a job, or raise `UnknownJob`."""
        ...

    def list_jobs_of_owner(self, owner: OwnerId, limit: int = 100) -> list[Job]:
        """Read the jobs of an owner, newest first."""
        ...

    def list_jobs(
        self, filter_: JobFilter = ALL_JOBS, *, cursor: str | None = None, page: int = 1, size: int = 50
    ) -> JobPage:
        """Read a page of jobs, by its number or from where another page ended."""
        ...

    def overview(self, base: str | None = None, window: timedelta = timedelta(days=1)) -> QueueOverview:
        """Count what is active and what ended within the window, of a base or of all."""
        ...

    def count_workers(self) -> int:
        """Count those who work or wait for work; one that was killed counts until its leases would have run out."""
        ...

    def explain(self, base: str, owner: str) -> list[WaitReason]:
        """Say of each slot of an owner that is not at rest what it is doing or waiting for."""
        ...

    def read_listed_job(self, job: str) -> ListedJob:
        """Read one job as a page of them shows it."""
        ...

    def explain_job(self, job: str) -> list[WaitReason]:
        """Say the same of the slots of one job; nothing where it has ended."""
        ...

    def list_jobs_of_rings(self, rings: Sequence[Ring]) -> list[Job]:
        """Read the jobs that these rings are for."""
        ...

    def list_unreported_jobs(self, base: str, limit: int, grace: timedelta = timedelta()) -> list[Job]:
        """Read jobs that ended at least `grace` ago and whose end somebody waits for, oldest first."""
        ...

    def mark_reported(self, jobs: Sequence[Job]) -> None:
        """Note that somebody was told of the end of these jobs."""
        ...

    def events(self, after: int = 0, limit: int = 1000) -> list[LoggedEvent]:
        """Read the log from a place on."""
        ...

    def refusals(self, after: int = 0, limit: int = 1000) -> list[Refusal]:
        """Read the audit of requests that made no new work."""
        ...

    def list_refusals_of_owner(self, base: str, owner: str, limit: int = 1000) -> list[Refusal]:
        """Read the audit of one owner, newest first."""
        ...

    def list_refusals(self, base: str | None = None, *, before: int | None = None, limit: int = 100) -> list[Refusal]:
        """Read the audit of a base, or of all, newest first, from before one of them on."""
        ...

    def count_refusals(self, base: str | None = None) -> list[RefusalCount]:
        """Count the audit by base, requester and reason."""
        ...

    def find_unknown_owners(self, base: str, owners: Sequence[str]) -> list[str]:
        """Return those of these owners that the store has never heard of."""
        ...

    def adopt(self, requests: Sequence[Request]) -> int:
        """Write that the work of these new owners is done; return how many were new."""
        ...

    def counters(self) -> dict[str, int]:
        """Read the counters, `stale_write_rejected.*` among them."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...
