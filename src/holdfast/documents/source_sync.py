"""The slot `source`: looks at the place where an item comes from, and brings what changed.

It is an owner beside the document's own, so that looking again disturbs nothing that is indexed: only what really
changed makes a new generation, in the transaction that keeps the new bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.catalog import Kind, OnDuplicate, read_items
from holdfast.documents import statements as sql
from holdfast.documents.add import Terms, Upload, await_quota
from holdfast.documents.folders import LATER, Folders, Part
from holdfast.documents.operations import AGAIN, Manner
from holdfast.documents.selection import locked, still_there
from holdfast.engine import Built, Operation, Request
from holdfast.engine.store import LARGEST_BATCH, require_held
from holdfast.errors import Permanent
from holdfast.sources.address_policy import PUBLIC, Reach
from holdfast.sources.folder import EVERYTHING_USUAL, FolderRules
from holdfast.sources.sitemaps import expand
from holdfast.sources.web import Known, Unchanged, fetch
from holdfast.url_secrets import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.catalog import Base, Catalogue, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import Adding
    from holdfast.documents.items import Items
    from holdfast.documents.operations import Requesting
    from holdfast.documents.remove import Removing
    from holdfast.engine import Ticket
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How far we look."""

    reach: Reach = PUBLIC
    rules: FolderRules = EVERYTHING_USUAL
    roots: tuple[Path, ...] = ()  # below which callers with a key may name folders
    keyed: Callable[[], bool] = lambda: False  # whether there are keys: without them everybody is the local user

    def rules_for(self, *, local: bool) -> FolderRules:
        """Return how a folder is read that the local user named, or somebody with a key."""
        if local or not self.keyed():
            return self.rules
        return replace(self.rules, limits=replace(self.rules.limits, roots=self.roots))


