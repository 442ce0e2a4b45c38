"""The queue of one database, simulated with the decisions of production.

`plan` decides what the reconciler does with a slot, `Rules` and `RetryPolicy` give times and limits, `Pauses` holds
work back and `Quota` limits requests, all as in production. This module imitates the rest: workers, a broker that loses
messages, and a clock. Slots at rest are only a number: `plan` never acts on them, and no index of the queue has them.
The same seed always gives the same result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, assert_never

from holdfast.clock import Moment, micros
from holdfast.engine.plan import Action, DoNothing, Expire, GiveUp, ReportLongRunning, SendRing, Wait, plan
from holdfast.engine.queue import WHOLE_QUEUE, Pause, Pauses, Quota
from holdfast.engine.rules import Rules
from holdfast.engine.slot import JobId, OwnerId, Slot, SlotId
from holdfast.engine.states import SlotState

if TYPE_CHECKING:
    from random import Random

SECOND = 1_000_000
START = Moment(1_800_000_000 * SECOND)
RINGS_PER_WORKER = 2
DELIVERY = 5_000  # microseconds from a ring to a worker
STAY = SECOND  # after a ring, a worker goes on with further slots for this long
RESTART = 30 * SECOND  # until a dead worker is replaced
BASE = "base"
PRIORITY, URGENT = 5, 0

# The columns that decisions read. All others are empty.
COLUMNS = {
    "id": SlotId(0),
    "owner_id": OwnerId(0),
    "job": JobId("job"),
    "wanted": 2,
    "built": 1,
    "missing": 0,
    "state": SlotState.QUEUED,
    "priority": PRIORITY,
    "fence": 0,
    "attempts": 0,
    "queued_at": START,
    "base": BASE,
    "owner": "document",
}
BUILT_BEFORE = Slot._make(COLUMNS.get(column) for column in Slot._fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of work: the seconds of an attempt on average, and how many workers do it."""

    name: str
    needs: str | None
    seconds: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What happens to the queue of one database."""

    kinds: tuple[Kind, ...]
    changes: float  # documents that change in a second
    seconds: float
    backlog: int = 0  # documents that are queued at the start
    urgent: float = 0.1  # share of changes with the highest priority
    rings_lost: float = 0.001
    attempts_failing: float = 0.01
    workers_dying: float = 0.0001  # share of attempts during which the worker dies
    workers_pausing: float = 0.0001  # share of attempts that end late, when another worker has the slot
    outage: tuple[float, float] = (0, 0)  # from, to: the provider of the last kind is down
    paused: tuple[float, float] = (0, 0)  # from, to: the whole queue is paused
    per_day: int = 10**9  # requests that the quota allows


@dataclass(slots=True)
class Outcome:
    """What the simulation counted."""

    arrived: int = 0
    rejected: int = 0  # by the quota
    built: int = 0  # slots
    failed: int = 0  # slots
    attempts: int = 0
    rings: int = 0
    refused: int = 0  # results of workers that had lost their slot
    most_active: int = 0  # slots that are not at rest, at the same time
    left: int = 0  # slots that are not at rest at the end
    actions: Counter[str] = field(default_factory=Counter)  # what `plan` decided
    took: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # tenths of a second, by kind
    busy: Counter[str] = field(default_factory=Counter)  # microseconds of workers, by kind

    def delay(self, name: str, share: float) -> float:
        """Return the seconds from a request to its result that this share of the slots did not exceed.

        `name` is a kind, or `urgent` for the slots of all kinds with the highest priority.
        """
        remaining = share * self.took[name].total()
        for tenths, slots in sorted(self.took[name].items()):
            remaining -= slots
            if remaining <= 0:
                return tenths / 10
        return 0.0


class _Event(IntEnum):
    """What happens at a time. Of events at the same time, the first added happens first."""

    ARRIVE = 0
    RING = 1  # a message reaches the workers of a kind
    END = 2  # an attempt ends
    DUE = 3  # the reconciler checks a slot
    RESTART = 4  # a dead worker is replaced
    PAUSE = 5  # of the whole queue
    RESUME = 6


class SimulatedQueue:
    """One database with its workers and its broker."""

    def __init__(self, load: Load, random: Random, rules: Rules | None = None) -> None:
        self.outcome = Outcome()
        self.now = START
        self._load = load
        self._random = random
        self._rules = rules or Rules()
        self._kinds = {kind.name: kind for kind in load.kinds}
        self._free = {kind.name: kind.workers for kind in load.kinds}
        self._outstanding: Counter[str] = Counter()  # rings that no worker has answered
        self._messages: Counter[str] = Counter()  # of these, delivered
        self._claimable: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self._kinds}
        self._unrung: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self._kinds}
        self._slots: dict[int, Slot] = {}
        self._requested: dict[int, Moment] = {}  # by slot
        self._dependents: dict[int, list[int]] = {}
        self._renewing: set[tuple[int, int]] = set()  # slots and fences of workers that renew their lease
        self._ids = count(1)
        self._sequence = count()
        self._events: list[tuple[int, int, _Event, Any]] = []
        self._pauses = Pauses(())
        self._quota = Quota(base=BASE, per_day=load.per_day, day=Moment(START - START % (86_400 * SECOND)), used=0)

    def run(self) -> Outcome:
        """Simulate until the time is over and the work that arrived is at rest or still waits."""
        for _ in range(self._load.backlog):
            self._admit(PRIORITY)
        self._plan_pause()
        if self._load.changes:
            self._schedule_arrival()
        end = START + int(self._load.seconds * SECOND)
        while self._events and self._events[0][0] <= end:
            at, _, event, subject = heappop(self._events)
            self.now = Moment(at)
            self._happen(event, subject)
        self.outcome.left = len(self._slots)
        return self.outcome

    def drain(self) -> Outcome:
        """After `run`: let all work come to rest, without new changes."""
        self._events = [event for event in self._events if event[2] is not _Event.ARRIVE]
        self._events.sort()
        while self._events and self._slots:
            at, _, event, subject = heappop(self._events)
            self.now = Moment(at)
            self._happen(event, subject)
        self.outcome.left = len(self._slots)
        return self.outcome

    def _happen(self, event: _Event, subject: Any) -> None:
        match event:
            case _Event.ARRIVE:
                self._admit(URGENT if self._random.random() < self._load.urgent else PRIORITY)
                self._schedule_arrival()
            case _Event.RING:
                self._messages[subject] += 1
                self._take_message(subject)
            case _Event.END:
                self._end(*subject)
            case _Event.DUE:
                self._check(subject)
            case _Event.RESTART:
                self._free[subject] += 1
                self._take_message(subject)
            case _Event.PAUSE:
                self._pauses = Pauses([Pause(base=WHOLE_QUEUE, since=self.now, stop=False, requester="operator")])
            case _Event.RESUME:
                self._pauses = Pauses(())
                self._ring()
            case _:
                assert_never(event)

    # Requests

    def _schedule_arrival(self) -> None:
        self._at(self.now + int(self._random.expovariate(self._load.changes) * SECOND), _Event.ARRIVE, None)

    def _admit(self, priority: int) -> None:
        """Accept a changed document: its first slot is queued, the others wait for the slot they need."""
        self.outcome.arrived += 1
        if not self._quota.remaining(self.now):
            self.outcome.rejected += 1
            return
        today = self._quota.as_of(self.now)
        self._quota = Quota(base=BASE, per_day=today.per_day, day=today.day, used=today.used + 1)
        made = {kind.name: self._make_slot(kind, priority) for kind in self._load.kinds}
        for slot in made.values():
            self._slots[slot.id] = slot
            self._requested[slot.id] = self.now
            if slot.needs is None:
                self._offer(slot)
            else:
                self._dependents.setdefault(made[slot.needs].id, []).append(slot.id)
        self.outcome.most_active = max(self.outcome.most_active, len(self._slots))
        self._ring()

    def _make_slot(self, kind: Kind, priority: int) -> Slot:
        number = next(self._ids)
        return BUILT_BEFORE._replace(
            id=SlotId(number),
            kind=kind.name,
            needs=kind.needs,
            state=SlotState.BLOCKED if kind.needs else SlotState.QUEUED,
            priority=priority,
            queued_at=self.now,
        )

    # Reconciler

    def _offer(self, slot: Slot) -> None:
        """Put a slot into the two orders of the database: of slots to claim, and of slots to ring."""
        place = (slot.priority, slot.queued_at, slot.id)
        heappush(self._claimable[slot.kind], place)
        heappush(self._unrung[slot.kind], place)

    def _ring(self) -> None:
        """Send rings for queued slots, as many as the broker has room for."""
        for kind in self._load.kinds:
            waiting = self._unrung[kind.name]
            room = kind.workers * RINGS_PER_WORKER - self._outstanding[kind.name]
            while waiting and room > 0:
                slot = self._slots.get(waiting[0][2])
                if slot is not None and self._may_claim(slot):
                    action = self._decide(slot)
                    if isinstance(action, DoNothing):  # paused
                        break
                    room -= isinstance(action, SendRing)
                heappop(waiting)

    def _check(self, number: int) -> None:
        """Check a slot that is due. A living worker has renewed its lease meanwhile."""
        slot = self._slots.get(number)
        if slot is None:
            return
        if slot.state is SlotState.RUNNING and (number, slot.fence) in self._renewing:
            until = Moment(self.now + micros(self._rules.lease))
            self._slots[number] = slot = slot._replace(until=until, due_at=until, progress_at=self.now)
        if self._may_claim(slot):
            self._offer(slot)
            self._ring()
        else:
            self._decide(slot)

    def _decide(self, slot: Slot) -> Action:
        """Do what `plan` decides, and return it."""
        paused = self._pauses.active_pause(slot.base) is not None
        action = plan(slot, self.now, self._rules, paused=paused)
        self.outcome.actions[type(action).__name__] += 1
        match action:
            case SendRing():
                self._send_ring(slot)
            case Wait(until=until):
                self._at(until, _Event.DUE, slot.id)
            case GiveUp():
                self._rest(slot, built=False)
            case Expire():
                self._slots[slot.id] = slot._replace(
                    state=SlotState.QUEUED, fence=slot.fence + 1, holder=None, until=None, due_at=None
                )
            case ReportLongRunning():
                self._slots[slot.id] = slot._replace(reported_at=self.now)
                self._at(self.now, _Event.DUE, slot.id)
            case DoNothing():
                pass
            case _:
                assert_never(action)
        return action

    def _send_ring(self, slot: Slot) -> None:
        self.outcome.rings += 1
        self._slots[slot.id] = slot._replace(rung_at=self.now)
        self._at(self.now + micros(self._rules.ring_again), _Event.DUE, slot.id)  # ring again without an answer
        if self._random.random() >= self._load.rings_lost:
            self._outstanding[slot.kind] += 1
            self._at(self.now + DELIVERY, _Event.RING, slot.kind)

    # Workers

    def _may_claim(self, slot: Slot) -> bool:
        match slot.state:
            case SlotState.QUEUED:
                return True
            case SlotState.WAITING:
                return slot.due_at is not None and slot.due_at <= self.now
            case SlotState.RUNNING:
                return slot.lease is not None and slot.lease.expired(self.now)
            case _:
                return False

    def _take_message(self, kind: str) -> None:
        """Let free workers answer the rings of a kind."""
        while self._free[kind] and self._messages[kind]:
            self._messages[kind] -= 1
            self._outstanding[kind] -= 1
            self._free[kind] -= 1
            self._work(kind, self.now + STAY)
        self._ring()

    def _work(self, kind: str, until: int) -> None:
        """Claim the next slot in the order of the database, or become free."""
        slot = None if self.now >= until else self._claim(kind)
        if slot is None:
            self._free[kind] += 1
            return
        lasts = max(1, int(self._random.expovariate(1 / self._kinds[kind].seconds) * SECOND))
        chance = self._random.random()
        dies, pauses = chance < self._load.workers_dying, chance > 1 - self._load.workers_pausing
        if dies:
            self._at(self.now + RESTART, _Event.RESTART, kind)
            return
        if pauses:
            lasts = 2 * micros(self._rules.lease)
        else:
            self._renewing.add((slot.id, slot.fence))
        self.outcome.busy[kind] += lasts
        self._at(self.now + lasts, _Event.END, (slot.id, slot.fence, kind, until))

    def _claim(self, kind: str) -> Slot | None:
        queue = self._claimable[kind]
        if self._pauses.active_pause(BASE) is not None:
            return None
        while queue:
            slot = self._slots.get(heappop(queue)[2])
            if slot is not None and self._may_claim(slot) and not self._rules.retry.exhausted(slot.attempts):
                return self._lease(slot)
        return None

    def _lease(self, slot: Slot) -> Slot:
        self.outcome.attempts += 1
        until = Moment(self.now + micros(self._rules.lease))
        self._slots[slot.id] = slot = slot._replace(
            state=SlotState.RUNNING,
            fence=slot.fence + 1,
            attempts=slot.attempts + 1,
            holder="worker",
            until=until,
            due_at=until,
            claimed_at=self.now,
            progress_at=self.now,
            rung_at=None,
        )
        self._at(until, _Event.DUE, slot.id)
        return slot

    def _end(self, number: int, fence: int, kind: str, until: int) -> None:
        """End an attempt; then the worker goes on, or takes the next message."""
        self._renewing.discard((number, fence))
        slot = self._slots.get(number)
        if slot is None or slot.fence != fence:
            self.outcome.refused += 1
        elif self._is_down(kind):
            self._postpone(slot._replace(attempts=slot.attempts - 1))  # an outage of a provider uses up no attempt
        elif self._random.random() < self._load.attempts_failing:
            self._fail(slot)
        else:
            self._rest(slot, built=True)
        self._work(kind, until)
        self._take_message(kind)

    def _is_down(self, kind: str) -> bool:
        since, until = (START + int(second * SECOND) for second in self._load.outage)
        return kind == self._load.kinds[-1].name and since <= self.now < until

    def _fail(self, slot: Slot) -> None:
        if self._rules.retry.exhausted(slot.attempts):
            self._rest(slot, built=False)
        else:
            self._postpone(slot)

    def _postpone(self, slot: Slot) -> None:
        due = Moment(self.now + micros(self._rules.retry.delay(slot.attempts, self._random.random())))
        self._slots[slot.id] = slot._replace(state=SlotState.WAITING, holder=None, until=None, due_at=due)
        self._at(due, _Event.DUE, slot.id)

    def _rest(self, slot: Slot, *, built: bool) -> None:
        """A slot is built or failed for good. The slots that need it are queued, or fail with it."""
        del self._slots[slot.id]
        requested = self._requested.pop(slot.id)
        if built:
            self.outcome.built += 1
            name = "urgent" if slot.priority == URGENT else slot.kind
            self.outcome.took[name][(self.now - requested) * 10 // SECOND] += 1
        else:
            self.outcome.failed += 1
        for number in self._dependents.pop(slot.id, ()):
            dependent = self._slots[number]
            if built:
                self._slots[number] = queued = dependent._replace(state=SlotState.QUEUED, queued_at=self.now)
                self._offer(queued)
            else:
                self._rest(dependent, built=False)

    def _plan_pause(self) -> None:
        since, until = (START + int(second * SECOND) for second in self._load.paused)
        if until > since:
            self._at(since, _Event.PAUSE, None)
            self._at(until, _Event.RESUME, None)

    def _at(self, moment: int, event: _Event, subject: Any) -> None:
        heappush(self._events, (moment, next(self._sequence), event, subject))
