"""Reads the queue: pages of jobs, counts, and why a slot waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, micros
from holdfast.db import MAX_ID
from holdfast.engine.slot import Progress
from holdfast.engine.states import Outcome, Status
from holdfast.engine.store import queue_statements as queue
from holdfast.engine.store import statements as sql
from holdfast.engine.store.base import ALL_JOBS, JobFilter, JobPage, ListedJob, QueueOverview, Refusal, RefusalCount
from holdfast.engine.store.rows import (
    job_from_row,
    pause_from_row,
    pauses_from_rows,
    refusal_from_row,
    slot_from_joined_row,
)
from holdfast.engine.store.transitions import StoreBase, make_storable
from holdfast.engine.waiting import WaitContext, WaitReason, explain
from holdfast.errors import BadRequest, UnknownJob, UnknownOwner
from holdfast.paging import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.slot import Slot

ACTIVE_JOB_STATES = frozenset({str(Status.QUEUED), str(Status.INDEXING), str(Status.DELETING)})
ENDED_JOB_STATES = frozenset(map(str, Outcome))
LOOKBACK_EVENTS = 1000  # newest events that are searched for claims
LARGEST_PAGE = 500
OLDEST_JOBS = 1_000  # active jobs of each priority whose slots are searched for the one that has waited longest


class QueueQueryStore(StoreBase):
    """Every read uses one snapshot."""

    def list_jobs(
        self, filter_: JobFilter = ALL_JOBS, *, cursor: str | None = None, page: int = 1, size: int = 50
    ) -> JobPage:
        """Read a page of jobs, by its number or by the cursor of the previous page.

        A job that ends between two reads may be on both pages: first among the active jobs, then among the ended ones.
        """
        offset = (page - 1) * size
        if not 1 <= size <= LARGEST_PAGE or not 0 <= offset < MAX_COUNT:
            raise BadRequest("bad_page", page=page, size=size, largest=LARGEST_PAGE, reach=MAX_COUNT)
        with self.database.reading() as tx:
            query = _JobQuery(tx, filter_) if filter_.longer_than is None else _RunningJobQuery(tx, filter_)
            active, ended = query.count(active=True), query.count(active=False)
            more = size + 1  # one more, to see whether there is another page
            jobs = query.read_at_offset(offset, more, active) if cursor is None else query.read_after(cursor, more)
            shown = _add_progress(tx, jobs[:size])
        return JobPage(
            jobs=shown,
            cursor=query.cursor(shown[-1]) if len(jobs) > size else None,
            total=active + ended,
            total_is_exact=max(active, ended) < MAX_COUNT,
        )

    def read_listed_job(self, job: str) -> ListedJob:
        with self.database.reading() as tx:
            rows = tx.run(queue.SELECT_LISTED_JOB, job=job)
            if not rows:
                raise UnknownJob(job)
            return _add_progress(tx, [_listed_job_from_row(row) for row in rows])[0]

    def overview(self, base: str | None = None, window: timedelta = timedelta(days=1)) -> QueueOverview:
        """Count active jobs, and jobs that ended within the window, of a base or of all bases.

        If there are 10,000 active jobs or more, the numbers of active jobs are lower limits.
        """
        if window <= timedelta():
            raise BadRequest("window_not_positive", window=window)
        scope = queue.StatementFilters(base=base is not None)
        with self.database.reading() as tx:
            pauses = [pause_from_row(row) for row in tx.run(sql.SELECT_PAUSES)]
            ((jobs, *by_status),) = tx.run(queue.count_active(scope), base=base, limit=MAX_COUNT)
            return QueueOverview(
                now=tx.run(sql.SELECT_NOW)[0][0],
                window=window,
                active=_count_by_state(jobs, *by_status),
                active_is_exact=jobs < MAX_COUNT,
                ended=dict(tx.run(queue.count_ended_by_outcome(scope), base=base, window=micros(window))),
                oldest_queued=tx.run(queue.select_oldest_queued(scope), base=base, limit=OLDEST_JOBS)[0][0],
                pauses=[pause for pause in pauses if pause.active],
                long_running=self.rules.long_running,
            )

    def count_ended(self, base: str | None, since: Moment, width: timedelta) -> dict[tuple[Moment, str], int]:
        """Count ended jobs by outcome and by time in steps of `width`. Keys contain the start of the step."""
        scope = queue.StatementFilters(base=base is not None)
        statement = queue.count_ended_by_time(scope)
        rows = self._read(statement, **_make_base_param(base), since=since, width=micros(width))
        return {(Moment(at), outcome): many for at, outcome, many in rows}

    def count_workers(self) -> int:
        """Count running workers. A killed worker is counted until its lease would have ended."""
        count: int = self._read(queue.COUNT_WORKERS, silence=micros(self.rules.lease))[0][0]
        return count

    def list_active_holders(self) -> list[tuple[str, str]]:
        """Return (base, holder) for all live leases. Idle workers are not included."""
        return self._read(queue.SELECT_HOLDERS_BY_BASE)

    def list_refusals(
        self, base: str | None = None, owner: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[Refusal]:
        """Read requests that started no work, newest first: of one owner, of one base or of all bases.

        `before` is the id of the last refusal of the previous page.
        """
        statement = queue.select_refusals(base=base is not None, owner=owner is not None)
        filters = _make_base_param(base) | ({} if owner is None else {"owner": make_storable(owner)})
        rows = self._read(statement, **filters, before=MAX_ID if before is None else before, limit=limit)
        return [refusal_from_row(row) for row in rows]

    def count_refusals(self, base: str | None = None) -> list[RefusalCount]:
        """Count refused requests by base, requester and reason, the most frequent first."""
        statement = queue.COUNT_REFUSALS if base is None else queue.COUNT_REFUSALS_OF_BASE
        return [RefusalCount(*row) for row in self._read(statement, **_make_base_param(base))]

    def count_all_refusals(self, bases: Iterable[str]) -> int:
        """Count refused requests of these bases, up to `MAX_COUNT`."""
        with self.database.reading() as tx:
            found = tx.run(queue.COUNT_ALL_REFUSALS, [[make_storable(base)] for base in bases], limit=MAX_COUNT)
        numbers: list[int] = [number for (number,) in found]  # SQLite divides a batch
        return min(MAX_COUNT, sum(numbers))

    def explain(self, base: str, owner: str) -> list[WaitReason]:
        """Explain, for each slot of an owner that is not at rest, what it is doing or waiting for."""
        with self.database.reading() as tx:
            slots = [slot_from_joined_row(row) for row in tx.run(sql.SELECT_SLOTS_OF_OWNER, base=base, owner=owner)]
            if not slots:
                raise UnknownOwner(base, owner)
            return self._explain_slots(tx, slots)

    def explain_job(self, job: str) -> list[WaitReason]:
        """Do the same for the slots of one job. An ended job has no reasons."""
        with self.database.reading() as tx:
            jobs = [job_from_row(row) for row in tx.run(sql.SELECT_JOB, job=job)]
            if not jobs:
                raise UnknownJob(job)
            slots = [slot_from_joined_row(row) for row in sorted(tx.run(sql.SELECT_SLOTS, [[jobs[0].owner_id]]))]
            return self._explain_slots(tx, slots, job)

    def _explain_slots(self, tx: Transaction, slots: Sequence[Slot], job: str | None = None) -> list[WaitReason]:
        context = WaitContext(
            now=tx.run(sql.SELECT_NOW)[0][0],
            pauses=pauses_from_rows(tx.run(sql.SELECT_PAUSES)),
            siblings={slot.kind: slot for slot in slots},
            holders_by_kind=dict(tx.run(queue.COUNT_HOLDERS_BY_KIND)),
            last_claims=dict(tx.run(queue.SELECT_LAST_CLAIMS, limit=LOOKBACK_EVENTS)),
        )
        reasons = [
            explain(slot, replace(context, ahead=_count_ahead(tx, slot)), self.rules)
            for slot in slots
            if not slot.resting and job in (None, slot.job)
        ]
        return [reason for reason in reasons if reason is not None]


def _make_base_param(base: str | None) -> dict[str, str]:
    return {} if base is None else {"base": make_storable(base)}


class _JobQuery:
    """The queries for one filter, in one transaction."""

    def __init__(self, tx: Transaction, filter_: JobFilter) -> None:
        self._tx = tx
        known = ACTIVE_JOB_STATES | ENDED_JOB_STATES
        wanted = known if filter_.states is None else filter_.states
        if not wanted <= known:
            raise BadRequest(
                "job_state_unknown", states=", ".join(sorted(wanted - known)), known=", ".join(sorted(known))
            )
        self._states = {True: wanted & ACTIVE_JOB_STATES, False: wanted & ENDED_JOB_STATES}
        self._scope = queue.StatementFilters(
            base=filter_.base is not None,
            requester=filter_.requester is not None,
            owners=filter_.owners is not None,
        )
        self._owners = None if filter_.owners is None else [[make_storable(owner)] for owner in filter_.owners]
        self._values: dict[str, Any] = {
            "base": make_storable(filter_.base or ""),
            "requester": make_storable(filter_.requester or ""),
        }

    def count(self, *, active: bool) -> int:
        if not self._states[active]:
            return 0
        statement = queue.count_jobs(self._narrow_filters(active=active), active=active)
        count: int = self._tx.run(statement, self._owners, **self._values, limit=MAX_COUNT)[0][0]
        return count

    def read_at_offset(self, offset: int, limit: int, active: int) -> list[ListedJob]:
        """Read jobs from this position on."""
        jobs = self._read_page(limit, active=True, offset=offset) if offset < active else []
        if len(jobs) < limit:
            jobs += self._read_page(limit - len(jobs), active=False, offset=max(0, offset - active))
        return jobs

    def read_after(self, cursor: str, limit: int) -> list[ListedJob]:
        """Read the jobs after a cursor."""
        position = _parse_cursor(cursor, "active", "ended")
        jobs = self._read_page(limit, active="priority" in position, **position)
        if len(jobs) < limit and "priority" in position:
            jobs += self._read_page(limit - len(jobs), active=False)
        return jobs

    def _read_page(self, limit: int, *, active: bool, offset: int = 0, **position: Any) -> list[ListedJob]:
        if not self._states[active]:
            return []
        make = queue.select_active_jobs if active else queue.select_ended_jobs
        statement = make(self._narrow_filters(active=active), after=bool(position))
        rows = self._tx.run(statement, self._owners, **self._values, **position, limit=limit, offset=offset)
        return [_listed_job_from_row(row) for row in rows]

    def cursor(self, listed: ListedJob) -> str:
        """Name the position of a job in the list."""
        return _cursor(listed)

    def _narrow_filters(self, *, active: bool) -> queue.StatementFilters:
        """Filter by state only if some states are excluded."""
        every = ACTIVE_JOB_STATES if active else ENDED_JOB_STATES
        return self._scope if self._states[active] == every else self._scope._replace(states=self._states[active])


class _RunningJobQuery(_JobQuery):
    """The queries for jobs whose work has been running for long. Ended jobs are not in the list."""

    def __init__(self, tx: Transaction, filter_: JobFilter) -> None:
        super().__init__(tx, filter_)
        self._values["longer_than"] = micros(filter_.longer_than or timedelta())

    def count(self, *, active: bool) -> int:
        if not active or not self._states[True]:
            return 0
        statement = queue.count_running_jobs(self._narrow_filters(active=True))
        count: int = self._tx.run(statement, self._owners, **self._values, limit=MAX_COUNT)[0][0]
        return count

    def cursor(self, listed: ListedJob) -> str:
        return f"running/{listed.running_since}/{listed.job.id}"

    def _read_page(self, limit: int, *, active: bool, offset: int = 0, **position: Any) -> list[ListedJob]:
        if not active or not self._states[True]:
            return []
        statement = queue.select_running_jobs(self._narrow_filters(active=True), after=bool(position))
        rows = self._tx.run(statement, self._owners, **self._values, **position, limit=limit, offset=offset)
        return [_listed_job_from_row(row) for row in rows]

    def read_after(self, cursor: str, limit: int) -> list[ListedJob]:
        return self._read_page(limit, active=True, **_parse_cursor(cursor, "running"))


def _count_by_state(jobs: int, queued: int, indexing: int, deleting: int) -> dict[str, int]:
    """Return the number of active jobs by state. Jobs that only remove slots are the rest, if all jobs are counted."""
    if jobs < MAX_COUNT:
        deleting = jobs - queued - indexing
    counts = {Status.QUEUED: queued, Status.INDEXING: indexing, Status.DELETING: deleting}
    return {str(state): number for state, number in counts.items() if number}


def _listed_job_from_row(row: Any) -> ListedJob:
    """Return a job with its state: the outcome, or the status of its owner.

    If the owner of an active job is neither queued nor indexing, the job only removes slots.
    """
    *columns, status = row
    job = job_from_row(columns)
    active = status if status in (Status.QUEUED, Status.INDEXING) else Status.DELETING
    return ListedJob(job=job, state=str(job.outcome or active))


def _add_progress(tx: Transaction, listed: Sequence[ListedJob]) -> list[ListedJob]:
    """Add the progress of running jobs, with one statement for all."""
    owners = [[item.job.owner_id] for item in listed if item.job.outcome is None]
    working: dict[str, Progress] = {}
    since: dict[str, Moment] = {}
    for job, claimed_at, stage, step, steps, done, total in tx.run(queue.SELECT_PROGRESS, owners):
        working.setdefault(job, Progress(stage=stage, step=step, steps=steps, done=done, total=total))
        since[job] = min(claimed_at, since.get(job, claimed_at))
    return [replace(item, progress=working.get(item.job.id), running_since=since.get(item.job.id)) for item in listed]


def _cursor(listed: ListedJob) -> str:
    """Name a position: priority and age of an active job, end of an ended one."""
    job = listed.job
    if job.finished_at is None:
        return f"active/{job.priority}/{job.created_at}/{job.id}"
    return f"ended/{job.finished_at}/{job.id}"


def _parse_cursor(cursor: str, *kinds: str) -> dict[str, Any]:
    """Parse a cursor of one of these kinds of lists."""
    try:
        kind, _, rest = cursor.partition("/")
        if kind == "active" and kind in kinds:
            priority, at, id_ = rest.split("/", 2)
            return {"priority": _number(priority), "at": _number(at), "id": make_storable(id_)}
        if kind in kinds:
            at, id_ = rest.split("/", 1)
            return {"at": _number(at), "id": make_storable(id_)}
    except ValueError:
        pass
    raise BadRequest("bad_cursor", cursor=cursor)


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MAX_ID:
        raise ValueError(text)
    return number


def _count_ahead(tx: Transaction, slot: Slot) -> int:
    values: dict[str, Any] = {
        "kind": slot.kind,
        "priority": slot.priority,
        "queued_at": slot.queued_at,
        "slot": slot.id,
        "limit": MAX_COUNT,
    }
    count: int = tx.run(queue.COUNT_SLOTS_AHEAD, **values)[0][0]
    return count
