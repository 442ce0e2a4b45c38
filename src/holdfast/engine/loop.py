"""A thin loop around a single step: it wakes, steps and stops, and decides nothing."""

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
    """Steps at every wake-up, and at the latest after `period`: the safety net for a lost wake-up.

    Wake-ups that come within `spacing` of a step are answered together; a step that wishes to go on at once does.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], timedelta | None],
        listener: Listener,
        period: timedelta,
        *,
        spacing: timedelta = timedelta(),
    ) -> None:
        self.name = name
        self._step = step
        self._listener = listener
        self._period = period
        self._spacing = spacing
        self._stopped = False  # a plain flag: a signal handler can set it even while another one does

    def run(self) -> None:
        """Go round until `stop`; no error ends it, since a loop that ended looks like one with nothing to do."""
        while not self._stopped:
            pause = self._period
            try:
                wish = self._step()
                pause = self._period if wish is None else min(wish, self._period)
            except StoreError as error:
                log.warning("loop.%s error=%s", self.name, error)
            except Exception:
                log.exception("loop.%s", self.name)
            if pause and not self._stopped:
                time.sleep(min(self._spacing, pause).total_seconds())
                self._listener.wait(max(pause - self._spacing, timedelta()).total_seconds())

    def start(self) -> threading.Thread:
        """Run in a thread of its own."""
        thread = threading.Thread(target=self.run, name=f"holdfast-{self.name}", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End after the current step; safe to call from a signal handler."""
        self._stopped = True
        self._listener.wake()
