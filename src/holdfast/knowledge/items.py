"""The items of all bases: what people put in, ask for, look at and take out."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.content.tokens import estimate
from holdfast.core.states import Status
from holdfast.core.wellformed import nfc, nfc_json
from holdfast.errors import NotNow, UnknownItem
from holdfast.indexes.documents import CONTENT
from holdfast.knowledge.adding import Adding, Terms
from holdfast.knowledge.matching import Matching
from holdfast.knowledge.removing import Removing
from holdfast.knowledge.requesting import USUAL, Requesting
from holdfast.knowledge.selecting import below, outermost, standing, usable
from holdfast.library import item_statements as sql
from holdfast.library.builds import Builds
from holdfast.library.catalogue import NO_ID, OnDuplicate, item_of, stored_map

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.core.queue import Summary
    from holdfast.core.slot import Ticket
    from holdfast.core.states import Operation
    from holdfast.indexes.registry import Indexes
    from holdfast.knowledge.adding import Reply, Upload
    from holdfast.knowledge.paging import Filter
    from holdfast.knowledge.requesting import Action, Manner
    from holdfast.knowledge.selecting import Placed
    from holdfast.library.builds import Passage
    from holdfast.library.catalogue import Base, Catalogue, Item
    from holdfast.library.file_records import FileRecords
    from holdfast.stores.database import Transaction
    from holdfast.stores.sql import SqlStore

COMPLETED = frozenset({Status.SUCCESS, Status.DEGRADED})


class Listed(NamedTuple):
    """A chunk of a document, as it is served."""

    item: int
    generation: int
    tokens: int
    passage: Passage


class Items:
    """Items by their ids; a name is unique among its neighbours only."""

    def __init__(self, store: SqlStore, catalogue: Catalogue, files: FileRecords, indexes: Indexes) -> None:
        self._store = store
        self._catalogue = catalogue
        self.adding = Adding(store, catalogue, files, indexes)
        self._removing = Removing(store, files.blobs)
        self._requesting = Requesting(store, self.adding)
        self._matching = Matching(store, self._requesting, self._removing)
        self._builds = Builds(store.database)

    # ------------------------------------------------------------ changing

    def add(self, base: Base, uploads: Iterable[Upload], terms: Terms | None = None) -> list[Reply]:
        """Add items; names and contents that are there already are treated as the base or the terms say."""
        return self.adding.add(base, uploads, terms or Terms())

    def put(self, base: Base, uploads: Iterable[Upload], *, requester: str = "", priority: int = 5) -> list[Reply]:
        """Add items or change those of the same name, as whoever names them himself does."""
        terms = Terms(on_duplicate=OnDuplicate.REPLACE, distinct=False, requester=requester, priority=priority)
        return self.adding.add(base, uploads, terms)

    def delete(
        self,
        base: Base,
        ids: Iterable[int],
        *,
        requester: str = "",
        ticket: Ticket | None = None,
        unless_changed: Collection[int] | None = None,
    ) -> list[Reply]:
        """Delete items with all that stands below them."""
        return self._removing.delete(base, ids, requester=requester, ticket=ticket, unless_changed=unless_changed)

    def clear(self, base: Base, others: Iterable[str] = (), *, requester: str = "") -> None:
        """Delete all items, and `others` of the base's own owners with them."""
        self._removing.clear(base, others, requester=requester)

    def reindex(self, base: Base, ids: Iterable[int], manner: Manner | None = None) -> list[Reply]:
        """Build items again; refused for those of which anything is not at rest."""
        return self._requesting.reindex(base, ids, *([manner] if manner else []))

    def look(
        self, base: Base, ids: Iterable[int], manner: Manner | None = None, *, stirred: bool = False
    ) -> list[Reply]:
        """Look at the sources of items again; one that `stirred` is looked at after what is under way."""
        return self._requesting.look(base, ids, *([manner] if manner else []), stirred=stirred)

    def ask(self, base: Base, ids: Iterable[int], operation: Operation, manner: Manner | None = None) -> list[Reply]:
        """Index, retry, force or cancel items."""
        return self._requesting.ask(base, ids, operation, *([manner] if manner else []))

    def matching(
        self, base: Base, action: Action, filter_: Filter, manner: Manner | None = None, *, dry_run: bool = False
    ) -> Summary:
        """Do the same to all items that fit, in batches; a dry run counts them."""
        return self._matching.ask(base, action, filter_, manner or USUAL, dry_run=dry_run)

    def finish(self, limit: int) -> int:
        """Go on with what was interrupted, and look at sources whose time has come; return how much it was."""
        return self._removing.finish(limit) + self._requesting.look_due(limit)

    # ------------------------------------------------------------ looking

    def find(self, base: Base, name: str, parent: int = 0) -> Item:
        """Find an item by its name, in whichever Unicode spelling."""
        place = (parent, nfc(name))
        item = self._catalogue.items(base, [place]).get(place)
        if item is None:
            raise UnknownItem(base.name, [name])
        return item

    def tree(self, base: Base, item: int) -> list[Placed]:
        """Read an item, first, and all that stands below it."""
        with self._store.database.reading() as tx:
            return [one for one in self._below(tx, base, item) if not one.item.deleting]

    def status(self, base: Base, item: int) -> Status:
        """Tell how an item stands; a container as its live children do."""
        return standing(self.tree(base, item))

    def documents(
        self, base: Base, *, below: Sequence[int] = (), metadata: Mapping[str, Any] | None = None
    ) -> list[int] | None:
        """Return the documents that a search is about: below these items, and with this metadata; None for all.

        Metadata fits where each of the values is there under its key, in whichever Unicode spelling.
        """
        if not below and not metadata:
            return None
        with self._store.database.reading() as tx:
            found: list[set[int]] = []
            if below:
                roots = [[item.id] for item in outermost(tx, base, below)]
                found.append({id_ for (id_,) in tx.run(sql.DOCUMENTS_BELOW, roots, base_id=base.id)})
            if metadata:
                rows = tx.run(sql.WITH_METADATA, base_id=base.id)
                found.append({id_ for id_, text in rows if _fits(text, metadata)})
        return sorted(set.intersection(*found))

    def children(self, base: Base, parent: int = 0, *, after: int = 0, limit: int = 100) -> list[Item]:
        """Read what stands in a container, or in the base itself, in the order in which it came."""
        with self._store.database.reading() as tx:
            rows = tx.run(sql.CHILDREN, base_id=base.id, parent_id=parent, after=after, limit=limit)
        return [item_of(row) for row in rows]

    def chunks(self, base: Base, item: int, *, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[Listed]:
        """Read the chunks of a document, or of all documents of a container, as they are served.

        `after` is the document and the ordinal of the last one that was read.
        """
        with self._store.database.reading() as tx:
            usable(tx, base)
            tree = self._below(tx, base, item)
        name = tree[0].item.name
        if any(one.item.deleting for one in tree):
            raise NotNow("being_deleted", f"Something in {name!r} is being deleted; ask again when it is gone.")
        status = standing(tree)
        if status not in COMPLETED:
            raise NotNow("not_complete", f"{name!r} is {status}; its chunks can be listed when it is indexed.")
        return list(islice(self._served(base, tree, after, limit), limit))

    def _below(self, tx: Transaction, base: Base, item: int) -> list[Placed]:
        tree = below(tx, item) if 0 < item < NO_ID else []
        if not tree or tree[0].item.id != item or tree[0].item.base != base.id or tree[0].item.deleting:
            raise UnknownItem(base.name, [item])
        return tree

    def _served(self, base: Base, tree: list[Placed], after: tuple[int, int], limit: int) -> Iterator[Listed]:
        """Yield chunks, one document after the other."""
        document, ordinal = after
        for one in tree:
            if one.document not in COMPLETED or one.item.id < document:
                continue
            content = self._store.owner(base.key, one.item.key).slot(CONTENT)
            if content is None or content.source is None:
                continue
            first = ordinal + 1 if one.item.id == document else 0
            for passage in self._builds.passages(content.owner_id, content.source, first=first, limit=limit):
                yield Listed(one.item.id, content.built, estimate(passage.text), passage)


def _fits(stored: str, wanted: Mapping[str, Any]) -> bool:
    """Tell whether stored metadata has all wanted values; what cannot be read has none."""
    known = _comparable(stored_map(stored) or {})
    return _comparable(wanted).items() <= known.items()


def _comparable(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return each value as a text that is equal where the JSON is: 1 is neither true nor 1.0."""
    return {nfc(key): json.dumps(nfc_json(value), sort_keys=True) for key, value in metadata.items()}
