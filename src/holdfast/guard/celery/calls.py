"""The calls of one guarded task, in the database: admitted, released when their job ends, and answered once.

A call and the decision on it commit together. When a job ends, its calls are released: each gets a message, and the
worker that receives it answers the call as if it had run the task itself. Celery then stores the result, continues the
chain and the chord, and sends the events. A message that is lost is sent again until the call is answered, and a
message for an answered call is discarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.clock import micros
from holdfast.engine import Ring, SlotKey, Verdict
from holdfast.engine.store import job_from_row
from holdfast.guard.answers import Admission
from holdfast.guard.celery import statements as sql
from holdfast.guard.tables import CallVerdict, ResultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Transaction
    from holdfast.engine import AdmissionResult, JobId, Request
    from holdfast.engine.store import Job
    from holdfast.guard.guard import Guard

BATCH_SIZE = 100  # calls sent in one pass
SWEEP_SIZE = 500
CALL_WIDTH = len(sql.CALL_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a task. `job` is the job whose end answers it."""

    id: str
    task_id: str  # Celery's id
    work: str
    key: str
    job: str | None
    verdict: CallVerdict
    reason: str
    message: str

    @property
    def runs_job(self) -> bool:
        """Whether the message of this call carries the job. Other calls wait for the end of it."""
        return self.verdict is CallVerdict.ACCEPTED

    @property
    def settled(self) -> bool:
        """Whether the answer does not depend on a job that may be active."""
        return self.verdict in (CallVerdict.SKIPPED, CallVerdict.REJECTED, CallVerdict.REVOKED)


class KnownCall(NamedTuple):
    """A call with its job, and the ring of this job, from one read."""

    call: Call
    job: Job | None = None  # None: it has none, or the job was removed
    ring: Ring | None = None  # None: the slot was deleted

    @property
    def active_job(self) -> Job | None:
        """The job, while it has not ended and the call waits for it."""
        ended = self.job is None or self.job.outcome is not None
        return None if ended or self.call.settled else self.job


class NewCall(NamedTuple):
    id: str
    task_id: str
    message: str
    wanted: bool  # the call stores a result or continues a canvas


class StoredResult(NamedTuple):
    fence: int
    kind: ResultKind
    data: str


class Admitted(NamedTuple):
    """The decision on a new call, and older calls that it released."""

    call: Call
    admission: Admission
    released: Sequence[Call]
    new: bool  # False: the id was known, and nothing was decided


