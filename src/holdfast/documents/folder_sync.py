"""Syncs folders of this machine with a base: preview, sync and watch.

A synced folder is one item at the top of the base, identified by its path. This module only requests a sync; the worker
that builds the slot `source` of that item does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.catalog import ItemKind, OnDuplicate, item_from_row
from holdfast.documents import statements as sql
from holdfast.documents.folders import preview
from holdfast.documents.requests import DEFAULT_REQUEST_OPTIONS, AddOptions, RequestOptions, Upload
from holdfast.errors import BadRequest, Forbidden, Permanent
from holdfast.sources import folder_not_allowed, require_allowed, to_displayable
from holdfast.sources.watch import DEFAULT_INTERVAL, WatchEvent, watch
from holdfast.wellformed import find_text_flaw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path
    from threading import Event

    from holdfast.catalog import Base, Item
    from holdfast.documents.add import DocumentAdder
    from holdfast.documents.folders import SyncPreview
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.requests import ItemReply
    from holdfast.documents.source_sync import SourceAccess
    from holdfast.engine.store import SqlStore


class FolderSync:
    """Requests syncs of folders.

    `local` is true for the user of this machine, and false for a caller with a key, who may only name folders that the
    operator allows. The worker checks this again at every sync.
    """

    def __init__(
        self, store: SqlStore, adder: DocumentAdder, operations: DocumentOperations, source_access: SourceAccess
    ) -> None:
        self._store = store
        self._adder = adder
        self._operations = operations
        self._source_access = source_access

    def find(self, base: Base, folder: Path) -> Item | None:
        """Return the item of a folder; None if it was never synced."""
        return self._find(base, self._resolve_folder(folder, local=True))

    def preview(self, base: Base, folder: Path, *, local: bool = True) -> SyncPreview:
        """Return what a sync would add, change and remove, without writing or paying anything."""
        path = self._resolve_folder(folder, local=local)
        item = self._find(base, path)
        rules = self._source_access.rules_for(local=local)
        return preview(self._store.database, item.id if item else None, path, rules)

    def sync(
        self, base: Base, folder: Path, options: RequestOptions = DEFAULT_REQUEST_OPTIONS, *, local: bool = True
    ) -> ItemReply:
        """Request a sync of a folder; the first sync creates its item.

        A request joins a sync that is already queued or running.
        """
        return self._sync(base, self._resolve_folder(folder, local=local), options, local=local)

    def watch(
        self, base: Base, folder: Path, *, stop: Event, every: timedelta | None = None, local: bool = True
    ) -> Iterator[ItemReply]:
        """Sync a folder now, after each change, and at the interval `every`, until `stop` is set."""
        path = self._resolve_folder(folder, local=local)
        for event in watch(path, self._source_access.rules, stop=stop, every=every or DEFAULT_INTERVAL):
            yield self._sync(
                base, path, RequestOptions(cause="watch"), local=local, source_changed=event is WatchEvent.CHANGED
            )

    def _sync(
        self, base: Base, path: Path, options: RequestOptions, *, local: bool, source_changed: bool = False
    ) -> ItemReply:
        item = self._find(base, path)
        if item is not None:
            if local and not item.local:
                self._store.database.write(lambda tx: tx.run(sql.ADOPT_FOLDER, id=item.id), durable=True)
            return self._operations.refresh(base, [item.id], options, source_changed=source_changed)[0]
        upload = Upload(path.name or str(path), kind=ItemKind.DIRECTORY, source=str(path), local=local)
        add_options = AddOptions(
            on_duplicate=OnDuplicate.RENAME,
            refuse_copies=False,
            index=True,
            requester=options.requester,
            priority=options.priority,
            cause=options.cause,
        )
        return self._adder.add(base, [upload], add_options)[0]

    def _find(self, base: Base, path: Path) -> Item | None:
        with self._store.database.reading() as tx:
            rows = tx.run(sql.FIND_SOURCE, base_id=base.id, kind=str(ItemKind.DIRECTORY), source=str(path))
        return item_from_row(rows[0]) if rows else None

    def _resolve_folder(self, folder: Path, *, local: bool) -> Path:
        """Return the canonical path of a folder that may be read."""
        path = folder.expanduser().absolute()
        limits = self._source_access.rules_for(local=local).limits
        if not limits.is_below_roots(path):  # checked first: any other error would reveal what exists
            refusal = folder_not_allowed()
            raise Forbidden(refusal.code, **refusal.params)
        if not path.is_dir():
            raise BadRequest("no_such_folder", folder=folder)
        path = path.resolve()
        if find_text_flaw(str(path)) is not None:
            raise BadRequest("folder_path_not_utf8", folder=to_displayable(str(path)))
        try:
            require_allowed(path, limits)
        except Permanent as error:
            raise BadRequest(error.code, **error.params) from error
        return path
