"""SQL for lists, counts and control of the queue.

The condition that prevents claims during a pause is in statements.py.

Statements for lists and counts are built per combination of filters, so that each gets its own query plan.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, case, delete, func, insert, literal_column, not_, or_, select, union_all, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.db import LIMIT, NOW, batch, int_param, is_one_of, text_literal, text_param
from holdfast.engine.queue import WHOLE_QUEUE
from holdfast.engine.states import Operation, Outcome, SlotState, Status
from holdfast.engine.store.tables import (
    ACTIVE_STATUSES,
    LOWEST_PRIORITY,
    RETRYABLE_STATUSES,
    duplicates,
    events,
    jobs,
    owners,
    pauses,
    quotas,
    slots,
    workers,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    Condition = ColumnElement[bool]


_row = batch(job=str, priority=int)
UPDATE_JOB_PRIORITIES = (
    update(jobs)
    .values(priority=_row.c.priority, prioritised_at=NOW)
    .where(jobs.c.id == _row.c.job, jobs.c.outcome.is_(None), jobs.c.priority != _row.c.priority)
    .returning(jobs.c.id)
)

_row = batch(slot=int, priority=int)
UPDATE_SLOT_PRIORITIES = update(slots).values(priority=_row.c.priority).where(slots.c.id == _row.c.slot)

_row = batch(job=str)
SELECT_JOBS = select(jobs).select_from(jobs.join(_row, jobs.c.id == _row.c.job))

_base = text_param("base")
UPDATE_PAUSE = (
    update(pauses)
    .values(
        since=case((pauses.c.resumed_at.is_(None), pauses.c.since), else_=NOW),
        stop=int_param("stop"),
        requester=text_param("requester"),
        resumed_at=None,
    )
    .where(pauses.c.base == _base, or_(pauses.c.resumed_at.is_not(None), pauses.c.stop != int_param("stop")))
    .returning(pauses.c.base)
)
INSERT_PAUSE = (
    insert(pauses)
    .from_select(
        ["base", "since", "stop", "requester"],
        select(_base, NOW, int_param("stop"), text_param("requester")).where(
            not_(select(pauses.c.base).where(pauses.c.base == _base).exists())
        ),
    )
    .returning(pauses.c.base)
)
END_PAUSE = (
    update(pauses)
    .values(resumed_at=NOW)
    .where(pauses.c.base == _base, pauses.c.resumed_at.is_(None))
    .returning(pauses.c.base)
)
# Rings that workers could not answer because of a pause. CLEAR_RINGS lets the reconciler send them again.
SELECT_RUNG_WHILE_PAUSED = (
    select(slots.c.id)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(
        slots.c.rung_at.is_not(None),
        is_one_of(slots.c.state, (SlotState.QUEUED, SlotState.WAITING)),
        or_(_base == text_literal(WHOLE_QUEUE), owners.c.base == _base),
    )
    .limit(LIMIT)
    .with_for_update(of=owners, skip_locked=True)
)
_row = batch(slot=int)
CLEAR_RINGS = update(slots).values(rung_at=None).where(slots.c.id == _row.c.slot)

UPDATE_QUOTA = (
    update(quotas).values(per_day=int_param("per_day")).where(quotas.c.base == _base).returning(quotas.c.base)
)
INSERT_QUOTA = insert(quotas).from_select(
    ["base", "per_day", "day", "used"],
    select(_base, int_param("per_day"), literal_column("0"), literal_column("0")),
)
DELETE_QUOTA = delete(quotas).where(quotas.c.base == _base).returning(quotas.c.base)
SELECT_QUOTA = select(quotas).where(quotas.c.base == _base)


@cache
def select_refusals(*, base: bool, owner: bool) -> Any:
    filters = [duplicates.c.base == _base] if base else []
    filters += [duplicates.c.owner == text_param("owner")] if owner else []
    before = duplicates.c.id < int_param("before")
    return select(duplicates).where(before, *filters).order_by(duplicates.c.id.desc()).limit(LIMIT)


_refusal_group = (duplicates.c.base, duplicates.c.requester, duplicates.c.reason)
COUNT_REFUSALS = (
    select(*_refusal_group, func.count(), func.sum(duplicates.c.cost))
    .group_by(*_refusal_group)
    .order_by(func.count().desc(), *_refusal_group)
)
COUNT_REFUSALS_OF_BASE = COUNT_REFUSALS.where(duplicates.c.base == _base)
_row = batch(base=str)
_of_bases = select(duplicates.c.id).where(duplicates.c.base.in_(select(_row.c.base))).limit(LIMIT)
COUNT_ALL_REFUSALS = select(func.count()).select_from(_of_bases.subquery())  # up to the limit

_some_owners = batch(owner=str)
_named_owners = select(owners.c.id).where(owners.c.base == _base, owners.c.owner.in_(select(_some_owners.c.owner)))


class StatementFilters(NamedTuple):
    """Which filters a statement has. Their values are parameters."""

    base: bool = False
    requester: bool = False
    states: frozenset[str] | None = None
    owners: bool = False

    def conditions(self, of: Any, state: ColumnElement[str]) -> list[Condition]:
        conditions: list[Condition] = []
        if self.owners:  # includes the filter by base
            conditions.append(of.c.owner_id.in_(_named_owners))
        elif self.base:
            conditions.append(of.c.base == _base)
        if self.requester:
            conditions.append(of.c.requester == text_param("requester"))
        if self.states is not None:
            conditions += _has_state(state, self.states)
        return conditions


def _has_state(state: ColumnElement[str], states: frozenset[str]) -> list[Condition]:
    """Match states, with the conditions of partial indexes."""
    if state is jobs.c.outcome and Outcome.SUCCESS not in states:
        return [is_one_of(state, states), state != text_literal(Outcome.SUCCESS)]
    if state is _state and Status.DELETING not in states:
        return [is_one_of(owners.c.status, states), is_one_of(owners.c.status, ACTIVE_STATUSES)]
    return [is_one_of(state, states)]


_active = jobs.c.outcome.is_(None)
_size = select(func.count()).where(slots.c.owner_id == owners.c.id).correlate(owners).scalar_subquery()


def _make_cancellable_conditions(scope: StatementFilters) -> list[Condition]:
    """Match active jobs that a cancel can end. Removals cannot be cancelled."""
    removes = is_one_of(jobs.c.operation, (Operation.DELETE, Operation.DROP))
    return [_active, not_(removes), *scope.conditions(jobs, jobs.c.outcome)]


@cache
def select_cancellable_jobs(scope: StatementFilters) -> Any:
    """Select jobs that existed at `began`, by owner, with their number of open slots."""
    return (
        select(jobs.c.owner_id, jobs.c.open, jobs.c.base, jobs.c.owner, jobs.c.id)
        .where(
            *_make_cancellable_conditions(scope),
            jobs.c.created_at <= int_param("began"),
            jobs.c.owner_id > int_param("after"),
        )
        .order_by(jobs.c.owner_id)
        .limit(LIMIT)
    )


@cache
def count_cancellable_jobs(scope: StatementFilters) -> Any:
    """Count jobs, and return the last owner of one."""
    read = select(func.count(), func.coalesce(func.max(jobs.c.owner_id), literal_column("0")))
    return read.where(*_make_cancellable_conditions(scope))


def _make_retryable_conditions(scope: StatementFilters) -> list[Condition]:
    """Match owners with one status. Both retryable statuses are literals, so that the partial index is used."""
    either = is_one_of(owners.c.status, RETRYABLE_STATUSES)
    return [either, owners.c.status == text_param("status"), *scope.conditions(owners, owners.c.status)]


@cache
def select_retryable_owners(scope: StatementFilters) -> Any:
    """Select owners with their number of slots."""
    return (
        select(owners.c.id, _size, owners.c.base, owners.c.owner)
        .where(*_make_retryable_conditions(scope), owners.c.id > int_param("after"))
        .order_by(owners.c.id)
        .limit(LIMIT)
    )


@cache
def count_retryable_owners(scope: StatementFilters) -> Any:
    """Count owners of one status, and return the last of them."""
    read = select(func.count(), func.coalesce(func.max(owners.c.id), literal_column("0")))
    return read.where(*_make_retryable_conditions(scope))


_queue_order = (jobs.c.priority, jobs.c.created_at, jobs.c.id)
# If the owner of an active job is neither queued nor indexing, the job only removes slots.
_building = is_one_of(owners.c.status, (Status.QUEUED, Status.INDEXING))
_state = case((_building, owners.c.status), else_=text_literal(Status.DELETING))
# A subquery, not a join: for a page far behind, PostgreSQL would answer a join by reading all owners.
_other = owners.alias("other")
_status = select(_other.c.status).where(_other.c.id == jobs.c.owner_id).scalar_subquery()
_listed = select(*jobs.c, _status)  # see `_listed_job_from_row`
_with_owner = jobs.outerjoin(owners, owners.c.id == jobs.c.owner_id)
_ended = jobs.c.finished_at.is_not(None)
SELECT_LISTED_JOB = _listed.where(jobs.c.id == text_param("job"))


@cache
def select_active_jobs(scope: StatementFilters, *, after: bool) -> Any:
    """Select active jobs in the order of the queue. With `after`, continue after a cursor."""
    conditions = [_active, *scope.conditions(jobs, _state)]
    if after:
        conditions.append(
            _sorts_after(
                (jobs.c.priority, int_param("priority")),
                (jobs.c.created_at, int_param("at")),
                (jobs.c.id, text_param("id")),
            )
        )
    read = _listed if scope.states is None else _listed.select_from(_with_owner)
    return read.where(*conditions).order_by(*_queue_order).limit(LIMIT).offset(int_param("offset"))


# A slot with a holder is claimed, and an index covers slots with a holder. After a new request, the old holder may
# remain for a while, but its claim is not one of the new request.
_claims = (
    select(slots.c.job, func.min(slots.c.claimed_at).label("since"))
    .where(slots.c.holder.is_not(None), slots.c.claimed_at <= NOW - int_param("longer_than"))
    .group_by(slots.c.job)
    .subquery("claims")
)


def _make_running_conditions(scope: StatementFilters) -> list[Condition]:
    return [_active, *scope.conditions(jobs, _state)]


@cache
def select_running_jobs(scope: StatementFilters, *, after: bool) -> Any:
    """Select active jobs with an old claim, the oldest claim first. With `after`, continue after a cursor."""
    conditions = _make_running_conditions(scope)
    if after:
        conditions.append(_sorts_after((_claims.c.since, int_param("at")), (jobs.c.id, text_param("id"))))
    read = _listed.select_from(_with_owner.join(_claims, _claims.c.job == jobs.c.id)).where(*conditions)
    return read.order_by(_claims.c.since, jobs.c.id).limit(LIMIT).offset(int_param("offset"))


@cache
def count_running_jobs(scope: StatementFilters) -> Any:
    """Count active jobs with an old claim, up to the limit."""
    found = _with_owner.join(_claims, _claims.c.job == jobs.c.id)
    some = select(jobs.c.id).select_from(found).where(*_make_running_conditions(scope)).limit(LIMIT)
    return select(func.count()).select_from(some.subquery())


@cache
def select_ended_jobs(scope: StatementFilters, *, after: bool) -> Any:
    """Select ended jobs, newest first. With `after`, continue after a cursor."""
    conditions = [_ended, *scope.conditions(jobs, jobs.c.outcome)]
    if after:
        same = and_(jobs.c.finished_at == int_param("at"), jobs.c.id < text_param("id"))
        conditions.append(and_(jobs.c.finished_at <= int_param("at"), or_(jobs.c.finished_at < int_param("at"), same)))
    order = (jobs.c.finished_at.desc(), jobs.c.id.desc())
    return _listed.where(*conditions).order_by(*order).limit(LIMIT).offset(int_param("offset"))


@cache
def count_jobs(scope: StatementFilters, *, active: bool) -> Any:
    """Count jobs up to the limit."""
    state = _state if active else jobs.c.outcome
    order = _queue_order if active else (jobs.c.finished_at, jobs.c.id)  # of an index
    some = select(jobs.c.id).where(_active if active else _ended, *scope.conditions(jobs, state))
    if active and scope.states is not None:
        some = some.select_from(_with_owner)  # without it, an index alone is read
    return select(func.count()).select_from(some.order_by(*order).limit(LIMIT).subquery())


@cache
def count_active(scope: StatementFilters) -> Any:
    """Count active jobs, and owners with each active status, each up to the limit.

    An owner that is queued or indexing has one active job. Without a join PostgreSQL reads only indexes.
    """
    of_base = [jobs.c.base == _base] if scope.base else []
    first = select(jobs.c.id).where(_active, *of_base).order_by(*_queue_order).limit(LIMIT)
    numbers = [select(func.count()).select_from(first.subquery()).scalar_subquery()]
    of_base = [owners.c.base == _base] if scope.base else []
    for status in ACTIVE_STATUSES:
        with_status = [owners.c.status == text_literal(status), is_one_of(owners.c.status, ACTIVE_STATUSES)]
        some = select(owners.c.id).where(*with_status, *of_base).order_by(owners.c.base, owners.c.id).limit(LIMIT)
        numbers.append(select(func.count()).select_from(some.subquery()).scalar_subquery())
    return select(*numbers)


@cache
def count_ended_by_outcome(scope: StatementFilters) -> Any:
    """Count jobs that ended within a window."""
    return (
        select(jobs.c.outcome, func.count())
        .where(_ended, jobs.c.finished_at > NOW - int_param("window"), *scope.conditions(jobs, jobs.c.outcome))
        .group_by(jobs.c.outcome)
    )


@cache
def count_ended_by_time(scope: StatementFilters) -> Any:
    """Count jobs by outcome and end, in steps of `width` since 1970."""
    step = (jobs.c.finished_at - jobs.c.finished_at % int_param("width")).label("step")
    return (
        select(step, jobs.c.outcome, func.count())
        .where(_ended, jobs.c.finished_at >= int_param("since"), *scope.conditions(jobs, jobs.c.outcome))
        .group_by(step, jobs.c.outcome)
    )


@cache
def select_oldest_queued(scope: StatementFilters) -> Any:
    """Select when the slot that has waited longest was queued, of the oldest jobs of each priority up to the limit."""
    oldest = []
    for priority in range(LOWEST_PRIORITY + 1):
        of_priority = [_active, jobs.c.priority == literal_column(str(priority)), *scope.conditions(jobs, _state)]
        read = select(jobs.c.owner_id).where(*of_priority).order_by(jobs.c.created_at, jobs.c.id).limit(LIMIT)
        oldest.append(select(read.subquery().c.owner_id))
    found = union_all(*oldest).subquery("oldest")
    queued = and_(slots.c.owner_id == found.c.owner_id, slots.c.state == text_literal(SlotState.QUEUED))
    waits_since = select(func.min(slots.c.queued_at)).where(queued).correlate(found).scalar_subquery()
    return select(func.min(waits_since)).select_from(found)


# holders of live leases
SELECT_HOLDERS_BY_BASE = (
    select(owners.c.base, slots.c.holder)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(slots.c.holder.is_not(None), slots.c.until > NOW)
    .distinct()
)
_seen = upsert(workers).values(holder=text_param("holder"), seen_at=NOW)
UPSERT_WORKER = _seen.on_conflict_do_update(index_elements=[workers.c.holder], set_={"seen_at": _seen.excluded.seen_at})
DELETE_WORKER = delete(workers).where(workers.c.holder == text_param("holder"))
DELETE_SILENT_WORKERS = delete(workers).where(workers.c.seen_at <= NOW - int_param("silence"))
COUNT_WORKERS = select(func.count()).where(workers.c.seen_at > NOW - int_param("silence"))
_row = batch(owner_id=int)
SELECT_PROGRESS = (
    select(slots.c.job, slots.c.claimed_at, slots.c.stage, slots.c.step, slots.c.steps, slots.c.done, slots.c.total)
    .select_from(slots.join(_row, slots.c.owner_id == _row.c.owner_id))
    .where(is_one_of(slots.c.state, (SlotState.RUNNING, SlotState.DELETING)), slots.c.holder.is_not(None))
    .order_by(slots.c.id)
)


def _sorts_after(*columns: tuple[ColumnElement[Any], ColumnElement[Any]]) -> Condition:
    """Match rows after a position in the order of several columns."""
    (column, value), *others = columns
    if not others:
        return column > value
    return and_(column >= value, or_(column > value, _sorts_after(*others)))


_before = (
    select(slots.c.id)
    .where(
        slots.c.state == text_literal(SlotState.QUEUED),
        slots.c.kind == text_param("kind"),
        slots.c.priority <= int_param("priority"),
        or_(
            slots.c.priority < int_param("priority"),
            slots.c.queued_at < int_param("queued_at"),
            and_(slots.c.queued_at == int_param("queued_at"), slots.c.id < int_param("slot")),
        ),
    )
    .limit(LIMIT)
)
COUNT_SLOTS_AHEAD = select(func.count()).select_from(_before.subquery())  # up to the limit
COUNT_HOLDERS_BY_KIND = (
    select(slots.c.kind, func.count(slots.c.holder.distinct()))
    .where(slots.c.holder.is_not(None), slots.c.until > NOW)
    .group_by(slots.c.kind)
)
_lately = select(events.c.type, events.c.kind, events.c.at).order_by(events.c.id.desc()).limit(LIMIT).subquery()
SELECT_LAST_CLAIMS = (
    select(_lately.c.kind, func.max(_lately.c.at))
    .where(_lately.c.type == text_literal("slot.claimed"))
    .group_by(_lately.c.kind)
)
