"""The statements of the queue as people see and control it. What keeps a claim from a paused slot is in statements.py.

Those that list and count are made for the filters in use, so that each has the plan that its filters allow.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Text, and_, case, delete, func, insert, literal_column, not_, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.db import LIMIT, NOW, batch, number, word
from holdfast.engine.states import Operation, SlotState, Status
from holdfast.engine.store.tables import BROKEN, duplicates, events, jobs, owners, pauses, quotas, slots, workers

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    Condition = ColumnElement[bool]


def _text(value: str) -> ColumnElement[str]:
    """Write a word of ours as it is, for partial indexes to see."""
    return literal_column(f"'{value}'", Text)


# ---------------------------------------------------------------- priorities

_row = batch(job=str, priority=int)
RANK_JOBS = (
    update(jobs)
    .values(priority=_row.c.priority, prioritised_at=NOW)
    .where(jobs.c.id == _row.c.job, jobs.c.outcome.is_(None), jobs.c.priority != _row.c.priority)
    .returning(jobs.c.id)
)

_row = batch(slot=int, priority=int)
RANK_SLOTS = update(slots).values(priority=_row.c.priority).where(slots.c.id == _row.c.slot)

_row = batch(job=str)
NAMED_JOBS = select(jobs).select_from(jobs.join(_row, jobs.c.id == _row.c.job))

# ---------------------------------------------------------------- pauses

_base = word("base")
PAUSE_AGAIN = (
    update(pauses)
    .values(
        since=case((pauses.c.resumed_at.is_(None), pauses.c.since), else_=NOW),
        stop=number("stop"),
        requester=word("requester"),
        resumed_at=None,
    )
    .where(pauses.c.base == _base, or_(pauses.c.resumed_at.is_not(None), pauses.c.stop != number("stop")))
    .returning(pauses.c.base)
)
PAUSE = (
    insert(pauses)
    .from_select(
        ["base", "since", "stop", "requester"],
        select(_base, NOW, number("stop"), word("requester")).where(
            not_(select(pauses.c.base).where(pauses.c.base == _base).exists())
        ),
    )
    .returning(pauses.c.base)
)
RESUME = (
    update(pauses)
    .values(resumed_at=NOW)
    .where(pauses.c.base == _base, pauses.c.resumed_at.is_(None))
    .returning(pauses.c.base)
)
# Rings that were answered in vain while paused; forgotten, their slots are rung again at once.
RUNG_IN_VAIN = (
    select(slots.c.id)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(
        slots.c.rung_at.is_not(None),
        slots.c.state.in_([_text(SlotState.QUEUED), _text(SlotState.WAITING)]),
        or_(_base == _text(""), owners.c.base == _base),
    )
    .limit(LIMIT)
    .with_for_update(of=owners, skip_locked=True)
)
_row = batch(slot=int)
UNRING = update(slots).values(rung_at=None).where(slots.c.id == _row.c.slot)

# ---------------------------------------------------------------- quotas

RAISE_QUOTA = update(quotas).values(per_day=number("per_day")).where(quotas.c.base == _base).returning(quotas.c.base)
SET_QUOTA = insert(quotas).from_select(
    ["base", "per_day", "day", "used"],
    select(_base, number("per_day"), literal_column("0"), literal_column("0")),
)
DROP_QUOTA = delete(quotas).where(quotas.c.base == _base).returning(quotas.c.base)
READ_QUOTA = select(quotas).where(quotas.c.base == _base)

# ---------------------------------------------------------------- refused requests

_before = duplicates.c.id < number("before")
NEWEST_REFUSALS = select(duplicates).where(_before).order_by(duplicates.c.id.desc()).limit(LIMIT)
NEWEST_REFUSALS_OF_BASE = NEWEST_REFUSALS.where(duplicates.c.base == _base)
_told = (duplicates.c.base, duplicates.c.requester, duplicates.c.reason)
COUNT_REFUSALS = (
    select(*_told, func.count(), func.sum(duplicates.c.cost)).group_by(*_told).order_by(func.count().desc(), *_told)
)
COUNT_REFUSALS_OF_BASE = COUNT_REFUSALS.where(duplicates.c.base == _base)

# ---------------------------------------------------------------- asking for many


_some_owners = batch(owner=str)
_named_owners = select(owners.c.id).where(owners.c.base == _base, owners.c.owner.in_(select(_some_owners.c.owner)))


class Scope(NamedTuple):
    """Which filters a statement has; their values are parameters."""

    base: bool = False
    requester: bool = False
    states: frozenset[str] | None = None
    owners: bool = False

    def conditions(self, of: Any, state: ColumnElement[str]) -> list[Condition]:
        """Return the filters as conditions."""
        found: list[Condition] = []
        if self.owners:  # which are of the base
            found.append(of.c.owner_id.in_(_named_owners))
        elif self.base:
            found.append(of.c.base == _base)
        if self.requester:
            found.append(of.c.requester == word("requester"))
        if self.states is not None:
            found.append(state.in_([_text(one) for one in sorted(self.states)]))
        return found


_active = jobs.c.outcome.is_(None)
_size = select(func.count()).where(slots.c.owner_id == owners.c.id).correlate(owners).scalar_subquery()


def _stoppable(scope: Scope) -> list[Condition]:
    """Active jobs that a cancel may end: what is being removed stays so."""
    removes = jobs.c.operation.in_([_text(Operation.DELETE), _text(Operation.DROP)])
    return [_active, not_(removes), *scope.conditions(jobs, jobs.c.outcome)]


@cache
def stoppable(scope: Scope) -> Any:
    """Name active jobs with the number of slots each would move, those that were there when we began."""
    return (
        select(jobs.c.id, jobs.c.open)
        .where(*_stoppable(scope), jobs.c.created_at <= number("began"))
        .order_by(jobs.c.priority, jobs.c.created_at, jobs.c.id)
        .limit(LIMIT)
    )


@cache
def count_stoppable(scope: Scope) -> Any:
    """Count active jobs."""
    return select(func.count()).select_from(jobs).where(*_stoppable(scope))


def _broken(scope: Scope) -> list[Condition]:
    """Owners of one of the statuses that can be tried again; both are named, so that the partial index is seen."""
    either = owners.c.status.in_([_text(status) for status in sorted(BROKEN)])
    return [either, owners.c.status == word("status"), *scope.conditions(owners, owners.c.status)]


@cache
def broken(scope: Scope) -> Any:
    """Name owners of one status with the number of slots each has at most to move."""
    return (
        select(owners.c.id, _size, owners.c.base, owners.c.owner)
        .where(*_broken(scope), owners.c.id > number("after"))
        .order_by(owners.c.id)
        .limit(LIMIT)
    )


@cache
def count_broken(scope: Scope) -> Any:
    """Count owners of one status."""
    return select(func.count()).select_from(owners).where(*_broken(scope))


# ---------------------------------------------------------------- pages

# An active job whose owner is neither queued nor indexing has only removals left.
_building = owners.c.status.in_([_text(Status.QUEUED), _text(Status.INDEXING)])
_state = case((_building, owners.c.status), else_=_text(Status.DELETING))
_listed = select(*jobs.c, _state).select_from(jobs.outerjoin(owners, owners.c.id == jobs.c.owner_id))
_ended = jobs.c.finished_at.is_not(None)
LISTED_JOB = _listed.where(jobs.c.id == word("job"))


@cache
def active_jobs(scope: Scope, *, after: bool) -> Any:
    """Read active jobs in store order; `after` continues behind one."""
    conditions = [_active, *scope.conditions(jobs, _state)]
    if after:
        conditions.append(
            _behind((jobs.c.priority, number("priority")), (jobs.c.created_at, number("at")), (jobs.c.id, word("id")))
        )
    order = (jobs.c.priority, jobs.c.created_at, jobs.c.id)
    return _listed.where(*conditions).order_by(*order).limit(LIMIT).offset(number("offset"))


@cache
def ended_jobs(scope: Scope, *, after: bool) -> Any:
    """Read ended jobs, newest end first; `after` continues behind one."""
    conditions = [_ended, *scope.conditions(jobs, jobs.c.outcome)]
    if after:
        same = and_(jobs.c.finished_at == number("at"), jobs.c.id < word("id"))
        conditions.append(and_(jobs.c.finished_at <= number("at"), or_(jobs.c.finished_at < number("at"), same)))
    order = (jobs.c.finished_at.desc(), jobs.c.id.desc())
    return _listed.where(*conditions).order_by(*order).limit(LIMIT).offset(number("offset"))


@cache
def count_jobs(scope: Scope, *, active: bool) -> Any:
    """Count jobs, at most as many as the limit says."""
    state = _state if active else jobs.c.outcome
    some = _listed.with_only_columns(jobs.c.id).where(_active if active else _ended, *scope.conditions(jobs, state))
    return select(func.count()).select_from(some.limit(LIMIT).subquery())


@cache
def active_by_state(scope: Scope) -> Any:
    """Count active jobs by their states."""
    return (
        select(_state, func.count())
        .select_from(jobs.join(owners, owners.c.id == jobs.c.owner_id))
        .where(_active, *scope.conditions(jobs, _state))
        .group_by(_state)
    )


@cache
def ended_by_outcome(scope: Scope) -> Any:
    """Count jobs that ended within a window by their outcomes."""
    return (
        select(jobs.c.outcome, func.count())
        .where(_ended, jobs.c.finished_at > NOW - number("window"), *scope.conditions(jobs, jobs.c.outcome))
        .group_by(jobs.c.outcome)
    )


@cache
def ended_by_time(scope: Scope) -> Any:
    """Count jobs by their outcomes and by when they ended, in steps of a width since the beginning of time."""
    step = (jobs.c.finished_at - jobs.c.finished_at % number("width")).label("step")
    return (
        select(step, jobs.c.outcome, func.count())
        .where(_ended, jobs.c.finished_at >= number("since"), *scope.conditions(jobs, jobs.c.outcome))
        .group_by(step, jobs.c.outcome)
    )


@cache
def oldest_queued(scope: Scope) -> Any:
    """Return since when the slot waits that has waited longest."""
    return (
        select(func.min(slots.c.queued_at))
        .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
        .where(slots.c.state == _text(SlotState.QUEUED), *scope.conditions(owners, owners.c.status))
    )


# Who holds something, with a lease that has not run out.
HOLDERS = (
    select(owners.c.base, slots.c.holder)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(slots.c.holder.is_not(None), slots.c.until > NOW)
    .distinct()
)
_seen = upsert(workers).values(holder=word("holder"), seen_at=NOW)
ATTEND = _seen.on_conflict_do_update(index_elements=[workers.c.holder], set_={"seen_at": _seen.excluded.seen_at})
DEPART = delete(workers).where(workers.c.holder == word("holder"))
FORGET_SILENT = delete(workers).where(workers.c.seen_at <= NOW - number("silence"))
COUNT_WORKERS = select(func.count()).where(workers.c.seen_at > NOW - number("silence"))
_row = batch(owner_id=int)
PROGRESS_OF = (
    select(slots.c.job, slots.c.stage, slots.c.step, slots.c.steps, slots.c.done, slots.c.total)
    .select_from(slots.join(_row, slots.c.owner_id == _row.c.owner_id))
    .where(slots.c.state.in_([_text(SlotState.RUNNING), _text(SlotState.DELETING)]), slots.c.holder.is_not(None))
    .order_by(slots.c.id)
)


def _behind(*columns: tuple[ColumnElement[Any], ColumnElement[Any]]) -> Condition:
    """Hold for what comes after a place, by several columns in turn."""
    (column, value), *others = columns
    if not others:
        return column > value
    return and_(column >= value, or_(column > value, _behind(*others)))


# ---------------------------------------------------------------- why it waits

READ_OWNER_OF = select(owners.c.base, owners.c.owner).where(owners.c.id == number("owner_id"))
AHEAD = select(func.count()).where(
    slots.c.state == _text(SlotState.QUEUED),
    slots.c.kind == word("kind"),
    slots.c.priority <= number("priority"),
    or_(
        slots.c.priority < number("priority"),
        slots.c.queued_at < number("queued_at"),
        and_(slots.c.queued_at == number("queued_at"), slots.c.id < number("slot")),
    ),
)
AT_WORK = (
    select(slots.c.kind, func.count(slots.c.holder.distinct()))
    .where(slots.c.holder.is_not(None), slots.c.until > NOW)
    .group_by(slots.c.kind)
)
_lately = select(events.c.type, events.c.kind, events.c.at).order_by(events.c.id.desc()).limit(LIMIT).subquery()
LAST_CLAIMS = (
    select(_lately.c.kind, func.max(_lately.c.at))
    .where(_lately.c.type == _text("slot.claimed"))
    .group_by(_lately.c.kind)
)
