"""Live: one reader in a process follows the log, and any number of people look on, each from a place of their own.

A subscription is a place in the log and little more. It is served from the tail in memory, or from the log if it is
further behind; both tell the same events in the same order, so there is no moment at which it changes from one to the
other and could lose or double one. Whoever reads slowly falls behind, and is held by nobody.
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
from holdfast.events.buffer import EventBatch, EventBuffer
from holdfast.events.log import PAGE_SIZE
from holdfast.events.progress import PROGRESS_INTERVAL, LatestProgress, ProgressMessage
from holdfast.events.public_events import PROGRESS, UNKNOWN_POSITION, Cursor, EventFilter, PublicEvent, resolve_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from holdfast.clock import Clock
    from holdfast.db import Notifier
    from holdfast.events.log import EventLog

BUFFER_SIZE = 2000  # events kept in memory, for all together
POLL_PERIOD = timedelta(seconds=2)  # the net for a bell that was not heard
CLOCK_RESOLUTION_SECONDS = 0.001  # clocks are not finer than this
UNREADABLE_RETRY_DELAY = PROGRESS_INTERVAL  # when something is there that may not be read yet


@dataclass(frozen=True, slots=True)
class Reset:
    """What was behind the place that was named is gone: look at everything anew; events go on from this place."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing happened for a while. The place is told only to those who may see everything."""

    cursor: Cursor | None = None


Message = PublicEvent | ProgressMessage | Reset | Heartbeat


