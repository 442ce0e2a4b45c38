"""What guarded work reports about its jobs: counters, partial and final results, spending; and calls to requesters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Float, bindparam, case, delete, func, insert, select, update
from sqlalchemy import cast as sql_cast

from holdfast.db import LIMIT, NOW, batch, int_param, text_param
from holdfast.engine.store.tables import job_details, jobs, slots
from holdfast.engine.store.transitions import StoreBase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.clock import Moment
    from holdfast.db import Transaction
    from holdfast.engine.slot import Ticket

_row = batch(job=str, work=str, key=str, requester=str, project=str, callback=str)
OPEN_DETAILS = insert(job_details).from_select(
    ["created_at", "callback_due", *_row.c.keys()],
    select(NOW, case((_row.c.callback.is_not(None), NOW), else_=None), *_row.c),
)
SELECT_DETAILS = select(job_details).where(job_details.c.job == text_param("job"))

_row = batch(job=str, slot=int, fence=int, counters=str, partial=str, result=str)
# A claim raises the fence of the slot, so a late worker changes nothing.
WRITE_DETAILS = (
    update(job_details)
    .values(
        fence=_row.c.fence,
        counters=func.coalesce(_row.c.counters, job_details.c.counters),
        partial=func.coalesce(_row.c.partial, job_details.c.partial),
        result=func.coalesce(_row.c.result, job_details.c.result),
    )
    .where(
        job_details.c.job == _row.c.job,
        select(slots.c.id).where(slots.c.id == _row.c.slot, slots.c.fence == _row.c.fence).exists(),
    )
    .returning(job_details.c.job)
)
ADD_SPENDING = (
    update(job_details)
    .values(
        tokens=job_details.c.tokens + int_param("tokens"),
        price=job_details.c.price + sql_cast(bindparam("price", type_=Float()), Float()),
    )
    .where(job_details.c.job == text_param("job"))
)

# An attempt holds its row until `callback_due`; another process takes over after a crash.
_due = (
    select(job_details.c.job)
    .select_from(job_details.join(jobs, jobs.c.id == job_details.c.job))
    .where(job_details.c.callback_due <= NOW, jobs.c.outcome.is_not(None))
    .order_by(job_details.c.callback_due)
    .limit(LIMIT)
)
CLAIM_CALLBACKS = (
    update(job_details)
    .values(callback_due=NOW + int_param("lease"), callback_attempts=job_details.c.callback_attempts + 1)
    .where(job_details.c.job.in_(_due), job_details.c.callback_due <= NOW)
    .returning(job_details.c.job, job_details.c.callback, job_details.c.callback_attempts)
)
SELECT_DUE_CALLBACK = select(job_details.c.job).where(
    job_details.c.job == text_param("job"), job_details.c.callback_due <= NOW
)
SETTLE_CALLBACK = (
    update(job_details)
    .values(
        callback_due=case((int_param("delay") < 0, None), else_=NOW + int_param("delay")),
        callback_error=text_param("error"),
    )
    .where(job_details.c.job == text_param("job"), job_details.c.callback_attempts == int_param("attempt"))
)
_row = batch(job=str)
SWEEP_DETAILS = delete(job_details).where(job_details.c.job.in_(select(_row.c.job)))


class JobDetails(NamedTuple):
    """One row of the table `job_details`."""

    job: str
    work: str
    key: str
    requester: str
    project: str
    created_at: Moment
    fence: int
    counters: Mapping[str, Any]
    partial: Any
    result: Any
    tokens: int
    price: float
    callback: str | None
    callback_due: Moment | None
    callback_attempts: int
    callback_error: str | None


class DueCallback(NamedTuple):
    job: str
    address: str
    attempt: int


class JobDetailStore(StoreBase):
    """Reads and writes the details of jobs."""

    def job_details(self, job: str) -> JobDetails | None:
        """Read the details of a job; None if it has none."""
        rows = self._read(SELECT_DETAILS, job=job)
        if not rows:
            return None
        cells = dict(zip(JobDetails._fields, rows[0], strict=True))
        reported = {name: json.loads(cells[name]) for name in ("counters", "partial", "result") if cells[name]}
        return JobDetails(**{**cells, "counters": {}, **reported})

    def write_details(
        self, ticket: Ticket, *, counters: str | None = None, partial: str | None = None, result: str | None = None
    ) -> bool:
        """Write what a run reports, as JSON; None leaves a column. Return False if another claim has replaced it."""
        return self.database.write(
            lambda tx: self.write_details_in(tx, ticket, counters=counters, partial=partial, result=result),
            durable=False,
        )

    def write_details_in(
        self,
        tx: Transaction,
        ticket: Ticket,
        *,
        counters: str | None = None,
        partial: str | None = None,
        result: str | None = None,
    ) -> bool:
        """Do the same in a transaction of the caller."""
        row = [ticket.job, ticket.slot, ticket.fence, counters, partial, result]
        return bool(tx.run(WRITE_DETAILS, [row]))

    def add_spending(self, job: str, *, tokens: int, price: float) -> None:
        """Add to what a job has spent. A late worker has spent it, too, so the fence does not matter."""
        self.database.write(lambda tx: tx.run(ADD_SPENDING, job=job, tokens=tokens, price=price), durable=True)

    def is_callback_due(self, job: str) -> bool:
        """Return whether the requester of a job waits for a call."""
        return bool(self._read(SELECT_DUE_CALLBACK, job=job))

    def claim_callbacks(self, limit: int, lease: int) -> list[DueCallback]:
        """Claim calls to requesters that are due, for so many microseconds."""
        rows = self.database.write(lambda tx: tx.run(CLAIM_CALLBACKS, limit=limit, lease=lease), durable=True)
        return [DueCallback(*row) for row in rows]

    def settle_callback(self, callback: DueCallback, *, delay: int | None, error: str | None) -> None:
        """Record the result of an attempt: the delay until the next one, or None if there is none."""
        wait = -1 if delay is None else delay
        self.database.write(
            lambda tx: tx.run(SETTLE_CALLBACK, job=callback.job, attempt=callback.attempt, delay=wait, error=error),
            durable=True,
        )
