"""Waiting for something to happen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0  # seconds; a busy machine starts a process slowly, and a failing webhook pauses for half a minute
POLL_SECONDS = 0.05


def await_fact(fact: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Poll until the function returns True; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
