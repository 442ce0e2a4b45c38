"""Builds slots for unit tests. Their values are consistent unless a test overrides them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from holdfast.clock import Moment, micros
from holdfast.engine.rules import Rules
from holdfast.engine.slot import Fault, JobId, OwnerId, Progress, Slot, SlotId, SlotKey
from holdfast.engine.states import ACTIVE_STATES, SlotState

NOW = Moment(1_800_000_000_000_000)
RULES = Rules()
HOLDER = "worker"


def later(**duration: float) -> Moment:
    return Moment(NOW + micros(timedelta(**duration)))


def ago(**duration: float) -> Moment:
    return Moment(NOW - micros(timedelta(**duration)))


def look_again(until: Moment, claimed_at: Moment, progress_at: Moment, rules: Rules) -> Moment:
    """Return when the reconciler next checks a claimed slot: at lease expiry, at the stall limit or at the deadline."""
    return min(until, Moment(progress_at + micros(rules.stall)), Moment(claimed_at + micros(rules.deadline)))


def make_slot(state: SlotState = SlotState.QUEUED, kind: str = "cards", **more: Any) -> Slot:
    """Return a slot of generation 1 with the values that the store writes for this state."""
    values: dict[str, Any] = {
        "id": SlotId(1),
        "owner_id": OwnerId(1),
        "key": SlotKey("shelf", "doc", kind),
        "needs": None,
        "job": JobId("job"),
        "wanted": 1,
        "built": 1 if state is SlotState.READY else 0,
        "source": None,
        "missing": 0,
        "recipe": None,
        "usage": None,
        "reported_at": None,
        "state": state,
        "priority": 5,
        "fence": 0,
        "holder": None,
        "until": None,
        "due_at": None,
        "queued_at": ago(minutes=1),
        "claimed_at": None,
        "progress_at": None,
        "rung_at": None,
        "attempts": 0,
        "error": None,
        "progress": Progress(),
    }
    if state is SlotState.RUNNING:
        values |= {"holder": HOLDER, "until": later(seconds=60), "due_at": later(seconds=60)}
    if state in (SlotState.RUNNING, SlotState.WAITING):
        values |= {"claimed_at": ago(minutes=1), "progress_at": ago(minutes=1), "attempts": 1, "fence": 1}
    if state is SlotState.WAITING:
        values |= {"due_at": later(seconds=60), "error": Fault("timeout")}
    if state is SlotState.DELETING:
        values |= {"due_at": ago(seconds=1)}
    return _slot(values | more)


def leased(until: Moment, holder: str = HOLDER, **more: Any) -> dict[str, Any]:
    return {"holder": holder, "until": until, **more}


@st.composite
def any_slot(draw: st.DrawFn, kinds: tuple[str, ...] = ("cards",)) -> Slot:
    """Draw a slot that the schema accepts. Its times lie on both sides of every limit."""
    moments = st.integers(-8 * 3600, 8 * 3600).map(lambda seconds: later(seconds=seconds))
    past = st.integers(0, 8 * 3600).map(lambda seconds: ago(seconds=seconds))
    state = draw(st.sampled_from(sorted(SlotState)))
    held = state is SlotState.RUNNING or (
        state in ACTIVE_STATES and state is not SlotState.WAITING and draw(st.booleans())
    )
    timed = state in (SlotState.RUNNING, SlotState.WAITING, SlotState.DELETING)
    # A running or waiting slot was claimed in this generation. In any other state the slot may be unclaimed.
    claimed = state in (SlotState.RUNNING, SlotState.WAITING) or draw(st.booleans())
    until = draw(moments) if held else None
    claimed_at = draw(past) if claimed else None
    progress_at = (
        Moment(min(NOW, claimed_at + micros(timedelta(seconds=draw(st.integers(0, 8 * 3600)))))) if claimed_at else None
    )
    due_at = draw(moments) if timed else None
    if until and claimed_at and progress_at and timed:
        due_at = look_again(until, claimed_at, progress_at, RULES)
    wanted = draw(st.integers(1, 5))
    built = wanted if state is SlotState.READY else draw(st.integers(0, wanted))
    return make_slot(
        state,
        draw(st.sampled_from(kinds)),
        wanted=wanted,
        built=built,
        missing=draw(st.integers(0, 2)) if built else 0,
        fence=draw(st.integers(0, 9)),
        holder=draw(st.sampled_from(["alive", "dead"])) if held else None,
        until=until,
        due_at=due_at,
        claimed_at=claimed_at,
        progress_at=progress_at,
        rung_at=draw(st.none() | past),
        attempts=draw(st.integers(1 if state in (SlotState.RUNNING, SlotState.WAITING) else 0, 6)) if claimed else 0,
    )


def _slot(values: dict[str, Any]) -> Slot:
    """Convert key, error and progress to the columns of a slot."""
    key, error, progress = values.pop("key"), values.pop("error"), values.pop("progress")
    return Slot(
        base=key.base,
        owner=key.owner,
        kind=key.kind,
        error_code=error and error.code,
        error_params=error and json.dumps(dict(error.params)),
        stage=progress.stage,
        step=progress.step,
        steps=progress.steps,
        done=progress.done,
        total=progress.total,
        **values,
    )
