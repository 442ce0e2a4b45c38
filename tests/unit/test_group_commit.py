"""Requests that wait at the same time are admitted in one transaction."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.store.group_commit import GroupCommit
from holdfast.errors import StoreFull
from tests.support.stores import request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


def gather(owners: list[str], fails: bool = False) -> tuple[list[list[str]], list[Any]]:
    """Hold back the first request until all others wait, then let it admit them. Return batches and answers."""
    batches: list[list[str]] = []
    turn = threading.Event()

    def admit(take: Callable[[], Any]) -> Any:
        turn.wait(PATIENCE_SECONDS)
        batch = [one.owner for one in take()]
        batches.append(batch)
        if fails and len(batches) == 1:
            raise StoreFull("simulated")
        return batch

    gathering = GroupCommit(admit)
    with ThreadPoolExecutor(len(owners)) as pool:
        asked = []
        for number, owner in enumerate(owners, 1):
            asked.append(pool.submit(gathering.submit, request(owner)))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(gathering._queue) < number:
                assert time.monotonic() < deadline, "it never came to wait"
        turn.set()
        return batches, [one.exception() or one.result() for one in asked]


def test_requests_that_wait_at_the_same_time_share_a_transaction() -> None:
    assert gather(["a", "b", "c"]) == ([["a", "b", "c"]], ["a", "b", "c"])


def test_two_requests_for_one_owner_are_admitted_in_separate_transactions() -> None:
    assert gather(["a", "b", "a", "c"]) == ([["a", "b"], ["a", "c"]], ["a", "b", "a", "c"])


@pytest.mark.parametrize("owners", [["a"], ["a", "b", "c"]])
def test_a_failed_transaction_is_reported_to_every_request_in_it(owners: list[str]) -> None:
    _, answers = gather(owners, fails=True)
    assert [type(one) for one in answers] == [StoreFull] * len(owners)


def test_after_a_failed_transaction_the_next_one_runs() -> None:
    batches, answers = gather(["a", "b", "a"], fails=True)
    assert batches == [["a", "b"], ["a"]]
    assert [type(one) for one in answers[:2]] == [StoreFull, StoreFull]
    assert answers[2] == "a"
