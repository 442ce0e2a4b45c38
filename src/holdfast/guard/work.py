"""One piece of guarded work: whoever asks, whoever delivers, whoever looks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine import BUILDS, DEFAULT_PRIORITY, Built, Operation, Outcome, Pauses, Request, Ring, SlotSpec, Status
from holdfast.engine.executor import Executor
from holdfast.engine.liveness import holder_name
from holdfast.errors import BadRequest, UnknownJob, UnknownOwner, UnknownSlot, WorkError
from holdfast.guard.answers import Admission, Done, Finished, Standing
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

TOLD_LATE = timedelta(seconds=10)  # the reconciler leaves the end of a job to its worker for so long
AT_ONCE = 100  # jobs told of in one pass
OWN_END = frozenset({Outcome.SUCCESS, Outcome.DEGRADED, Outcome.FAILED})  # what work comes to by itself


class Work:
    """A name under which keys are guarded: at most one job of this name for a key is active."""

    def __init__(
        self, guard: Guard, name: str, operation: Operation, on_finished: Callable[[Finished], None] | None
    ) -> None:
        self.name = name
        self.operation = operation
        self.send: Callable[[Job], None] | None = None  # sends a job's message again; set by what carries them
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
        if wanted not in BUILDS:
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
            tell=self._on_finished is not None,
        )
        return Admission.of(key, self._guard.store.admit([request])[0])

    def cancel(self, key: str, *, requester: str = "") -> Admission:
        """Stop what is queued or running, in whatever process; the work ends at its next checkpoint."""
        request = Request(base=self.name, owner=key, operation=Operation.CANCEL, requester=requester)
        return Admission.of(key, self._guard.store.admit([request])[0])

    def note_sent(self, key: str) -> None:
        """Note that a message is on its way, so that the reconciler does not send another one at once."""
        self._guard.store.ring([self._guard.store.slot(self.name, key, self.name)])

    # ---------------------------------------------------------------- whoever delivers

    @property
    def lock_held_tries(self) -> int:
        """How often a message that meets a held lock is delivered again before it is skipped."""
        return self._guard.settings.lock_held_tries

    def perform(self, job: str, work: Callable[[Run], Any]) -> Done:
        """Answer one delivery: do the work if it is still wanted and nobody else does it.

        Returning is the acknowledgement: what could not be done now is known to the database and will be rung again.
        """
        try:
            known = self.job(job)
        except UnknownJob:
            return Done(verdict="skipped", reason="unknown_job")
        done = self._perform(known, _Call(work))
        self.tell_of(job)
        return done

    def _perform(self, job: Job, call: _Call) -> Done:
        with self._early(job.owner) as free:
            if not free:
                return self._held()
            if not self._answer(job, call):
                why = self._why_not(job)
                if why.again_in is None:
                    return why
                self._guard.reconcile()  # whoever stands in the way may be dead, or the attempts spent
                if not self._answer(job, call):
                    return self._why_not(job)
            return self._outcome(job, call.value)

    def _answer(self, job: Job, call: _Call) -> bool:
        """Claim, work and settle, with a heartbeat of its own; return whether there was anything to claim."""
        guard = self._guard
        slot = self._slot(job)
        if slot is None:
            return False
        executor = Executor(
            guard.store,
            {self.name: call},
            holder=holder_name(),
            clock=guard.clock,
            rules=guard.settings.rules,
        )
        executor.heartbeat.start()
        try:
            return executor.run(Ring(slot=slot.id, owner=slot.owner_id, kind=self.name, generation=job.generation))
        finally:
            executor.heartbeat.stop()

    def _why_not(self, job: Job) -> Done:
        """Say why there was nothing to claim; only a living holder or a due time to come is worth another delivery."""
        slot = self._slot(job)
        if slot is None:
            return Done(verdict="skipped", reason="deleted")
        job = self._guard.store.job(job.id)
        if slot.wanted != job.generation:
            return Done(verdict="skipped", reason="stale_generation")
        if job.outcome is not None:
            return Done(verdict="skipped", reason=f"already_{job.outcome}")
        if slot.lease is not None:
            return self._held()
        if Pauses(self._guard.store.pauses()).on(self.name) is not None:
            return Done(verdict="postponed", reason="paused")  # the reconciler sends it again when it is resumed
        return self._later(slot)

    def _outcome(self, job: Job, value: Any) -> Done:
        """Say what became of an attempt that was made."""
        slot = self._slot(job)
        job = self._guard.store.job(job.id)
        if job.outcome is None:
            assert slot is not None  # noqa: S101 - a slot goes with the end of its job, which was read later
            return self._later(slot)
        verdict = "done" if job.outcome in OWN_END else "skipped"
        reason = str(job.results.get(self.name, {}).get("error", job.outcome))
        return Done(verdict=verdict, reason=reason, outcome=job.outcome, value=value)

    def _later(self, slot: Slot) -> Done:
        if slot.due_at is not None:
            pause = timedelta(microseconds=max(0, slot.due_at - self._guard.clock.now()))
            return Done(verdict="postponed", reason=str(slot.error_code), again_in=pause + timedelta(milliseconds=50))
        return Done(verdict="postponed", reason="given_back", again_in=self._guard.settings.lock_held_delay)

    def _slot(self, job: Job) -> Slot | None:
        try:
            return self._guard.store.slot(job.base, job.owner, self.name)
        except (UnknownOwner, UnknownSlot):
            return None

    def _held(self) -> Done:
        return Done(verdict="lock_held", reason="lock_held", again_in=self._guard.settings.lock_held_delay)

    def _early(self, key: str) -> AbstractContextManager[bool]:
        lock = self._guard.lock
        return nullcontext(True) if lock is None else lock.hold(f"{self.name}:{key}")

    # ---------------------------------------------------------------- whoever waits for the end

    def tell_of(self, job: str) -> None:
        """Tell of the end of one job, if it has ended and nobody was told yet."""
        known = self._guard.store.job(job)
        if known.untold:
            self._tell([known])

    def tell_late(self) -> int:
        """Tell of jobs that ended a while ago and whose worker told nobody; return how many."""
        return self._tell(self._guard.store.untold(self.name, AT_ONCE, TOLD_LATE))

    def _tell(self, jobs: list[Job]) -> int:
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
        self._guard.store.told(told)
        return len(told)

    # ---------------------------------------------------------------- whoever looks

    def status(self, key: str) -> Standing:
        """Tell how a key stands; one that nobody asked for is not indexed."""
        try:
            owner = self._guard.store.owner(self.name, key)
        except UnknownOwner:
            return Standing(key=key, status=Status.NOT_INDEXED)
        slot = owner.slot(self.name)
        assert slot is not None  # noqa: S101 - it is the only one that is asked for
        return Standing(
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
            return self._guard.store.jobs(self._guard.store.owner(self.name, key).id, limit)
        except UnknownOwner:
            return []

    def refusals(self, key: str, limit: int = 1000) -> list[Refusal]:
        """Return the audit of requests for a key that made no new work, with what they would have cost."""
        return self._guard.store.refusals_of(self.name, key, limit)


class _Call:
    """The indexer of one delivery."""

    def __init__(self, work: Callable[[Run], Any]) -> None:
        self._work = work
        self.value: Any = None

    def build(self, task: Task) -> Built | None:
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
        return None if self.value is None or _says_skipped(self.value) else Built()

    def remove(self, task: Task) -> None:
        """Nothing is kept here that could be removed."""


def _says_skipped(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "skipped" in (value.get("status"), value.get("verdict"))
    return bool(value == "skipped")
