"""Watches a folder: by notifications of the operating system, and by regular ticks, since notifications get lost.

A watch only reports that something may have changed; a scan finds out what.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.sources.folder import ALWAYS_IGNORED, DEFAULT_RULES, FolderRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from threading import Event

    from holdfast.sources.gitignore import IgnoreRules

DEFAULT_INTERVAL = timedelta(minutes=5)
QUIET_MS = 300  # a burst of changes ends after this long without one
MAX_DEBOUNCE_MS = 2_000  # but a burst is reported at the latest after this
POLL_MS = 500  # how often the root itself is checked


class WatchEvent(StrEnum):
    CHANGED = "changed"  # a notification arrived, or the root disappeared, appeared or was replaced
    TICK = "tick"  # the interval has passed; also the first event of a watch


def watch(
    root: Path, rules: FolderRules = DEFAULT_RULES, *, stop: Event, every: timedelta = DEFAULT_INTERVAL
) -> Iterator[WatchEvent]:
    """Yield an event when something below the root may have changed, and at least once per `every`, until `stop`.

    The first `TICK` comes when the watch is active, so a scan at that moment misses no change. If the system cannot
    watch (too many folders, watchfiles not installed), only ticks remain, and watching is tried again at each interval.
    """
    due = again = 0.0
    here = _identity(root)
    ignoring = rules.ignore_rules
    while not stop.is_set():
        began = time.monotonic()
        watching = began >= again
        for reported in _session(root, rules, ignoring, stop, watching=watching):
            if stop.is_set():
                return
            now = _identity(root)
            moved, here = now != here, now
            if moved or reported:
                yield WatchEvent.CHANGED
            elif time.monotonic() >= due:
                yield WatchEvent.TICK
            else:
                continue
            due = time.monotonic() + every.total_seconds()
            if moved:  # the old watch is on a folder that is no longer there: start a new one
                due = again = 0.0
                break
        else:
            if watching:  # it failed, and every attempt walks through all folders
                again = began + every.total_seconds()


def _session(root: Path, rules: FolderRules, ignoring: IgnoreRules, stop: Event, *, watching: bool) -> Iterator[bool]:
    """Yield at each poll whether a relevant change was reported, as long as watching works; at least once.

    Changes to the data of Holdfast itself do not count: otherwise each sync would trigger the next one.
    """
    for reports in _reports(root, stop) if watching else ():
        yield any(_is_relevant(root, path, ignoring) and not rules.limits.is_own(path) for _, path in reports)
    yield False
    stop.wait(POLL_MS / 1000)


def _reports(root: Path, stop: Event) -> Iterator[Iterable[tuple[Any, str]]]:
    """Yield the changes that the system reports; end if it cannot watch."""
    try:
        library: Any = import_module("watchfiles")
    except ModuleNotFoundError:
        return
    with suppress(OSError, RuntimeError):  # the root is gone, or the system has no more watches or lost events
        yield from library.watch(
            root,
            watch_filter=None,
            debounce=MAX_DEBOUNCE_MS,
            step=QUIET_MS,
            stop_event=stop,
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
            raise_interrupt=True,
            force_polling=False,
            ignore_permission_denied=True,
        )


def _is_relevant(root: Path, path: str, ignoring: IgnoreRules) -> bool:
    """Return whether a scan would include the path, by the rules alone, without the ignore files."""
    below = os.path.relpath(path, root)
    parts = [] if below == "." else below.split("/")
    if not ALWAYS_IGNORED.isdisjoint(parts):
        return False
    paths = ["/".join(parts[: depth + 1]).encode("utf-8", "surrogateescape") for depth in range(len(parts))]
    return not any(ignoring.ignores(part, folder=part != paths[-1]) for part in paths)


def _identity(root: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = root.stat()
        return status.st_dev, status.st_ino
    return None