class SourceIndexer:
    """An `Indexer` that brings items up to date with their sources."""

    def __init__(
        self,
        store: SqlStore,
        catalogue: Catalogue,
        world: World,
        *,
        items: Items,
        adding: Adding,
        removing: Removing,
        requesting: Requesting,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._items = items
        self._adding = adding
        self._removing = removing
        self._requesting = requesting
        self._world = world
        self._folders = Folders(store.database, adding, removing)

    def build(self, task: Task) -> Built:
        """Look at the source, and bring what changed; asked for `AGAIN`, also index what did not."""
        ticket = task.ticket
        bases, found = self._catalogue.keyed([ticket])
        item = found.get(ticket.key.owner)
        if item is None or item.source is None:
            raise Permanent("no_source", "The item is not there any more, or nothing says where it comes from.")
        base = bases[ticket.key.base]
        again = self._store.job(ticket.job).payload == AGAIN
        if item.kind is Kind.DIRECTORY:
            same = self._scan(task, base, item)
        elif item.kind is Kind.SITEMAP:
            same = self._list(task, base, item)
        else:
            same = self._fetch(task, base, item)
        if again:
            self._again(task, base, same)
        return Built()

    def remove(self, task: Task) -> None:
        """Nothing is kept here; the rows of items go when all else of them is gone."""
        task.checkpoint(stage="removing")

    # ------------------------------------------------------------ folders

    def _scan(self, task: Task, base: Base, item: Item) -> list[int]:
        """Bring what is below a folder up to date; return what did not change."""
        synced = self._folders.sync(task, base, item.id, self._part(item))
        self._see(task.ticket, item, json.dumps({"skipped": synced.difference.skipped}, sort_keys=True))
        return synced.same

    def _part(self, item: Item) -> Part:
        """Return the folder on the disk that an item is part of; whoever named that folder decides how it is read."""
        with self._store.database.reading() as tx:
            above = read_items(tx, {id_ for _, id_ in tx.run(sql.ABOVE, [[item.id]])})
        top = next(
            (one for one in above if one.kind is Kind.DIRECTORY and one.parent not in {o.id for o in above}), None
        )
        outermost, within = (item, "") if top is None else (top, item.source or "")
        return Part(Path(outermost.source or ""), self._world.rules_for(local=outermost.local), within)

    # ------------------------------------------------------------ pages

    def _fetch(self, task: Task, base: Base, item: Item) -> list[int]:
        """Fetch a page; return it if it did not change."""
        task.checkpoint(stage="fetching")
        known = Known(**json.loads(item.seen)) if item.seen and item.digest else None
        page = fetch(item.source or "", known, reach=self._world.reach)
        if isinstance(page, Unchanged):
            self._see(task.ticket, item, item.seen)
            return [item.id]
        upload = Upload(
            item.name,
            page.body,
            {**item.metadata, "file": page.name, "address": masked(page.url), "type": page.mime},
            Kind.URL,
            item.source,
            json.dumps(asdict(page.known)),
            parent=item.parent,
        )
        terms = Terms(on_duplicate=OnDuplicate.REPLACE, distinct=False, cause="look", ticket=task.ticket)
        (reply,) = self._adding.add(base, [upload], terms)
        await_quota(held=reply.held)
        return [] if reply.accepted else [item.id]

    def _list(self, task: Task, base: Base, item: Item) -> list[int]:
        """Bring the pages below a sitemap up to date; return those that were fetched before: each looks at itself."""
        task.checkpoint(stage="listing")
        expansion = expand(item.source or "", reach=self._world.reach)
        known = {one.item.source: one.item for one in self._items.tree(base, item.id)[1:] if one.item.kind is Kind.URL}
        listed = {page.url: page.modified for page in expansion.pages}
        if expansion.complete:
            self._removing.delete(base, [one.id for url, one in known.items() if url not in listed], ticket=task.ticket)
        new = [
            Upload(url, metadata={"modified": modified}, kind=Kind.URL, source=url, parent=item.id)
            for url, modified in listed.items()
            if url not in known
        ]
        terms = Terms(
            on_duplicate=OnDuplicate.REPLACE, distinct=False, priority=LATER, cause="look", ticket=task.ticket
        )
        replies = self._adding.add(base, new, terms)
        await_quota(held=any(reply.held for reply in replies))
        news = [
            one
            for url, one in known.items()
            if url in listed and (listed[url] is None or listed[url] != one.metadata.get("modified"))
        ]
        self._look(task, base, news, listed)
        self._see(task.ticket, item, json.dumps({"left": len(expansion.left)}))
        return [one.id for url, one in known.items() if url in listed and one.digest is not None]

    def _look(self, task: Task, base: Base, pages: Sequence[Item], listed: dict[str, str | None]) -> None:
        """Look at pages again of which the sitemap has news."""
        rows = [[one.id, json.dumps({**one.metadata, "modified": listed.get(one.source or "")})] for one in pages]
        with task.guarded() as connection:
            self._store.database.within(connection).run(sql.NOTE_METADATA, rows)
        self._requesting.look(base, [one.id for one in pages], Manner(priority=LATER, cause="look"))

    # ------------------------------------------------------------ what follows

    def _see(self, ticket: Ticket, item: Item, seen: str | None) -> None:
        """Note how the source looked; the next look is due when its time has passed."""

        def work(tx: Transaction) -> None:
            require_held(tx, ticket)
            tx.run(sql.SEE_ITEMS, [[item.id, seen]])

        self._store.database.write(work, durable=False)

    def _again(self, task: Task, base: Base, items: Iterable[int]) -> None:
        """Index what did not change, too."""
        specs = self._adding.slots(base)
        requests = [
            Request(
                base=base.key, owner=str(item), operation=Operation.FORCE, slots=specs, priority=LATER, cause="user"
            )
            for item in items
        ]
        for first in range(0, len(requests), LARGEST_BATCH):
            task.checkpoint(stage="asking", done=first, total=len(requests))
            portion = requests[first : first + LARGEST_BATCH]

            def write(tx: Transaction, portion: Sequence[Request] = portion) -> list[Request]:
                locked(tx, base, building=True)
                require_held(tx, task.ticket)
                return still_there(tx, portion)

            self._store.admit_with(write)
