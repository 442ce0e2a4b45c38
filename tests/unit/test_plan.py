"""The plan of the reconciler is right in every branch and keeps its guarantees for random slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given

from holdfast.clock import Moment, micros
from holdfast.engine.plan import Action, DoNothing, Expire, GiveUp, ReportLongRunning, SendRing, Wait, plan
from holdfast.engine.rules import RetryPolicy, Rules
from holdfast.engine.states import SlotState
from tests.unit.slot_factory import NOW, RULES, ago, any_slot, later, leased, make_slot

if TYPE_CHECKING:
    from holdfast.engine.slot import Slot

S = SlotState
DEAD = frozenset({"dead"})
SPENT = RULES.retry.max_attempts


@dataclass(frozen=True)
class Case:
    name: str
    state: S
    expected: Action
    columns: dict[str, Any] = field(default_factory=dict)


RUNNING_OUT = leased(NOW, due_at=NOW)  # the lease expires exactly now
LONG = {"claimed_at": ago(minutes=30), "progress_at": NOW}  # the limit is reached exactly now
CASES = (
    Case("a ready slot rests", S.READY, DoNothing()),
    Case("a failed slot rests", S.FAILED, DoNothing(), {"attempts": SPENT}),
    Case("a cancelled slot rests", S.CANCELLED, DoNothing()),
    Case("a blocked slot rests", S.BLOCKED, DoNothing()),
    Case("a blocked slot waits for a superseded worker", S.BLOCKED, Wait(later(seconds=9)), leased(later(seconds=9))),
    Case("a blocked slot rests when that lease is over", S.BLOCKED, DoNothing(), leased(NOW)),
    Case("a blocked slot is taken from the dead", S.BLOCKED, Expire("holder_died"), leased(later(seconds=9), "dead")),
    Case("a queued slot is rung", S.QUEUED, SendRing()),
    Case("a queued slot of any age is only rung", S.QUEUED, SendRing(), {"queued_at": ago(days=99)}),
    Case("a queued slot waits for a superseded worker", S.QUEUED, Wait(later(seconds=9)), leased(later(seconds=9))),
    Case("a queued slot is rung when that lease is over", S.QUEUED, SendRing(), leased(NOW)),
    Case("a queued slot is taken from the dead", S.QUEUED, Expire("holder_died"), leased(later(seconds=9), "dead")),
    Case("a queued slot is not rung twice", S.QUEUED, Wait(later(seconds=1)), {"rung_at": ago(seconds=59)}),
    Case("a lost ring is repeated", S.QUEUED, SendRing(), {"rung_at": ago(seconds=60)}),
    Case("a queued slot with no attempt left fails", S.QUEUED, GiveUp(), {"attempts": SPENT}),
    Case("a queued slot with its last attempt left is rung", S.QUEUED, SendRing(), {"attempts": SPENT - 1}),
    Case("a running slot is left alone", S.RUNNING, Wait(later(seconds=60))),
    Case("a running slot is looked at when it is due", S.RUNNING, Wait(later(seconds=7)), {"due_at": later(seconds=7)}),
    Case("an expired slot is rung for whoever takes it over", S.RUNNING, SendRing(), RUNNING_OUT),
    Case("an expired slot with no attempt left fails", S.RUNNING, GiveUp(), {**RUNNING_OUT, "attempts": SPENT}),
    Case(
        "an expired slot is not rung twice",
        S.RUNNING,
        Wait(later(seconds=1)),
        RUNNING_OUT | {"rung_at": ago(seconds=59)},
    ),
    Case("a slot that runs for long is reported", S.RUNNING, ReportLongRunning(), LONG),
    Case("a long-running slot is not reported twice", S.RUNNING, Wait(later(seconds=60)), LONG | {"reported_at": NOW}),
    Case(
        "a slot that does not run for long yet is left alone",
        S.RUNNING,
        Wait(later(seconds=60)),
        {"claimed_at": ago(seconds=1799)},
    ),
    Case("a long clean-up is reported", S.DELETING, ReportLongRunning(), leased(later(seconds=60)) | LONG),
    Case("a long-running slot is taken from the dead", S.RUNNING, Expire("holder_died"), LONG | {"holder": "dead"}),
    Case("a long-running slot whose lease is over is rung", S.RUNNING, SendRing(), RUNNING_OUT | LONG),
    Case("a slot that waits for its next attempt does not run", S.WAITING, Wait(later(seconds=60)), LONG),
    Case("a running slot is taken from the dead", S.RUNNING, Expire("holder_died"), {"holder": "dead"}),
    Case("the last attempt of the dead fails", S.RUNNING, GiveUp(), {"holder": "dead", "attempts": SPENT}),
    Case("a stalled slot is taken over", S.RUNNING, Expire("no_progress"), {"progress_at": ago(minutes=45)}),
    Case("a slow slot is left alone", S.RUNNING, Wait(later(seconds=60)), {"progress_at": ago(minutes=44, seconds=59)}),
    Case("the last attempt that stalls fails", S.RUNNING, GiveUp(), {"progress_at": ago(hours=1), "attempts": SPENT}),
    Case("an endless slot is taken over", S.RUNNING, Expire("past_deadline"), {"claimed_at": ago(hours=6)}),
    Case(
        "a reported slot is left alone until its deadline",
        S.RUNNING,
        Wait(later(seconds=60)),
        {"claimed_at": ago(hours=5, minutes=59), "reported_at": ago(hours=5)},
    ),
    Case(
        "the last attempt that is endless fails", S.RUNNING, GiveUp(), {"claimed_at": ago(hours=7), "attempts": SPENT}
    ),
    Case("a waiting slot waits", S.WAITING, Wait(later(seconds=60))),
    Case("a waiting slot is rung when due", S.WAITING, SendRing(), {"due_at": NOW}),
    Case("a waiting slot with no attempt left fails", S.WAITING, GiveUp(), {"due_at": NOW, "attempts": SPENT}),
    Case("a deleting slot is rung", S.DELETING, SendRing()),
    Case("a deleting slot is never given up", S.DELETING, SendRing(), {"attempts": 99}),
    Case("a deleting slot waits for its retry", S.DELETING, Wait(later(seconds=5)), {"due_at": later(seconds=5)}),
    Case("a deleting slot is taken from the dead", S.DELETING, Expire("holder_died"), leased(later(seconds=9), "dead")),
    Case(
        "a stalled clean-up is taken over however often",
        S.DELETING,
        Expire("no_progress"),
        leased(later(seconds=9), claimed_at=ago(hours=1), progress_at=ago(hours=1), attempts=99),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_branch_of_the_plan_returns_its_action(case: Case) -> None:
    slot = make_slot(case.state, **case.columns)
    assert plan(slot, NOW, RULES, DEAD) == case.expected


def test_the_plan_uses_the_limits_of_the_given_rules() -> None:
    rules = Rules(stall=timedelta(seconds=5), deadline=timedelta(seconds=50), ring_again=timedelta(seconds=3))
    assert plan(make_slot(S.RUNNING, progress_at=ago(seconds=5)), NOW, rules) == Expire("no_progress")
    running = make_slot(S.RUNNING, progress_at=NOW, claimed_at=ago(seconds=50))
    assert plan(running, NOW, rules) == Expire("past_deadline")
    assert plan(make_slot(S.QUEUED, rung_at=ago(seconds=3)), NOW, rules) == SendRing()
    once = Rules(retry=RetryPolicy(max_attempts=1))
    assert plan(make_slot(S.WAITING, due_at=NOW), NOW, once) == GiveUp()


def test_without_a_limit_no_slot_is_reported() -> None:
    running = make_slot(S.RUNNING, claimed_at=ago(hours=5), progress_at=NOW)
    assert plan(running, NOW, Rules(long_running=timedelta())) == Wait(later(seconds=60))
    assert plan(running, NOW, Rules(long_running=timedelta(hours=5))) == ReportLongRunning()


@given(any_slot())
def test_the_plan_returns_an_action_for_every_slot(slot: Slot) -> None:
    assert isinstance(plan(slot, NOW, RULES, DEAD), DoNothing | Wait | SendRing | Expire | GiveUp | ReportLongRunning)


@given(any_slot())
def test_a_slot_at_rest_is_never_acted_on(slot: Slot) -> None:
    if slot.resting:
        assert plan(slot, NOW, RULES, DEAD) == DoNothing()


@given(any_slot())
def test_an_unclaimed_slot_is_never_expired_or_given_up(slot: Slot) -> None:
    never_claimed = slot.claimed_at is None and slot.holder is None
    if never_claimed:
        assert not isinstance(plan(slot, NOW, RULES, DEAD), Expire | GiveUp)


@given(any_slot())
def test_a_valid_lease_without_a_claim_in_this_generation_expires_only_if_its_holder_is_dead(slot: Slot) -> None:
    if slot.claimed_at is None and slot.lease and not slot.lease.expired(NOW):
        action = plan(slot, NOW, RULES, DEAD)
        assert isinstance(action, Expire) == (slot.holder in DEAD)


@given(any_slot())
def test_a_valid_lease_of_a_live_holder_that_makes_progress_never_expires(slot: Slot) -> None:
    if slot.lease is None or slot.lease.expired(NOW) or slot.holder in DEAD:
        return
    moves = slot.progress_at is None or slot.progress_at + micros(RULES.stall) > NOW
    in_time = slot.claimed_at is None or slot.claimed_at + micros(RULES.deadline) > NOW
    if moves and in_time:
        assert isinstance(plan(slot, NOW, RULES, DEAD), Wait | ReportLongRunning)


@given(any_slot())
def test_a_deleting_slot_is_never_given_up(slot: Slot) -> None:
    if slot.state is S.DELETING:
        assert plan(slot, NOW, RULES, DEAD) != GiveUp()


@given(any_slot())
def test_nothing_is_given_up_before_its_last_attempt(slot: Slot) -> None:
    if slot.attempts < SPENT:
        assert plan(slot, NOW, RULES, DEAD) != GiveUp()


@given(any_slot())
def test_a_ring_is_sent_only_for_a_slot_that_can_be_claimed(slot: Slot) -> None:
    if plan(slot, NOW, RULES, DEAD) == SendRing():
        assert slot.state in (S.QUEUED, S.WAITING, S.RUNNING, S.DELETING)
        assert slot.due_at is None or slot.due_at <= NOW
        assert slot.until is None or slot.until <= NOW
        assert slot.attempts < SPENT or slot.state is S.DELETING


@given(any_slot())
@example(make_slot(S.DELETING, **leased(later(seconds=60))))
def test_a_planned_wait_ends_in_the_future(slot: Slot) -> None:
    action = plan(slot, NOW, RULES, DEAD)
    if isinstance(action, Wait):
        assert action.until > NOW


@given(any_slot())
def test_no_slot_waits_forever_for_a_dead_holder(slot: Slot) -> None:
    """After all limits, every active slot is rung, expired or given up, except a blocked one."""
    if slot.resting or slot.state is S.BLOCKED:
        return
    doomsday = Moment(NOW + micros(timedelta(days=1)))
    assert isinstance(plan(slot, doomsday, RULES, DEAD), SendRing | Expire | GiveUp)


@pytest.mark.parametrize(
    ("slot", "action"),
    [
        (make_slot(S.QUEUED), DoNothing()),
        (make_slot(S.QUEUED, **leased(ago(seconds=1))), Expire("lease_ended")),
        (make_slot(S.WAITING, due_at=NOW), DoNothing()),
        (make_slot(S.WAITING, due_at=NOW, attempts=SPENT), GiveUp()),
        (make_slot(S.RUNNING, **leased(ago(seconds=1)), due_at=ago(seconds=1)), Expire("lease_ended")),
        (make_slot(S.RUNNING, **leased(ago(seconds=1)), due_at=ago(seconds=1), attempts=SPENT), GiveUp()),
        (make_slot(S.RUNNING), Wait(until=later(seconds=60))),
        (make_slot(S.DELETING), SendRing()),
        (make_slot(S.BLOCKED), DoNothing()),
    ],
)
def test_a_paused_slot_is_not_rung_but_its_lost_lease_expires(slot: Slot, action: object) -> None:
    assert plan(slot, NOW, RULES, DEAD, paused=True) == action


@given(any_slot())
def test_under_a_pause_only_a_clean_up_is_rung(slot: Slot) -> None:
    free, held = plan(slot, NOW, RULES, DEAD), plan(slot, NOW, RULES, DEAD, paused=True)
    if slot.state is S.DELETING or free != SendRing():
        assert held == free or isinstance(held, DoNothing | Expire)
    assert held != SendRing() or slot.state is S.DELETING
