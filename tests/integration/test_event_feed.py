"""Event feed: each subscriber receives every event once and in order, at any reading speed and start position."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import SystemClock
from holdfast.db.notify import MemoryNotifier
from holdfast.engine.effects import Event
from holdfast.engine.slot import Progress as Far
from holdfast.engine.slot import Ticket
from holdfast.engine.states import Operation
from holdfast.engine.store.base import LeaseRenewal
from holdfast.engine.store.transitions import record_events
from holdfast.errors import BadRequest
from holdfast.events.feed import Feed, Heartbeat, Reset
from holdfast.events.log import EventLog
from holdfast.events.progress import ProgressMessage
from holdfast.events.public_events import Cursor, PublicEvent
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_event_notifier
from tests.support.stores import request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.events.feed import Message, Subscription
    from holdfast.events.log import LogPage
    from tests.support.clock import FakeClock

DAY = timedelta(days=1)
PAGE = 4
ROOM = 10


@pytest.fixture
def feed(store: SqlStore, clock: FakeClock) -> Feed:
    """Return a feed with a small buffer that reads the log only when the test calls `step`."""
    return Feed(EventLog(store.database), clock, room=ROOM, page=PAGE)


def happen(store: SqlStore, *names: object, base: str = "3", type_: str = "job.success") -> None:
    events = [Event(type_, base, str(name)) for name in names]
    store.database.write(lambda tx: record_events(tx, events), durable=True)


def ready(subscription: Subscription) -> list[Message]:
    """Take all available messages."""
    found: list[Message] = []
    while not isinstance(message := subscription.get(0), Heartbeat):
        assert message is not None
        found.append(message)
    return found


def owners(messages: list[Message]) -> list[int]:
    assert all(isinstance(one, PublicEvent) for one in messages)
    return [int(one.owner) for one in messages if isinstance(one, PublicEvent)]


def told(subscription: Subscription) -> list[int]:
    return owners(ready(subscription))


def test_a_subscriber_receives_new_events_in_order(store: SqlStore, feed: Feed) -> None:
    happen(store, 1)
    looking = feed.subscribe()
    happen(store, 2, 3)
    assert told(looking) == []  # the feed has not read the log yet
    feed.step()
    assert told(looking) == [2, 3]
    feed.step()
    assert told(looking) == []


def test_a_replay_from_a_cursor_spans_pages_and_continues_live(store: SqlStore, feed: Feed) -> None:
    happen(store, 0)
    place = feed.log.newest_cursor()
    happen(store, *range(1, 101))
    looking = feed.subscribe(place)
    assert told(looking) == list(range(1, 101))
    happen(store, *range(101, 151))
    feed.step()
    assert told(looking) == list(range(101, 151))


def test_a_replay_wakes_a_waiting_reader(store: SqlStore, feed: Feed) -> None:
    """The first prototype filled its buffer without waking the reader, which then waited until the next event."""
    place = feed.log.newest_cursor()
    happen(store, 1)
    message = feed.subscribe(place).get(PATIENCE_SECONDS)
    assert isinstance(message, PublicEvent)
    assert message.owner == "1"


class Meddling(EventLog):
    """A log that runs a callback before or after each read."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__(store.database)
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self._meddling = False

    def _meddle(self, act: Callable[[], None]) -> None:
        if not self._meddling:
            self._meddling = True
            try:
                act()
            finally:
                self._meddling = False

    def read(self, *args: Any, **more: Any) -> LogPage:
        self._meddle(self.before)
        page = super().read(*args, **more)
        self._meddle(self.after)
        return page

    def newest_cursor(self) -> Cursor:
        self._meddle(self.before)
        found = super().newest_cursor()
        self._meddle(self.after)
        return found


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("follows", [True, False])
def test_an_event_is_delivered_once_while_a_replay_joins_the_live_tail(
    store: SqlStore, clock: FakeClock, when: str, *, follows: bool
) -> None:
    """Before or after each read of the replay, a new event is written, and the live tail follows or not."""
    log = Meddling(store)
    feed = Feed(log, clock, room=ROOM, page=PAGE)
    other = feed.subscribe()
    place = log.newest_cursor()
    happen(store, *range(30))
    last = 30

    def meddle() -> None:
        nonlocal last
        if last < 50:
            happen(store, last)
            last += 1
        if follows:
            feed.step()

    setattr(log, when, meddle)
    looking = feed.subscribe(place)
    seen: list[int] = []
    for _ in range(10):
        seen += told(looking)
        happen(store, last)
        last += 1
        feed.step()
    setattr(log, when, lambda: None)
    feed.step()
    seen += told(looking)
    assert last > 40
    assert seen == list(range(last))
    assert told(other) == list(range(last))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[LogPage]:
    """Record each read of the log."""
    readings: list[LogPage] = []
    read = EventLog.read

    def noting(self: EventLog, *args: Any, **more: Any) -> LogPage:
        readings.append(read(self, *args, **more))
        return readings[-1]

    monkeypatch.setattr(EventLog, "read", noting)
    return readings


