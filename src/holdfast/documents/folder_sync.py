"""Folders of this machine that people keep in step with a base: shown beforehand, brought up to date, watched.

A folder is one item at the top of the base, told by its path. What a sync does is done by the worker that looks at the
source of that item; here it is only asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.catalog import ItemKind, OnDuplicate, item_from_row
from holdfast.documents import statements as sql
from holdfast.documents.add import AddOptions, Upload
from holdfast.documents.folders import preview
from holdfast.documents.operations import DEFAULT_REQUEST_OPTIONS, RequestOptions
from holdfast.errors import BadRequest, Forbidden, Permanent
from holdfast.sources.errors import folder_not_allowed
from holdfast.sources.folder import require_allowed, to_displayable
from holdfast.sources.watch import DEFAULT_INTERVAL, WatchEvent, watch
from holdfast.wellformed import find_text_flaw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path
    from threading import Event

    from holdfast.catalog import Base, Item
    from holdfast.documents.add import DocumentAdder, ItemReply
    from holdfast.documents.folders import SyncPreview
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.source_sync import SourceAccess
    from holdfast.engine.store import SqlStore


class FolderSync:
    """Keeps folders and bases in step.

    `local` is whether the user of this machine asks, or somebody with a key: a key names only folders that the operator
    allows. A worker checks the same again whenever it looks at the folder.
    """

    def __init__(
        self, store: SqlStore, adding: DocumentAdder, requesting: DocumentOperations, world: SourceAccess
    ) -> None:
        self._store = store
        self._adder = adding
        self._operations = requesting
        self._source_access = world

    def find(self, base: Base, folder: Path) -> Item | None:
        """Find the item that a folder is; None if it was never synced."""
        return self._find(base, self._resolve_folder(folder, local=True))

    def preview(self, base: Base, folder: Path, *, local: bool = True) -> SyncPreview:
        """Tell what a sync would add, change and remove; nothing is written, nothing is paid."""
        whole = self._resolve_folder(folder, local=local)
        item = self._find(base, whole)
        rules = self._source_access.rules_for(local=local)
        return preview(self._store.database, item.id if item else None, whole, rules)

    def sync(
        self, base: Base, folder: Path, manner: RequestOptions = DEFAULT_REQUEST_OPTIONS, *, local: bool = True
    ) -> ItemReply:
        """Ask for a look at a folder; the first time it becomes an item.

        A look that is under way is joined, so that syncing twice at once is one sync.
        """
        return self._sync(base, self._resolve_folder(folder, local=local), manner, local=local)

    def watch(
        self, base: Base, folder: Path, *, stop: Event, every: timedelta = DEFAULT_INTERVAL, local: bool = True
    ) -> Iterator[ItemReply]:
        """Sync a folder now, whenever something in it may have changed, and every so often, until `stop` is set."""
        whole = self._resolve_folder(folder, local=local)
        for stir in watch(whole, self._source_access.rules, stop=stop, every=every):
            yield self._sync(
                base, whole, RequestOptions(cause="watch"), local=local, stirred=stir is WatchEvent.CHANGED
            )

    def _sync(
        self, base: Base, whole: Path, manner: RequestOptions, *, local: bool, stirred: bool = False
    ) -> ItemReply:
        item = self._find(base, whole)
        if item is not None:
            if local and not item.local:
                self._store.database.write(lambda tx: tx.run(sql.ADOPT_FOLDER, id=item.id), durable=True)
            return self._operations.refresh(base, [item.id], manner, stirred=stirred)[0]
        upload = Upload(whole.name or str(whole), kind=ItemKind.DIRECTORY, source=str(whole), local=local)
        terms = AddOptions(
            on_duplicate=OnDuplicate.RENAME,
            refuse_copies=False,
            index=True,
            requester=manner.requester,
            priority=manner.priority,
            cause=manner.cause,
        )
        return self._adder.add(base, [upload], terms)[0]

    def _find(self, base: Base, whole: Path) -> Item | None:
        with self._store.database.reading() as tx:
            rows = tx.run(sql.FIND_SOURCE, base_id=base.id, kind=str(ItemKind.DIRECTORY), source=str(whole))
        return item_from_row(rows[0]) if rows else None

    def _resolve_folder(self, folder: Path, *, local: bool) -> Path:
        """Return the path under which a folder is known, whatever way was written to it, if it may be read."""
        whole = folder.expanduser().absolute()
        limits = self._source_access.rules_for(local=local).limits
        if not limits.is_below_roots(whole):  # before anything else, which would tell what is there
            raise Forbidden(str(folder_not_allowed()))
        if not whole.is_dir():
            raise BadRequest(
                f"{str(folder)!r} is not a folder on this machine; name one that is.", "no_such_folder", folder=folder
            )
        whole = whole.resolve()
        if find_text_flaw(str(whole)) is not None:
            raise BadRequest(
                f"The path of the folder is not valid UTF-8: {to_displayable(str(whole))}. Rename the folder."
            )
        try:
            require_allowed(whole, limits)
        except Permanent as error:
            raise BadRequest(f"{str(folder)!r} cannot be synced. {error}", "own_data") from error
        return whole
