"""The slot `source`: reads the source of an item, and stores what changed.

The slot has its own owner beside the document's. So reading the source again does not affect what is indexed: only
changed content makes a new generation, in the transaction that stores the new bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.blobs import waiting_for_blobs
from holdfast.catalog import ItemKind, OnDuplicate, read_items
from holdfast.documents import statements as sql
from holdfast.documents.add import pause_for_quota
from holdfast.documents.folders import FOLDER_PRIORITY, FolderPart, FolderUpdater
from holdfast.documents.operations import REINDEX_UNCHANGED
from holdfast.documents.requests import AddOptions, RequestOptions, Upload
from holdfast.documents.selection import admit_live_requests
from holdfast.engine import BuildResult, Operation, Request
from holdfast.engine.store import require_held
from holdfast.errors import Permanent
from holdfast.sources import DEFAULT_RULES, PUBLIC_ONLY, FolderRules, Reach, Unchanged, Validators, expand, fetch
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.catalog import Base, Catalog, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import DocumentAdder
    from holdfast.documents.items import Items
    from holdfast.documents.operations import DocumentOperations
    from holdfast.documents.remove import DocumentRemover
    from holdfast.engine import Ticket
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAccess:
    """Which addresses and folders may be read."""

    reach: Reach = PUBLIC_ONLY
    rules: FolderRules = DEFAULT_RULES
    roots: tuple[Path, ...] = ()  # callers with a key may name folders below these
    keys_exist: Callable[[], bool] = lambda: False  # without keys every caller is the local user

    def rules_for(self, *, local: bool) -> FolderRules:
        """Return the rules for a folder named by the local user, or by a caller with a key."""
        if local or not self.keys_exist():
            return self.rules
        return replace(self.rules, limits=replace(self.rules.limits, allowed_roots=self.roots))


class SourceIndexer:
    """An `Indexer` that builds the slot `source` of items."""

    def __init__(
        self,
        store: SqlStore,
        catalog: Catalog,
        source_access: SourceAccess,
        *,
        items: Items,
        adder: DocumentAdder,
        remover: DocumentRemover,
        operations: DocumentOperations,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._items = items
        self._adder = adder
        self._remover = remover
        self._operations = operations
        self._source_access = source_access
        self._folders = FolderUpdater(store.database, adder, remover)

    def build(self, task: Task) -> BuildResult:
        """Read the source and store what changed; with the payload `REINDEX_UNCHANGED`, also index the rest again."""
        ticket = task.ticket
        bases, found = self._catalog.read_for_tickets([ticket])
        item = found.get(ticket.key.owner)
        if item is None or item.source is None:
            raise Permanent("no_source")
        base = bases[ticket.key.base]
        again = self._store.job(ticket.job).payload == REINDEX_UNCHANGED
        with waiting_for_blobs():
            same = self._read(task, base, item)
        if again:
            self._reindex_unchanged(task, base, same)
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Remove nothing: the slot has no rows of its own."""
        task.checkpoint(stage="removing")

    def _read(self, task: Task, base: Base, item: Item) -> list[int]:
        """Store what changed in the source; return the items that did not change."""
        if item.kind is ItemKind.DIRECTORY:
            return self._scan(task, base, item)
        if item.kind is ItemKind.SITEMAP:
            return self._list(task, base, item)
        return self._fetch(task, base, item)

    def _scan(self, task: Task, base: Base, item: Item) -> list[int]:
        """Sync a folder; return the items that did not change."""
        synced = self._folders.sync(task, base, item.id, self._part(item))
        self._record_seen_source(task.ticket, item, json.dumps({"skipped": synced.difference.skipped}, sort_keys=True))
        return synced.same

    def _part(self, item: Item) -> FolderPart:
        """Return the synced folder that an item belongs to; the rules depend on who named that folder."""
        with self._store.database.reading() as tx:
            above = read_items(tx, {id_ for _, id_ in tx.run(sql.READ_ANCESTORS, [[item.id]])})
        ids = {folder.id for folder in above}
        top = next((one for one in above if one.kind is ItemKind.DIRECTORY and one.parent not in ids), None)
        outermost, within = (item, "") if top is None else (top, item.source or "")
        return FolderPart(Path(outermost.source or ""), self._source_access.rules_for(local=outermost.local), within)

    def _fetch(self, task: Task, base: Base, item: Item) -> list[int]:
        """Fetch a page; return its id if it did not change."""
        task.checkpoint(stage="fetching")
        known = Validators(**json.loads(item.seen)) if item.seen and item.digest else None
        page = fetch(item.source or "", known, reach=self._source_access.reach)
        if isinstance(page, Unchanged):
            self._record_seen_source(task.ticket, item, item.seen)
            return [item.id]
        upload = Upload(
            item.name,
            page.body,
            {**item.metadata, "file": page.name, "address": mask_secrets(page.url), "type": page.mime},
            ItemKind.URL,
            item.source,
            json.dumps(asdict(page.validators)),
            parent=item.parent,
        )
        options = AddOptions(on_duplicate=OnDuplicate.REPLACE, refuse_copies=False, cause="look", ticket=task.ticket)
        (reply,) = self._adder.add(base, [upload], options)
        pause_for_quota(base, held=reply.quota_exhausted)
        return [] if reply.accepted else [item.id]

    def _list(self, task: Task, base: Base, item: Item) -> list[int]:
        """Sync the pages below a sitemap; return those fetched before. Each page then refreshes itself."""
        task.checkpoint(stage="listing")
        expansion = expand(item.source or "", reach=self._source_access.reach)
        known = {
            one.item.source: one.item for one in self._items.tree(base, item.id)[1:] if one.item.kind is ItemKind.URL
        }
        listed = {page.url: page.modified for page in expansion.pages}
        if expansion.complete:
            self._remover.delete(base, [one.id for url, one in known.items() if url not in listed], ticket=task.ticket)
        new = [
            Upload(url, metadata={"modified": modified}, kind=ItemKind.URL, source=url, parent=item.id)
            for url, modified in listed.items()
            if url not in known
        ]
        options = AddOptions(
            on_duplicate=OnDuplicate.REPLACE,
            refuse_copies=False,
            priority=FOLDER_PRIORITY,
            cause="look",
            ticket=task.ticket,
        )
        replies = self._adder.add(base, new, options)
        pause_for_quota(base, held=any(reply.quota_exhausted for reply in replies))
        modified_pages = [
            one
            for url, one in known.items()
            if url in listed and (listed[url] is None or listed[url] != one.metadata.get("modified"))
        ]
        self._refresh_pages(task, base, modified_pages, listed)
        self._record_seen_source(task.ticket, item, json.dumps({"left": len(expansion.skipped)}))
        return [one.id for url, one in known.items() if url in listed and one.digest is not None]

    def _refresh_pages(self, task: Task, base: Base, pages: Sequence[Item], listed: dict[str, str | None]) -> None:
        """Refresh pages that the sitemap reports as modified."""
        rows = [[one.id, json.dumps({**one.metadata, "modified": listed.get(one.source or "")})] for one in pages]
        with task.guarded() as connection:
            self._store.database.wrap_connection(connection).run(sql.NOTE_METADATA, rows)
        self._operations.refresh(
            base, [one.id for one in pages], RequestOptions(priority=FOLDER_PRIORITY, cause="look")
        )

    def _record_seen_source(self, ticket: Ticket, item: Item, seen: str | None) -> None:
        """Record the state of the source, and schedule the next read."""

        def work(tx: Transaction) -> None:
            require_held(tx, ticket)
            tx.run(sql.RECORD_SEEN_SOURCES, [[item.id, seen]])

        self._store.database.write(work, durable=False)

    def _reindex_unchanged(self, task: Task, base: Base, items: Iterable[int]) -> None:
        specs = self._adder.slot_specs(base)
        requests = [
            Request(
                base=base.key,
                owner=str(item),
                operation=Operation.FORCE,
                slots=specs,
                priority=FOLDER_PRIORITY,
                cause="user",
            )
            for item in items
        ]
        admit_live_requests(
            self._store,
            base,
            requests,
            building=True,
            ticket=task.ticket,
            checkpoint=lambda done: task.checkpoint(stage="asking", done=done, total=len(requests)),
        )
