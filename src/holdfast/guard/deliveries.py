"""One delivery of a message: claims the slot of its job and runs the work, or explains why that is not possible."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine import Outcome, Pauses, Ring
from holdfast.engine.executor import Executor
from holdfast.errors import UnknownOwner, UnknownSlot
from holdfast.guard.answers import DeliveryResult

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from holdfast.engine import Slot
    from holdfast.engine.store import Job
    from holdfast.engine.task import Indexer
    from holdfast.guard.guard import Guard
    from holdfast.guard.runs import DeliveryRunner

WORK_OUTCOMES = frozenset({Outcome.SUCCESS, Outcome.DEGRADED, Outcome.FAILED})  # outcomes that the work itself produces


class Deliveries:
    """The deliveries of the messages of one work."""

    def __init__(self, guard: Guard, work: str) -> None:
        self._guard = guard
        self._work = work

    def process(self, job: Job, indexer: DeliveryRunner, ring: Ring | None = None) -> DeliveryResult:
        """Claim the slot of a job and run its work, or return why that is not possible now."""
        with self._hold_early_lock(job.owner) as free:
            if not free:
                return self._make_lock_held()
            if not self._claim_and_run(job, indexer, ring):
                result = self._explain_unclaimed(job)
                if result.redeliver_in is None:
                    return result
                self._guard.reconcile()  # the holder may be dead, or the attempts used up
                if not self._claim_and_run(job, indexer):
                    return self._explain_unclaimed(job)
            if indexer.has_committed:
                outcome = Outcome.SUCCESS
                return DeliveryResult(verdict="done", reason=outcome, outcome=outcome, value=indexer.value)
            return self._describe_attempt(job, indexer.value)

    def _claim_and_run(self, job: Job, indexer: DeliveryRunner, ring: Ring | None = None) -> bool:
        """Claim the slot, build it and record the result; return whether it could be claimed."""
        ring = ring or self._make_ring(job)
        return ring is not None and self.make_executor(indexer).run(ring)

    def _make_ring(self, job: Job) -> Ring | None:
        """Return the ring of a job; None if its slot was deleted."""
        slot = self.find_slot(job)
        if slot is None:
            return None
        return Ring(slot=slot.id, owner=slot.owner_id, key=slot.key, generation=job.generation)

    def make_executor(self, indexer: Indexer) -> Executor:
        """Return an executor for the slots of this work. All executors of a process share its heartbeat."""
        guard = self._guard
        heartbeat = guard.heartbeat
        return Executor(
            guard.store,
            {self._work: indexer},
            holder=heartbeat.holder,
            clock=guard.clock,
            rules=guard.settings.rules,
            heartbeat=heartbeat,
        )

    def _explain_unclaimed(self, job: Job) -> DeliveryResult:
        """Return why the slot could not be claimed. Only a live holder or a future due time asks for a redelivery."""
        slot = self.find_slot(job)
        if slot is None:
            return DeliveryResult(verdict="skipped", reason="deleted")
        job = self._guard.store.job(job.id)
        if slot.wanted != job.generation:
            return DeliveryResult(verdict="skipped", reason="stale_generation")
        if job.outcome is not None:
            return DeliveryResult(verdict="skipped", reason=f"already_{job.outcome}")
        if slot.lease is not None:
            return self._make_lock_held()
        if Pauses(self._guard.store.pauses()).active_pause(self._work) is not None:
            # The reconciler sends the message again after the pause.
            return DeliveryResult(verdict="postponed", reason="paused")
        return self._make_postponed(slot)

    def _describe_attempt(self, job: Job, value: Any) -> DeliveryResult:
        """Return the result of an attempt that ran."""
        slot = self.find_slot(job)
        job = self._guard.store.job(job.id)
        if job.outcome is None:
            assert slot is not None  # noqa: S101 - a slot is removed after its job ended, and the job was read later
            return self._make_postponed(slot) if slot.lease is None else self._make_lock_held()
        verdict = "done" if job.outcome in WORK_OUTCOMES else "skipped"
        reason = str(job.results.get(self._work, {}).get("error", job.outcome))
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

    def find_slot(self, job: Job) -> Slot | None:
        """Return the slot of a job; None if it was deleted."""
        try:
            return self._guard.store.slot(job.base, job.owner, self._work)
        except (UnknownOwner, UnknownSlot):
            return None

    def _make_lock_held(self) -> DeliveryResult:
        return DeliveryResult(
            verdict="lock_held", reason="lock_held", redeliver_in=self._guard.settings.lock_held_delay
        )

    def _hold_early_lock(self, key: str) -> AbstractContextManager[bool]:
        lock = self._guard.lock
        return nullcontext(True) if lock is None else lock.hold(f"{self._work}:{key}")
