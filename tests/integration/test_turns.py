"""Writers of one SQLite file wait for their turn in order, and not for ever."""

from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreBusy
from holdfast.stores.turns import Turns
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db-turn"


@pytest.fixture
def turns(file: Path) -> Iterator[Turns]:
    made = Turns(file)
    yield made
    made.close()


@contextmanager
def elsewhere(file: Path) -> Iterator[None]:
    """Have the turn as another process has it that was stopped in the middle of its transaction."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def free(file: Path) -> bool:
    """Tell whether nobody has the turn."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def take(turns: Turns) -> str:
    with turns.one():
        return "taken"


def test_a_turn_that_another_process_keeps_is_given_up_with_a_sentence(
    turns: Turns, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.turns.BUSY_SECONDS", 0.1)
    with elsewhere(file), pytest.raises(StoreBusy, match="look for a process that is stopped or hangs"):
        take(turns)
    assert take(turns) == "taken"


def test_all_who_wait_in_one_process_give_up_in_the_same_time(
    turns: Turns, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.turns.BUSY_SECONDS", 0.3)

    def refused(_number: int) -> bool:
        with pytest.raises(StoreBusy):
            take(turns)
        return True

    with elsewhere(file), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(refused, range(8)))
    assert take(turns) == "taken"


def test_a_turn_that_comes_after_it_was_given_up_is_left_to_others(
    turns: Turns, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.turns.BUSY_SECONDS", 0.05)
    with elsewhere(file), pytest.raises(StoreBusy):
        take(turns)
    until(lambda: free(file), "the turn is kept by nobody who wants it")
    until(lambda: all(thread.name != "holdfast-turn" for thread in threading.enumerate()), "a thread still waits")


def test_a_turn_that_comes_in_time_is_taken(turns: Turns, file: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with elsewhere(file):
            waiting = pool.submit(take, turns)
            until(lambda: any(thread.name == "holdfast-turn" for thread in threading.enumerate()), "nobody waits")
            assert not waiting.done()
        assert waiting.result(timeout=20) == "taken"
    assert free(file)


def test_a_turn_is_kept_from_other_processes_until_it_is_over(turns: Turns, file: Path) -> None:
    with turns.one():
        assert not free(file)
    assert free(file)
