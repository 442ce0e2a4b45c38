"""All copies for search share one limit; the ones that were not used for longest are dropped first."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.indexes.search_memory import KEPT_SECONDS, SearchMemory

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTE = 2**20


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return wait


def test_the_copies_that_were_not_used_for_longest_are_dropped_until_all_fit(wait: Callable[[float], None]) -> None:
    memory, dropped = SearchMemory(3), list[str]()
    for name in ("first", "second", "third"):
        assert memory.use(name, MEGABYTE, partial(dropped.append, name)) == 0
        wait(1)
    wait(KEPT_SECONDS)
    assert memory.use("first", MEGABYTE, lambda: dropped.append("first")) == 0
    assert memory.use("large", 2 * MEGABYTE, lambda: dropped.append("large")) == 0
    assert dropped == ["second", "third"]


def test_a_copy_that_was_used_just_now_stays_and_the_excess_is_returned(wait: Callable[[float], None]) -> None:
    memory, dropped = SearchMemory(1), list[str]()
    memory.use("vectors", MEGABYTE, lambda: dropped.append("vectors"))
    assert memory.use("words", 10, lambda: dropped.append("words")) == 10
    assert dropped == []
    wait(KEPT_SECONDS + 1)
    assert memory.use("words", 10, lambda: dropped.append("words")) == 0
    assert dropped == ["vectors"]


def test_a_copy_that_grows_or_goes_counts_with_its_new_size(wait: Callable[[float], None]) -> None:
    memory = SearchMemory(1)
    memory.use("names", MEGABYTE, lambda: None)
    assert memory.use("names", MEGABYTE + 5, lambda: None) == 5
    memory.forget("names")
    assert memory.use("words", MEGABYTE, lambda: None) == 0
