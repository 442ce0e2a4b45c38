"""Folders of this machine that people keep in step with a base: shown beforehand, brought up to date, watched.

A folder is one item at the top of the base, told by its path. What a sync does is done by the worker that looks at the
source of that item; here it is only asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.catalog import Kind, OnDuplicate, item_of
from holdfast.documents import statements as sql
from holdfast.documents.add import Terms, Upload
from holdfast.documents.folders import preview
from holdfast.documents.operations import USUAL, Manner
from holdfast.errors import BadRequest, Forbidden, Permanent
from holdfast.sources.errors import folder_not_allowed
from holdfast.sources.folder import require_allowed, shown
from holdfast.sources.watch import USUALLY, Stir, watch
from holdfast.wellformed import text_flaw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path
    from threading import Event

    from holdfast.catalog import Base, Item
    from holdfast.documents.add import Adding, Reply
    from holdfast.documents.folders import Preview
    from holdfast.documents.operations import Requesting
    from holdfast.documents.source_sync import World
    from holdfast.engine.store import SqlStore


class Syncing:
    """Keeps folders and bases in step.

    `local` is whether the user of this machine asks, or somebody with a key: a key names only folders that the operator
    allows. A worker checks the same again whenever it looks at the folder.
    """

    def __init__(self, store: SqlStore, adding: Adding, requesting: Requesting, world: World) -> None:
        self._store = store
        self._adding = adding
        self._requesting = requesting
        self._world = world

    def find(self, base: Base, folder: Path) -> Item | None:
        """Find the item that a folder is; None if it was never synced."""
        return self._find(base, self._whole(folder, local=True))

    def preview(self, base: Base, folder: Path, *, local: bool = True) -> Preview:
        """Tell what a sync would add, change and remove; nothing is written, nothing is paid."""
        whole = self._whole(folder, local=local)
        item = self._find(base, whole)
        rules = self._world.rules_for(local=local)
        return preview(self._store.database, item.id if item else None, whole, rules)

    def sync(self, base: Base, folder: Path, manner: Manner = USUAL, *, local: bool = True) -> Reply:
        """Ask for a look at a folder; the first time it becomes an item.

        A look that is under way is joined, so that syncing twice at once is one sync.
        """
        return self._sync(base, self._whole(folder, local=local), manner, local=local)

    def watch(
        self, base: Base, folder: Path, *, stop: Event, every: timedelta = USUALLY, local: bool = True
    ) -> Iterator[Reply]:
        """Sync a folder now, whenever something in it may have changed, and every so often, until `stop` is set."""
        whole = self._whole(folder, local=local)
        for stir in watch(whole, self._world.rules, stop=stop, every=every):
            yield self._sync(base, whole, Manner(cause="watch"), local=local, stirred=stir is Stir.CHANGED)

    def _sync(self, base: Base, whole: Path, manner: Manner, *, local: bool, stirred: bool = False) -> Reply:
        item = self._find(base, whole)
        if item is not None:
            if local and not item.local:
                self._store.database.write(lambda tx: tx.run(sql.ADOPT_FOLDER, id=item.id), durable=True)
            return self._requesting.look(base, [item.id], manner, stirred=stirred)[0]
        upload = Upload(whole.name or str(whole), kind=Kind.DIRECTORY, source=str(whole), local=local)
        terms = Terms(
            on_duplicate=OnDuplicate.RENAME,
            distinct=False,
            index=True,
            requester=manner.requester,
            priority=manner.priority,
            cause=manner.cause,
        )
        return self._adding.add(base, [upload], terms)[0]

    def _find(self, base: Base, whole: Path) -> Item | None:
        with self._store.database.reading() as tx:
            rows = tx.run(sql.FIND_SOURCE, base_id=base.id, kind=str(Kind.DIRECTORY), source=str(whole))
        return item_of(rows[0]) if rows else None

    def _whole(self, folder: Path, *, local: bool) -> Path:
        """Return the path under which a folder is known, whatever way was written to it, if it may be read."""
        whole = folder.expanduser().absolute()
        limits = self._world.rules_for(local=local).limits
        if not limits.below_roots(whole):  # before anything else, which would tell what is there
            raise Forbidden(str(folder_not_allowed()))
        if not whole.is_dir():
            raise BadRequest(
                f"{str(folder)!r} is not a folder on this machine; name one that is.", "no_such_folder", folder=folder
            )
        whole = whole.resolve()
        if text_flaw(str(whole)) is not None:
            raise BadRequest(f"The path of the folder is not valid UTF-8: {shown(str(whole))}. Rename the folder.")
        try:
            require_allowed(whole, limits)
        except Permanent as error:
            raise BadRequest(f"{str(folder)!r} cannot be synced. {error}", "own_data") from error
        return whole
