"""Repeated requests with the same Idempotency-Key are carried out once, on both databases."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from holdfast.auth.idempotency import (
    LEASE,
    MAX_BODY_BYTES,
    RETENTION,
    BeginResult,
    FirstRequest,
    IdempotencyStore,
    InFlight,
    Mismatch,
    Replay,
    StoredResponse,
)
from holdfast.auth.principal import KEYLESS_CALLER, Caller, Scope
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

ANNA = Caller(key_id=1, name="anna", scope=Scope.WRITE, bases=None)
BEN = Caller(key_id=2, name="ben", scope=Scope.WRITE, bases=None)
MADE = StoredResponse(
    status=202, headers={"Location": "/jobs/1", "Set-Cookie": "x", "Date": "today"}, body=b'{"id": "\xc3\xa4"}\0'
)
TICK = timedelta(microseconds=1)


@pytest.fixture
def repeats(store: SqlStore) -> IdempotencyStore:
    return IdempotencyStore(store.database)


def fresh(beginning: BeginResult) -> FirstRequest:
    assert isinstance(beginning, FirstRequest)
    return beginning


def test_the_first_request_does_the_work_and_later_ones_get_the_stored_response(repeats: IdempotencyStore) -> None:
    mine = fresh(repeats.begin(ANNA, "key", "f"))
    assert repeats.begin(ANNA, "key", "f") == InFlight()
    assert repeats.finish(mine, MADE)
    for _ in range(2):
        again = repeats.begin(ANNA, "key", "f")
        assert again == Replay(response=StoredResponse(status=202, headers={"location": "/jobs/1"}, body=MADE.body))


def test_a_different_request_with_the_same_key_is_refused_before_and_after_the_first_ends(
    repeats: IdempotencyStore,
) -> None:
    mine = fresh(repeats.begin(ANNA, "key", "f"))
    assert repeats.begin(ANNA, "key", "g") == Mismatch()
    repeats.finish(mine, MADE)
    assert repeats.begin(ANNA, "key", "g") == Mismatch()


def test_callers_do_not_receive_responses_of_other_callers(repeats: IdempotencyStore) -> None:
    repeats.finish(fresh(repeats.begin(ANNA, "key", "f")), MADE)
    fresh(repeats.begin(BEN, "key", "f"))
    fresh(repeats.begin(KEYLESS_CALLER, "key", "f"))


def test_exactly_one_of_many_concurrent_requests_is_the_first(repeats: IdempotencyStore) -> None:
    gate = threading.Barrier(8)
    found: list[BeginResult] = []

    def ask() -> None:
        gate.wait()
        found.append(repeats.begin(ANNA, "key", "f"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(one).__name__ for one in found) == ["FirstRequest"] + ["InFlight"] * 7


class TestWhoeverDies:
    def test_a_crashed_request_frees_the_key_after_the_lease(self, repeats: IdempotencyStore, clock: FakeClock) -> None:
        fresh(repeats.begin(ANNA, "key", "f"))
        clock.advance(LEASE - TICK)
        assert repeats.begin(ANNA, "key", "f") == InFlight()
        clock.advance(TICK)
        fresh(repeats.begin(ANNA, "key", "f"))
        assert repeats.begin(ANNA, "key", "f") == InFlight()

    def test_a_crashed_request_frees_the_key_for_a_different_request_too(
        self, repeats: IdempotencyStore, clock: FakeClock
    ) -> None:
        fresh(repeats.begin(ANNA, "key", "f"))
        clock.advance(LEASE)
        fresh(repeats.begin(ANNA, "key", "g"))
        assert repeats.begin(ANNA, "key", "f") == Mismatch()

    def test_a_late_request_cannot_store_a_response_for_its_successor(
        self, repeats: IdempotencyStore, clock: FakeClock
    ) -> None:
        late = fresh(repeats.begin(ANNA, "key", "f"))
        clock.advance(LEASE)
        mine = fresh(repeats.begin(ANNA, "key", "f"))
        assert not repeats.finish(late, StoredResponse(status=500))
        assert not repeats.release(late)
        assert repeats.begin(ANNA, "key", "f") == InFlight()
        assert repeats.finish(mine, MADE)

    def test_a_slow_request_can_still_finish_if_no_other_has_begun(
        self, repeats: IdempotencyStore, clock: FakeClock
    ) -> None:
        mine = fresh(repeats.begin(ANNA, "key", "f"))
        clock.advance(LEASE * 5)
        assert repeats.finish(mine, MADE)


def test_a_released_request_can_be_repeated_immediately(repeats: IdempotencyStore) -> None:
    mine = fresh(repeats.begin(ANNA, "key", "f"))
    assert repeats.release(mine)
    again = fresh(repeats.begin(ANNA, "key", "g"))
    assert not repeats.finish(mine, MADE)
    assert repeats.finish(again, MADE)
    assert not repeats.release(again), "an answer stays"
    assert not repeats.finish(again, StoredResponse(status=500)), "and stays what it is"


def test_answers_are_kept_for_a_day_and_then_swept(
    repeats: IdempotencyStore, clock: FakeClock, store: SqlStore
) -> None:
    for number in range(5):
        repeats.finish(fresh(repeats.begin(ANNA, f"key {number}", "f")), MADE)
    clock.advance(RETENTION - TICK)
    fresh(repeats.begin(ANNA, "young", "f"))
    assert repeats.sweep() == 0
    assert isinstance(repeats.begin(ANNA, "key 0", "f"), Replay)
    clock.advance(TICK)
    fresh(repeats.begin(ANNA, "key 0", "f"))
    assert [repeats.sweep(limit=3), repeats.sweep(limit=3), repeats.sweep(limit=3)] == [3, 1, 0]
    with store.database.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM access_repeats")).scalar() == 2


def test_a_response_body_that_is_too_large_is_not_stored_but_the_request_is_not_repeated(
    repeats: IdempotencyStore,
) -> None:
    largest = StoredResponse(status=200, body=b"x" * MAX_BODY_BYTES)
    repeats.finish(fresh(repeats.begin(ANNA, "fits", "f")), largest)
    assert repeats.begin(ANNA, "fits", "f") == Replay(response=largest)
    repeats.finish(
        fresh(repeats.begin(ANNA, "large", "f")), StoredResponse(status=200, body=b"x" * (MAX_BODY_BYTES + 1))
    )
    assert repeats.begin(ANNA, "large", "f") == Replay(response=StoredResponse(status=200, body=None))


@pytest.mark.parametrize("key", ["", "x" * 256, "schlüssel", "a\nb", "a\0b"])
def test_a_key_that_is_not_a_valid_header_value_is_refused(repeats: IdempotencyStore, key: str) -> None:
    with pytest.raises(BadRequest):
        repeats.begin(ANNA, key, "f")
