"""All SQL that changes slots. The correctness of Holdfast depends on this file.

Writes of workers use the condition `held`, those of the reconciler `unchanged_since_read`. A guarded statement returns
the rows that it changed, and only these are processed further. Only the statements here change `wanted`, `built` and
`fence`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    and_,
    case,
    delete,
    func,
    insert,
    literal_column,
    not_,
    or_,
    select,
    update,
)

from holdfast.db import (
    LIMIT,
    NOW,
    UNSYNCED,
    XID,
    batch,
    for_each,
    greatest,
    int_param,
    is_in,
    is_one_of,
    least,
    text_literal,
    text_param,
)
from holdfast.engine.queue import BULK, WHOLE_QUEUE
from holdfast.engine.states import SlotState
from holdfast.engine.store.tables import (
    TIMED_STATES,
    counters,
    duplicates,
    event_marks,
    events,
    jobs,
    owners,
    pauses,
    quotas,
    schema_version,
    slots,
)

if TYPE_CHECKING:
    from sqlalchemy import FromClause

S = SlotState
Condition = ColumnElement[bool]


def _state_in(*states: SlotState) -> Condition:
    return is_one_of(slots.c.state, states)


NO_LEASE: dict[str, Any] = {"holder": None, "until": None, "rung_at": None}
NO_ERROR: dict[str, Any] = {"error_code": None, "error_params": None}
NEW_GENERATION: dict[str, Any] = {
    "queued_at": NOW,
    "claimed_at": None,
    "progress_at": None,
    "rung_at": None,
    "attempts": 0,
    **NO_ERROR,
    "stage": "",
    "step": 0,
    "steps": 0,
    "done": 0,
    "total": 0,
    "usage": None,
    "reported_at": None,
}

# Columns of a batch: the values that a worker got with its claim, or that the reconciler has read.
TICKET_COLUMNS = {"slot": int, "generation": int, "fence": int, "state": str}
SLOT_READ_COLUMNS = {**TICKET_COLUMNS, "due_at": int, "until": int, "holder": str}


_slot_owner = owners.alias("whose")
BASE_OF_SLOT = select(_slot_owner.c.base).where(_slot_owner.c.id == slots.c.owner_id).correlate(slots).scalar_subquery()


def paused(base: ColumnElement[str], *more: Condition) -> Condition:
    """Match slots of this base that a pause holds back. Work that only makes requests ignores pauses."""
    concerns = and_(
        pauses.c.resumed_at.is_(None),
        or_(pauses.c.base == text_literal(WHOLE_QUEUE), pauses.c.base == base),
        *more,
    )
    return and_(slots.c.kind != text_literal(BULK), select(pauses.c.base).where(concerns).exists())


def unpaused(base: ColumnElement[str]) -> Condition:
    """Match slots that no pause holds back. A clean-up ignores pauses."""
    return or_(_state_in(S.DELETING), not_(paused(base)))


SELECT_SCHEMA_VERSION = select(schema_version.c.version_num)


def claimable(row: FromClause) -> Condition:
    """Match a slot that may be claimed: this generation, a claimable state, due, free, attempts left, not paused.

    `anyway` ignores pauses: adoption claims slots only to complete them. A worker that runs while a newer version
    upgrades the database claims nothing afterwards, because `schema` is the version that it knows.
    """
    return and_(
        SELECT_SCHEMA_VERSION.scalar_subquery() == text_param("schema"),
        slots.c.id == row.c.slot,
        slots.c.wanted == row.c.generation,
        _state_in(S.QUEUED, S.WAITING, S.RUNNING, S.DELETING),
        or_(slots.c.due_at.is_(None), slots.c.due_at <= NOW),
        or_(slots.c.until.is_(None), slots.c.until <= NOW),
        or_(slots.c.attempts < int_param("attempts"), _state_in(S.DELETING)),
        or_(unpaused(BASE_OF_SLOT), int_param("anyway") == 1),
    )


def held(row: FromClause) -> Condition:
    """Match if the ticket holds the slot: only then may its worker write."""
    return and_(
        slots.c.id == row.c.slot,
        slots.c.wanted == row.c.generation,
        slots.c.fence == row.c.fence,
        slots.c.state == row.c.state,
    )


def unchanged_since_read(row: FromClause) -> Condition:
    """Match if nothing that the reconciler decided on has changed since it read the slot.

    A renewal always changes `until`. It can leave `due_at` alone, because `due_at` is never later than the report of a
    long attempt.
    """
    return and_(
        held(row),
        slots.c.due_at.is_not_distinct_from(row.c.due_at),
        slots.c.until.is_not_distinct_from(row.c.until),
        slots.c.holder.is_not_distinct_from(row.c.holder),
    )


def releasable(row: FromClause) -> Condition:
    """Match if this fence still holds the slot. The generation may be newer."""
    return and_(
        slots.c.id == row.c.slot,
        slots.c.fence == row.c.fence,
        slots.c.holder.is_not(None),
    )


def cancellable(row: FromClause) -> Condition:
    """Match the slots of an owner that a cancel ends."""
    return and_(slots.c.owner_id == row.c.owner, _state_in(S.BLOCKED, S.QUEUED, S.RUNNING, S.WAITING))


_row = batch(slot=int, generation=int)
CLAIM_SLOTS = (
    update(slots)
    .values(
        state=case((_state_in(S.DELETING), text_literal(S.DELETING)), else_=text_literal(S.RUNNING)),
        fence=slots.c.fence + 1,
        holder=text_param("holder"),
        until=NOW + int_param("lease"),
        due_at=NOW + int_param("look"),
        claimed_at=NOW,
        progress_at=NOW,
        reported_at=None,
        rung_at=None,
        attempts=slots.c.attempts + 1,
    )
    .where(claimable(_row))
    .returning(*slots.c)
)

_row = batch(**TICKET_COLUMNS, moved=int, stage=str, step=int, steps=int, done=int, total=int)
_progress_at = case((_row.c.moved == 1, NOW), else_=slots.c.progress_at)
# Progress never decreases: the report of a second worker is ignored until it has reached the step of the first one.
_behind, _ahead = _row.c.step < slots.c.step, _row.c.step > slots.c.step


def _furthest(stored: ColumnElement[int], reported: ColumnElement[int]) -> ColumnElement[int]:
    """Return the larger number within a step. A new step counts from zero."""
    return case((_behind, stored), (_ahead, reported), else_=greatest(stored, reported))


EXTEND_LEASES = (
    update(slots)
    .values(
        until=NOW + int_param("lease"),
        due_at=least(
            NOW + int_param("lease"),
            _progress_at + int_param("stall"),
            slots.c.claimed_at
            + case((slots.c.reported_at.is_(None), int_param("report")), else_=int_param("deadline")),
        ),
        progress_at=_progress_at,
        stage=case((_behind, slots.c.stage), else_=_row.c.stage),
        step=greatest(slots.c.step, _row.c.step),
        steps=case((_behind, slots.c.steps), else_=_row.c.steps),
        done=_furthest(slots.c.done, _row.c.done),
        total=_furthest(slots.c.total, _row.c.total),
    )
    .where(held(_row))
    .returning(slots.c.id)
)

_row = batch(slot=int)
SELECT_RECALLED_SLOTS = select(slots.c.id).select_from(
    slots.join(
        _row,
        and_(
            slots.c.id == _row.c.slot,
            not_(_state_in(S.DELETING)),
            paused(BASE_OF_SLOT, pauses.c.stop == literal_column("1")),
        ),
    )
)

_row = batch(**TICKET_COLUMNS, usage=str, missing=int, recipe=int)
_needed = slots.alias("needed")
COMPLETE_SLOTS = (
    update(slots)
    .values(
        state=text_literal(S.READY),
        built=slots.c.wanted,
        source=case(
            (slots.c.needs.is_(None), slots.c.fence),
            else_=select(_needed.c.source)
            .where(_needed.c.owner_id == slots.c.owner_id, _needed.c.kind == slots.c.needs)
            .scalar_subquery(),
        ),
        missing=_row.c.missing,
        recipe=_row.c.recipe,
        usage=_row.c.usage,
        due_at=None,
        **NO_ERROR,
        **NO_LEASE,
    )
    .where(held(_row))
    .returning(*slots.c)
)

_row = batch(**TICKET_COLUMNS, usage=str, delay=int, refund=int, code=str, params=str)
POSTPONE_SLOTS = (
    update(slots)
    .values(
        state=case((_state_in(S.DELETING), text_literal(S.DELETING)), else_=text_literal(S.WAITING)),
        due_at=NOW + _row.c.delay,
        attempts=slots.c.attempts - _row.c.refund,
        usage=_row.c.usage,
        error_code=_row.c.code,
        error_params=_row.c.params,
        **NO_LEASE,
    )
    .where(held(_row))
    .returning(*slots.c)
)


def _failed_values(row: FromClause) -> dict[str, Any]:
    error = {"error_code": row.c.code, "error_params": row.c.params}
    return {"state": text_literal(S.FAILED), "due_at": None, **error, **NO_LEASE}


_row = batch(**TICKET_COLUMNS, usage=str, code=str, params=str)
FAIL_SLOTS = update(slots).values(usage=_row.c.usage, **_failed_values(_row)).where(held(_row)).returning(*slots.c)

_row = batch(**TICKET_COLUMNS)
# The subquery applies the same condition to a DELETE.
FORGET_SLOTS = (
    delete(slots)
    .where(slots.c.id.in_(select(slots.c.id).select_from(slots.join(_row, held(_row))).correlate(None)))
    .returning(slots.c.id)
)

_row = batch(**TICKET_COLUMNS)
SELECT_HELD_SLOTS = select(slots.c.id).select_from(slots.join(_row, held(_row)))

_row = batch(slot=int, fence=int, refund=int, usage=str)
_running = _state_in(S.RUNNING)
RELEASE_SLOTS = (
    update(slots)
    .values(
        state=case((_running, text_literal(S.QUEUED)), else_=slots.c.state),
        attempts=case((_running, slots.c.attempts - _row.c.refund), else_=slots.c.attempts),
        usage=case((_running, _row.c.usage), else_=slots.c.usage),  # a newer generation has its own
        due_at=case((_state_in(S.DELETING), NOW), else_=None),
        **NO_LEASE,
    )
    .where(releasable(_row))
    .returning(*slots.c)
)

_row = batch(slot=int)
UNBLOCK_SLOTS = (
    update(slots)
    .values(state=text_literal(S.QUEUED), queued_at=NOW)
    .where(slots.c.id == _row.c.slot)
    .returning(*slots.c)
)

_row = batch(slot=int, code=str, params=str)
FAIL_DEPENDENTS = (
    update(slots)
    .values(fence=slots.c.fence + 1, **_failed_values(_row))
    .where(slots.c.id == _row.c.slot)
    .returning(*slots.c)
)

_row = batch(job=str, settled=int, outcome=str, results=str)
_last = jobs.c.open == _row.c.settled
SETTLE_JOBS = (
    update(jobs)
    .values(
        open=jobs.c.open - _row.c.settled,
        outcome=case((_last, _row.c.outcome), else_=None),
        results=case((_last, _row.c.results), else_=None),
        finished_at=case((_last, NOW), else_=None),
    )
    .where(jobs.c.id == _row.c.job)
    .returning(jobs.c.id, jobs.c.outcome)
)

_row = batch(owner=int, status=str)
SET_STATUS = update(owners).values(status=_row.c.status).where(owners.c.id == _row.c.owner)

_row = batch(type=str, base=str, owner=str, kind=str, job=str, generation=int, fence=int, data=str)
INSERT_EVENTS = (
    insert(events).from_select(["at", "xid", *_row.c.keys()], select(NOW, XID, *_row.c)).returning(events.c.xid)
)

_row = batch(base=str, owner=str)
_owners_by_name = select(owners).select_from(
    owners.join(_row, and_(owners.c.base == _row.c.base, owners.c.owner == _row.c.owner))
)
SELECT_OWNERS_BY_NAME = _owners_by_name
LOCK_OWNERS_BY_NAME = _owners_by_name.order_by(owners.c.id).with_for_update(of=owners)

_row = batch(base=str, owner=str, fingerprint=str, status=str)
CREATE_OWNERS = (
    insert(owners)
    .from_select(
        ["base", "owner", "fingerprint", "status", "generation", "created_at"],
        select(*_row.c, literal_column("1"), NOW),
    )
    .returning(owners.c.id, owners.c.base, owners.c.owner)
)

_row = batch(owner=int, generation=int, fingerprint=str)
RAISE_GENERATIONS = (
    update(owners)
    .values(generation=_row.c.generation, fingerprint=func.coalesce(_row.c.fingerprint, owners.c.fingerprint))
    .where(owners.c.id == _row.c.owner)
)

_row = batch(owner=int, outcome=str)
END_JOBS = (
    update(jobs)
    .values(open=0, outcome=_row.c.outcome, finished_at=NOW)
    .where(jobs.c.owner_id == _row.c.owner, jobs.c.outcome.is_(None))
    .returning(jobs.c.id, jobs.c.base, jobs.c.owner, jobs.c.generation, jobs.c.outcome)
)

_row = batch(
    id=str,
    owner_id=int,
    base=str,
    owner=str,
    generation=int,
    operation=str,
    cause=str,
    requester=str,
    priority=int,
    open=int,
    payload=str,
    untold=int,
    traceparent=str,
)
OPEN_JOBS = insert(jobs).from_select(["created_at", *_row.c.keys()], select(NOW, *_row.c))

_row = batch(rung=int, owner_id=int, kind=str, needs=str, job=str, wanted=int, state=str, priority=int)
_rung, *_columns = _row.c
CREATE_SLOTS = (
    insert(slots)
    .from_select(
        ["queued_at", "rung_at", *(column.key for column in _columns)],
        select(NOW, case((_rung == 1, NOW), else_=None), *_columns),
    )
    .returning(*slots.c)
)

# A new generation of an existing slot. The served result and a live lease remain; the holder releases the slot when
# its next renewal is rejected.
_row = batch(rung=int, slot=int, needs=str, job=str, wanted=int, state=str, priority=int)
RAISE_SLOTS = (
    update(slots)
    .values(
        needs=_row.c.needs,
        job=_row.c.job,
        wanted=_row.c.wanted,
        state=_row.c.state,
        priority=_row.c.priority,
        due_at=None,
        **NEW_GENERATION | {"rung_at": case((_row.c.rung == 1, NOW), else_=None)},
    )
    .where(slots.c.id == _row.c.slot)
    .returning(*slots.c)
)

_row = batch(slot=int, job=str, wanted=int, priority=int)
MARK_DELETING = (
    update(slots)
    .values(
        job=_row.c.job,
        wanted=_row.c.wanted,
        state=text_literal(S.DELETING),
        priority=_row.c.priority,
        due_at=greatest(NOW, func.coalesce(slots.c.until, 0)),
        **NEW_GENERATION,
    )
    .where(slots.c.id == _row.c.slot)
    .returning(*slots.c)
)

# Removals continue unchanged; only their job changes.
_row = batch(owner=int, job=str)
REASSIGN_DELETING_SLOTS = (
    update(slots).values(job=_row.c.job).where(slots.c.owner_id == _row.c.owner, _state_in(S.DELETING))
)

_row = batch(owner=int)
CANCEL_SLOTS = (
    update(slots)
    .values(
        state=text_literal(S.CANCELLED),
        fence=slots.c.fence + 1,
        due_at=None,
        **NO_ERROR,  # the error of the last attempt would announce a retry, which does not follow
        **NO_LEASE,
    )
    .where(cancellable(_row))
    .returning(*slots.c)
)

_row = batch(owner=int)
REMOVE_OWNERS = delete(owners).where(owners.c.id.in_(select(_row.c.owner)))


def _prioritised_at(job: ColumnElement[str]) -> ColumnElement[int]:
    """Return when a user changed the priority of a job, 0 if never."""
    changed = select(jobs.c.prioritised_at).where(jobs.c.id == job).correlate_except(jobs)
    return func.coalesce(changed.scalar_subquery(), 0)


# Younger work claimed during a pause of this slot, or while either had another priority, did not overtake it.
_row = batch(slot=int, job=str, kind=str, priority=int, queued_at=int, resumed_at=int)
SELECT_OVERTAKEN_SLOTS = select(_row.c.slot).where(
    select(slots.c.id)
    .where(
        slots.c.kind == _row.c.kind,
        slots.c.priority == _row.c.priority,
        slots.c.queued_at > _row.c.queued_at,
        slots.c.claimed_at.is_not(None),
        slots.c.claimed_at >= greatest(_row.c.resumed_at, _prioritised_at(_row.c.job), _prioritised_at(slots.c.job)),
    )
    .exists()
)

_row = batch(base=str)
LOCK_QUOTAS = (
    select(quotas).where(quotas.c.base.in_(select(_row.c.base))).order_by(quotas.c.base).with_for_update(of=quotas)
)

_row = batch(base=str, day=int, used=int)
UPDATE_QUOTA_USE = update(quotas).values(day=_row.c.day, used=_row.c.used).where(quotas.c.base == _row.c.base)

_row = batch(base=str, owner=str, operation=str, verdict=str, reason=str, job=str, requester=str, cost=float)
INSERT_REFUSALS = insert(duplicates).from_select(["at", *_row.c.keys()], select(NOW, *_row.c))

_read = select(batch(**SLOT_READ_COLUMNS, owner=int)).cte("read")  # used twice
_lock_owners = (
    select(owners.c.id)
    .where(is_in(owners.c.id, select(_read.c.owner)))
    .order_by(owners.c.id)
    .with_for_update(of=owners)
)
MARK_RUNG = (
    update(slots)
    .values(rung_at=NOW)
    .where(
        UNSYNCED,
        slots.c.owner_id.in_(_lock_owners),
        unchanged_since_read(_read),
        or_(slots.c.rung_at.is_(None), slots.c.rung_at <= NOW - int_param("ring_again")),
        unpaused(BASE_OF_SLOT),
    )
    .returning(slots.c.id)
)

_row = batch(**SLOT_READ_COLUMNS)
EXPIRE_LEASES = (
    update(slots)
    .values(
        state=case((_state_in(S.RUNNING), text_literal(S.QUEUED)), else_=slots.c.state),
        fence=slots.c.fence + 1,
        due_at=case((_state_in(S.DELETING), NOW), else_=None),
        **NO_LEASE,
    )
    .where(unchanged_since_read(_row))
    .returning(*slots.c)
)

_row = batch(**SLOT_READ_COLUMNS)
REPORT_LONG_RUNNING = (
    update(slots)
    .values(
        reported_at=NOW,
        due_at=least(
            slots.c.until, slots.c.progress_at + int_param("stall"), slots.c.claimed_at + int_param("deadline")
        ),
    )
    .where(unchanged_since_read(_row), slots.c.reported_at.is_(None))
    .returning(*slots.c)
)

_row = batch(**SLOT_READ_COLUMNS, code=str, params=str)
GIVE_UP_SLOTS = (
    update(slots)
    .values(fence=slots.c.fence + 1, **_failed_values(_row))
    .where(unchanged_since_read(_row))
    .returning(*slots.c)
)

_slot_columns = (*slots.c, owners.c.base, owners.c.owner, owners.c.status)
_with_owner = slots.join(owners, owners.c.id == slots.c.owner_id)


def _slots_where(*conditions: Any) -> Any:
    return select(*_slot_columns).select_from(_with_owner).where(*conditions)


_kind = slots.c.kind == text_param("kind")
# Paused slots that wait for a retry need no action and would fill the batch.
SELECT_DUE_SLOTS = (
    _slots_where(
        _state_in(*TIMED_STATES), _kind, slots.c.due_at <= NOW, not_(and_(_state_in(S.WAITING), paused(owners.c.base)))
    )
    .order_by(slots.c.due_at)
    .limit(LIMIT)
)
SELECT_NEXT_DUE = select(func.min(slots.c.due_at)).where(_state_in(*TIMED_STATES), _kind, slots.c.due_at > NOW)
SELECT_HOLDERS = select(slots.c.holder).where(slots.c.holder.is_not(None)).distinct()

_row = batch(holder=str)
SELECT_SLOTS_HELD_BY = _slots_where(slots.c.holder.in_(select(_row.c.holder)), slots.c.holder.is_not(None)).limit(LIMIT)

_free = or_(slots.c.until.is_(None), slots.c.until <= NOW)
_unrung = and_(
    _state_in(S.QUEUED),
    _free,
    or_(slots.c.rung_at.is_(None), slots.c.rung_at <= NOW - int_param("ring_again")),
    not_(paused(owners.c.base)),
)


def _constant(limit: int) -> ColumnElement[int]:
    """Return a limit as a literal: with a parameter, PostgreSQL would plan each execution anew."""
    return literal_column(str(limit), Integer)


@cache
def select_unrung(kinds: tuple[str, ...], limit: int) -> Any:
    """Select queued slots without a recent ring, with the present time, at most `limit` of each kind."""
    query = _slots_where(_unrung).add_columns(NOW.label("now")).limit(_constant(limit))
    return for_each(slots.c.kind, kinds, [query.order_by(slots.c.priority, slots.c.queued_at, slots.c.id)])


COUNT_RUNG_SLOTS = select(func.count()).where(
    slots.c.rung_at.is_not(None),
    _kind,
    slots.c.rung_at > NOW - int_param("ring_again"),
)

_attempts_left = or_(slots.c.attempts < int_param("attempts"), _state_in(S.DELETING))
_candidate = select(
    slots.c.id,
    slots.c.owner_id,
    slots.c.wanted,
    slots.c.attempts,
    slots.c.priority,
    slots.c.queued_at,
    _state_in(S.DELETING),
)
_next_queued = (
    _candidate.select_from(_with_owner)
    .where(_state_in(S.QUEUED), _free, _attempts_left, not_(paused(owners.c.base)))
    .order_by(slots.c.priority, slots.c.queued_at, slots.c.id)
    .with_for_update(of=owners, skip_locked=True)
)
_next_timed = (
    _candidate.select_from(_with_owner)
    .where(_state_in(*TIMED_STATES), slots.c.due_at <= NOW, _free, _attempts_left, unpaused(owners.c.base))
    .order_by(slots.c.due_at)
    .with_for_update(of=owners, skip_locked=True)
)


@cache
def select_next(kinds: tuple[str, ...], limit: int) -> Any:
    """Select slots to claim, at most `limit` of each kind and state."""
    return for_each(slots.c.kind, kinds, [query.limit(_constant(limit)) for query in (_next_timed, _next_queued)])


_row = batch(owner=int)
LOCK_OWNERS = (
    select(owners).where(is_in(owners.c.id, select(_row.c.owner))).order_by(owners.c.id).with_for_update(of=owners)
)
_read = select(_row).cte("read")  # used twice
# One condition for each table, so that PostgreSQL uses both indexes before it has statistics.
SELECT_SLOTS = _slots_where(*(is_in(owner, select(_read.c.owner)) for owner in (owners.c.id, slots.c.owner_id)))
SELECT_NOW = select(NOW)

_owner_is = and_(owners.c.base == text_param("base"), owners.c.owner == text_param("owner"))
SELECT_OWNER = select(owners).where(_owner_is)
SELECT_SLOTS_OF_OWNER = _slots_where(_owner_is).order_by(slots.c.id)
SELECT_JOB = select(jobs).where(jobs.c.id == text_param("job"))
_row = batch(job=str)
SELECT_TRACEPARENTS = select(jobs.c.id, jobs.c.traceparent).select_from(
    jobs.join(_row, and_(jobs.c.id == _row.c.job, jobs.c.traceparent.is_not(None)))
)
WRITE_PAYLOAD = update(jobs).values(payload=text_param("payload")).where(jobs.c.id == text_param("job"))
SELECT_JOBS_OF_OWNER = (
    select(jobs).where(jobs.c.owner_id == int_param("owner_id")).order_by(jobs.c.generation.desc()).limit(LIMIT)
)
_row = batch(owner=int, generation=int)
SELECT_JOBS_OF_RINGS = select(jobs).select_from(
    jobs.join(_row, and_(jobs.c.owner_id == _row.c.owner, jobs.c.generation == _row.c.generation))
)
SELECT_UNREPORTED_JOBS = (
    select(jobs)
    .where(
        jobs.c.untold == literal_column("1"),  # literal, for the partial index
        jobs.c.base == text_param("base"),
        jobs.c.finished_at <= NOW - int_param("grace"),
    )
    .order_by(jobs.c.finished_at)
    .limit(LIMIT)
)
SELECT_PAUSES = select(pauses)
_row = batch(job=str)
MARK_JOBS_REPORTED = update(jobs).values(untold=0).where(jobs.c.id == _row.c.job)
SELECT_EVENTS = select(events).where(events.c.id > int_param("after")).order_by(events.c.id).limit(LIMIT)
SELECT_REFUSALS = select(duplicates).where(duplicates.c.id > int_param("after")).order_by(duplicates.c.id).limit(LIMIT)
SELECT_COUNTERS = select(counters.c.name, counters.c.value)
INCREMENT_COUNTER = (
    update(counters)
    .values(value=counters.c.value + int_param("amount"))
    .where(counters.c.name == text_param("counter"))
)


def _oldest(table: Any, *columns: Any) -> Any:
    """Delete rows past retention among the oldest ones, which bounds the scan."""
    first = select(table.c.id, table.c.at).order_by(table.c.id).limit(LIMIT).subquery()
    old = select(first.c.id).where(first.c.at < NOW - int_param("keep"))
    return delete(table).where(table.c.id.in_(old)).returning(*columns, table.c.id)


# Events that the totals of the metrics do not contain yet remain.
_counted = (
    select(event_marks.c.name)
    .where(
        event_marks.c.name == literal_column("'metrics'"),
        or_(
            events.c.xid < event_marks.c.xid,
            and_(events.c.xid == event_marks.c.xid, events.c.id <= event_marks.c.id),
        ),
    )
    .exists()
)
SWEEP_EVENTS = _oldest(events, events.c.xid).where(_counted)
# A reader behind this mark has missed events that were deleted.
MARK_SWEPT = (
    update(event_marks)
    .values(xid=int_param("xid"), id=int_param("id"))
    .where(
        event_marks.c.name == literal_column("'swept'"),
        or_(
            event_marks.c.xid < int_param("xid"),
            and_(event_marks.c.xid == int_param("xid"), event_marks.c.id < int_param("id")),
        ),
    )
)
SWEEP_REFUSALS = _oldest(duplicates)
SWEEP_JOBS = (
    delete(jobs)
    .where(
        jobs.c.id.in_(
            select(jobs.c.id)
            .where(jobs.c.finished_at.is_not(None), jobs.c.finished_at < NOW - int_param("keep"))
            .limit(LIMIT)
        )
    )
    .returning(jobs.c.id)
)
