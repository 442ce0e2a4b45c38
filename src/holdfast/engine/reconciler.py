"""The reconciler: sends rings, ends lost leases, fails slots without attempts, reports work that runs for long.

It never claims and never writes a result. It finds slots by index, calls `plan`, and applies one guarded action to
each. If a slot changed meanwhile, the action does nothing. So any number of reconcilers can run at the same time.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, assert_never

from holdfast.clock import SystemClock
from holdfast.engine.executor import no_failpoint
from holdfast.engine.liveness import known_dead
from holdfast.engine.plan import DoNothing, Expire, GiveUp, ReportLongRunning, SendRing, Wait, plan
from holdfast.engine.store.base import LARGEST_BATCH, MAX_UNCOUNTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.clock import Clock
    from holdfast.engine.rules import Rules
    from holdfast.engine.schedulers.base import RingCarrier
    from holdfast.engine.slot import Slot
    from holdfast.engine.store.base import ReconcileBatch, Store

log = logging.getLogger("holdfast")

SWEEP_SECONDS = 60.0
ROLL_UP_SECONDS = 5.0
RINGS_AT_ONCE = 32  # of each kind, when new work was announced


@dataclass(slots=True)
class PlannedActions:
    """The slots of one read, grouped by action."""

    expire: list[tuple[Slot, Expire]] = field(default_factory=list)
    give_up: list[Slot] = field(default_factory=list)
    ring: list[Slot] = field(default_factory=list)
    report: list[Slot] = field(default_factory=list)


class Reconciler:
    """Reconciles the slots of some kinds.

    Example:
        Reconciler(store, carrier, ["content", "vector"], Rules()).reconcile()
    """

    def __init__(
        self,
        store: Store,
        carrier: RingCarrier,
        kinds: Collection[str],
        rules: Rules,
        *,
        clock: Clock | None = None,
        retention: timedelta = timedelta(days=30),
        sweep: Callable[[int], int] | None = None,
        dead: Callable[[str], bool] = known_dead,
        reach: Callable[[str], None] = no_failpoint,
    ) -> None:
        self._store = store
        self._carrier = carrier
        self._kinds = kinds
        self._rules = rules
        self._clock = clock or SystemClock()
        self._retention = retention
        self._sweep_rows = sweep
        self._next_sweep = self._next_roll_up = self._clock.monotonic()
        self._is_dead = dead
        self._failpoint = reach

    def reconcile(self) -> timedelta | None:
        """Run one pass. Return the time until a slot is due, or None if none will be.

        A pass is bounded. It returns zero if there may be more work.
        """
        dead = {holder for holder in self._store.list_holders() if self._is_dead(holder)}
        full = bool(dead) and self._apply(self._store.find_held_by(dead, LARGEST_BATCH), dead)
        pauses = []
        for kind in self._kinds:
            due = self._store.find_due(kind, LARGEST_BATCH)
            full = self._apply(due, dead) or full
            if due.next_due is not None:
                pauses.append(timedelta(microseconds=due.next_due - due.now))
        full = self._ring_queued(LARGEST_BATCH) or full
        full = self._roll_up() or full
        if self._sweep() or full:
            return timedelta()
        return min(pauses, default=None)

    def ring_queued(self) -> timedelta | None:
        """Send rings for queued slots and do nothing else: the part of a pass that new work waits for.

        Return zero if there is room for more rings.
        """
        return timedelta() if self._ring_queued(RINGS_AT_ONCE) else None

    def _ring_queued(self, limit: int) -> bool:
        """Ring at most `limit` slots of each kind. Return whether a kind may have more, and room for them."""
        work = self._store.find_unrung(self._kinds, limit if self._carrier.needs_rings else 1)
        if not work.slots:
            return False
        plans = self._decide(work, ())
        self._failpoint("decided")
        if plans.give_up:
            self._store.give_up(plans.give_up)
        return limit in self._ring(plans.ring).values()

    def _sweep(self) -> bool:
        """Delete old history and garbage once a minute. Return whether there is more."""
        now = self._clock.monotonic()
        if now < self._next_sweep:
            return False
        swept = self._store.delete_old_history(self._retention, LARGEST_BATCH)
        if self._sweep_rows is not None:
            swept = max(swept, self._sweep_rows(LARGEST_BATCH))
        more = swept >= LARGEST_BATCH
        self._next_sweep = now if more else now + SWEEP_SECONDS
        return more

    def _roll_up(self) -> bool:
        """Add new events to the totals of the metrics, every few seconds. Return whether there are more."""
        now = self._clock.monotonic()
        if now < self._next_roll_up:
            return False
        more = self._store.roll_up() >= MAX_UNCOUNTED
        self._next_roll_up = now if more else now + ROLL_UP_SECONDS
        return more

    def _apply(self, work: ReconcileBatch, dead: Collection[str]) -> bool:
        """Act on the slots of one read. Return whether more slots may be waiting."""
        plans = self._decide(work, dead)
        self._failpoint("decided")
        expired = self._store.expire(plans.expire) if plans.expire else []
        failed = self._store.give_up(plans.give_up) if plans.give_up else []
        reported = self._store.report_long_running(plans.report) if plans.report else []
        for slot in reported:
            log.warning("work.long_running key=%s stage=%s holder=%s", slot.key, slot.stage, slot.holder)
        self._ring(plans.ring)
        more = len(work.slots) == LARGEST_BATCH and bool(expired or failed)
        return more or bool(reported)  # reported slots are due again, at a time that the next pass reads

    def _decide(self, work: ReconcileBatch, dead: Collection[str]) -> PlannedActions:
        plans = PlannedActions()
        for slot in work.slots:
            action = plan(slot, work.now, self._rules, dead, paused=work.pauses.active_pause(slot.base) is not None)
            match action:
                case Expire():
                    plans.expire.append((slot, action))
                case GiveUp():
                    plans.give_up.append(slot)
                case SendRing():
                    plans.ring.append(slot)
                case ReportLongRunning():
                    plans.report.append(slot)
                case DoNothing() | Wait():
                    pass
                case _:
                    assert_never(action)
        return plans

    def _ring(self, slots: Sequence[Slot]) -> Counter[str]:
        """Send as many rings as there is room for. Return how many, by kind. Workers that poll are only woken."""
        if not self._carrier.needs_rings:
            if slots:
                self._carrier.carry(())
            return Counter()
        chosen: list[Slot] = []
        for kind in dict.fromkeys(slot.kind for slot in slots):
            room = self._carrier.room(kind, partial(self._store.count_outstanding_rings, kind))
            chosen += [slot for slot in slots if slot.kind == kind][: max(0, room)]
        if chosen:
            self._carrier.carry(self._store.ring(chosen))
        return Counter(slot.kind for slot in chosen)
