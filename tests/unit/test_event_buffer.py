"""The event buffer in memory is a section of the event log without gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import Moment
from holdfast.events.buffer import EventBuffer
from holdfast.events.log import LogPage
from holdfast.events.public_events import Cursor, PublicEvent


def event(number: int) -> PublicEvent:
    return PublicEvent(
        cursor=Cursor(0, number), type="job.success", at=Moment(0), base="3", document=1, owner="1", data={}
    )


def page(*numbers: int, end: int, reset: bool = False) -> LogPage:
    return LogPage(events=[event(number) for number in numbers], cursor=Cursor(0, end), reset=reset)


def numbers(tail: EventBuffer, after: int, limit: int = 100) -> tuple[list[int], int] | None:
    portion = tail.read_after(Cursor(0, after), limit)
    return None if portion is None else ([one.cursor.id for one in portion.events], portion.cursor.id)


def test_a_reader_past_the_end_gets_an_empty_page_and_one_before_the_start_gets_no_page() -> None:
    tail = EventBuffer(Cursor(0, 10), 4)
    assert numbers(tail, 10) == ([], 10)
    assert numbers(tail, 12) == ([], 12)
    assert numbers(tail, 9) is None


def test_a_page_ends_at_its_last_event_or_at_the_end_of_the_buffer() -> None:
    tail = EventBuffer(Cursor(0, 10), 4)
    tail.append(page(11, 13, end=15))
    assert numbers(tail, 10, 1) == ([11], 11)
    assert numbers(tail, 11, 1) == ([13], 15)
    assert numbers(tail, 10) == ([11, 13], 15)
    assert numbers(tail, 13) == ([], 15)


def test_the_oldest_events_are_dropped_when_the_buffer_is_full_and_their_readers_use_the_log() -> None:
    tail = EventBuffer(Cursor(0, 0), 2)
    tail.append(page(1, 2, 3, end=3))
    assert len(tail) == 2
    assert numbers(tail, 0) is None
    assert numbers(tail, 1) == ([2, 3], 3)


def test_after_a_reset_no_older_event_is_returned() -> None:
    tail = EventBuffer(Cursor(0, 0), 10)
    tail.append(page(1, end=2))
    tail.append(page(end=50, reset=True))
    tail.append(page(51, end=51))
    assert numbers(tail, 1) is None
    assert numbers(tail, 50) == ([51], 51)


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 6), st.integers(1, 4), st.integers(0, 60))
def test_paging_returns_every_event_once_or_reports_that_some_were_dropped(
    gaps: list[int], room: int, limit: int, after: int
) -> None:
    tail, place, all_of_them = EventBuffer(Cursor(0, 0), room), 0, []
    for gap in gaps:
        place += 1 + gap
        all_of_them.append(place - gap // 2)
        tail.append(page(place - gap // 2, end=place))
    found: list[int] = []
    cursor = after
    while (portion := numbers(tail, cursor, limit)) is not None and portion[1] != cursor:
        found += portion[0]
        cursor = portion[1]
    if after >= tail.start.id:
        assert found == [number for number in all_of_them if number > after]
    else:
        assert portion is None
