"""The decision of the reconciler: what a slot needs now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros
from holdfast.engine.queue import BULK
from holdfast.engine.states import SlotState

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Slot


@dataclass(frozen=True, slots=True)
class DoNothing:
    """The slot needs nothing until a request or another slot changes it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The slot needs nothing before this time."""

    until: Moment


@dataclass(frozen=True, slots=True)
class SendRing:
    """Wake a worker that can claim the slot."""


@dataclass(frozen=True, slots=True)
class Expire:
    """End the lease: the fence rises, and the attempt remains counted."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the slot: it has no attempts left."""


@dataclass(frozen=True, slots=True)
class ReportLongRunning:
    """Report that the slot has been running for long, once for each claim. Its work continues."""


Action = DoNothing | Wait | SendRing | Expire | GiveUp | ReportLongRunning


def plan(slot: Slot, now: Moment, rules: Rules, dead: Collection[str] = (), *, paused: bool = False) -> Action:
    """Return the action that this slot needs now.

    `dead` contains holders whose process has ended. The length of the queue is never a reason to act: all timers start
    at a claim or a failure. A `paused` slot gets no ring; if its worker is lost, it returns to the queue.
    """
    if slot.resting:
        return DoNothing()
    if slot.lease and not slot.lease.expired(now):
        lost = _find_loss_reason(slot, now, rules, dead)
        if lost:
            return _expire_or_give_up(slot, lost, rules)
        if _runs_long(slot, now, rules):
            return ReportLongRunning()
        return Wait(until=_next_moment(slot.due_at, slot.lease.until, now))
    if slot.state is SlotState.BLOCKED:
        return DoNothing()
    if slot.due_at and now < slot.due_at:
        return Wait(until=slot.due_at)
    if slot.state is not SlotState.DELETING and rules.retry.exhausted(slot.attempts):
        return GiveUp()
    if paused and slot.state is not SlotState.DELETING and slot.kind != BULK:
        return Expire("lease_ended") if slot.lease else DoNothing()
    if slot.rung_at and now < slot.rung_at + micros(rules.ring_again):
        return Wait(until=Moment(slot.rung_at + micros(rules.ring_again)))
    return SendRing()


def _next_moment(due_at: Moment | None, until: Moment, now: Moment) -> Moment:
    """Return the next future time. After a new request, the lease of the old worker can outlast `due_at`."""
    return due_at if due_at is not None and due_at > now else until


def _find_loss_reason(slot: Slot, now: Moment, rules: Rules, dead: Collection[str]) -> str | None:
    if slot.holder in dead:
        return "holder_died"
    if slot.progress_at and now >= slot.progress_at + micros(rules.stall):
        return "no_progress"
    if slot.claimed_at and now >= slot.claimed_at + micros(rules.deadline):
        return "past_deadline"
    return None


def _runs_long(slot: Slot, now: Moment, rules: Rules) -> bool:
    """Return whether the present claim is older than the limit and was not reported."""
    if not rules.long_running or slot.claimed_at is None or slot.reported_at is not None:
        return False
    return now >= slot.claimed_at + micros(rules.long_running)


def _expire_or_give_up(slot: Slot, reason: str, rules: Rules) -> Action:
    if slot.state is SlotState.RUNNING and rules.retry.exhausted(slot.attempts):
        return GiveUp()
    return Expire(reason)
