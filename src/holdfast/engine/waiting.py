"""Why a slot is not at rest: one table, first match wins, told as a code, its parameters and a sentence.

That a worker lives is known only by what it does: it holds a lease, or it claimed something lately. An idle worker
leaves no trace, but then nothing that it could claim stays queued.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.clock import Moment, micros
from holdfast.engine.queue import EVERYTHING, NO_PAUSES, Pauses
from holdfast.engine.states import SlotState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Slot, SlotKey

SENTENCES = {
    "deleting": "It is being deleted.",
    "deleting_failed": "It is being deleted. The last try failed ({error}); the next is at {at}.",
    "blocked": "It waits for {kind}, which is {state}.",
    "started": "{holder} works on it since {since}.",
    "running": "{holder} works on it since {since}, at {stage}.",
    "worker_lost": "{holder} worked on it until its lease ended at {at}. Another worker takes it over.",
    "leaving": "{holder} still works on an older version of it, until {at} at the latest.",
    "paused_queue": "The queue is paused since {since}. Resume it.",
    "paused_base": "The base {base} is paused since {since}. Resume it.",
    "retry": "It failed ({error}) and is tried again at {at}.",
    "no_worker": "No worker was seen since {since}. Start one.",
    "kind_unclaimed": "Workers are alive, but none was seen to take {kind} since {since}. Start one that does.",
    "behind": "{ahead} of its kind are before it.",
    "next": "It is the next of its kind.",
}


MOMENTS = frozenset({"since", "at"})  # parameters that are moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What one slot is doing or waiting for. Moments among the parameters are numbers, as everywhere."""

    key: SlotKey
    code: str
    params: Mapping[str, str | int] = field(default_factory=dict)

    def sentence(self, base: str) -> str:
        """Return the reason as a sentence, with times in UTC and with `base`, the name that users gave their base."""
        shown = {name: _moment(value) if name in MOMENTS else value for name, value in self.params.items()}
        return SENTENCES[self.code].format_map({**shown, "base": base})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What must be known beside a slot, of one reading."""

    now: Moment
    pauses: Pauses = NO_PAUSES
    neighbours: Mapping[str, Slot] = field(default_factory=dict)  # slots of the same owner by kind
    ahead: int = 0  # queued slots of its kind that are served before it
    at_work: Mapping[str, int] = field(default_factory=dict)  # holders of live leases by kind
    last_claims: Mapping[str, Moment] = field(default_factory=dict)  # by kind, as far as the log was read


def explain(slot: Slot, around: Surroundings, rules: Rules) -> Reason | None:
    """Say what a slot is doing or waiting for; None at rest."""
    if slot.resting:
        return None
    code, params = _why(slot, around, rules)
    return Reason(key=slot.key, code=code, params=params)


def _why(slot: Slot, around: Surroundings, rules: Rules) -> tuple[str, Mapping[str, str | int]]:
    now, lease = around.now, slot.lease
    if slot.state is SlotState.DELETING:
        return _deleting(slot)
    if slot.state is SlotState.RUNNING and lease is not None:
        if lease.expired(now):
            return "worker_lost", {"holder": lease.holder, "at": lease.until}
        begun: dict[str, str | int] = {"holder": lease.holder, "since": slot.claimed_at or now}
        return ("running", begun | {"stage": slot.stage}) if slot.stage else ("started", begun)
    if slot.state is SlotState.BLOCKED:
        needed = around.neighbours.get(slot.needs or "")
        return "blocked", {"kind": slot.needs or "", "state": str(needed.state) if needed else "missing"}
    pause = around.pauses.on(slot.base)
    if pause is not None:
        whole = pause.base == EVERYTHING
        return ("paused_queue" if whole else "paused_base"), {"since": pause.since}
    if lease is not None and not lease.expired(now):
        return "leaving", {"holder": lease.holder, "at": lease.until}
    if slot.state is SlotState.WAITING and slot.due_at is not None and slot.due_at > now:
        return "retry", {"error": slot.error_code or "", "at": slot.due_at}
    return _queued(slot, around, rules)


def _deleting(slot: Slot) -> tuple[str, Mapping[str, str | int]]:
    if slot.error_code is None:
        return "deleting", {}
    return "deleting_failed", {"error": slot.error_code, "at": slot.due_at or 0}


def _queued(slot: Slot, around: Surroundings, rules: Rules) -> tuple[str, Mapping[str, str | int]]:
    """Say why a slot that may be claimed is not: nobody is there, or others are before it."""
    since = max(slot.queued_at, slot.due_at or Moment(0), around.pauses.over(slot.base))
    long = around.now - since >= micros(rules.ring_again)
    lately = around.last_claims.get(slot.kind, Moment(0)) > around.now - micros(rules.ring_again)
    if long and not lately and not around.at_work.get(slot.kind):
        alone = not any(around.at_work.values())
        return ("no_worker" if alone else "kind_unclaimed"), {"kind": slot.kind, "since": since}
    return ("behind" if around.ahead else "next"), {"ahead": around.ahead}


def _moment(value: str | int) -> str:
    return datetime.fromtimestamp(int(value) // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
