"""Checks the indexes against what is served, from the side of their stores, wherever these are.

A store outside our database knows no snapshot, so whoever seems wrong is looked at again. A row is left over if its
chunk was gone while it was there. A row lacks if its chunk was served by the same generation before and after.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast.catalog import confirm_chunks
from holdfast.doctor import statements as sql
from holdfast.doctor.check_items import visible_owners
from holdfast.doctor.report import Check, Issue, ScannedBatch, read_windows
from holdfast.documents import lock_open_base, select_live_requests
from holdfast.engine import Operation, Request
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import BaseFailed, UnknownBase
from holdfast.indexes import CONTENT, find_nonexistent_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.catalog import Catalog, Recipe
    from holdfast.db import Transaction
    from holdfast.documents import DocumentAdder
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import IndexRegistry

log = logging.getLogger("holdfast")

REQUEST_CAUSE = "doctor"  # the cause of what it asks for


class RowChecks:
    """Looks through every recipe of every index, and through every list that is served."""

    def __init__(
        self,
        store: SqlStore,
        catalogue: Catalog,
        indexes: IndexRegistry,
        adding: DocumentAdder,
        named: Callable[[str], str],
    ) -> None:
        self._store = store
        self._database = store.database
        self._catalogue = catalogue
        self._indexes = indexes
        self._adder = adding
        self._base_label = named  # what people call a base
        self._reachable_kinds = set(indexes.kinds)  # that are installed here, and answer

    def checks(self) -> list[Check]:
        """Return them, first who answers; what has no list is asked for before its rows are missed."""
        return [
            Check("index_away", self._find_unreachable_indexes),
            Check("row_left", self._find_orphan_rows, self._drop_rows),
            Check("list_lacks", self._find_broken_lists, self._request_rebuild),
            Check("row_lacks", self._find_missing_rows, self._request_rebuild),
        ]

    def _find_unreachable_indexes(self) -> Iterator[ScannedBatch]:
        """Ask every index for something; those that do not answer are not asked again."""
        recipes = [one for one in self._catalogue.all_recipes() if one[1] in self._reachable_kinds]
        found = []
        for base, kind, recipe in recipes:
            try:
                self._indexes[kind].scan(recipe, 0, 1)
            except Exception as error:
                log.exception("index.away kind=%s recipe=%d", kind, recipe.id)
                self._reachable_kinds.discard(kind)
                found.append(Issue(f"{kind} of {self._base_label(base)}", str(error) or type(error).__name__, recipe))
        yield ScannedBatch(len(recipes), found)

    # ------------------------------------------------------------ rows whose chunk is gone

    def _find_orphan_rows(self) -> Iterator[ScannedBatch]:
        for base, kind, recipe in self._catalogue.all_recipes():
            if kind not in self._reachable_kinds:
                continue
            index, after = self._indexes[kind], 0
            while self._catalogue.recipe_exists(recipe) and (found := index.scan(recipe, after, LARGEST_BATCH)):
                left = self._keep_present(kind, recipe, self._without_chunk(found))
                where = f"{kind} of {self._base_label(base)}"
                yield ScannedBatch(
                    len(found), [Issue(where, f"chunk {chunk}", (kind, recipe, chunk)) for chunk in left]
                )
                after = found[-1]

    def _without_chunk(self, found: Sequence[int]) -> list[int]:
        with self._database.reading() as tx:
            return find_nonexistent_chunks(tx, found)

    def _keep_present(self, kind: str, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Leave out the rows that went before their chunks did, after they were seen."""
        gone = set(self._indexes[kind].absent(recipe, chunks)) if chunks else set()
        return [chunk for chunk in chunks if chunk not in gone]

    def _drop_rows(self, troubles: Sequence[Issue]) -> int:
        by_recipe: dict[tuple[str, Recipe], list[int]] = defaultdict(list)
        for kind, recipe, chunk in (one.key for one in troubles):
            by_recipe[kind, recipe].append(chunk)
        for (kind, recipe), chunks in by_recipe.items():
            self._indexes[kind].drop(recipe, chunks)
        return len(troubles)

    # ------------------------------------------------------------ what is served and cannot be found

    def _find_broken_lists(self) -> Iterator[ScannedBatch]:
        """Look for documents whose list is gone, empty, or names chunks that are gone; each counts once."""
        kinds = {CONTENT, *self._indexes.kinds}
        seen: set[tuple[str, str]] = set()
        for rows in read_windows(self._database, sql.SCAN_SERVED_LISTS, "slot"):
            wrong = {(base, owner) for _, base, owner, kind, lacks in rows if lacks and kind in kinds}
            yield ScannedBatch(len(rows), self._visible_document_issues(wrong - seen))
            seen |= wrong
        for rows in read_windows(self._database, sql.SCAN_SERVED_ENTRIES, "owner", "chunk", "build"):
            wrong = {(base, owner) for _, _, _, base, owner, lacks in rows if lacks}
            yield ScannedBatch(len(rows), self._visible_document_issues(wrong - seen))
            seen |= wrong

    def _visible_document_issues(self, owners: set[tuple[str, str]]) -> list[Issue]:
        """Leave out what is no document or deleted meanwhile."""
        with self._database.reading() as tx:
            found = sorted(owners & visible_owners(tx, sorted(owners)))
        return [Issue(self._base_label(base), f"document {owner}", (base, owner, CONTENT)) for base, owner in found]

    def _find_missing_rows(self) -> Iterator[ScannedBatch]:
        recipes = {recipe.id: recipe for _, _, recipe in self._catalogue.all_recipes()}
        for rows in read_windows(self._database, sql.SCAN_SERVED_CHUNKS, "slot", "chunk"):
            shown: dict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
            for _, chunk, base, kind, recipe, built in rows:
                shown[base, kind, recipe][chunk] = built
            troubles = [
                trouble
                for (base, kind, recipe), chunks in shown.items()
                if kind in self._reachable_kinds and recipe in recipes
                for trouble in self._chunks_without_row(base, kind, recipes[recipe], chunks)
            ]
            yield ScannedBatch(len(rows), troubles)

    def _chunks_without_row(self, base: str, kind: str, recipe: Recipe, chunks: Mapping[int, int]) -> Iterator[Issue]:
        """Yield chunks that have no row, if the generation that was seen to serve them still does."""
        absent = self._indexes[kind].absent(recipe, list(chunks))
        with self._database.reading() as tx:
            served = confirm_chunks(tx, base, kind, recipe.id, absent)
        for chunk, one in served.items():
            if one.generation == chunks[chunk]:
                what = f"chunk {chunk} of document {one.document}"
                yield Issue(f"{kind} of {self._base_label(base)}", what, (base, str(one.document), kind))

    def _request_rebuild(self, troubles: Sequence[Issue]) -> int:
        """Ask for what is lacking to be built again, which costs only what is not there; it must be at rest."""
        by_base: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for base, owner, kind in (one.key for one in troubles):
            by_base[base][owner].add(kind)
        asked = {(base, owner) for base, owners in by_base.items() for owner in self._request_documents(base, owners)}
        return sum(one.key[:2] in asked for one in troubles)

    def _request_documents(self, key: str, owners: Mapping[str, set[str]]) -> list[str]:
        """Ask for documents of one base; return those that are being built."""
        base = self._catalogue.base(int(key))
        if base is None:
            return []
        requests: list[Request] = []

        def write(tx: Transaction) -> list[Request]:
            specs = self._adder.slot_specs(lock_open_base(tx, base, building=True))
            requests[:] = select_live_requests(tx, [
                Request(
                    base=key,
                    owner=owner,
                    operation=Operation.RENEW,
                    slots=specs,
                    kinds=tuple(sorted(kinds)),
                    cause=REQUEST_CAUSE,
                )
                for owner, kinds in owners.items()
            ])  # fmt: skip
            return requests

        try:
            answers = self._store.admit_with(write)
        except (BaseFailed, UnknownBase):  # nothing can be built there now
            return []
        return [request.owner for request, answer in zip(requests, answers, strict=True) if answer.accepted]
