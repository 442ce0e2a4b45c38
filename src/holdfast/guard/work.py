"""One piece of guarded work: whoever asks, whoever delivers, whoever looks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine import (
    BUILD_OPERATIONS,
    DEFAULT_PRIORITY,
    BuildResult,
    Operation,
    Outcome,
    Pauses,
    Request,
    Ring,
    SlotSpec,
    Status,
)
from holdfast.engine.executor import Executor
from holdfast.engine.liveness import make_holder_name
from holdfast.errors import BadRequest, UnknownJob, UnknownOwner, UnknownSlot, WorkError
from holdfast.guard.answers import Admission, DeliveryResult, Finished, KeyStatus
from holdfast.guard.run import Run
from holdfast.llm.failures import categorise

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.engine import Slot
    from holdfast.engine.store import Job, Refusal
    from holdfast.engine.task import Task
    from holdfast.guard.guard import Guard

log = logging.getLogger("holdfast")

NOTIFY_GRACE = timedelta(seconds=10)  # the reconciler leaves the end of a job to its worker for so long
NOTIFY_BATCH_SIZE = 100  # jobs told of in one pass
WORK_OUTCOMES = frozenset({Outcome.SUCCESS, Outcome.DEGRADED, Outcome.FAILED})  # what work comes to by itself


class Work:
    """A name under which keys are guarded: at most one job of this name for a key is active."""

    def __init__(
        self, guard: Guard, name: str, operation: Operation, on_finished: Callable[[Finished], None] | None
    ) -> None:
        self.name = name
        self.operation = operation
        self.resend: Callable[[Job], None] | None = None  # sends a job's message again; set by what carries them
        self._guard = guard
        self._on_finished = on_finished

    # ---------------------------------------------------------------- whoever asks

    def admit(
        self,
        key: str,
        *,
        operation: Operation | str | None = None,
        payload: str | None = None,
        fingerprint: str | None = None,
        requester: str = "",
        cost: float = 0.0,
        cause: str = "user",
        priority: int = DEFAULT_PRIORITY,
    ) -> Admission:
        """Ask for work on a key; what is accepted is durable when this returns, and has a job id.

        `payload` is kept with the job, so that its message can be sent again when a broker lost it. `cost` is what
        the work would have cost, for the audit of refused requests.
        """
        wanted = Operation(operation or self.operation)
        if wanted not in BUILD_OPERATIONS:
            raise BadRequest(f"The operation {wanted!r} asks for no work; use `cancel` of the work to stop it.")
        request = Request(
            base=self.name,
            owner=key,
            operation=wanted,
            slots=(SlotSpec(self.name),),
            fingerprint=fingerprint,
            priority=priority,
            cause=cause,
            requester=requester,
            cost=cost,
            payload=payload,
            notify_on_end=self._on_finished is not None,
        )
        return Admission.from_answer(key, self._guard.store.admit([request])[0])

    def cancel(self, key: str, *, requester: str = "") -> Admission:
        """Stop what is queued or running, in whatever process; the work ends at its next checkpoint."""
        request = Request(base=self.name, owner=key, operation=Operation.CANCEL, requester=requester)
        return Admission.from_answer(key, self._guard.store.admit([request])[0])

    def mark_sent(self, key: str) -> None:
        """Note that a message is on its way, so that the reconciler does not send another one at once."""
        self._guard.store.ring([self._guard.store.slot(self.name, key, self.name)])

    # ---------------------------------------------------------------- whoever delivers

    @property
    def lock_held_tries(self) -> int:
        """How often a message that meets a held lock is delivered again before it is skipped."""
        return self._guard.settings.lock_held_tries

    def perform(self, job: str, work: Callable[[Run], Any]) -> DeliveryResult:
        """Answer one delivery: do the work if it is still wanted and nobody else does it.

        Returning is the acknowledgement: what could not be done now is known to the database and will be rung again.
        """
        try:
            known = self.job(job)
        except UnknownJob:
            return DeliveryResult(verdict="skipped", reason="unknown_job")
        done = self._perform(known, _DeliveryIndexer(work))
        self.notify_finished(job)
        return done

    def _perform(self, job: Job, call: _DeliveryIndexer) -> DeliveryResult:
        with self._hold_early_lock(job.owner) as free:
            if not free:
                return self._make_lock_held()
            if not self._claim_and_run(job, call):
                why = self._explain_unclaimed(job)
                if why.redeliver_in is None:
                    return why
                self._guard.reconcile()  # whoever stands in the way may be dead, or the attempts spent
                if not self._claim_and_run(job, call):
                    return self._explain_unclaimed(job)
            return self._describe_attempt(job, call.value)

    def _claim_and_run(self, job: Job, call: _DeliveryIndexer) -> bool:
        """Claim, work and settle, with a heartbeat of its own; return whether there was anything to claim."""
        guard = self._guard
        slot = self._find_slot(job)
        if slot is None:
            return False
        executor = Executor(
            guard.store,
            {self.name: call},
            holder=make_holder_name(),
            clock=guard.clock,
            rules=guard.settings.rules,
        )
        executor.heartbeat.start()
        try:
            return executor.run(Ring(slot=slot.id, owner=slot.owner_id, kind=self.name, generation=job.generation))
        finally:
            executor.heartbeat.stop()

    def _explain_unclaimed(self, job: Job) -> DeliveryResult:
        """Say why there was nothing to claim; only a living holder or a due time to come is worth another delivery."""
        slot = self._find_slot(job)
        if slot is None:
            return DeliveryResult(verdict="skipped", reason="deleted")
        job = self._guard.store.job(job.id)
        if slot.wanted != job.generation:
            return DeliveryResult(verdict="skipped", reason="stale_generation")
        if job.outcome is not None:
            return DeliveryResult(verdict="skipped", reason=f"already_{job.outcome}")
        if slot.lease is not None:
            return self._make_lock_held()
        if Pauses(self._guard.store.pauses()).active_pause(self.name) is not None:
            return DeliveryResult(
                verdict="postponed", reason="paused"
            )  # the reconciler sends it again when it is resumed
        return self._make_postponed(slot)

    def _describe_attempt(self, job: Job, value: Any) -> DeliveryResult:
        """Say what became of an attempt that was made."""
        slot = self._find_slot(job)
        job = self._guard.store.job(job.id)
        if job.outcome is None:
            assert slot is not None  # noqa: S101 - a slot goes with the end of its job, which was read later
            return self._make_postponed(slot)
        verdict = "done" if job.outcome in WORK_OUTCOMES else "skipped"
        reason = str(job.results.get(self.name, {}).get("error", job.outcome))
        return DeliveryResult(verdict=verdict, reason=reason, outcome=job.outcome, value=value)

    def _make_postponed(self, slot: Slot) -> DeliveryResult:
        if slot.due_at is not None:
            pause = timedelta(microseconds=max(0, slot.due_at - self._guard.clock.now()))
            return DeliveryResult(
                verdict="postponed", reason=str(slot.error_code), redeliver_in=pause + timedelta(milliseconds=50)
            )
        return DeliveryResult(
            verdict="postponed", reason="given_back", redeliver_in=self._guard.settings.lock_held_delay
        )

    def _find_slot(self, job: Job) -> Slot | None:
        try:
            return self._guard.store.slot(job.base, job.owner, self.name)
        except (UnknownOwner, UnknownSlot):
            return None

    def _make_lock_held(self) -> DeliveryResult:
        return DeliveryResult(
            verdict="lock_held", reason="lock_held", redeliver_in=self._guard.settings.lock_held_delay
        )

    def _hold_early_lock(self, key: str) -> AbstractContextManager[bool]:
        lock = self._guard.lock
        return nullcontext(True) if lock is None else lock.hold(f"{self.name}:{key}")

    # ---------------------------------------------------------------- whoever waits for the end

    def notify_finished(self, job: str) -> None:
        """Tell of the end of one job, if it has ended and nobody was told yet."""
        known = self._guard.store.job(job)
        if known.untold:
            self._notify([known])

    def notify_late(self) -> int:
        """Tell of jobs that ended a while ago and whose worker told nobody; return how many."""
        return self._notify(self._guard.store.list_unreported_jobs(self.name, NOTIFY_BATCH_SIZE, NOTIFY_GRACE))

    def _notify(self, jobs: list[Job]) -> int:
        if self._on_finished is None:
            return 0
        told = []
        for job in jobs:
            if job.outcome is None:
                continue
            try:
                self._on_finished(
                    Finished(
                        key=job.owner,
                        job=job.id,
                        generation=job.generation,
                        outcome=job.outcome,
                        requester=job.requester,
                        results=job.results.get(self.name, {}),
                    )
                )
            except Exception:
                log.exception("on_finished.failed work=%s key=%s job=%s", self.name, job.owner, job.id)
            else:
                told.append(job)
        self._guard.store.mark_reported(told)
        return len(told)

    # ---------------------------------------------------------------- whoever looks

    def status(self, key: str) -> KeyStatus:
        """Tell how a key stands; one that nobody asked for is not indexed."""
        try:
            owner = self._guard.store.owner(self.name, key)
        except UnknownOwner:
            return KeyStatus(key=key, status=Status.NOT_INDEXED)
        slot = owner.slot(self.name)
        assert slot is not None  # noqa: S101 - it is the only one that is asked for
        return KeyStatus(
            key=key,
            status=owner.status,
            generation=owner.generation,
            job=slot.job,
            progress=slot.progress,
            attempt=slot.attempts,
            error=slot.error,
            served=slot.source if slot.served else None,
        )

    def served(self, key: str) -> int | None:
        """Name the fence whose result readers should see; None when there is none."""
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

    def refusals(self, key: str, limit: int = 1000) -> list[Refusal]:
        """Return the audit of requests for a key that made no new work, with what they would have cost."""
        return self._guard.store.list_refusals(self.name, key, limit=limit)


class _DeliveryIndexer:
    """The indexer of one delivery."""

    def __init__(self, work: Callable[[Run], Any]) -> None:
        self._work = work
        self.value: Any = None

    def build(self, task: Task) -> BuildResult | None:
        """Do the work; nothing, or the word that it was skipped, is a failure after the guard has passed."""
        try:
            self.value = self._work(Run(task))
        except WorkError:
            raise
        except Exception as error:
            known = categorise(error)
            if known is None:
                raise
            raise known from error
        return None if self.value is None or _is_skipped(self.value) else BuildResult()

    def remove(self, task: Task) -> None:
        """Nothing is kept here that could be removed."""


def _is_skipped(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "skipped" in (value.get("status"), value.get("verdict"))
    return bool(value == "skipped")
