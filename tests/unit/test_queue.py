"""Pauses, daily quotas and summaries of answers are computed correctly."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.clock import Moment, micros
from holdfast.engine.admission import AdmissionResult, Verdict
from holdfast.engine.queue import DAY, NO_PAUSES, WHOLE_QUEUE, Pause, Pauses, Quota, summarize
from holdfast.engine.states import Status

MIDNIGHT = Moment(20_000 * DAY)


def pause(base: str, since: int, resumed_at: int | None = None) -> Pause:
    resumed = None if resumed_at is None else Moment(resumed_at)
    return Pause(base=base, since=Moment(since), stop=False, requester="", resumed_at=resumed)


@pytest.mark.parametrize(
    ("pauses", "holding", "over"),
    [
        ([], None, 0),
        ([pause("shelf", 5)], "shelf", 0),
        ([pause("attic", 5)], None, 0),
        ([pause(WHOLE_QUEUE, 5)], WHOLE_QUEUE, 0),
        ([pause("shelf", 5), pause(WHOLE_QUEUE, 6)], WHOLE_QUEUE, 0),
        ([pause("shelf", 5, 7), pause(WHOLE_QUEUE, 6)], WHOLE_QUEUE, 7),
        ([pause("shelf", 5), pause(WHOLE_QUEUE, 6, 8)], "shelf", 8),
        ([pause("shelf", 5, 9), pause(WHOLE_QUEUE, 6, 8)], None, 9),
        ([pause("shelf", 5, 7), pause(WHOLE_QUEUE, 6, 8), pause("attic", 1, 99)], None, 8),
    ],
)
def test_a_base_is_paused_by_its_own_pause_and_by_that_of_the_whole_queue(
    pauses: list[Pause], holding: str | None, over: int
) -> None:
    found = Pauses(pauses)
    on = found.active_pause("shelf")
    assert (on.base if on else None, found.last_resumed("shelf")) == (holding, over)


def test_without_a_pause_no_base_is_paused() -> None:
    assert (NO_PAUSES.active_pause("shelf"), NO_PAUSES.last_resumed("shelf")) == (None, 0)


@pytest.mark.parametrize(
    ("hours", "used", "left", "again"),
    [
        (0, 0, 3, 1),
        (12, 2, 1, 1),
        (23.999, 3, 0, 1),
        (12, 9, 0, 1),  # the quota was lowered during the day
        (24, 3, 3, 2),
        (100, 3, 3, 5),
        (-1, 3, 0, 1),  # the clock was set back
    ],
)
def test_a_quota_lasts_from_midnight_to_midnight(hours: float, used: int, left: int, again: int) -> None:
    quota = Quota(base="shelf", per_day=3, day=MIDNIGHT, used=used)
    now = Moment(MIDNIGHT + micros(timedelta(hours=hours)))
    assert (quota.remaining(now), quota.resets_at(now)) == (left, MIDNIGHT + again * DAY)


def test_a_summary_counts_by_verdict_and_reason() -> None:
    said = [(Verdict.ACCEPTED, "cancel"), (Verdict.SKIPPED, "a"), (Verdict.SKIPPED, "b"), (Verdict.SKIPPED, "b")]
    told = summarize(AdmissionResult(verdict=verdict, reason=reason, status=Status.QUEUED) for verdict, reason in said)
    assert (told.found, told.accepted, told.count(Verdict.SKIPPED), told.count(Verdict.JOINED)) == (4, 1, 3, 0)
    assert told.answers == {(Verdict.ACCEPTED, "cancel"): 1, (Verdict.SKIPPED, "a"): 1, (Verdict.SKIPPED, "b"): 2}