class Feed:
    """Follows the log while somebody looks on."""

    def __init__(self, log: EventLog, clock: Clock, *, room: int = BUFFER_SIZE, page: int = PAGE_SIZE) -> None:
        self.log = log
        self.latest_progress = LatestProgress()
        self.page_size = page
        self._clock = clock
        self._buffer_size = room
        self._changed = threading.Condition()
        self._step_lock = threading.Lock()
        self._version = 0  # rises whenever there may be something new
        self._buffer: EventBuffer | None = None
        self._progress_read_at = float("-inf")  # monotonic: when progress was last read
        self._subscriptions: set[Subscription] = set()
        self._resources = ExitStack()
        self._wake_loop: Callable[[], None] = lambda: None
        self.closed = False

    # ------------------------------------------------------------ looking on

    def subscribe(
        self,
        after: Cursor | None = None,
        *,
        bases: Collection[str] | None = None,
        document: int | None = None,
        topics: Collection[str] | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> Subscription:
        """Look on from a place, or from now on; `topics` may be types, their first words, and `progress`.

        `wake` is called whenever there may be something new, by another thread, and must return at once.
        """
        only = EventFilter(
            bases=None if bases is None else frozenset(bases),
            types=None if topics is None else resolve_topics(topics),
            document=document,
        )
        self.log.adopt_foreign_events()
        place = newest = self.log.newest_cursor()
        if after is not None:
            place = (
                after if after <= newest else Cursor(*UNKNOWN_POSITION)
            )  # a place that is still to come is of another log
        with self._changed:
            if not self._subscriptions:  # nobody looked on, so nobody read on
                self._buffer, self.latest_progress, self._progress_read_at = (
                    EventBuffer(newest, self._buffer_size),
                    LatestProgress(),
                    float("-inf"),
                )
            subscription = Subscription(self, place, only, wake, progress=topics is None or PROGRESS in topics)
            self._subscriptions.add(subscription)
        self._wake_loop()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Look on no more."""
        with self._changed:
            self._subscriptions.discard(subscription)
            self._changed.notify_all()

    def read_buffer(self, place: Cursor) -> EventBatch | None:
        """Return what is behind a place, from memory; None if the log has to be asked."""
        with self._changed:
            return self._buffer.read_after(place, self.page_size) if self._buffer is not None else None

    def next_progress(self, seen: int, only: EventFilter) -> tuple[int, ProgressMessage] | None:
        """Return the next change of running work that somebody has not seen."""
        with self._changed:
            return self.latest_progress.next_change(seen, only)

    @property
    def version(self) -> int:
        """A number that rises whenever there may be something new."""
        with self._changed:
            return self._version

    def wait(self, version: int, seconds: float, until: Callable[[], bool]) -> None:
        """Wait for something newer than a version, or for `until`."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or until(), max(0.0, seconds))

    # ------------------------------------------------------------ following

    def step(self) -> timedelta | None:
        """Read on once, for all who look on; return when to look again at the latest, None for no hurry."""
        with self._step_lock:
            return self._step()

    def _step(self) -> timedelta | None:
        with self._changed:
            tail, looking = self._buffer, any(one.wants_progress for one in self._subscriptions)
            if tail is None or not self._subscriptions:
                return None
        now = self._clock.monotonic()
        early = self._progress_read_at + PROGRESS_INTERVAL.total_seconds() - now
        due = early < CLOCK_RESOLUTION_SECONDS
        held, more = False, True
        while more:
            page, running = (
                self.log.read_with_progress(tail.end, self.page_size)
                if looking
                else (self.log.read(tail.end, self.page_size), [])
            )
            held, more = page.has_unreadable, page.has_more or page.reset
            with self._changed:
                moved = tail.end != page.cursor
                tail.append(page)
                # What has ended goes at once, lest it be shown after the event that told of its end.
                moved = self.latest_progress.update(running, new=due) or moved
            if moved:
                self._notify_subscribers()
        if due:
            self._progress_read_at = now
        elif looking:
            return timedelta(seconds=early)
        return UNREADABLE_RETRY_DELAY if held else None

    def start(self, bell: Notifier, period: timedelta = POLL_PERIOD) -> None:
        """Follow in a thread of its own, woken by a bell that rings after commits."""
        listener = self._resources.enter_context(closing(bell.listen()))
        loop = Loop("events", self.step, listener, period, spacing=PROGRESS_INTERVAL)
        self._resources.callback(loop.start().join)
        self._resources.callback(loop.stop)
        self._wake_loop = listener.wake

    def close(self) -> None:
        """Follow no more; whoever waits is told that it is over."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._resources.close()
        self._notify_subscribers()

    def _notify_subscribers(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()
            wakes = [one.wake for one in self._subscriptions]
        for wake in wakes:
            wake()


class Subscription:
    """One who looks on; to be used by one thread at a time."""

    def __init__(
        self, feed: Feed, place: Cursor, only: EventFilter, wake: Callable[[], None], *, progress: bool
    ) -> None:
        self._feed = feed
        self._cursor = place  # behind all that was looked at
        self._filter = only
        self._last_progress_change = 0  # the last change of the board
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
        """Return what comes next; a `Heartbeat` if nothing comes within so many seconds; None when it is over."""
        ends = time.monotonic() + timeout
        while not self._ended():
            version = self._feed.version
            message = self._next_message()
            if message is not None:
                return message
            behind, left = self._has_unread(), ends - time.monotonic()
            if left <= 0:
                if behind:  # nobody else will say that there is more
                    self.wake()
                break
            if not behind:
                self._feed.wait(version, left, self._ended)
        return None if self._ended() else Heartbeat(self._cursor if self._filter.bases is None else None)

    def close(self) -> None:
        """Look on no more."""
        self.closed = True
        self._feed.unsubscribe(self)

    def _ended(self) -> bool:
        return self.closed or self._feed.closed

    def _next_message(self) -> Message | None:
        """Return what is there: first what is kept, then how far work is."""
        if not self._pending:
            reset = self._fetch()
            if reset is not None:
                return reset
        if self._pending:
            return self._pending.popleft()
        found = self._feed.next_progress(self._last_progress_change, self._filter) if self.wants_progress else None
        if found is None:
            return None
        self._last_progress_change, progress = found
        return progress

    def _fetch(self) -> Reset | None:
        """Take the next events: from memory, or from the log if they are older."""
        portion = self._feed.read_buffer(self._cursor)
        if portion is None:
            page = self._feed.log.read(self._cursor, self._feed.page_size, only=self._filter)
            if page.reset:
                self._cursor = page.cursor
                return Reset(page.cursor)
            portion = EventBatch(page.events, page.cursor)
        self._cursor = portion.cursor
        self._pending.extend(event for event in portion.events if self._filter.matches(event))
        return None

    def _has_unread(self) -> bool:
        """Tell whether there may be more in the log, or in memory, without anybody having to wait."""
        portion = self._feed.read_buffer(self._cursor)
        return portion is None or portion.cursor != self._cursor
