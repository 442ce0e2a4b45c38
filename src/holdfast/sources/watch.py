"""When a folder may have changed: told by the operating system, and asked for again and again, since tellings get lost.

A watch says only that it is worth looking; what changed is found by a scan.
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
QUIET_MS = 300  # changes are over when none came for so long
MAX_DEBOUNCE_MS = 2_000  # but nobody waits longer than this
POLL_MS = 500  # how often the root itself is looked at


class WatchEvent(StrEnum):
    """Why it is worth looking."""

    CHANGED = "changed"  # something was reported, or the root went away or came back
    TICK = "tick"  # time has passed; first of all when the watch begins


def watch(
    root: Path, rules: FolderRules = DEFAULT_RULES, *, stop: Event, every: timedelta = DEFAULT_INTERVAL
) -> Iterator[WatchEvent]:
    """Yield when something below the root may have changed, and at least `every` so often, until `stop` is set.

    The first `TICK` comes when the watch stands, so that a scan made then misses nothing. Where the system cannot
    watch (too many folders, no such library), ticks remain, and watching is tried again as often.
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
            if moved:  # what was watched is not what is there now; look again when the new watch stands
                due = again = 0.0
                break
        else:
            if watching:  # it failed, and failing costs as much as a walk through all folders
                again = began + every.total_seconds()


def _session(root: Path, rules: FolderRules, ignoring: IgnoreRules, stop: Event, *, watching: bool) -> Iterator[bool]:
    """Yield whether something was reported, every glance, as long as watching works; at least one glance.

    What we write ourselves below the root is no news: each sync would report itself.
    """
    for reports in _reports(root, stop) if watching else ():
        yield any(_is_relevant(root, path, ignoring) and not rules.limits.is_own(path) for _, path in reports)
    yield False
    stop.wait(POLL_MS / 1000)


def _reports(root: Path, stop: Event) -> Iterator[Iterable[tuple[Any, str]]]:
    """Yield what the system reports, nothing where it cannot."""
    try:
        library: Any = import_module("watchfiles")
    except ModuleNotFoundError:
        return
    with suppress(OSError, RuntimeError):  # the root is gone, the system has no more watches, or lost count of them
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
    """Tell whether a report concerns what a scan would look at, as far as the rules say without reading any file."""
    below = os.path.relpath(path, root)
    parts = [] if below == "." else below.split("/")
    if not ALWAYS_IGNORED.isdisjoint(parts):
        return False
    ways = ["/".join(parts[: depth + 1]).encode("utf-8", "surrogateescape") for depth in range(len(parts))]
    return not any(ignoring.ignores(way, folder=way != ways[-1]) for way in ways)


def _identity(root: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = root.stat()
        return status.st_dev, status.st_ino
    return None
