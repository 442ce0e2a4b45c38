"""Event log: all readers see one order, no event is skipped, and a reader learns when events were deleted."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.effects import Event
from holdfast.engine.store.event_ids import SKIPPED
from holdfast.engine.store.transitions import record_events
from holdfast.events import log as module
from holdfast.events.log import EventLog
from holdfast.events.public_events import Cursor, EventFilter
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.db.database import Transaction
    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

DAY = timedelta(days=1)


@pytest.fixture
def log(store: SqlStore) -> EventLog:
    return EventLog(store.database)


def tell(tx: Transaction, *names: str, base: str = "3", type_: str = "job.success") -> None:
    record_events(tx, [Event(type_, base, name) for name in names])


def happen(store: SqlStore, *names: str, base: str = "3", type_: str = "job.success") -> None:
    store.database.write(lambda tx: tell(tx, *names, base=base, type_=type_), durable=True)


def all_of(log: EventLog, after: Cursor | None = None, limit: int = 3, only: EventFilter | None = None) -> list[str]:
    """Read all pages and return the owners of the events."""
    found: list[str] = []
    while True:
        page = log.read(after, limit, only=only or EventFilter())
        assert not page.reset
        assert page.has_more or page.cursor == after or len(page.events) < limit
        found += [event.owner for event in page.events]
        if not page.has_more:
            return found
        after = page.cursor


def numbers(count: int, first: int = 1) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_a_log_is_read_in_pages_from_the_beginning_or_from_a_cursor(store: SqlStore, log: EventLog) -> None:
    assert list(log.read(None).events) == []
    happen(store, *numbers(10))
    assert all_of(log) == numbers(10)
    place = log.read(None, 4).cursor
    assert all_of(log, place) == numbers(6, 5)
    assert all_of(log, log.newest_cursor()) == []
    happen(store, "11")
    page = log.read(log.read(None, 10).cursor)
    assert [event.owner for event in page.events] == ["11"]
    assert page.cursor == log.newest_cursor()
    assert (page.reset, page.has_more, page.has_unreadable) == (False, False, False)


def test_ids_are_unique_and_in_the_order_of_the_log(store: SqlStore, log: EventLog) -> None:
    for number in numbers(20):
        happen(store, number, f"{number}0")
    events = log.read(None).events
    assert len({event.id for event in events}) == 40
    assert [event.cursor for event in events] == sorted(event.cursor for event in events)
    assert [Cursor.parse(event.id) for event in events] == [event.cursor for event in events]


def test_a_page_without_matching_events_still_leads_to_the_next(store: SqlStore, log: EventLog) -> None:
    happen(store, *numbers(10), base="4")
    happen(store, "7", base="3")
    only = EventFilter(bases=frozenset({"3"}))
    page = log.read(None, 5, only=only)
    assert (list(page.events), page.has_more) == ([], True)
    assert all_of(log, only=only) == ["7"]
    assert all_of(log, only=EventFilter(types=frozenset({"job.failed"}))) == []


@pytest.mark.postgres
def test_events_wait_for_an_older_transaction_that_commits_late(postgres_url: str, clock: FakeClock) -> None:
    store = open_test_store(postgres_url, clock)
    log = EventLog(store.database)
    happen(store, "1")
    place = log.newest_cursor()
    with ExitStack() as late:
        slow = late.enter_context(store.database.writing(durable=True))
        tell(slow, "2")
        happen(store, "3")  # has a larger id but is visible first
        page = log.read(place)
        assert list(page.events) == []
        assert page.has_unreadable
        assert page.cursor == place == log.newest_cursor()
    page = log.read(place)
    assert [event.owner for event in page.events] == ["2", "3"]
    assert not page.has_unreadable
    store.close()


@pytest.mark.postgres
def test_an_event_with_a_small_id_from_a_younger_transaction_is_not_lost(postgres_url: str, clock: FakeClock) -> None:
    """The younger transaction has the smaller id. Ordered by id alone, a reader past the larger id would miss it."""
    store = open_test_store(postgres_url, clock)
    log = EventLog(store.database)
    with ExitStack() as late:
        old = late.enter_context(store.database.writing(durable=True))
        old.run_sql("SELECT pg_current_xact_id()")
        tx = late.enter_context(store.database.writing(durable=True))
        tell(tx, "small id, young")
        tell(old, "large id, old")
    place, seen = None, []
    for _ in range(3):
        page = log.read(place, 1)
        seen += [event.owner for event in page.events]
        place = page.cursor
    assert seen == ["large id, old", "small id, young"]
    store.close()


@pytest.mark.postgres
def test_a_reader_sees_every_event_once_for_any_order_of_commits(postgres_url: str, clock: FakeClock) -> None:
    """Tests every interleaving of two transactions that write and commit, with a read after each step."""
    store = open_test_store(postgres_url, clock)
    log = EventLog(store.database)
    steps = ["aw", "bw", "ac", "bc"]
    for turn, order in enumerate(_orders(steps)):
        place, seen = log.newest_cursor(), []
        with ExitStack() as outer:
            open_: dict[str, ExitStack] = {}
            for step in order:
                who, what = step[0], step[1]
                if what == "w":
                    open_[who] = outer.enter_context(ExitStack())
                    tell(open_[who].enter_context(store.database.writing(durable=True)), f"{turn}{who}")
                else:
                    open_[who].close()
                page = log.read(place)
                seen += [event.owner for event in page.events]
                place = page.cursor
        assert sorted(seen) == [f"{turn}a", f"{turn}b"], order
    store.close()


def _orders(steps: list[str]) -> Iterator[list[str]]:
    """Return all orders in which each transaction writes before it commits."""
    if not steps:
        yield []
    for step in steps:
        if step[1] == "w" or f"{step[0]}w" not in steps:
            for rest in _orders([other for other in steps if other != step]):
                yield [step, *rest]


def test_a_rolled_back_transaction_writes_no_event_and_blocks_no_reader(store: SqlStore, log: EventLog) -> None:
    happen(store, "1")

    def give_up(tx: Transaction) -> None:
        tell(tx, "2")
        raise InterruptedError

    with pytest.raises(InterruptedError):
        store.database.write(give_up, durable=True)
    happen(store, "3")
    assert all_of(log) == ["1", "3"]


@pytest.mark.postgres
def test_a_log_that_was_copied_to_another_server_stays_readable(postgres_url: str, clock: FakeClock) -> None:
    store = open_test_store(postgres_url, clock)
    log = EventLog(store.database)
    happen(store, *numbers(3))
    far = 10**15  # the other server had much larger transaction ids
    with store.database.writing(durable=True) as tx:
        tx.run_sql("UPDATE events SET xid = xid + %s", [far])
        tx.run_sql("UPDATE event_marks SET xid = %s", [far])
    old = Cursor(far, 2)
    assert log.adopt_foreign_events() == 3
    assert log.adopt_foreign_events() == 0
    happen(store, "4")
    assert all_of(log) == ["1", "2", "3", "4"]
    assert log.read(old).reset
    store.close()


def test_a_reader_gets_a_reset_only_if_events_after_its_cursor_were_deleted(
    store: SqlStore, log: EventLog, clock: FakeClock
) -> None:
    happen(store, *numbers(6))
    places = [event.cursor for event in log.read(None).events]
    clock.advance(DAY)
    happen(store, *numbers(2, 7))
    assert store.delete_old_history(timedelta(hours=1), 3) == 3  # the first three
    assert [log.read(place).reset for place in places] == [True, True, False, False, False, False]
    assert all_of(log, places[2]) == numbers(5, 4)
    assert all_of(log) == numbers(5, 4)
    reset = log.read(places[0])
    assert (list(reset.events), reset.cursor) == ([], log.newest_cursor())
    store.delete_old_history(timedelta(hours=1), 100)
    assert [log.read(place).reset for place in places] == [True] * 5 + [False]


def test_an_up_to_date_reader_gets_no_reset_after_all_events_were_deleted(
    store: SqlStore, log: EventLog, clock: FakeClock
) -> None:
    happen(store, *numbers(3))
    newest = log.newest_cursor()
    clock.advance(DAY)
    store.delete_old_history(timedelta(hours=1), 100)
    assert store.events() == []
    assert log.newest_cursor() == newest
    assert not log.read(newest).reset
    assert log.read(Cursor(newest.xid, newest.id - 1)).reset
    again = EventLog(store.database)  # as after a restart
    assert (again.newest_cursor(), again.read(newest).reset) == (newest, False)
    happen(store, "4")
    assert all_of(log, newest) == ["4"]


def test_a_sweep_that_deletes_nothing_causes_no_reset(store: SqlStore, log: EventLog) -> None:
    happen(store, "1")
    store.delete_old_history(DAY, 100)
    assert all_of(log) == ["1"]
    assert not log.read(Cursor(0, 0)).reset


@pytest.mark.parametrize("text", ["", "hello", "0", "-1--1", f"0-{2**70}"])
def test_an_invalid_cursor_gets_a_reset(store: SqlStore, log: EventLog, text: str) -> None:
    happen(store, "1")
    page = log.read(Cursor.parse(text))
    assert (page.reset, page.cursor) == (True, log.newest_cursor())


def test_a_cursor_in_the_future_gets_a_reset(store: SqlStore, log: EventLog) -> None:
    happen(store, "1")
    newest = log.newest_cursor()
    for place in (Cursor(newest.xid, newest.id + 1), Cursor(newest.xid + 10**9, 1)):
        assert log.read(place).reset


def test_history_is_read_backwards_from_the_newest_event(store: SqlStore, log: EventLog) -> None:
    happen(store, *numbers(5))
    happen(store, "9", base="4")
    only = EventFilter(bases=frozenset({"3"}))
    page = log.history(limit=2, only=only)
    assert [event.owner for event in page.events] == ["5", "4"]
    assert page.has_more
    page = log.history(page.cursor, 2, only=only)
    assert [event.owner for event in page.events] == ["3", "2"]
    page = log.history(page.cursor, 2, only=only)
    assert ([event.owner for event in page.events], page.has_more) == (["1"], False)
    assert [event.owner for event in log.history(only=EventFilter(document=3)).events] == ["3"]


def test_one_call_of_history_reads_a_limited_number_of_events(
    store: SqlStore, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_SIZE", 10)
    monkeypatch.setattr(module, "MAX_HISTORY_LINES", 20)
    happen(store, "rare")
    happen(store, *numbers(50), base="4")
    only = EventFilter(bases=frozenset({"3"}))
    found, before, pages = [], None, 0
    while True:
        page = log.history(before, only=only)
        found += [event.owner for event in page.events]
        before, pages = page.cursor, pages + 1
        if not page.has_more:
            break
    assert (found, pages) == (["rare"], 3)


@pytest.mark.postgres
def test_the_mark_of_deleted_events_follows_the_order_of_the_log_and_not_of_the_sweeps(
    postgres_url: str, clock: FakeClock
) -> None:
    store = open_test_store(postgres_url, clock)
    log = EventLog(store.database)
    happen(store, "1")
    happen(store, "2")
    with store.database.writing(durable=True) as tx:  # the first id belongs to the younger transaction
        tx.run_sql("UPDATE events SET xid = 7 - id")
    clock.advance(DAY)
    for _ in range(2):
        store.delete_old_history(timedelta(hours=1), 1)
    assert store.events() == []
    assert log.read(Cursor(5, 2)).reset
    assert not log.read(Cursor(6, 1)).reset
    store.close()


def test_no_event_gets_the_id_of_an_event_that_a_power_cut_may_have_lost(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"

    def newest(boot: str) -> int:
        monkeypatch.setattr("holdfast.engine.liveness.read_boot_id", lambda: boot)
        store = open_test_store(url, clock)
        happen(store, "doc")
        found = EventLog(store.database).newest_cursor().id
        store.close()
        return found

    assert newest("monday") == 1  # a new database skips nothing
    seen = newest("monday")
    assert seen == 2
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as raw:  # the last commit was not synced
        raw.execute("DELETE FROM events WHERE id = 2")
        raw.execute("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'events'")
        raw.commit()
    after = newest("tuesday")
    assert after > seen
    assert newest("tuesday") == after + 1  # once for each start


def test_where_the_machine_has_no_id_of_its_start_the_time_of_the_start_takes_its_place(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.liveness.read_boot_id", lambda: "")
    monkeypatch.setattr("holdfast.engine.store.event_ids.time.time", lambda: 1_800_000_000.0)
    url, ids = f"sqlite:///{tmp_path / 'holdfast.db'}", []
    for uptime in (86_400.0, 86_400.0, 0.0):
        monkeypatch.setattr("holdfast.engine.store.event_ids.time.monotonic", lambda uptime=uptime: uptime)
        store = open_test_store(url, clock)
        happen(store, "doc")
        ids.append(EventLog(store.database).newest_cursor().id)
        store.close()
    assert ids == [1, 2, 2 + SKIPPED + 1]
