"""Runs calls of the guard in threads, for code on an event loop.

The engine is synchronous. At most as many calls run at once as the pool has connections; others wait in order. A call
that has begun is not interrupted: if its caller is cancelled meanwhile, its effect on the database remains.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("holdfast")

P = ParamSpec("P")
T = TypeVar("T")


class GuardThreads:
    """The threads of each process, started at the first call."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pools: dict[int, ThreadPoolExecutor] = {}  # by process id: threads do not survive a fork

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run the call in a thread, with the context variables of the caller."""
        context = contextvars.copy_context()
        work = partial(context.run, partial(call, *args, **options))
        return await asyncio.get_running_loop().run_in_executor(self._open(), work)

    def start(self, call: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
        """Run the call in a thread, and log its error."""
        self._open().submit(call, *args, **options).add_done_callback(_log_error)

    def close(self) -> None:
        """Wait for the calls that run, and end the threads of this process."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.shutdown()

    def _open(self) -> ThreadPoolExecutor:
        pool = self._pools.get(os.getpid())
        if pool is None:
            made = ThreadPoolExecutor(self._most, thread_name_prefix="holdfast-guard")
            pool = self._pools.setdefault(os.getpid(), made)
        return pool


def _log_error(done: Future[object]) -> None:
    if not done.cancelled() and done.exception() is not None:
        log.error("thread.failed", exc_info=done.exception())
