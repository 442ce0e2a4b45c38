"""The live feed: one reader per process follows the log for any number of subscriptions.

A subscription is little more than a cursor. It reads from the buffer in memory, or from the log if it is further
behind. Both return the same events in the same order, so a change from one to the other neither loses nor repeats an
event. A slow subscriber falls behind without blocking the others.

    with feed.subscribe(bases=["3"], topics=["job", "progress"]) as subscription:
        while (message := subscription.get(timeout=15)) is not None: ...
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from holdfast.engine.loop import Loop
from holdfast.events.buffer import EventBuffer
from holdfast.events.log import PAGE_SIZE
from holdfast.events.progress import PROGRESS_INTERVAL, LatestProgress, ProgressMessage
from holdfast.events.public_events import PROGRESS, UNKNOWN_POSITION, Cursor, EventFilter, PublicEvent, resolve_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from holdfast.clock import Clock
    from holdfast.db import Notifier
    from holdfast.events.log import EventLog, LogPage

BUFFER_SIZE = 2000  # events in memory, shared by all subscriptions
POLL_PERIOD = timedelta(seconds=2)  # reads at least this often, in case a notification is lost
CLOCK_RESOLUTION_SECONDS = 0.001  # clocks are not finer than this
UNREADABLE_RETRY_DELAY = PROGRESS_INTERVAL  # while an open transaction hides events


@dataclass(frozen=True, slots=True)
class Reset:
    """Events after the given cursor are gone: the subscriber must reload its state. The feed goes on from `cursor`."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing happened for a while. Only subscriptions to all bases get the cursor."""

    cursor: Cursor | None = None


Message = PublicEvent | ProgressMessage | Reset | Heartbeat


