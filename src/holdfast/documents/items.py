"""The items of all bases: found by name, with all below them, and their chunks. It only reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.catalog import ID_LIMIT, ChunkLists, read_base, stored_map
from holdfast.content.token_estimate import estimate_tokens
from holdfast.documents import statements as sql
from holdfast.documents.lists import SEARCHED
from holdfast.documents.selection import derive_tree_status, read_subtree, refuse_failed, require_open, select_outermost
from holdfast.errors import StateConflict, UnknownItem
from holdfast.indexes import CONTENT
from holdfast.wellformed import json_to_nfc, to_nfc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.catalog import Base, Catalog, Item
    from holdfast.db import Transaction
    from holdfast.documents.selection import ItemWithStatus
    from holdfast.engine import Status
    from holdfast.engine.store import SqlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChunk:
    """A part of a document as it is served."""

    document: int
    chunk: int
    generation: int
    ordinal: int
    start: int
    end: int
    tokens: int
    headings: list[str]
    text: str


class Items:
    """Items by their ids; a name is unique among its neighbours only."""

    def __init__(self, store: SqlStore, catalogue: Catalog) -> None:
        self._store = store
        self._catalog = catalogue
        self._chunk_lists = ChunkLists(store.database)

    def find(self, base: Base, name: str, parent: int = 0) -> Item:
        """Find an item by its name, in whichever Unicode spelling."""
        place = (parent, to_nfc(name))
        item = self._catalog.find_items(base, [place]).get(place)
        if item is None:
            raise UnknownItem(base.name, [name])
        return item

    def tree(self, base: Base, item: int) -> list[ItemWithStatus]:
        """Read an item, first, and all that stands below it."""
        with self._store.database.reading() as tx:
            return [one for one in self._below(tx, base, item) if not one.item.deleting]

    def status(self, base: Base, item: int) -> Status:
        """Tell how an item stands; a container as its live children do."""
        return derive_tree_status(self.tree(base, item))

    def select_documents(
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
                roots = [[item.id] for item in select_outermost(tx, base, below)]
                found.append({id_ for (id_,) in tx.run(sql.DOCUMENTS_BELOW, roots, base_id=base.id)})
            if metadata:
                rows = tx.run(sql.READ_METADATA, base_id=base.id)
                found.append({id_ for id_, text in rows if _fits(text, metadata)})
        return sorted(set.intersection(*found))

    def chunks(
        self, base: Base, item: int, *, after: tuple[int, int] = (0, -1), limit: int = 100
    ) -> list[DocumentChunk]:
        """Read the chunks of a document, or of all documents of a container, as they are served.

        `after` is the document and the ordinal of the last one that was read.
        """
        with self._store.database.reading() as tx:
            refuse_failed(require_open(read_base(tx, base.id), base.name))
            tree = self._below(tx, base, item)
        name = tree[0].item.name
        if any(one.item.deleting for one in tree):
            raise StateConflict("being_deleted", f"Something in {name!r} is being deleted; ask again when it is gone.")
        status = derive_tree_status(tree)
        if status not in SEARCHED:
            raise StateConflict("not_complete", f"{name!r} is {status}; its chunks can be listed when it is indexed.")
        return list(islice(self._served(base, tree, after, limit), limit))

    def _below(self, tx: Transaction, base: Base, item: int) -> list[ItemWithStatus]:
        tree = read_subtree(tx, item) if 0 < item < ID_LIMIT else []
        if not tree or tree[0].item.id != item or tree[0].item.base != base.id or tree[0].item.deleting:
            raise UnknownItem(base.name, [item])
        return tree

    def _served(
        self, base: Base, tree: list[ItemWithStatus], after: tuple[int, int], limit: int
    ) -> Iterator[DocumentChunk]:
        """Yield chunks, one document after the other."""
        document, ordinal = after
        for one in tree:
            if one.document_status not in SEARCHED or one.item.id < document:
                continue
            content = self._store.owner(base.key, one.item.key).slot(CONTENT)
            if content is None or content.source is None:
                continue
            first = ordinal + 1 if one.item.id == document else 0
            for passage in self._chunk_lists.read_listed_chunks(
                content.owner_id, content.source, first=first, limit=limit
            ):
                yield DocumentChunk(
                    document=one.item.id,
                    chunk=passage.chunk,
                    generation=content.built,
                    ordinal=passage.ordinal,
                    start=passage.start,
                    end=passage.stop,
                    tokens=estimate_tokens(passage.text),
                    headings=list(passage.headings),
                    text=passage.text,
                )


def _fits(stored: str, wanted: Mapping[str, Any]) -> bool:
    """Tell whether stored metadata has all wanted values; what cannot be read has none."""
    known = _comparable(stored_map(stored) or {})
    return _comparable(wanted).items() <= known.items()


def _comparable(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return each value as a text that is equal where the JSON is: 1 is neither true nor 1.0."""
    return {to_nfc(key): json.dumps(json_to_nfc(value), sort_keys=True) for key, value in metadata.items()}
