"""A slot that is not at rest has one reason for it, and each reason has a sentence."""

from __future__ import annotations

import string
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given

from holdfast.engine.problems import format_wait_reason
from holdfast.engine.queue import WHOLE_QUEUE, Pause, Pauses
from holdfast.engine.slot import Fault, Progress, Slot
from holdfast.engine.states import SlotState
from holdfast.engine.waiting import WaitContext, WaitReason, explain
from holdfast.messages import load_catalogue
from tests.unit.slot_factory import HOLDER, NOW, RULES, ago, any_slot, later, leased, make_slot

S = SlotState
AROUND = WaitContext(now=NOW)


def paused(base: str, **more: Any) -> Pauses:
    return Pauses([Pause(base=base, since=ago(minutes=9), stop=False, requester="", **more)])


@dataclass(frozen=True)
class Case:
    name: str
    slot: Slot
    code: str
    params: dict[str, Any]
    around: dict[str, Any] = field(default_factory=dict)


OLD = ago(minutes=5)
CASES = [
    Case("deleting", make_slot(S.DELETING), "deleting", {}),
    Case(
        "deleting, and it failed",
        make_slot(S.DELETING, error=Fault("disk"), due_at=later(seconds=5)),
        "deleting_failed",
        {"error": "disk", "at": later(seconds=5)},
    ),
    Case("deleting, while paused", make_slot(S.DELETING), "deleting", {}, {"pauses": paused(WHOLE_QUEUE)}),
    Case(
        "blocked",
        make_slot(S.BLOCKED, needs="content"),
        "blocked",
        {"kind": "content", "state": "running"},
        {"siblings": {"content": make_slot(S.RUNNING, "content")}},
    ),
    Case(
        "running",
        make_slot(S.RUNNING, progress=Progress(stage="embed")),
        "running",
        {"holder": HOLDER, "since": ago(minutes=1), "stage": "embed"},
        {"pauses": paused("shelf")},
    ),
    Case(
        "running, and nothing was told yet",
        make_slot(S.RUNNING),
        "started",
        {"holder": HOLDER, "since": ago(minutes=1)},
    ),
    Case(
        "its worker is lost",
        make_slot(S.RUNNING, **leased(NOW)),
        "worker_lost",
        {"holder": HOLDER, "at": NOW},
    ),
    Case(
        "the queue is paused",
        make_slot(S.QUEUED),
        "paused_queue",
        {"since": ago(minutes=9)},
        {"pauses": paused(WHOLE_QUEUE)},
    ),
    Case(
        "the base is paused",
        make_slot(S.WAITING),
        "paused_base",
        {"since": ago(minutes=9)},
        {"pauses": paused("shelf")},
    ),
    Case(
        "an older version is at work",
        make_slot(S.QUEUED, **leased(later(seconds=9))),
        "leaving",
        {"holder": HOLDER, "at": later(seconds=9)},
    ),
    Case("waiting for another attempt", make_slot(S.WAITING), "retry", {"error": "timeout", "at": later(seconds=60)}),
    Case("due for another attempt", make_slot(S.WAITING, due_at=NOW), "next", {"ahead": 0}),
    Case("queued, first", make_slot(S.QUEUED, queued_at=NOW), "next", {"ahead": 0}),
    Case("queued, third", make_slot(S.QUEUED, queued_at=NOW), "behind", {"ahead": 2}, {"ahead": 2}),
    Case("queued far behind", make_slot(S.QUEUED, queued_at=NOW), "far_behind", {"ahead": 10_000}, {"ahead": 10_000}),
    Case("nobody for a minute", make_slot(S.QUEUED, queued_at=OLD), "no_worker", {"kind": "cards", "since": OLD}),
    Case("nobody for less", make_slot(S.QUEUED, queued_at=ago(seconds=59)), "next", {"ahead": 0}),
    Case(
        "due for a minute and nobody",
        make_slot(S.WAITING, queued_at=ago(hours=1), due_at=OLD),
        "no_worker",
        {"kind": "cards", "since": OLD},
    ),
    Case(
        "resumed a moment ago",
        make_slot(S.QUEUED, queued_at=OLD),
        "next",
        {"ahead": 0},
        {"pauses": paused("shelf", resumed_at=ago(seconds=9))},
    ),
    Case(
        "others are at work on its kind",
        make_slot(S.QUEUED, queued_at=OLD),
        "behind",
        {"ahead": 1},
        {"holders_by_kind": {"cards": 1}, "ahead": 1},
    ),
    Case(
        "others are at work on other kinds",
        make_slot(S.QUEUED, queued_at=OLD),
        "kind_unclaimed",
        {"kind": "cards", "since": OLD},
        {"holders_by_kind": {"graph": 1}},
    ),
    Case(
        "one of its kind was claimed lately",
        make_slot(S.QUEUED, queued_at=OLD),
        "next",
        {"ahead": 0},
        {"last_claims": {"cards": ago(seconds=59)}},
    ),
    Case(
        "one of its kind was claimed long ago, another kind lately",
        make_slot(S.QUEUED, queued_at=OLD),
        "no_worker",
        {"kind": "cards", "since": OLD},
        {"last_claims": {"cards": ago(seconds=60), "graph": NOW}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_has_its_reason(case: Case) -> None:
    reason = explain(case.slot, replace(AROUND, **case.around), RULES)
    assert reason == WaitReason(key=case.slot.key, code=case.code, params=case.params)


def test_every_reason_is_among_the_cases() -> None:
    assert {f"waits.{case.code}" for case in CASES} == {key for key in load_catalogue() if key.startswith("waits.")}


@given(any_slot())
def test_every_slot_that_is_not_at_rest_has_a_reason_with_a_complete_sentence(slot: Slot) -> None:
    reason = explain(slot, AROUND, RULES)
    assert (reason is None) == slot.resting
    if reason is not None:
        text = load_catalogue()[f"waits.{reason.code}"]["en"]
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name} <= reason.params.keys() | {"base"}
        assert "{" not in format_wait_reason(reason, "handbook")


def test_times_in_a_sentence_are_readable() -> None:
    reason = explain(make_slot(S.WAITING), AROUND, RULES)
    assert reason is not None
    assert format_wait_reason(reason, "handbook") == (
        "The last attempt failed (timeout). The next is at 2027-01-15 08:01:00 UTC."
    )
