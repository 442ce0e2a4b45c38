"""Proves the Celery workers that other tests use: tasks run, processes can be killed, and none is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.celery_sample import TASK, Board, sample_app
from tests.support.celery_worker import CeleryWorker
from tests.support.processes import process_state, until
from tests.support.servers import ServerError, Valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.celery

MODULE = "tests.support.celery_sample"


@pytest.fixture
def board(valkey: Valkey) -> Iterator[Board]:
    board = Board(valkey.url)
    board.clear()
    yield board
    board.close()


@pytest.fixture
def send(valkey: Valkey, board: Board) -> Iterator[Callable[[str], None]]:
    """Return a function that sends one task with the given name."""
    app = sample_app(valkey.url)
    yield lambda name: app.send_task(TASK, [name])
    app.close()


@pytest.fixture
def worker(valkey: Valkey, tmp_path: Path) -> Callable[..., CeleryWorker]:
    """Make workers; their broker redelivers an unacknowledged message after `visibility_timeout` seconds."""

    def make(visibility_timeout: float = 3600, concurrency: int = 1) -> CeleryWorker:
        environment = {"SAMPLE_BROKER_URL": valkey.url, "SAMPLE_VISIBILITY_TIMEOUT": str(visibility_timeout)}
        return CeleryWorker(MODULE, tmp_path, concurrency=concurrency, environment=environment)

    return make


def begun(board: Board, name: str, times: int) -> int:
    """Wait until the task has started `times` times; return the process id of the last start."""
    until(lambda: len(board.told("started", name)) >= times, f"{name} did not start {times} times")
    return board.told("started", name)[-1]


def done(board: Board, name: str) -> list[int]:
    """Open the gate, wait until the task ends, and return the ids of the processes that finished it."""
    board.open_gate(name)
    until(lambda: board.told("finished", name), f"{name} did not finish")
    return board.told("finished", name)


@pytest.mark.smoke
def test_a_terminated_worker_finishes_the_running_task_of_its_child_first(
    worker: Callable[..., CeleryWorker], board: Board, send: Callable[[str], None]
) -> None:
    with worker(concurrency=2) as celery:
        main, *children = celery.pids()
        assert main == celery.pid
        assert sorted(children) == celery.children()
        assert len(children) == 2
        send("letter")
        assert begun(board, "letter", 1) in children
        board.open_gate("letter")
        celery.terminate()
        assert celery.pids() == []
    assert len(board.told("started", "letter")) == len(board.told("finished", "letter")) == 1
    assert "succeeded" in celery.log()


def test_a_task_whose_child_is_killed_runs_again_in_another_child(
    worker: Callable[..., CeleryWorker], board: Board, send: Callable[[str], None]
) -> None:
    with worker() as celery:
        send("letter")
        first = begun(board, "letter", 1)
        assert celery.kill_child() == first
        second = begun(board, "letter", 2)
        assert second in celery.children()
        assert done(board, "letter") == [second] != [first]


def test_a_task_of_a_killed_worker_runs_again_at_another_after_the_visibility_timeout(
    worker: Callable[..., CeleryWorker], board: Board, send: Callable[[str], None]
) -> None:
    with worker() as lost:
        send("letter")
        begun(board, "letter", 1)
        lost.kill()
        assert lost.pids() == []
    with worker(visibility_timeout=3) as other:
        assert begun(board, "letter", 2) in other.children()
        assert done(board, "letter") == other.children()


def test_a_stopped_child_continues_its_task(
    worker: Callable[..., CeleryWorker], board: Board, send: Callable[[str], None]
) -> None:
    with worker() as celery:
        send("letter")
        child = begun(board, "letter", 1)
        celery.stop(child)
        board.open_gate("letter")
        assert [process_state(pid) == "T" for pid in (child, celery.pid)] == [True, False]
        celery.stop()
        assert [process_state(pid) == "T" for pid in (child, celery.pid)] == [True, True]
        assert board.told("finished", "letter") == []
        celery.go_on()
        celery.go_on(child)
        until(lambda: board.told("finished", "letter") == [child], "it did not go on")
    assert celery.pids() == []


def test_a_worker_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    celery = CeleryWorker("tests.support.no_such_module", tmp_path)
    with pytest.raises(ServerError, match=r"(?s)ended at once.*no_such_module"):
        celery.__enter__()
    assert celery.pids() == []