def test_many_subscribers_share_one_read_of_the_log(
    store: SqlStore, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = [feed.subscribe(topics=["job"]) for _ in range(50)]
    readings = counted(monkeypatch)
    happen(store, 1, 2)
    feed.step()
    assert [told(one) for one in everybody] == [[1, 2]] * 50
    assert len(readings) == 1


def test_a_slow_reader_buffers_at_most_a_page_and_misses_no_event(store: SqlStore, feed: Feed) -> None:
    slow = feed.subscribe()
    quick = feed.subscribe()
    seen: list[int] = []
    for number in range(200):
        happen(store, number)
        feed.step()
        seen += told(quick)
        assert len(feed._buffer or ()) <= ROOM
        assert len(slow._pending) <= PAGE
    assert seen == list(range(200))
    first = slow.get(0)
    assert isinstance(first, PublicEvent)
    assert len(slow._pending) <= PAGE
    assert [0, *told(slow)] == list(range(200))


def test_a_reader_that_falls_behind_the_retained_history_gets_a_reset(
    store: SqlStore, feed: Feed, clock: FakeClock
) -> None:
    slow = feed.subscribe()
    quick = feed.subscribe()
    for number in range(30):
        happen(store, number)
        feed.step()
    assert told(quick) == list(range(30))
    clock.advance(DAY)
    store.delete_old_history(timedelta(hours=1), 1000)
    reset = slow.get(0)
    assert reset == Reset(feed.log.newest_cursor())
    happen(store, 30)
    feed.step()
    assert (told(slow), told(quick)) == ([30], [30])


def test_a_cursor_that_is_too_old_or_invalid_gets_a_reset_and_continues(
    store: SqlStore, feed: Feed, clock: FakeClock
) -> None:
    happen(store, 1)
    place = feed.log.newest_cursor()
    happen(store, 2)
    clock.advance(DAY)
    store.delete_old_history(timedelta(hours=1), 1000)
    lost = [feed.subscribe(place), feed.subscribe(Cursor.parse("nonsense")), feed.subscribe(Cursor(10**12, 1))]
    happen(store, 3)
    for one in lost:
        assert isinstance(one.get(0), Reset)
    happen(store, 4)
    feed.step()
    assert [told(one)[-1] for one in lost] == [4, 4, 4]
    assert not any(isinstance(one.get(0), Reset) for one in lost)


def test_the_live_tail_resets_if_it_falls_behind_the_retained_history(
    store: SqlStore, feed: Feed, clock: FakeClock
) -> None:
    """This happens in a process that was stopped for a month."""
    looking = feed.subscribe()
    happen(store, 1, 2)
    clock.advance(DAY)
    store.delete_old_history(timedelta(hours=1), 1000)
    feed.step()
    assert isinstance(looking.get(0), Reset)
    happen(store, 3)
    feed.step()
    assert told(looking) == [3]


def test_the_log_is_not_read_without_subscribers(store: SqlStore, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.subscribe().close()
    happen(store, *range(50))
    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "read", lambda *_, **__: pytest.fail("read"))
        assert feed.step() is None
    looking = feed.subscribe(topics=["job"])
    readings = counted(monkeypatch)
    feed.step()
    assert len(readings) == 1  # the events in between are not read
    assert told(looking) == []
    happen(store, 50)
    feed.step()
    assert told(looking) == [50]


def test_a_subscriber_receives_nothing_about_other_bases(store: SqlStore, feed: Feed, clock: FakeClock) -> None:
    place = feed.log.newest_cursor()
    mine = [feed.subscribe(bases={"3"}), feed.subscribe(place, bases={"3"})]
    nobody = feed.subscribe(bases=())
    for number in range(40):
        happen(store, number, base="4" if number % 2 else "3")
        happen(store, "", base="", type_="queue.paused")
    store.admit([request("7", base="4"), request("8", base="3")])
    tickets = store.claim_next(["content"], "worker", 10)
    assert len(tickets) == 2
    clock.advance(timedelta(seconds=1))
    feed.step()
    for one in mine:
        messages = ready(one)
        assert {message.base for message in messages if isinstance(message, PublicEvent | ProgressMessage)} == {"3"}
        assert any(isinstance(message, ProgressMessage) for message in messages)
        assert one.get(0) == Heartbeat(None)  # the heartbeat does not reveal the position of the log
    assert ready(nobody) == []
    assert feed.subscribe().get(0) == Heartbeat(feed.log.newest_cursor()) or feed.subscribe().get(0) is not None


def test_a_subscriber_receives_the_deletion_of_its_base(store: SqlStore, feed: Feed) -> None:
    looking = feed.subscribe(bases={"3"})
    happen(store, "", type_="base.deleted")
    happen(store, "", type_="base.removed")
    feed.step()
    assert [one.type for one in ready(looking) if isinstance(one, PublicEvent)] == ["base.deleted", "base.removed"]


def test_topics_and_a_document_filter_the_events(store: SqlStore, feed: Feed) -> None:
    jobs = feed.subscribe(topics=["job"])
    one = feed.subscribe(document=2, topics=["document.added"])
    with pytest.raises(BadRequest, match="no events about 'gossip'"):
        feed.subscribe(topics=["gossip"])
    happen(store, 1, 2)
    happen(store, 1, 2, type_="document.added")
    feed.step()
    assert told(jobs) == [1, 2]
    assert told(one) == [2]


def claimed(store: SqlStore, *owners: str) -> list[Ticket]:
    store.admit([request(owner, base="3") for owner in owners])
    return store.claim_next(["content"], "worker", 10)


def beat(store: SqlStore, ticket: Ticket, **far: Any) -> None:
    store.extend([LeaseRenewal(ticket=ticket, progress=Far(**far), progressed=True)])


def far(messages: list[Message]) -> list[tuple[int | None, int]]:
    return [(one.document, one.parts[0].done) for one in messages if isinstance(one, ProgressMessage)]


def test_progress_is_sent_at_most_ten_times_a_second(store: SqlStore, feed: Feed, clock: FakeClock) -> None:
    looking = feed.subscribe(topics=["progress"])
    (ticket,) = claimed(store, "1")
    seen: list[tuple[int | None, int]] = []
    for done in range(1, 101):  # a hundred updates in a second
        beat(store, ticket, stage="reading", done=done, total=100)
        feed.step()
        seen += far(ready(looking))
        clock.advance(timedelta(milliseconds=10))
    assert 9 <= len(seen) <= 11
    assert seen == sorted(seen)
    clock.advance(timedelta(milliseconds=100))
    feed.step()
    assert far(ready(looking)) == [(1, 100)]
    clock.advance(timedelta(milliseconds=100))
    feed.step()
    assert ready(looking) == []  # no message without a change


def test_a_step_that_is_too_early_returns_the_time_until_the_next(
    store: SqlStore, feed: Feed, clock: FakeClock
) -> None:
    looking = feed.subscribe()
    (ticket,) = claimed(store, "1")
    assert feed.step() is None
    clock.advance(timedelta(milliseconds=40))
    beat(store, ticket, done=1)
    wish = feed.step()
    assert wish is not None
    assert wish.total_seconds() == pytest.approx(0.06)
    clock.advance(wish)
    assert feed.step() is None
    assert far(ready(looking)) == [(1, 0), (1, 1)] or far(ready(looking)) == []


def test_a_new_subscriber_receives_the_current_progress_immediately(
    store: SqlStore, feed: Feed, clock: FakeClock
) -> None:
    feed.subscribe()
    one, two = claimed(store, "1", "2")
    beat(store, one, done=5)
    beat(store, two, done=6)
    feed.step()
    assert far(ready(feed.subscribe())) == [(1, 5), (2, 6)]


def test_no_progress_is_sent_after_a_job_has_ended(store: SqlStore, feed: Feed, clock: FakeClock) -> None:
    looking = feed.subscribe()
    (ticket,) = claimed(store, "1")
    beat(store, ticket, done=5)
    feed.step()  # the feed has read it, but the subscriber has not taken it
    clock.advance(timedelta(milliseconds=10))  # too early for the next progress message
    store.admit([request("1", base="3", operation=Operation.CANCEL, slots=())])
    feed.step()
    messages = ready(looking)
    assert [one.type for one in messages if isinstance(one, PublicEvent)][-1] in ("job.cancelled", "document.status")
    assert far(messages) == []


def test_progress_is_discarded_when_the_last_subscriber_leaves(store: SqlStore, feed: Feed) -> None:
    first = feed.subscribe()
    (ticket,) = claimed(store, "1")
    beat(store, ticket, done=5)
    feed.step()
    first.close()
    store.admit([request("1", base="3", operation=Operation.CANCEL, slots=())])
    assert ready(feed.subscribe()) == []


def test_progress_is_not_read_if_no_subscriber_wants_it(
    store: SqlStore, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = feed.subscribe(topics=["job"])
    claimed(store, "1")
    monkeypatch.setattr(EventLog, "read_with_progress", lambda *_: pytest.fail("looked"))
    feed.step()
    assert [one.type for one in ready(looking) if isinstance(one, PublicEvent)] == ["job.accepted"]


def test_a_wait_without_events_returns_a_heartbeat(store: SqlStore, feed: Feed) -> None:
    happen(store, 1)
    assert feed.subscribe().get(0.01) == Heartbeat(feed.log.newest_cursor())


def test_waiting_ends_with_the_subscription_and_with_the_feed(feed: Feed) -> None:
    one, two = feed.subscribe(), feed.subscribe()
    with closing(one):
        assert isinstance(one.get(0), Heartbeat)
    assert one.get(0) is None
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(two.get(PATIENCE_SECONDS)))
    thread.start()
    feed.close()
    thread.join(PATIENCE_SECONDS)
    assert answers == [None]


def test_a_subscription_can_call_back_instead_of_blocking(store: SqlStore, feed: Feed) -> None:
    woken: list[int] = []
    feed.subscribe(wake=lambda: woken.append(1))
    feed.step()
    assert woken == []
    happen(store, 1)
    feed.step()
    assert woken == [1]


def test_a_page_without_matching_events_wakes_the_reader_for_the_next_page(store: SqlStore, feed: Feed) -> None:
    place = feed.log.newest_cursor()
    happen(store, *range(20), base="4")
    happen(store, 20, base="3")
    woken: list[int] = []
    looking = feed.subscribe(place, bases={"3"}, wake=lambda: woken.append(1))
    looks = 0
    while isinstance(message := looking.get(0), Heartbeat):
        looks += 1
        assert len(woken) == looks, "nobody would come again"
    assert isinstance(message, PublicEvent)
    assert looks >= 4


def test_a_commit_through_another_store_is_delivered_immediately(database_url: str) -> None:
    writer = open_configured_store(Settings(database=database_url), MemoryNotifier())
    reader = open_configured_store(Settings(database=database_url), MemoryNotifier())
    feed = Feed(EventLog(reader.database), SystemClock())
    bell = open_event_notifier(database_url)
    feed.start(bell, period=timedelta(hours=1))  # polling is so rare that only the notification can wake the feed
    try:
        looking = feed.subscribe(topics=["job", "document"])
        for number in range(3):
            writer.admit([request(str(number), base="3")])
            message = looking.get(PATIENCE_SECONDS)
            assert isinstance(message, PublicEvent)
            assert (message.type, message.document) == ("job.accepted", number)
        progress = feed.subscribe(topics=["progress"])
        (ticket,) = writer.claim_next(["content"], "worker", 1)
        while not isinstance(message := progress.get(PATIENCE_SECONDS), ProgressMessage):
            assert message is not None
        beat(writer, ticket, stage="reading", done=7)
        message = progress.get(PATIENCE_SECONDS)
        assert isinstance(message, ProgressMessage)
        assert message.parts[0].done == 7
    finally:
        feed.close()
        bell.close()
        writer.close()
        reader.close()


@pytest.mark.postgres
def test_an_event_delayed_by_an_older_transaction_is_delivered_without_a_notification(postgres_url: str) -> None:
    writer = open_configured_store(Settings(database=postgres_url), MemoryNotifier())
    feed = Feed(EventLog(writer.database), SystemClock())
    bell = open_event_notifier(postgres_url)
    feed.start(bell, period=timedelta(hours=1))
    try:
        looking = feed.subscribe(topics=["job"])
        held = threading.Event()
        step = feed.log.read

        def noting(*args: Any, **more: Any) -> LogPage:
            page = step(*args, **more)
            if page.has_unreadable:
                held.set()
            return page

        feed.log.read = noting  # type: ignore[method-assign]
        with writer.database.engine.begin() as other:  # a write transaction without events and without a notification
            other.exec_driver_sql("SELECT pg_current_xact_id()")
            happen(writer, 1)
            assert held.wait(PATIENCE_SECONDS)
        message = looking.get(PATIENCE_SECONDS)
        assert isinstance(message, PublicEvent)
        assert message.owner == "1"
    finally:
        feed.close()
        bell.close()
        writer.close()
