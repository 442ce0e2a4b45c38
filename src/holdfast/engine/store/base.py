"""The contract of the store, and its value types.

Every verb is one transaction around one guarded statement. The same transaction writes the events, the open slots of
the job and the status of the owner. All verbs take batches. If a ticket no longer holds its slot, the verb writes the
others, counts the refusal, and raises `StaleLease` with the refused tickets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.engine.queue import NO_PAUSES
from holdfast.engine.usage import UNKNOWN_USAGE, Usage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.clock import Moment
    from holdfast.db import Transaction
    from holdfast.engine.admission import AdmissionResult, Request
    from holdfast.engine.effects import Event
    from holdfast.engine.plan import Expire
    from holdfast.engine.queue import Pause, Pauses
    from holdfast.engine.slot import BuildResult, Fault, JobId, OwnerId, Progress, Ring, Slot, Ticket
    from holdfast.engine.states import Operation, Outcome, Status

LARGEST_BATCH = 500  # rows of one write transaction
MAX_UNCOUNTED = 5_000  # events that one roll-up adds to the totals of the metrics
NO_USAGES: Mapping[Ticket, Usage] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewal:
    """A renewal: the ticket, its progress, and whether that changed since the last renewal."""

    ticket: Ticket
    progress: Progress
    progressed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A finished build to publish."""

    ticket: Ticket
    built: BuildResult
    usage: Usage = UNKNOWN_USAGE


# The engine knows only its own rows. Another package whose rows must be committed together with a change of a slot
# passes one of these callbacks, which runs inside the transaction of the engine. A callback may run again if the
# transaction is repeated, so it must only write rows.
#
# - `RequestWriter`, for `admit_with`, writes the subject of the requests (for example a new document) and returns the
#   requests.
# - `AdmissionRecorder`, for `admit_with`, writes what depends on the decisions, such as the progress of the caller.
# - `ResultWriter`, for `complete`, writes the rows of results. It runs after the check of the fence, and receives
#   only results that are published.
RequestWriter = Callable[["Transaction"], "Sequence[Request]"]
AdmissionRecorder = Callable[["Transaction", "Sequence[AdmissionResult]"], None]
ResultWriter = Callable[["Connection", "Sequence[Completion]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt. It is repeated after `delay`; None means that the failure is final."""

    ticket: Ticket
    fault: Fault
    delay: timedelta | None = None
    refund: bool = False  # do not count the attempt
    usage: Usage = UNKNOWN_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A slot that its worker returns unfinished."""

    ticket: Ticket
    refund: bool = False
    usage: Usage = UNKNOWN_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An owner with its slots, from one snapshot."""

    id: OwnerId
    base: str
    name: str
    generation: int
    fingerprint: str | None
    status: Status
    slots: tuple[Slot, ...]

    def slot(self, kind: str) -> Slot | None:
        return next((slot for slot in self.slots if slot.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One accepted request and its outcome."""

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
    untold: bool  # its end must be reported, and was not yet
    prioritised_at: Moment | None  # when a user last changed its priority
    traceparent: str | None = None  # the place of the request in a trace


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event with its position in the log."""

    id: int
    at: Moment
    event: Event
    xid: int = 0  # id of the transaction on PostgreSQL, where events are ordered by (xid, id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that started no work, with the job that prevented it and the estimated cost."""

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
    """How often requests of one requester were refused for one reason in one base, and their estimated cost."""

    base: str
    requester: str
    reason: str
    times: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileBatch:
    """Slots for the reconciler, with the time of the read."""

    now: Moment
    slots: Sequence[Slot]
    next_due: Moment | None = None
    pauses: Pauses = NO_PAUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Filters of a list of jobs. The state is that of an active job, or the outcome of an ended one."""

    base: str | None = None
    requester: str | None = None
    states: frozenset[str] | None = None  # queued, indexing, deleting, and every Outcome
    owners: tuple[str, ...] | None = None  # names in the base; deleted owners have no jobs in the list
    longer_than: timedelta | None = None  # only jobs with a claim older than this, the oldest first


ALL_JOBS = JobFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job as lists show it."""

    job: Job
    state: str
    progress: Progress | None = None  # of its running slot
    running_since: Moment | None = None  # the oldest claim of its running slots


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of jobs: active jobs in the order of the queue, then ended jobs, newest first.

    With `longer_than`, only running jobs, the longest-running first.
    """

    jobs: Sequence[ListedJob]
    cursor: str | None  # of the next page; None on the last page
    total: int  # jobs on all pages, counted up to a limit
    total_is_exact: bool  # False: there are at least `total`


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """Counts and rates of the queue, from one read."""

    now: Moment
    window: timedelta
    active: Mapping[str, int]  # jobs by state
    active_is_exact: bool  # False: there are at least so many active jobs
    ended: Mapping[str, int]  # jobs that ended within the window, by outcome
    oldest_queued: Moment | None  # when the slot that has waited longest was queued
    pauses: Sequence[Pause]  # active pauses
    long_running: timedelta  # work that runs longer is reported; zero: never

    @property
    def per_hour(self) -> float:
        """Jobs that finished per hour, without superseded, cancelled and deleted jobs."""
        return self._finished_count / (self.window / timedelta(hours=1))

    @property
    def failure_rate(self) -> float | None:
        """The share of failed jobs among those that finished; None if none did."""
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

    def release(self, releases: Sequence[Release]) -> None:
        """Free slots. Only the fence is checked, so that a superseded worker can free its slot, too."""
        ...

    def forget(self, tickets: Sequence[Ticket], usages: Mapping[Ticket, Usage] = NO_USAGES) -> None:
        """Delete the rows of slots that were cleaned up. The owner is deleted with its last slot."""
        ...

    def find_traceparents(self, jobs: Collection[str]) -> dict[str, str]:
        """Return the place in a trace of each job that has one; none if the database does not answer."""
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

    def find_unrung(self, kinds: Collection[str], limit: int) -> ReconcileBatch:
        """Read queued slots without a recent ring, at most `limit` of each kind, in the order of their claims."""
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

    def report_long_running(self, slots: Sequence[Slot]) -> list[Slot]:
        """Write an event for slots that have been running for long, once for each claim. Return those reported."""
        ...

    def delete_old_history(self, keep: timedelta, limit: int) -> int:
        """Delete at most `limit` events, refusals and jobs each that are older than `keep`. Return how many.

        Events stay until they are part of the totals of the metrics.
        """
        ...

    def roll_up(self) -> int:
        """Add a batch of new events to the totals of the metrics. Return how many."""
        ...

    def close(self) -> None: ...