class CallStore:
    """All reads and writes of calls and results of one work."""

    def __init__(self, guard: Guard, work: str) -> None:
        self._guard = guard
        self._work = work

    def admit(self, new: NewCall, request: Request) -> Admitted:
        """Record a call and decide on it, in one transaction. A call whose id is known starts nothing."""
        released: list[Call] = []

        def write(tx: Transaction) -> list[Request]:
            inserted = tx.run(
                sql.INSERT_CALL,
                id=new.id,
                task_id=new.task_id,
                base=self._work,
                owner=request.owner,
                message=new.message,
                wanted=int(new.wanted),
            )
            return [request] if inserted else []

        def record(tx: Transaction, results: Sequence[AdmissionResult]) -> None:
            released[:] = [call for result in results for call in self._decide(tx, new, request.owner, result)]

        (result,) = self._guard.store.admit_with(write, record) or (None,)
        if result is None:
            known = self.get(new.id)
            return Admitted(known, self.describe(known), (), new=False)
        call = Call(
            id=new.id,
            task_id=new.task_id,
            work=self._work,
            key=request.owner,
            job=result.job,
            verdict=CallVerdict(result.verdict),
            reason=result.reason,
            message=new.message,
        )
        return Admitted(call, Admission.from_result(request.owner, result), released, new=True)

    def _decide(self, tx: Transaction, new: NewCall, owner: str, result: AdmissionResult) -> list[Call]:
        """Store the decision. Return older calls of the key whose job was superseded by it."""
        tx.run(sql.DECIDE_CALL, call=new.id, job=result.job, verdict=str(result.verdict), reason=result.reason)
        if result.verdict in (Verdict.SKIPPED, Verdict.REJECTED):
            tx.run(sql.ANSWER_NOW, call=new.id)
        if not result.accepted or result.generation == 1:  # a new key has no older calls
            return []
        rows = tx.run(sql.RELEASE_OLDER_CALLS, base=self._work, owner=owner, job=result.job)
        return [_call_from_row(row) for row in rows]

    def describe(self, call: Call) -> Admission:
        """Return the admission of a call that is known."""
        status = self._guard.works[self._work].status(call.key)
        verdict = Verdict.REJECTED if call.verdict is CallVerdict.REVOKED else Verdict(call.verdict)
        return Admission(
            key=call.key,
            verdict=verdict,
            reason=call.reason,
            status=status.status,
            job=cast("JobId | None", call.job),
            generation=status.generation or None,
        )

    def find(self, call: str) -> Call | None:
        """Return a call of this work."""
        rows = self._guard.store.database.read(sql.SELECT_CALL, call=call, base=self._work)
        return _call_from_row(rows[0]) if rows else None

    def get(self, call: str) -> Call:
        """Return a call that exists."""
        return self.get_with_job(call).call

    def get_with_job(self, call: str) -> KnownCall:
        """Return a call that exists, with its job."""
        found = self.find_with_job(call)
        assert found is not None  # noqa: S101 - the caller read its row before, and calls are kept for days
        return found

    def find_with_job(self, call: str) -> KnownCall | None:
        """Return a call of this work with its job."""
        rows = self._guard.store.database.read(sql.SELECT_CALL_WITH_JOB, call=call, base=self._work)
        return _known_from_row(rows[0]) if rows else None

    def set_message(self, call: Call, message: str) -> None:
        """Replace the message of a call: the next attempt has other arguments."""
        self._write(sql.SET_MESSAGE, call=call.id, message=message)

    def release(self, job: Job) -> list[Call]:
        """Mark the calls of an ended job as due. The caller must send their messages."""
        rows = self._write(sql.RELEASE_CALLS, base=self._work, owner=job.owner, job=job.id)
        return [_call_from_row(row) for row in rows]

    def release_and_reserve(self, tx: Transaction, job: str, key: str, call: str) -> list[Call]:
        """Mark the calls of a job as due, in the transaction that ends it, and reserve the answer of one call.

        The caller answers this call, and sends the messages of the others.
        """
        lease = micros(self._guard.settings.rules.lease)
        rows = tx.run(sql.RELEASE_AND_RESERVE, base=self._work, owner=key, job=job, call=call, lease=lease)
        return [_call_from_row(row) for row in rows]

    def revoke(self, call: Call) -> list[Call]:
        """End a call that runs no job, unless it was answered. The caller must send its message."""
        return [_call_from_row(row) for row in self._write(sql.REVOKE_CALL, call=call.id)]

    def take_due(self) -> list[Call]:
        """Return calls whose message for the answer was lost or never sent, marked as sent."""
        again = micros(self._guard.settings.rules.ring_again)
        rows = self._write_if_any(
            sql.SELECT_DUE_CALL, sql.SEND_DUE_CALLS, base=self._work, again=again, limit=BATCH_SIZE
        )
        return [_call_from_row(row) for row in rows]

    def claim_answer(self, call: Call) -> bool:
        """Reserve the answer of a call; return False if it was answered, or another delivery is answering it."""
        lease = micros(self._guard.settings.rules.lease)
        return bool(self._write(sql.CLAIM_ANSWER, call=call.id, lease=lease))

    def release_answer(self, call: str) -> None:
        """End the lease of a delivery that was answering a call, and has ended."""
        self._write(sql.RELEASE_ANSWER, call=call)

    def mark_answered(self, call: str, *, durable: bool = True) -> None:
        """Record that a call was answered. If that is lost, the call is answered again."""
        self._guard.store.database.write_single(sql.MARK_ANSWERED, durable=durable, call=call)

    def save_error(self, job: str, key: str, fence: int, data: str) -> None:
        """Store what a run raised, unless a run of this job has published."""
        self._write(
            sql.SAVE_ERROR, job=job, base=self._work, owner=key, fence=fence, kind=str(ResultKind.ERROR), data=data
        )

    def save_result(self, tx: Transaction, job: str, key: str, result: StoredResult) -> None:
        """Store how a run ended, in the transaction that publishes it."""
        tx.run(
            sql.SAVE_RESULT,
            job=job,
            base=self._work,
            owner=key,
            fence=result.fence,
            kind=str(result.kind),
            data=result.data,
        )

    def find_result(self, job: str) -> StoredResult | None:
        return _result_from_rows(self._guard.store.database.read(sql.SELECT_RESULT, job=job))

    def find_newest_result(self, key: str) -> StoredResult | None:
        """Return the result of the newest run of a key that published."""
        rows = self._guard.store.database.read(sql.SELECT_NEWEST_RESULT, base=self._work, owner=key)
        return _result_from_rows(rows)

    def sweep(self) -> None:
        """Delete old calls that were answered, and old results that no call can get."""
        keep = micros(self._guard.settings.retention)
        self._write_if_any(sql.SELECT_OLD_CALLS, sql.SWEEP_CALLS, keep=keep, limit=SWEEP_SIZE)
        self._write_if_any(sql.SELECT_OLD_RESULTS, sql.SWEEP_RESULTS, keep=keep, limit=SWEEP_SIZE)

    def _write_if_any(self, wanted: Any, statement: Any, **params: Any) -> list[Any]:
        """Write only if there is something to write: a pass of the reconciler usually finds nothing."""
        return self._write(statement, **params) if self._guard.store.database.read(wanted, **params) else []

    def _write(self, statement: Any, **params: Any) -> list[Any]:
        return self._guard.store.database.write_single(statement, durable=True, **params)


def _known_from_row(row: Sequence[Any]) -> KnownCall:
    call = _call_from_row(row[:CALL_WIDTH])
    slot, *cells = row[CALL_WIDTH:]
    if cells[0] is None:
        return KnownCall(call)
    job = job_from_row(cells)
    if slot is None:
        return KnownCall(call, job)
    key = SlotKey(call.work, call.key, call.work)
    return KnownCall(call, job, Ring(slot=slot, owner=job.owner_id, key=key, generation=job.generation))


def _call_from_row(row: Sequence[Any]) -> Call:
    id_, task_id, work, key, job, verdict, reason, message = row
    return Call(
        id=id_,
        task_id=task_id,
        work=work,
        key=key,
        job=job,
        verdict=CallVerdict(verdict),
        reason=reason,
        message=message,
    )


def _result_from_rows(rows: Sequence[Sequence[Any]]) -> StoredResult | None:
    return StoredResult(rows[0][0], ResultKind(rows[0][1]), rows[0][2]) if rows else None
