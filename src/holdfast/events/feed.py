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
from holdfast.events.buffer import Portion, Tail
from holdfast.events.log import PAGE
from holdfast.events.progress import SPACING, Board, Progress
from holdfast.events.public_events import LOST, PROGRESS, Cursor, Filter, PublicEvent, types_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from holdfast.clock import Clock
    from holdfast.db import Bell
    from holdfast.events.log import Log

ROOM = 2000  # events kept in memory, for all together
PERIOD = timedelta(seconds=2)  # the net for a bell that was not heard
CLOSE_SECONDS = 0.001  # clocks are not finer than this
SOON = SPACING  # when something is there that may not be read yet


@dataclass(frozen=True, slots=True)
class Reset:
    """What was behind the place that was named is gone: look at everything anew; events go on from this place."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing happened for a while. The place is told only to those who may see everything."""

    cursor: Cursor | None = None


Message = PublicEvent | Progress | Reset | Heartbeat


class Feed:
    """Follows the log while somebody looks on."""

    def __init__(self, log: Log, clock: Clock, *, room: int = ROOM, page: int = PAGE) -> None:
        self.log = log
        self.board = Board()
        self.page = page
        self._clock = clock
        self._room = room
        self._changed = threading.Condition()
        self._following = threading.Lock()
        self._version = 0  # rises whenever there may be something new
        self._tail: Tail | None = None
        self._looked = float("-inf")  # monotonic: when progress was last read
        self._subscriptions: set[Subscription] = set()
        self._closing = ExitStack()
        self._nudge: Callable[[], None] = lambda: None
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
        only = Filter(
            bases=None if bases is None else frozenset(bases),
            types=None if topics is None else types_of(topics),
            document=document,
        )
        self.log.adopt()
        place = newest = self.log.newest()
        if after is not None:
            place = after if after <= newest else Cursor(*LOST)  # a place that is still to come is of another log
        with self._changed:
            if not self._subscriptions:  # nobody looked on, so nobody read on
                self._tail, self.board, self._looked = Tail(newest, self._room), Board(), float("-inf")
            subscription = Subscription(self, place, only, wake, progress=topics is None or PROGRESS in topics)
            self._subscriptions.add(subscription)
        self._nudge()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Look on no more."""
        with self._changed:
            self._subscriptions.discard(subscription)
            self._changed.notify_all()

    def portion(self, place: Cursor) -> Portion | None:
        """Return what is behind a place, from memory; None if the log has to be asked."""
        with self._changed:
            return self._tail.after(place, self.page) if self._tail is not None else None

    def progress(self, seen: int, only: Filter) -> tuple[int, Progress] | None:
        """Return the next change of running work that somebody has not seen."""
        with self._changed:
            return self.board.after(seen, only)

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
        with self._following:
            return self._step()

    def _step(self) -> timedelta | None:
        with self._changed:
            tail, looking = self._tail, any(one.progress for one in self._subscriptions)
            if tail is None or not self._subscriptions:
                return None
        now = self._clock.monotonic()
        early = self._looked + SPACING.total_seconds() - now
        due = early < CLOSE_SECONDS
        held, more = False, True
        while more:
            page, running = self.log.look(tail.end, self.page) if looking else (self.log.read(tail.end, self.page), [])
            held, more = page.held, page.more or page.reset
            with self._changed:
                moved = tail.end != page.cursor
                tail.append(page)
                # What has ended goes at once, lest it be shown after the event that told of its end.
                moved = self.board.show(running, new=due) or moved
            if moved:
                self._tell()
        if due:
            self._looked = now
        elif looking:
            return timedelta(seconds=early)
        return SOON if held else None

    def start(self, bell: Bell, period: timedelta = PERIOD) -> None:
        """Follow in a thread of its own, woken by a bell that rings after commits."""
        listener = self._closing.enter_context(closing(bell.listen()))
        loop = Loop("events", self.step, listener, period, spacing=SPACING)
        self._closing.callback(loop.start().join)
        self._closing.callback(loop.stop)
        self._nudge = listener.poke

    def close(self) -> None:
        """Follow no more; whoever waits is told that it is over."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._closing.close()
        self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()
            wakes = [one.wake for one in self._subscriptions]
        for wake in wakes:
            wake()


class Subscription:
    """One who looks on; to be used by one thread at a time."""

    def __init__(self, feed: Feed, place: Cursor, only: Filter, wake: Callable[[], None], *, progress: bool) -> None:
        self._feed = feed
        self._place = place  # behind all that was looked at
        self._only = only
        self._seen = 0  # the last change of the board
        self._ready: deque[PublicEvent] = deque()  # at most a page
        self.wake = wake
        self.progress = progress
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
        while not self._over():
            version = self._feed.version
            message = self._next()
            if message is not None:
                return message
            behind, left = self._behind(), ends - time.monotonic()
            if left <= 0:
                if behind:  # nobody else will say that there is more
                    self.wake()
                break
            if not behind:
                self._feed.wait(version, left, self._over)
        return None if self._over() else Heartbeat(self._place if self._only.bases is None else None)

    def close(self) -> None:
        """Look on no more."""
        self.closed = True
        self._feed.leave(self)

    def _over(self) -> bool:
        return self.closed or self._feed.closed

    def _next(self) -> Message | None:
        """Return what is there: first what is kept, then how far work is."""
        if not self._ready:
            reset = self._fetch()
            if reset is not None:
                return reset
        if self._ready:
            return self._ready.popleft()
        found = self._feed.progress(self._seen, self._only) if self.progress else None
        if found is None:
            return None
        self._seen, progress = found
        return progress

    def _fetch(self) -> Reset | None:
        """Take the next events: from memory, or from the log if they are older."""
        portion = self._feed.portion(self._place)
        if portion is None:
            page = self._feed.log.read(self._place, self._feed.page, only=self._only)
            if page.reset:
                self._place = page.cursor
                return Reset(page.cursor)
            portion = Portion(page.events, page.cursor)
        self._place = portion.cursor
        self._ready.extend(event for event in portion.events if self._only.admits(event))
        return None

    def _behind(self) -> bool:
        """Tell whether there may be more in the log, or in memory, without anybody having to wait."""
        portion = self._feed.portion(self._place)
        return portion is None or portion.cursor != self._place
