"""One kind of guarded work: requests, deliveries of messages, ends of jobs, and queries."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from holdfast.engine import (
    BUILD_OPERATIONS,
    DEFAULT_PRIORITY,
    Operation,
    Outcome,
    QuotaScope,
    QuotaUnit,
    Request,
    RequestDetails,
    SlotSpec,
    SlotState,
    Status,
    Ticket,
)
from holdfast.engine.store import Failure
from holdfast.errors import BadRequest, StaleLease, UnknownJob, UnknownOwner
from holdfast.guard.answers import Admission, DeliveryResult, Finished, KeyStatus
from holdfast.guard.deliveries import Deliveries
from holdfast.guard.overview import list_refusals
from holdfast.guard.runs import DeliveryRunner, WaitingRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from holdfast.db import Transaction
    from holdfast.engine import Fault, JobId, Ring
    from holdfast.engine.store import Job, WorkQuota
    from holdfast.guard.function import GuardedFunction
    from holdfast.guard.guard import Guard
    from holdfast.guard.overview import RefusalLine
    from holdfast.guard.run import Run
    from holdfast.guard.runs import ResultWriter

log = logging.getLogger("holdfast")

NOTIFY_GRACE = timedelta(seconds=10)  # the worker reports the end of a job itself within this time
NOTIFY_BATCH_SIZE = 100  # jobs reported in one pass


class RequestOptions(TypedDict, total=False):
    """The options of a request, as `Work.make_request` explains them."""

    operation: Operation | str | None
    payload: str | None
    fingerprint: str | None
    requester: str
    cost: float
    cause: str
    priority: int
    project: str
    callback: str | None


class Work:
    """A kind of work. For each of its keys, at most one job is active."""

    def __init__(
        self,
        guard: Guard,
        name: str,
        operation: Operation,
        on_finished: Callable[[Finished], None] | None,
        key: str | Callable[..., str] | None = None,
    ) -> None:
        self.name = name
        self.operation = operation
        # The Celery integration sets these: send the message of a job again, call the task again with the arguments of
        # a job, answer the calls of an ended job, and send answers again that were lost.
        self.resend: Callable[[Job], None] | None = None
        self.repeat: Callable[[Job, RequestOptions], Admission] | None = None
        self.answer_calls: Callable[[Job], None] | None = None
        self.send_due_answers: Callable[[], None] | None = None
        self._guard = guard
        self._on_finished = on_finished
        self._key = key
        self._deliveries = Deliveries(guard, name)

    def admit(self, key: str, **options: Unpack[RequestOptions]) -> Admission:
        """Request work on a key. An accepted request is durable when this returns, and has a job id.

        Example:
            admission = invoices.admit("42", requester="alice")
            return JSONResponse(admission.body(), admission.http_status)
        """
        if self.answer_calls is not None:
            raise BadRequest("work_is_a_task", work=self.name)
        return Admission.from_result(key, self._guard.store.admit([self.make_request(key, **options)])[0])

    def make_request(
        self,
        key: str,
        *,
        job: str | None = None,
        operation: Operation | str | None = None,
        payload: str | None = None,
        fingerprint: str | None = None,
        requester: str = "",
        cost: float = 0.0,
        cause: str = "user",
        priority: int = DEFAULT_PRIORITY,
        project: str = "",
        callback: str | None = None,
        rung: bool = False,
    ) -> Request:
        """Return the request of `admit`. `job` is the id of the job that it begins, if the caller chooses it.

        With `rung` the caller sends the message of the job; the reconciler sends it again only if it is lost.
        `payload` is stored with the job, so that its message can be sent again if the broker loses it. `cost` is an
        estimate of what the work costs; the audit of refused requests shows it. `project` groups spending and quotas.
        `callback` is an address that gets a signed message when the job ends; the guard needs `callbacks` for that.
        """
        requested = Operation(operation or self.operation)
        if requested not in BUILD_OPERATIONS:
            raise BadRequest("operation_without_work", operation=requested, known=", ".join(sorted(BUILD_OPERATIONS)))
        return Request(
            base=self.name,
            owner=key,
            operation=requested,
            slots=(SlotSpec(self.name),),
            fingerprint=fingerprint,
            priority=priority,
            cause=cause,
            requester=requester,
            cost=cost,
            payload=payload,
            notify_on_end=self._on_finished is not None or self.answer_calls is not None,
            new_job=cast("JobId | None", job),
            details=RequestDetails(project=project, callback=self._guard.check_callback(callback)),
            rung=rung,
        )

    def cancel(self, key: str, *, requester: str = "", job: str | None = None) -> Admission:
        """Cancel the active job of a key, in any process. Running work stops at its next checkpoint.

        With `job`, cancel only this job: if it has ended, a newer one continues.
        """
        request = Request(
            base=self.name,
            owner=key,
            operation=Operation.CANCEL,
            requester=requester,
            job=cast("JobId | None", job),
        )
        admission = Admission.from_result(key, self._guard.store.admit([request])[0])
        if admission.accepted:
            assert admission.job is not None  # noqa: S101 - that was cancelled
            self._answer_calls(self.job(admission.job))
        return admission

    def set_quota(
        self, per_day: float | None, *, unit: QuotaUnit | str = "jobs", scope: QuotaScope | str = "work"
    ) -> None:
        """Limit what this work may do on a day (UTC); None removes the limit.

        `unit` is `jobs`, `tokens` or `price`; tokens and price are those that runs report with `run.spent`. `scope` is
        the whole `work`, or each `key`, `requester` or `project`. A request beyond is refused with 429.

        Example:
            cards.set_quota(5, scope="project")  # five generations per project and day
        """
        if per_day is not None and not (per_day > 0 and math.isfinite(per_day)):
            raise BadRequest("work_quota_not_positive", per_day=per_day)
        try:
            chosen = QuotaScope(scope), QuotaUnit(unit)
        except ValueError as error:
            known = ", ".join((*QuotaScope, *QuotaUnit))
            raise BadRequest("work_quota_unknown", scope=scope, unit=unit, known=known) from error
        self._guard.store.set_work_quota(self.name, *chosen, per_day)

    def quotas(self) -> list[WorkQuota]:
        """Return the quotas of this work."""
        return self._guard.store.work_quotas(self.name)

    def retry(self, key: str, *, requester: str = "") -> Admission:
        """Repeat work that failed or was cancelled, with the arguments of the newest job of the key."""
        options: RequestOptions = {"operation": Operation.RETRY, "requester": requester}
        newest = next(iter(self.history(key, 1)), None)
        if newest is None:  # the store explains that nothing was ever requested
            return Admission.from_result(key, self._guard.store.admit([self.make_request(key, **options)])[0])
        if self.repeat is not None:
            return self.repeat(newest, options)
        options["payload"] = newest.payload
        admission = self.admit(key, **options)
        if admission.accepted and self.resend is not None:
            assert admission.job is not None  # noqa: S101 - that was made
            self.mark_sent(key)
            self.resend(self.job(admission.job))
        return admission

    async def aask(self, key: str, **options: Unpack[RequestOptions]) -> Admission:
        """Request work on a key from a coroutine: `admit` in a thread, with the same options.

        Example:
            admission = await invoices.aask("42", requester="alice")
        """
        return await self._guard.in_thread(self.admit, key, **options)

    async def acancel(self, key: str, *, requester: str = "") -> Admission:
        """Cancel the active job of a key from a coroutine."""
        return await self._guard.in_thread(self.cancel, key, requester=requester)

    async def astatus(self, key: str) -> KeyStatus:
        """Return the status of a key to a coroutine."""
        return await self._guard.in_thread(self.status, key)

    def __call__(self, function: Callable[..., Any]) -> GuardedFunction:
        """Guard a function: whatever calls it runs the work, with the same guarantees as a task of a broker.

        Example:
            @guard.work("report")
            def build_report(run: Run, tenant: str) -> str: ...
        """
        from holdfast.guard.function import GuardedFunction  # noqa: PLC0415 - it imports this module

        return GuardedFunction(self, function, self._key)

    def run_waiting(self, bind: Callable[[Job], Callable[[Run], Any]], limit: int) -> int:
        """Run jobs that wait, one after the other; `bind` returns the work of a job. Return how many were run."""
        self._guard.reconcile()  # frees the work of dead processes
        runner = WaitingRunner(bind, self._guard.store)
        executor = self._deliveries.make_executor(runner)
        count = 0
        while count < limit and executor.run_next(1):
            count += 1
            if runner.job is not None:
                self.notify_finished(runner.job)
        return count

    def mark_sent(self, key: str) -> None:
        """Record that a message was sent, so that the reconciler does not send another one at once."""
        self._guard.store.ring([self._guard.store.slot(self.name, key, self.name)])

    @property
    def lock_held_tries(self) -> int:
        """How often a message is delivered again while another worker holds the lock; then it is skipped."""
        return self._guard.settings.lock_held_tries

    @property
    def lock_held_delay(self) -> timedelta:
        """The time after which a message is delivered again while another worker holds the lock."""
        return self._guard.settings.lock_held_delay

    def write(self, change: Callable[[Transaction], Any]) -> None:
        """Run a change in a transaction of its own on the guard's database."""
        self._guard.store.database.write(change, durable=True)

    def wrap_connection(self, connection: Connection) -> Transaction:
        """Wrap a connection to the guard's database that has an open transaction."""
        return self._guard.store.database.wrap_connection(connection)

    def is_active(self, job: str) -> bool:
        """Return whether a job has not ended."""
        try:
            return self.job(job).outcome is None
        except UnknownJob:
            return False

    def find_outcome(self, job: str) -> Outcome | None:
        """Return how a job ended; None if it is active or no longer known."""
        try:
            return self.job(job).outcome
        except UnknownJob:
            return None

    def reconcile(self) -> None:
        """Take over work of dead processes on this host."""
        self._guard.reconcile()

    def fail(self, job: str, fault: Fault) -> None:
        """Fail a job whose attempt was ended from outside. A late write of this attempt is refused."""
        slot = self._deliveries.find_slot(self.job(job))
        if slot is None or slot.job != job:
            return
        with suppress(StaleLease):
            self._guard.store.fail([Failure(ticket=Ticket.of(slot), fault=fault)])
        self.notify_finished(job)

    def perform(
        self,
        job: str | Job,
        work: Callable[[Run], Any],
        *,
        ring: Ring | None = None,
        results: ResultWriter | None = None,
        requires_result: bool = True,
    ) -> DeliveryResult:
        """Process one delivery of a message: do the work, unless it is outdated or another worker does it.

        The message can be acknowledged when this returns: work that could not be done now is in the database, and the
        reconciler sends its message again.

        Example:
            invoices.perform(message.job, lambda run: build_invoice(run.key))

        `results` stores the result of the work in the transaction that publishes it. Without `requires_result`, work
        that returns None succeeds. A caller that has read the job and its ring passes them, which saves two reads.
        """
        try:
            found = self.job(job) if isinstance(job, str) else job
        except UnknownJob:
            return DeliveryResult(verdict="skipped", reason="unknown_job")
        runner = DeliveryRunner(work, self._guard.store, results, requires_result=requires_result)
        result = self._deliveries.process(found, runner, ring)
        complete = runner.has_committed and self._on_finished is None and (results is not None or not self.answer_calls)
        if not complete and result.verdict != "lock_held":  # else the worker that runs the job reports its end
            self.notify_finished(found.id)
        self._guard.deliver_soon(found.id)
        return result

    def mark_reported_in(self, tx: Transaction, job: str) -> None:
        """Record in the transaction that ends a job that its end was reported, if there is no `on_finished`."""
        if self._on_finished is None:
            self._guard.store.mark_reported_in(tx, [job])

    def notify_finished(self, job: str) -> None:
        """Call `on_finished` for a job, if it has ended and was not reported yet."""
        found = self._guard.store.job(job)
        if found.untold:
            self._notify([found])

    def notify_late(self) -> int:
        """Call `on_finished` for ended jobs that their workers did not report; return how many."""
        return self._notify(self._guard.store.list_unreported_jobs(self.name, NOTIFY_BATCH_SIZE, NOTIFY_GRACE))

    def _answer_calls(self, job: Job) -> None:
        if self.answer_calls is not None:
            self.answer_calls(job)

    def _notify(self, jobs: list[Job]) -> int:
        if self._on_finished is None and self.answer_calls is None:
            return 0
        reported = []
        for job in jobs:
            if job.outcome is None:
                continue
            try:
                self._answer_calls(job)
                if self._on_finished is not None:
                    self._on_finished(self._make_finished(job, job.outcome))
            except Exception:
                log.exception("on_finished.failed work=%s key=%s job=%s", self.name, job.owner, job.id)
            else:
                reported.append(job)
        self._guard.store.mark_reported(reported)
        return len(reported)

    def _make_finished(self, job: Job, outcome: Outcome) -> Finished:
        details = self._guard.store.job_details(job.id)
        return Finished(
            key=job.owner,
            job=job.id,
            generation=job.generation,
            outcome=outcome,
            requester=job.requester,
            results=job.results.get(self.name, {}),
            work=self.name,
            result=details.result if details else None,
            counters=details.counters if details else {},
        )

    def status(self, key: str) -> KeyStatus:
        """Return the status of a key; a key that was never requested is `not_indexed`."""
        try:
            owner = self._guard.store.owner(self.name, key)
        except UnknownOwner:
            return KeyStatus(key=key, status=Status.NOT_INDEXED)
        slot = owner.slot(self.name)
        assert slot is not None  # noqa: S101 - each owner of this work has exactly this slot
        return KeyStatus(
            key=key,
            status=owner.status,
            generation=owner.generation,
            job=slot.job,
            progress=slot.progress,
            attempt=slot.attempts,
            error=slot.error,
            waits=slot.state is SlotState.WAITING,
            served=slot.source if slot.served else None,
        )

    def served(self, key: str) -> int | None:
        """Return the fence whose result readers should use; None if there is no result."""
        return self.status(key).served

    def job(self, job: str) -> Job:
        """Read a job by its id, or raise `UnknownJob`."""
        return self._guard.store.job(job)

    def history(self, key: str, limit: int = 100) -> list[Job]:
        """Return the jobs of a key, newest first."""
        try:
            return self._guard.store.list_jobs_of_owner(self._guard.store.owner(self.name, key).id, limit)
        except UnknownOwner:
            return []

    def refusals(self, key: str, limit: int = 1000) -> list[RefusalLine]:
        """Return the refused requests for a key, newest first, with their estimated costs."""
        return list_refusals(self._guard, self.name, key, limit)
