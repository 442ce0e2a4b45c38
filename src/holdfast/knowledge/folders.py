"""A folder and the items below it: what is new, what changed, what left; the rest is neither read nor touched.

A file is told by its stamp; only where that differs are its bytes read, and only where those differ is it indexed. What
could not be seen is not gone.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.clock import Moment
from holdfast.knowledge.adding import Terms, Upload
from holdfast.library.catalogue import Kind, OnDuplicate
from holdfast.sources.folder import FolderRules, Found, Why, open_found, scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.knowledge.items import Items
    from holdfast.knowledge.selecting import Placed
    from holdfast.library.catalogue import Base, Item
    from holdfast.runtime.work import Task
    from holdfast.sources.folder import Skipped, Stamp

TOGETHER = 100  # items between two checkpoints
LATER = 6  # priority of what a folder holds: a little after what somebody waits for


@dataclass(slots=True)
class Difference:
    """What stands between a folder and the items below it."""

    new: list[Found] = field(default_factory=list)
    touched: list[Found] = field(default_factory=list)  # known, but the stamp is another: perhaps changed
    kept: list[Item] = field(default_factory=list)  # neither read nor touched
    gone: list[Item] = field(default_factory=list)  # files and folders
    folders: list[str] = field(default_factory=list)  # that are new, outer ones first
    skipped: dict[Why, int] = field(default_factory=dict)


class Synced(NamedTuple):
    """What a look at a folder came to."""

    difference: Difference
    same: list[int]  # items whose content did not change


def compare(known: Iterable[Item], entries: Iterable[Found | Skipped], within: str = "") -> Difference:
    """Tell how a folder differs from the items that were made of it; each of them has its path as its source.

    `within` is the part of the folder that the items are below.
    """
    items = {item.source or "": item for item in known}
    difference = Difference()
    files: set[str] = set()
    unseen: list[str] = []
    for entry in entries:
        if within and not _within(entry.path, within):
            continue
        if isinstance(entry, Found):
            files.add(entry.path)
            item = items.get(entry.path)
            if item is None or item.container:
                difference.new.append(entry)
            elif item.seen == _told(entry.stamp) and item.problem is None:
                difference.kept.append(item)
            else:
                difference.touched.append(entry)
        else:
            difference.skipped[entry.why] = difference.skipped.get(entry.why, 0) + 1
            unseen += [entry.path] if entry.unseen else []
    folders = _parents(files)
    whole = Why.TOO_MANY not in difference.skipped
    for path, item in items.items():
        replaced = path in (files if item.container else folders)
        seen = path in (folders if item.container else files)
        if replaced or (whole and not seen and not any(_within(path, hidden) for hidden in unseen)):
            difference.gone.append(item)
    made = {path for path, item in items.items() if item.container}
    wanted = {path for path in folders - made if not within or (_within(path, within) and path != within)}
    difference.folders = sorted(wanted, key=lambda path: (path.count("/"), path))
    return difference


def _parents(paths: Iterable[str]) -> set[str]:
    """Return the folders that these paths lead through."""
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _told(stamp: Stamp) -> str:
    return json.dumps(stamp)


class Folders:
    """Brings the items below a folder up to date."""

    def __init__(self, items: Items, rules: FolderRules) -> None:
        self._items = items
        self._rules = rules

    def difference(self, tree: Sequence[Placed], root: Path, within: str = "") -> Difference:
        """Look at the folder and tell how it differs; `within` names the part of it that counts."""
        return compare([one.item for one in tree[1:]], scan(root, self._rules), within)

    def sync(self, task: Task, base: Base, tree: Sequence[Placed], root: Path, within: str = "") -> Synced:
        """Look at the folder, and bring what is below the first item of the tree up to date."""
        task.checkpoint(stage="scanning")
        now = Moment(time.time_ns() // 1000)
        difference = self.difference(tree, root, within)
        terms = Terms(
            on_duplicate=OnDuplicate.REPLACE,
            distinct=False,
            priority=LATER,
            cause="sync",
            ticket=task.ticket,
        )
        for portion in _portions([item.id for item in difference.gone]):
            task.checkpoint(stage="removing")
            self._items.delete(base, portion, ticket=task.ticket)
        places = self._make(base, tree, difference, terms, within)
        uploads = self._uploads(task, difference, root, places, now)
        replies = self._items.add(base, uploads, terms)
        same = [reply.item for reply in replies if reply.item is not None and not reply.accepted]
        return Synced(difference, [*(item.id for item in difference.kept), *same])

    def _make(
        self, base: Base, tree: Sequence[Placed], difference: Difference, terms: Terms, within: str
    ) -> dict[str, int]:
        """Make the folders that are new; return all, by their path, each with its item."""
        gone = {item.id for item in difference.gone}
        stay = [one.item for one in tree[1:] if one.item.container and one.item.id not in gone]
        places = {item.source or "": item.id for item in stay} | {within or ".": tree[0].item.id}
        depths: dict[int, list[str]] = {}
        for path in difference.folders:
            depths.setdefault(path.count("/"), []).append(path)
        for paths in depths.values():
            uploads = [
                Upload(
                    PurePosixPath(path).name,
                    kind=Kind.DIRECTORY,
                    source=path,
                    parent=places[str(PurePosixPath(path).parent)],
                )
                for path in paths
            ]
            replies = self._items.add(base, uploads, replace(terms, index=False))
            places |= {path: reply.item for path, reply in zip(paths, replies, strict=True) if reply.item is not None}
        return places

    def _uploads(
        self, task: Task, difference: Difference, root: Path, places: dict[str, int], now: Moment
    ) -> Iterator[Upload]:
        """Yield the files that are to be read, and look up now and then."""
        found = [*difference.new, *difference.touched]
        for number, entry in enumerate(found):
            if number % TOGETHER == 0:
                task.checkpoint(stage="adding", done=number, total=len(found))
            path = PurePosixPath(entry.path)
            yield Upload(
                path.name,
                partial(open_found, root, entry.opens),
                source=entry.path,
                seen=_told(entry.stamp) if entry.stamp.settled(now) else None,
                parent=places[str(path.parent)],
            )


def _portions(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[first : first + TOGETHER] for first in range(0, len(ids), TOGETHER))
