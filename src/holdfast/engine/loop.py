"""A loop that runs a step at every wake-up and periodically."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.db.notify import Listener

log = logging.getLogger("holdfast")


class Loop:
    """Runs a step at every wake-up, and at the latest after `period` in case a wake-up was lost.

    Wake-ups within `spacing` of a step are combined. A step returns how long to wait at most: zero runs it again at
    once, None waits for `period`. After a wake-up the step begins `delay` later, so that more urgent work goes first.
    A wake-up is also passed on to the `next_listener`, so that loops of one process can share a listener.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], timedelta | None],
        listener: Listener,
        period: timedelta,
        *,
        spacing: timedelta = timedelta(),
        delay: timedelta = timedelta(),
        next_listener: Listener | None = None,
    ) -> None:
        self.name = name
        self._step = step
        self._listener = listener
        self._period = period
        self._spacing = spacing
        self._delay = delay
        self._next_listener = next_listener
        self._stopped = False  # not an Event: signal handlers may set it, and must not take a lock

    def run(self) -> None:
        """Run until `stop`. Errors are logged and do not end the loop."""
        while not self._stopped:
            pause = self._period
            try:
                wait = self._step()
                pause = self._period if wait is None else min(wait, self._period)
            except StoreError as error:
                log.warning("loop.failed name=%s error=%s", self.name, error)
            except Exception:
                log.exception("loop.failed name=%s", self.name)
            if pause and not self._stopped:
                time.sleep(min(self._spacing, pause).total_seconds())
                woken = self._listener.wait(max(pause - self._spacing, timedelta()).total_seconds())
                if woken and not self._stopped:
                    if self._next_listener is not None:
                        self._next_listener.wake()
                    time.sleep(self._delay.total_seconds())

    def start(self) -> threading.Thread:
        """Run in a new thread."""
        thread = threading.Thread(target=self.run, name=f"holdfast-{self.name}", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Stop after the current step. Safe in a signal handler."""
        self._stopped = True
        self._listener.wake()
