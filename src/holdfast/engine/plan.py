"""The reconciler's one decision: what a slot needs now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros
from holdfast.engine.states import SlotState

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Slot


@dataclass(frozen=True, slots=True)
class DoNothing:
    """Nothing to do until somebody asks or another slot moves."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at this moment."""

    until: Moment


@dataclass(frozen=True, slots=True)
class SendRing:
    """Tell the workers that it may be claimed."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Take it from its holder: the fence rises, the attempt stays counted."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Its last attempt is spent: it fails, and the queue moves on."""


Action = DoNothing | Wait | SendRing | Expire | GiveUp


def plan(slot: Slot, now: Moment, rules: Rules, dead: Collection[str] = (), *, paused: bool = False) -> Action:
    """Name the one step that brings this slot nearer to what is wanted.

    `dead` names holders whose process is known to be gone. Being behind in the queue is never a reason to act:
    every timer here starts at a claim or at a failure. What is `paused` is not rung; a worker that was lost gives it
    back to the queue, where it waits like the others.
    """
    if slot.resting:
        return DoNothing()
    if slot.lease and not slot.lease.expired(now):
        lost = _find_loss_reason(slot, now, rules, dead)
        return (
            _expire_or_give_up(slot, lost, rules)
            if lost
            else Wait(until=_next_moment(slot.due_at, slot.lease.until, now))
        )
    if slot.state is SlotState.BLOCKED:
        return DoNothing()
    if slot.due_at and now < slot.due_at:
        return Wait(until=slot.due_at)
    if slot.state is not SlotState.DELETING and rules.retry.exhausted(slot.attempts):
        return GiveUp()
    if paused and slot.state is not SlotState.DELETING:
        return Expire("lease_ended") if slot.lease else DoNothing()
    if slot.rung_at and now < slot.rung_at + micros(rules.ring_again):
        return Wait(until=Moment(slot.rung_at + micros(rules.ring_again)))
    return SendRing()


def _next_moment(due_at: Moment | None, until: Moment, now: Moment) -> Moment:
    """Return the next moment that is still to come: a superseded lease outlasts what the slot was due for."""
    return due_at if due_at is not None and due_at > now else until


def _find_loss_reason(slot: Slot, now: Moment, rules: Rules, dead: Collection[str]) -> str | None:
    if slot.holder in dead:
        return "holder_died"
    if slot.progress_at and now >= slot.progress_at + micros(rules.stall):
        return "no_progress"
    if slot.claimed_at and now >= slot.claimed_at + micros(rules.deadline):
        return "past_deadline"
    return None


def _expire_or_give_up(slot: Slot, reason: str, rules: Rules) -> Action:
    if slot.state is SlotState.RUNNING and rules.retry.exhausted(slot.attempts):
        return GiveUp()
    return Expire(reason)
