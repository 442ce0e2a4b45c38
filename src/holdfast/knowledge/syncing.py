"""Folders of this machine that people keep in step with a base: shown beforehand, brought up to date, watched.

A folder is one item at the top of the base, told by its path. What a sync does is done by the worker that looks at the
source of that item; here it is only asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadRequest
from holdfast.knowledge.adding import Terms, Upload
from holdfast.knowledge.folders import Folders
from holdfast.knowledge.requesting import USUAL, Manner
from holdfast.library import item_statements as sql
from holdfast.library.catalogue import Kind, OnDuplicate, item_of
from holdfast.sources.watching import USUALLY, Stir, watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path
    from threading import Event

    from holdfast.knowledge.adding import Reply
    from holdfast.knowledge.folders import Preview
    from holdfast.knowledge.items import Items
    from holdfast.library.catalogue import Base, Item
    from holdfast.sources.folder import FolderRules
    from holdfast.stores.sql import SqlStore


class Syncing:
    """Keeps folders and bases in step."""

    def __init__(self, store: SqlStore, items: Items, rules: FolderRules) -> None:
        self._store = store
        self._items = items
        self._rules = rules

    def find(self, base: Base, folder: Path) -> Item | None:
        """Find the item that a folder is; None if it was never synced."""
        return self._find(base, _whole(folder))

    def preview(self, base: Base, folder: Path) -> Preview:
        """Tell what a sync would add, change and remove; nothing is written, nothing is paid."""
        whole = _whole(folder)
        item = self._find(base, whole)
        return Folders(self._store.database, self._items, self._rules).preview(item.id if item else None, whole)

    def sync(self, base: Base, folder: Path, manner: Manner = USUAL) -> Reply:
        """Ask for a look at a folder; the first time it becomes an item.

        A look that is under way is joined, so that syncing twice at once is one sync.
        """
        return self._sync(base, _whole(folder), manner)

    def watch(self, base: Base, folder: Path, *, stop: Event, every: timedelta = USUALLY) -> Iterator[Reply]:
        """Sync a folder now, whenever something in it may have changed, and every so often, until `stop` is set."""
        whole = _whole(folder)
        for stir in watch(whole, self._rules, stop=stop, every=every):
            yield self._sync(base, whole, Manner(cause="watch"), stirred=stir is Stir.CHANGED)

    def _sync(self, base: Base, whole: Path, manner: Manner, *, stirred: bool = False) -> Reply:
        item = self._find(base, whole)
        if item is not None:
            return self._items.look(base, [item.id], manner, stirred=stirred)[0]
        upload = Upload(whole.name or str(whole), kind=Kind.DIRECTORY, source=str(whole))
        terms = Terms(
            on_duplicate=OnDuplicate.RENAME,
            distinct=False,
            index=True,
            requester=manner.requester,
            priority=manner.priority,
            cause=manner.cause,
        )
        return self._items.add(base, [upload], terms)[0]

    def _find(self, base: Base, whole: Path) -> Item | None:
        with self._store.database.reading() as tx:
            rows = tx.run(sql.FIND_SOURCE, base_id=base.id, kind=str(Kind.DIRECTORY), source=str(whole))
        return item_of(rows[0]) if rows else None


def _whole(folder: Path) -> Path:
    """Return the path under which a folder is known, whatever way was written to it."""
    whole = folder.expanduser().absolute()
    if not whole.is_dir():
        raise BadRequest(
            f"{str(folder)!r} is not a folder on this machine; name one that is.", "no_such_folder", folder=folder
        )
    return whole.resolve()
