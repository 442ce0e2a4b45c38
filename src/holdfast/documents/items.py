"""Reads items by name, with everything below them, and their chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.catalog import ID_LIMIT, ChunkLists, read_base, stored_map
from holdfast.content import estimate_tokens
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
    """A chunk of a document, as served."""

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
    """Reads items. A name is unique within its parent only."""

    def __init__(self, store: SqlStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._chunk_lists = ChunkLists(store.database)

    def find(self, base: Base, name: str, parent: int = 0) -> Item:
        """Find an item by its name, in any Unicode normalisation form."""
        place = (parent, to_nfc(name))
        item = self._catalog.find_items(base, [place]).get(place)
        if item is None:
            raise UnknownItem(base.name, [name])
        return item

    def tree(self, base: Base, item: int) -> list[ItemWithStatus]:
        """Return an item, first, and everything below it."""
        with self._store.database.reading() as tx:
            return [entry for entry in self._below(tx, base, item) if not entry.item.deleting]

    def status(self, base: Base, item: int) -> Status:
        """Return the status of an item; a container derives it from its children."""
        return derive_tree_status(self.tree(base, item))

    def select_documents(
        self, base: Base, *, below: Sequence[int] = (), metadata: Mapping[str, Any] | None = None
    ) -> list[int] | None:
        """Return the documents that a search is limited to: below these items and with this metadata; None for all.

        Metadata matches if every given key has the given value, in any Unicode normalisation form.
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
        """Read the served chunks of a document, or of all documents in a container.

        `after` is the document and the ordinal of the last chunk that the caller has read.
        """
        with self._store.database.reading() as tx:
            refuse_failed(require_open(read_base(tx, base.id), base.name))
            tree = self._below(tx, base, item)
        name = tree[0].item.name
        if any(entry.item.deleting for entry in tree):
            raise StateConflict("being_deleted", name=name)
        status = derive_tree_status(tree)
        if status not in SEARCHED:
            raise StateConflict("not_complete", name=name, status=status)
        return list(islice(self._served(base, tree, after, limit), limit))

    def _below(self, tx: Transaction, base: Base, item: int) -> list[ItemWithStatus]:
        tree = read_subtree(tx, item) if 0 < item < ID_LIMIT else []
        if not tree or tree[0].item.id != item or tree[0].item.base != base.id or tree[0].item.deleting:
            raise UnknownItem(base.name, [item])
        return tree

    def _served(
        self, base: Base, tree: list[ItemWithStatus], after: tuple[int, int], limit: int
    ) -> Iterator[DocumentChunk]:
        document, ordinal = after
        for entry in tree:
            if entry.document_status not in SEARCHED or entry.item.id < document:
                continue
            content = self._store.owner(base.key, entry.item.key).slot(CONTENT)
            if content is None or content.source is None:
                continue
            first = ordinal + 1 if entry.item.id == document else 0
            for passage in self._chunk_lists.read_listed_chunks(
                content.owner_id, content.source, first=first, limit=limit
            ):
                yield DocumentChunk(
                    document=entry.item.id,
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
    """Return whether stored metadata has all wanted values; metadata that cannot be read has none."""
    known = _comparable(stored_map(stored) or {})
    return _comparable(wanted).items() <= known.items()


def _comparable(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return each value as text that is equal only for equal JSON: 1 differs from true and from 1.0."""
    return {to_nfc(key): json.dumps(json_to_nfc(value), sort_keys=True) for key, value in metadata.items()}
