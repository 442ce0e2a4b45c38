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

from holdfast.engine.queue import NO_PAUSES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.clock import Moment
    from holdfast.db import Transaction
    from holdfast.engine.admission import Request
    from holdfast.engine.effects import Event
    from holdfast.engine.plan import Expire
    from holdfast.engine.queue import Pause, Pauses
    from holdfast.engine.slot import BuildResult, Fault, JobId, OwnerId, Progress, Ring, Slot, Ticket
    from holdfast.engine.states import Operation, Outcome, Status

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
    """The verbs that workers and reconcilers use.

    `SqlStore` implements them and adds the verbs of the packages above the engine, documented there: requests
    (`AdmissionStore`), control of the queue (`QueueControlStore`), reads (`QueueQueryStore`, `SqlStore`) and adoption
    (`AdoptionStore`).
    """

    def claim(self, rings: Sequence[Ring], holder: str) -> list[Ticket]:
        """Claim the slots that these rings name. The result lacks those that cannot be claimed."""
        ...

    def claim_next(self, kinds: Sequence[str], holder: str, limit: int) -> list[Ticket]:
        """Claim the next slots, by priority and age.

        A slot with an earlier attempt is claimed alone: if it kills its worker again, no other slot loses an attempt.
        `limit` counts all slots to build, but slots to delete per kind, so that one batch cleans up many owners.
        """
        ...

    def extend(self, beats: Sequence[LeaseRenewal]) -> None:
        """Renew the leases and write the progress."""
        ...

    def register_worker(self, holder: str) -> None:
        """Record that a worker is alive, and delete workers that have not been seen for ten leases."""
        ...

    def unregister_worker(self, holder: str) -> None:
        """Record that a worker has stopped."""
        ...

    def complete(self, completions: Sequence[Completion], write: ResultWriter | None = None) -> None:
        """Publish builds. Searches see them from the commit on, and slots that were blocked by them are queued.

        `write` adds rows of the caller in the same transaction. It receives only the builds that are published. The
        store may call it again if it has to repeat the transaction.
        """
        ...

    def fail(self, failures: Sequence[Failure]) -> None:
        """Record failed attempts. A final failure also fails the slots that wait for this one.

        A clean-up never fails for good, so the failure of a slot that is being deleted must have a delay.
        """
        ...

    def release(self, surrenders: Sequence[Release]) -> None:
        """Free slots. Only the fence is checked, so that a superseded worker can free its slot, too."""
        ...

    def forget(self, tickets: Sequence[Ticket]) -> None:
        """Delete the rows of slots that were cleaned up. The owner is deleted with its last slot."""
        ...

    def find_recalled(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Return the tickets whose work must stop because of a pause with `stop`."""
        ...

    def guarded(self, ticket: Ticket) -> AbstractContextManager[Connection]:
        """Open a transaction for rows of the worker. It first checks that the ticket still holds the slot."""
        ...

    def publish_transaction(self, completion: Completion) -> AbstractContextManager[Connection]:
        """Open a transaction for rows of the worker that also publishes its build: both are committed or neither."""
        ...

    def publish_in(self, connection: Connection, completion: Completion) -> None:
        """Publish a build in a transaction that the caller opened on the same PostgreSQL database."""
        ...

    def find_due(self, kind: str, limit: int) -> ReconcileBatch:
        """Read the slots of a kind that are due, and the time at which the next one is."""
        ...

    def find_unrung(self, kind: str, limit: int) -> ReconcileBatch:
        """Read queued slots without a recent ring, in the order in which they are claimed."""
        ...

    def list_holders(self) -> list[str]:
        """Return every holder of a lease, alive or expired."""
        ...

    def find_held_by(self, holders: Collection[str], limit: int) -> ReconcileBatch: ...

    def count_outstanding_rings(self, kind: str) -> int:
        """Count recent rings of a kind that no worker has answered yet."""
        ...

    def ring(self, slots: Sequence[Slot]) -> list[Ring]:
        """Record rings for these slots. The result lacks slots that changed or were rung since they were read."""
        ...

    def expire(self, slots: Sequence[tuple[Slot, Expire]]) -> list[Slot]:
        """End leases, unless the slot changed since it was read. Return the slots that changed."""
        ...

    def give_up(self, slots: Sequence[Slot]) -> list[Slot]:
        """Fail slots without attempts left, unless they changed since they were read. Return those that failed."""
        ...

    def delete_old_history(self, keep: timedelta, limit: int) -> int:
        """Delete at most `limit` events, refusals and jobs each that are older than `keep`. Return how many."""
        ...

    def close(self) -> None: ...
