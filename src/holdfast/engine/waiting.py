"""Explains why a slot is not at rest: a code and parameters. The first match wins.

A worker is visible only while it holds a lease or shortly after a claim. That is enough: while an idle worker exists,
no slot that it can claim stays queued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros
from holdfast.engine.queue import BULK, NO_PAUSES, WHOLE_QUEUE, Pauses
from holdfast.engine.states import SlotState
from holdfast.paging import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Slot, SlotKey

MOMENT_PARAMS = frozenset({"since", "at"})  # parameters that are times


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """What one slot is doing or waiting for. Times among the parameters are `Moment` values."""

    key: SlotKey
    code: str
    params: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitContext:
    """Facts about the queue, from one read, that explain the state of a slot."""

    now: Moment
    pauses: Pauses = NO_PAUSES
    siblings: Mapping[str, Slot] = field(default_factory=dict)  # slots of the same owner by kind
    ahead: int = 0  # queued slots of its kind that are claimed first, counted up to `MAX_COUNT`
    holders_by_kind: Mapping[str, int] = field(default_factory=dict)  # holders of live leases by kind
    last_claims: Mapping[str, Moment] = field(default_factory=dict)  # by kind, from the newest events


def explain(slot: Slot, context: WaitContext, rules: Rules) -> WaitReason | None:
    """Return what a slot is doing or waiting for, None at rest."""
    if slot.resting:
        return None
    code, params = _find_reason(slot, context, rules)
    return WaitReason(key=slot.key, code=code, params=params)


def _find_reason(slot: Slot, context: WaitContext, rules: Rules) -> tuple[str, Mapping[str, str | int]]:
    now, lease = context.now, slot.lease
    if slot.state is SlotState.DELETING:
        return _deleting(slot)
    if slot.state is SlotState.RUNNING and lease is not None:
        if lease.expired(now):
            return "worker_lost", {"holder": lease.holder, "at": lease.until}
        params: dict[str, str | int] = {"holder": lease.holder, "since": slot.claimed_at or now}
        return ("running", params | {"stage": slot.stage}) if slot.stage else ("started", params)
    if slot.state is SlotState.BLOCKED:
        needed = context.siblings.get(slot.needs or "")
        return "blocked", {"kind": slot.needs or "", "state": str(needed.state) if needed else "missing"}
    pause = context.pauses.active_pause(slot.base)
    if pause is not None and slot.kind != BULK:
        whole = pause.base == WHOLE_QUEUE
        return ("paused_queue" if whole else "paused_base"), {"since": pause.since}
    if lease is not None and not lease.expired(now):
        return "leaving", {"holder": lease.holder, "at": lease.until}
    if slot.state is SlotState.WAITING and slot.due_at is not None and slot.due_at > now:
        return "retry", {"error": slot.error_code or "", "at": slot.due_at}
    return _queued(slot, context, rules)


def _deleting(slot: Slot) -> tuple[str, Mapping[str, str | int]]:
    if slot.error_code is None:
        return "deleting", {}
    return "deleting_failed", {"error": slot.error_code, "at": slot.due_at or 0}


def _queued(slot: Slot, context: WaitContext, rules: Rules) -> tuple[str, Mapping[str, str | int]]:
    """Explain why a claimable slot is not claimed: no worker, or other slots come first."""
    since = max(slot.queued_at, slot.due_at or Moment(0), context.pauses.last_resumed(slot.base))
    long = context.now - since >= micros(rules.ring_again)
    lately = context.last_claims.get(slot.kind, Moment(0)) > context.now - micros(rules.ring_again)
    if long and not lately and not context.holders_by_kind.get(slot.kind):
        alone = not any(context.holders_by_kind.values())
        return ("no_worker" if alone else "kind_unclaimed"), {"kind": slot.kind, "since": since}
    code = "next" if not context.ahead else "behind" if context.ahead < MAX_COUNT else "far_behind"
    return code, {"ahead": context.ahead}
