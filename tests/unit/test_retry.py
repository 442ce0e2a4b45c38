"""Retries wait with a bounded, growing delay and end after the last attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.rules import RetryPolicy

STEADY = RetryPolicy(jitter=0.0)
LONGEST = timedelta(minutes=15)


@pytest.mark.parametrize(
    ("attempt", "minutes"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15), (6, 15), (40, 15), (10_000, 15)]
)
def test_the_delay_doubles_from_one_minute_up_to_fifteen(attempt: int, minutes: int) -> None:
    assert STEADY.delay(attempt, chance=0.5) == timedelta(minutes=minutes)


def test_a_refunded_attempt_waits_like_the_first() -> None:
    assert STEADY.delay(0, chance=0.5) == timedelta(minutes=1)


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 48), (0.5, 60), (0.75, 66)])
def test_jitter_spreads_the_delay_to_both_sides(chance: float, seconds: int) -> None:
    assert RetryPolicy().delay(1, chance) == timedelta(seconds=seconds)


@pytest.mark.parametrize(("wish", "expected"), [(30, 60), (60, 60), (61, 61), (7200, 7200)])
def test_the_pause_that_a_provider_asks_for_is_the_minimum(wish: int, expected: int) -> None:
    assert STEADY.delay(1, 0.5, timedelta(seconds=wish)) == timedelta(seconds=expected)


@pytest.mark.parametrize(("attempts", "given_up"), [(0, False), (1, False), (3, False), (4, True), (5, True)])
def test_work_is_given_up_after_four_attempts(attempts: int, given_up: bool) -> None:
    assert RetryPolicy().exhausted(attempts) is given_up


@given(attempt=st.integers(0, 100), chance=st.floats(0, 1, exclude_max=True), jitter=st.floats(0, 0.99))
def test_a_delay_is_never_zero_and_never_far_above_the_maximum(attempt: int, chance: float, jitter: float) -> None:
    delay = RetryPolicy(jitter=jitter).delay(attempt, chance)
    assert timedelta() < delay < LONGEST * 2
    assert abs(delay - STEADY.delay(attempt, chance)) <= LONGEST * jitter + timedelta(microseconds=2)


@given(attempt=st.integers(0, 100), chance=st.floats(0, 1, exclude_max=True))
def test_a_later_attempt_never_waits_less_with_the_same_jitter(attempt: int, chance: float) -> None:
    policy = RetryPolicy()
    assert policy.delay(attempt, chance) <= policy.delay(attempt + 1, chance)
