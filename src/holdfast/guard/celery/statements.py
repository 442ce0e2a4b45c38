"""All statements about calls and their results."""

from __future__ import annotations

from sqlalchemy import and_, case, delete, exists, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.db import LIMIT, NOW, int_param, text_literal, text_param
from holdfast.engine.store import jobs, slots
from holdfast.guard.tables import CallVerdict, ResultKind, calls, results

_unanswered = calls.c.answered_at.is_(None)
_is_this_call = calls.c.id == text_param("call")
_free = or_(calls.c.until.is_(None), calls.c.until <= NOW)
CALL_COLUMNS = (
    calls.c.id, calls.c.task_id, calls.c.base, calls.c.owner, calls.c.job, calls.c.verdict, calls.c.reason,
    calls.c.message,
)  # fmt: skip

# The call that is inserted first decides: a repeated id waits for this transaction, and then finds the row.
INSERT_CALL = (
    upsert(calls)
    .values(
        created_at=NOW,
        wanted=int_param("wanted"),
        verdict=text_literal(CallVerdict.REJECTED),
        reason="",
        **{name: text_param(name) for name in ("id", "task_id", "base", "owner", "message")},
    )
    .on_conflict_do_nothing()
    .returning(calls.c.id)
)
DECIDE_CALL = (
    update(calls).values({name: text_param(name) for name in ("job", "verdict", "reason")}).where(_is_this_call)
)
# The sender sends a message in the same moment; the reconciler sends another one later.
ANSWER_NOW = update(calls).values(due_at=NOW, sent_at=NOW).where(_is_this_call, calls.c.wanted == 1)
SELECT_CALL = select(*CALL_COLUMNS).where(_is_this_call, calls.c.base == text_param("base"))
_job_of_call = jobs.c.id == calls.c.job
_slot_of_job = and_(slots.c.owner_id == jobs.c.owner_id, slots.c.kind == calls.c.base)
SELECT_CALL_WITH_JOB = (
    select(*CALL_COLUMNS, slots.c.id, *jobs.c)
    .select_from(calls.outerjoin(jobs, _job_of_call).outerjoin(slots, _slot_of_job))
    .where(_is_this_call, calls.c.base == text_param("base"))
)
SET_MESSAGE = update(calls).values(message=text_param("message")).where(_is_this_call)
_waiting = and_(calls.c.wanted == 1, _unanswered, calls.c.due_at.is_(None))
_of_key = and_(calls.c.base == text_param("base"), calls.c.owner == text_param("owner"))
# An owner has one active job at most. So when a job begins, the jobs of all older calls have ended.
RELEASE_OLDER_CALLS = (
    update(calls)
    .values(due_at=NOW, sent_at=NOW)
    .where(_of_key, _waiting, calls.c.job != text_param("job"))
    .returning(*CALL_COLUMNS)
)
RELEASE_CALLS = (
    update(calls)
    .values(due_at=NOW, sent_at=NOW)
    .where(_of_key, _waiting, calls.c.job == text_param("job"))
    .returning(*CALL_COLUMNS)
)
# In the transaction that publishes a result: release all calls of the job, and reserve the answer of one of them.
RELEASE_AND_RESERVE = (
    update(calls)
    .values(due_at=NOW, sent_at=NOW, until=case((_is_this_call, NOW + int_param("lease")), else_=calls.c.until))
    .where(_of_key, calls.c.job == text_param("job"), or_(_waiting, and_(_is_this_call, _unanswered, _free)))
    .returning(*CALL_COLUMNS)
)
REVOKE_CALL = (
    update(calls)
    .values(verdict=text_literal(CallVerdict.REVOKED), due_at=NOW, sent_at=NOW)
    .where(_is_this_call, _unanswered, calls.c.verdict != text_literal(CallVerdict.REVOKED))
    .returning(*CALL_COLUMNS)
)
_due = (
    select(calls.c.id)
    .where(
        calls.c.base == text_param("base"),
        calls.c.due_at.is_not(None),
        _unanswered,
        _free,
        or_(calls.c.sent_at.is_(None), calls.c.sent_at <= NOW - int_param("again")),
    )
    .order_by(calls.c.due_at)
    .limit(LIMIT)
)
SELECT_DUE_CALL = _due
SEND_DUE_CALLS = update(calls).values(sent_at=NOW).where(calls.c.id.in_(_due)).returning(*CALL_COLUMNS)
CLAIM_ANSWER = (
    update(calls).values(until=NOW + int_param("lease")).where(_is_this_call, _unanswered, _free).returning(calls.c.id)
)
RELEASE_ANSWER = update(calls).values(until=None).where(_is_this_call, _unanswered)
MARK_ANSWERED = update(calls).values(answered_at=NOW, until=None).where(_is_this_call)
_old = NOW - int_param("keep")
SELECT_OLD_CALLS = (
    select(calls.c.id)
    .where(
        calls.c.created_at <= _old,
        or_(calls.c.answered_at.is_not(None), calls.c.wanted == 0),
        ~exists().where(jobs.c.id == calls.c.job, jobs.c.outcome.is_(None)),
    )
    .limit(LIMIT)
)
SWEEP_CALLS = delete(calls).where(calls.c.id.in_(SELECT_OLD_CALLS))

_save = upsert(results).values(
    created_at=NOW,
    fence=int_param("fence"),
    **{name: text_param(name) for name in ("job", "base", "owner", "kind", "data")},
)
_new = {name: _save.excluded[name] for name in ("fence", "kind", "data", "created_at")}
SAVE_RESULT = _save.on_conflict_do_update(index_elements=["job"], set_=_new)
# What the task raised after it published does not replace the published value.
SAVE_ERROR = _save.on_conflict_do_update(
    index_elements=["job"], set_=_new, where=results.c.kind == text_literal(ResultKind.ERROR)
)
SELECT_RESULT = select(results.c.fence, results.c.kind, results.c.data).where(results.c.job == text_param("job"))
SELECT_NEWEST_RESULT = (
    select(results.c.fence, results.c.kind, results.c.data)
    .where(
        results.c.base == text_param("base"),
        results.c.owner == text_param("owner"),
        results.c.kind != text_literal(ResultKind.ERROR),
    )
    .order_by(results.c.created_at.desc(), results.c.fence.desc())
    .limit(1)
)
_newer = results.alias("newer")
_has_newer = exists().where(
    _newer.c.base == results.c.base,
    _newer.c.owner == results.c.owner,
    _newer.c.kind != text_literal(ResultKind.ERROR),
    _newer.c.created_at > results.c.created_at,
)
# The newest value of a key stays: calls for work that is done get it.
SELECT_OLD_RESULTS = (
    select(results.c.job)
    .where(results.c.created_at <= _old, or_(results.c.kind == text_literal(ResultKind.ERROR), _has_newer))
    .limit(LIMIT)
)
SWEEP_RESULTS = delete(results).where(results.c.job.in_(SELECT_OLD_RESULTS))
