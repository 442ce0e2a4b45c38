"""Progress never goes back within a generation, shows the newest state of each document and omits ended work."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.events.progress import LatestProgress, ProgressMessage, RunningSlot
from holdfast.events.public_events import ALL_EVENTS, EventFilter


def part(owner: str = "1", kind: str = "vector", base: str = "3", **more: Any) -> RunningSlot:
    far = {"generation": 1, "stage": "embedding", "step": 1, "steps": 2, "done": 0, "total": 10, **more}
    return RunningSlot(base, owner, kind, "job", **far)


def drained(board: LatestProgress, seen: int = 0, only: EventFilter = ALL_EVENTS) -> list[ProgressMessage]:
    found = []
    while (change := board.next_change(seen, only)) is not None:
        seen, progress = change
        found.append(progress)
    return found


def test_a_slow_reader_gets_only_the_newest_state_of_each_document() -> None:
    board = LatestProgress()
    for done in range(1000):
        board.update([part("1", done=done), part("2", done=done)])
    assert [(one.document, one.parts[0].done) for one in drained(board)] == [(1, 999), (2, 999)]


def test_the_running_slots_of_a_document_are_sent_in_one_message() -> None:
    board = LatestProgress()
    assert board.update([part(kind="vector", done=3), part(kind="graph", done=4, generation=2)])
    (progress,) = drained(board)
    assert progress.to_dict()["generation"] == 2
    assert [(one["kind"], one["done"]) for one in progress.to_dict()["parts"]] == [("vector", 3), ("graph", 4)]


def test_unchanged_progress_is_not_sent_again() -> None:
    board = LatestProgress()
    assert board.update([part(done=3)])
    assert not board.update([part(done=3)])
    assert board.update([part(done=3, total=11)])


def test_ended_work_is_removed_even_when_no_new_progress_may_be_shown() -> None:
    board = LatestProgress()
    board.update([part("1"), part("2", "vector"), part("2", "graph")])
    assert not board.update([part("2", "graph", done=5)], new=False)
    (left,) = drained(board)
    assert [(one.kind, one.done) for one in left.parts] == [("graph", 0)]
    board.update([part("2", "graph", generation=2)], new=False)
    assert drained(board) == []


def test_a_reader_without_access_to_a_base_sees_no_progress_of_it() -> None:
    board = LatestProgress()
    board.update([part("1", base="3"), part("2", base="4")])
    assert [one.document for one in drained(board, only=EventFilter(bases=frozenset({"4"})))] == [2]
    assert [one.document for one in drained(board, only=EventFilter(document=1))] == [1]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 5)), max_size=30))
def test_progress_never_goes_back_within_a_generation(reports: list[tuple[int, int, int]]) -> None:
    board, seen, last = LatestProgress(), 0, (0, 0, 0)
    for generation, step, done in sorted(reports, key=itemgetter(0)):
        board.update([part(generation=generation, step=step, done=done)])
        change = board.next_change(seen, ALL_EVENTS)
        if change is not None:
            seen, progress = change
            (one,) = progress.parts
            assert last <= (one.generation, one.step, one.done)
            last = (one.generation, one.step, one.done)