class Feed:
    """Follows the log while there are subscriptions."""

    def __init__(self, log: EventLog, clock: Clock, *, room: int = BUFFER_SIZE, page: int = PAGE_SIZE) -> None:
        self.log = log
        self.latest_progress = LatestProgress()
        self.page_size = page
        self._clock = clock
        self._buffer_size = room
        self._changed = threading.Condition()
        self._step_lock = threading.Lock()
        self._version = 0  # rises whenever there may be a new message
        self._buffer: EventBuffer | None = None
        self._progress_read_at = float("-inf")  # monotonic: when progress was last read
        self._subscriptions: set[Subscription] = set()
        self._resources = ExitStack()
        self._wake_loop: Callable[[], None] = lambda: None
        self.closed = False

    def subscribe(
        self,
        after: Cursor | None = None,
        *,
        bases: Collection[str] | None = None,
        document: int | None = None,
        topics: Collection[str] | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> Subscription:
        """Subscribe after a cursor, or to new events; a topic is an event type, its first word, or `progress`.

        Another thread calls `wake` whenever there may be a new message. It must return at once.
        """
        filter_ = EventFilter(
            bases=None if bases is None else frozenset(bases),
            types=None if topics is None else resolve_topics(topics),
            document=document,
        )
        self.log.adopt_foreign_events()
        cursor = newest = self.log.newest_cursor()
        if after is not None:  # a cursor in the future is of another log
            cursor = after if after <= newest else Cursor(*UNKNOWN_POSITION)
        with self._changed:
            if not self._subscriptions:  # the feed did not read, so the buffer is out of date
                self._buffer = EventBuffer(newest, self._buffer_size)
                self.latest_progress = LatestProgress()
                self._progress_read_at = float("-inf")
            subscription = Subscription(self, cursor, filter_, wake, progress=topics is None or PROGRESS in topics)
            self._subscriptions.add(subscription)
        self._wake_loop()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        with self._changed:
            self._subscriptions.discard(subscription)
            self._changed.notify_all()

    def read_buffer(self, cursor: Cursor) -> LogPage | None:
        """Return the next events after a cursor from memory; None if only the log has them."""
        with self._changed:
            return self._buffer.read_after(cursor, self.page_size) if self._buffer is not None else None

    def next_progress(self, seen: int, filter_: EventFilter) -> tuple[int, ProgressMessage] | None:
        """Return the first progress change after number `seen`, with its number."""
        with self._changed:
            return self.latest_progress.next_change(seen, filter_)

    @property
    def version(self) -> int:
        """A number that rises whenever there may be a new message."""
        with self._changed:
            return self._version

    def wait(self, version: int, seconds: float, until: Callable[[], bool]) -> None:
        """Wait until the version changes, `until` holds, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or until(), max(0.0, seconds))

    def step(self) -> timedelta | None:
        """Read new events and progress once; return when to call again, None: when notified."""
        with self._step_lock:
            return self._step()

    def _step(self) -> timedelta | None:
        with self._changed:
            buffer = self._buffer
            with_progress = any(subscription.wants_progress for subscription in self._subscriptions)
            if buffer is None or not self._subscriptions:
                return None
        now = self._clock.monotonic()
        remaining = self._progress_read_at + PROGRESS_INTERVAL.total_seconds() - now
        due = remaining < CLOCK_RESOLUTION_SECONDS
        has_unreadable, more = False, True
        while more:
            page, running = (
                self.log.read_with_progress(buffer.end, self.page_size)
                if with_progress
                else (self.log.read(buffer.end, self.page_size), [])
            )
            has_unreadable, more = page.has_unreadable, page.has_more or page.reset
            with self._changed:
                changed = buffer.end != page.cursor
                buffer.append(page)
                # Ended work is removed at once, so that no progress follows the event of its end.
                changed = self.latest_progress.update(running, new=due) or changed
            if changed:
                self._notify_subscribers()
        if due:
            self._progress_read_at = now
        elif with_progress:
            return timedelta(seconds=remaining)
        return UNREADABLE_RETRY_DELAY if has_unreadable else None

    def start(self, notifier: Notifier, period: timedelta = POLL_PERIOD) -> None:
        """Follow the log in a thread, woken by the notifications that commits send."""
        listener = self._resources.enter_context(closing(notifier.listen()))
        loop = Loop("events", self.step, listener, period, spacing=PROGRESS_INTERVAL)
        self._resources.callback(loop.start().join)
        self._resources.callback(loop.stop)
        self._wake_loop = listener.wake

    def close(self) -> None:
        """Stop following, and end all subscriptions."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._resources.close()
        self._notify_subscribers()

    def _notify_subscribers(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()
            wakes = [subscription.wake for subscription in self._subscriptions]
        for wake in wakes:
            wake()


class Subscription:
    """The cursor and filter of one subscriber. Not thread-safe."""

    def __init__(
        self, feed: Feed, cursor: Cursor, filter_: EventFilter, wake: Callable[[], None], *, progress: bool
    ) -> None:
        self._feed = feed
        self._cursor = cursor  # everything before it was read
        self._filter = filter_
        self._last_progress_change = 0
        self._pending: deque[PublicEvent] = deque()  # at most a page
        self.wake = wake
        self.wants_progress = progress
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, timeout: float) -> Message | None:
        """Return the next message, a `Heartbeat` after `timeout` seconds without one, or None after the end."""
        ends = time.monotonic() + timeout
        while not self._ended():
            version = self._feed.version
            message = self._next_message()
            if message is not None:
                return message
            behind, left = self._has_unread(), ends - time.monotonic()
            if left <= 0:
                if behind:  # no notification will follow for events that are readable already
                    self.wake()
                break
            if not behind:
                self._feed.wait(version, left, self._ended)
        return None if self._ended() else Heartbeat(self._cursor if self._filter.bases is None else None)

    def close(self) -> None:
        self.closed = True
        self._feed.unsubscribe(self)

    def _ended(self) -> bool:
        return self.closed or self._feed.closed

    def _next_message(self) -> Message | None:
        """Return the next event, else the next progress change."""
        if not self._pending:
            reset = self._fetch()
            if reset is not None:
                return reset
        if self._pending:
            return self._pending.popleft()
        change = self._feed.next_progress(self._last_progress_change, self._filter) if self.wants_progress else None
        if change is None:
            return None
        self._last_progress_change, progress = change
        return progress

    def _fetch(self) -> Reset | None:
        """Fetch the next events from the buffer, or from the log if they are older."""
        page = self._feed.read_buffer(self._cursor) or self._feed.log.read(
            self._cursor, self._feed.page_size, only=self._filter
        )
        self._cursor = page.cursor
        if page.reset:
            return Reset(page.cursor)
        self._pending.extend(event for event in page.events if self._filter.matches(event))
        return None

    def _has_unread(self) -> bool:
        """Return whether the buffer or the log may have more events that are readable now."""
        page = self._feed.read_buffer(self._cursor)
        return page is None or page.cursor != self._cursor
