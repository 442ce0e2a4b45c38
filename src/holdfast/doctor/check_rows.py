"""Checks the rows of all indexes against the served chunks, by scanning the stores of the indexes.

A store outside our database has no common snapshot with it, so a suspicious row is read again. A row is left over if it
still exists after its chunk was found to be gone. A row is missing if the same generation served its chunk before and
after the row was looked up.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast.catalog import confirm_chunks
from holdfast.doctor import statements as sql
from holdfast.doctor.check_items import visible_owners
from holdfast.doctor.report import Check, Issue, read_windows
from holdfast.documents import lock_open_base, select_live_requests
from holdfast.engine import Operation, Request
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import BaseFailed, UnknownBase
from holdfast.indexes import CONTENT, find_nonexistent_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.catalog import Catalog, Recipe
    from holdfast.db import Transaction
    from holdfast.doctor.report import Locator
    from holdfast.documents import DocumentAdder
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import IndexRegistry

log = logging.getLogger("holdfast")

REQUEST_CAUSE = "doctor"


class RowChecks:
    """Checks each recipe of each index, and each served list."""

    def __init__(
        self,
        store: SqlStore,
        catalogue: Catalog,
        indexes: IndexRegistry,
        adder: DocumentAdder,
        locate: Locator,
    ) -> None:
        self._store = store
        self._database = store.database
        self._catalogue = catalogue
        self._indexes = indexes
        self._adder = adder
        self._locate = locate
        self._reachable_kinds = set(indexes.kinds)  # installed, and not found unreachable

    def checks(self) -> list[Check]:
        """Return the checks in order: later checks skip unreachable indexes, and lists come before their rows."""
        return [
            Check("index_away", self._find_unreachable_indexes),
            Check("row_left", self._find_orphan_rows, self._drop_rows),
            Check("list_lacks", self._find_broken_lists, self._request_rebuild),
            Check("row_lacks", self._find_missing_rows, self._request_rebuild),
        ]

    def _find_unreachable_indexes(self) -> Iterator[list[Issue]]:
        """Read one row of each index; later checks skip an index that fails."""
        found = []
        recipes = [recipe for recipe in self._catalogue.all_recipes() if recipe[1] in self._reachable_kinds]
        for base, kind, recipe in recipes:
            try:
                self._indexes[kind].scan(recipe, 0, 1)
            except Exception as error:
                log.exception("index.unreachable kind=%s recipe=%d", kind, recipe.id)
                self._reachable_kinds.discard(kind)
                found.append(Issue(self._locate(base, kind), str(error) or type(error).__name__, recipe))
        yield found

    def _find_orphan_rows(self) -> Iterator[list[Issue]]:
        for base, kind, recipe in self._catalogue.all_recipes():
            if kind not in self._reachable_kinds:
                continue
            index, after = self._indexes[kind], 0
            while self._catalogue.recipe_exists(recipe) and (found := index.scan(recipe, after, LARGEST_BATCH)):
                left = self._keep_present(kind, recipe, self._without_chunk(found))
                where = self._locate(base, kind)
                yield [Issue(where, f"chunk {chunk}", (kind, recipe, chunk)) for chunk in left]
                after = found[-1]

    def _without_chunk(self, found: Sequence[int]) -> list[int]:
        with self._database.reading() as tx:
            return find_nonexistent_chunks(tx, found)

    def _keep_present(self, kind: str, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return the chunks whose row still exists. A row may have been removed, before its chunk, since the scan."""
        gone = set(self._indexes[kind].absent(recipe, chunks)) if chunks else set()
        return [chunk for chunk in chunks if chunk not in gone]

    def _drop_rows(self, issues: Sequence[Issue]) -> int:
        by_recipe: dict[tuple[str, Recipe], list[int]] = defaultdict(list)
        for kind, recipe, chunk in (issue.key for issue in issues):
            by_recipe[kind, recipe].append(chunk)
        for (kind, recipe), chunks in by_recipe.items():
            self._indexes[kind].drop(recipe, chunks)
        return len(issues)

    def _find_broken_lists(self) -> Iterator[list[Issue]]:
        """Find documents whose served list is gone, empty, or has chunks that are gone; each counts once."""
        kinds = {CONTENT, *self._indexes.kinds}
        seen: set[tuple[str, str]] = set()
        for rows in read_windows(self._database, sql.SCAN_SERVED_LISTS, "slot"):
            wrong = {(base, owner) for _, base, owner, kind, lacks in rows if lacks and kind in kinds}
            yield self._visible_document_issues(wrong - seen)
            seen |= wrong
        for rows in read_windows(self._database, sql.SCAN_SERVED_ENTRIES, "owner", "chunk", "build"):
            wrong = {(base, owner) for _, _, _, base, owner, lacks in rows if lacks}
            yield self._visible_document_issues(wrong - seen)
            seen |= wrong

    def _visible_document_issues(self, owners: set[tuple[str, str]]) -> list[Issue]:
        """Return an issue for each owner that is a document and was not deleted in the meantime."""
        with self._database.reading() as tx:
            visible = sorted(owners & visible_owners(tx, sorted(owners)))
        return [Issue(self._locate(base), f"document {owner}", (base, owner, CONTENT)) for base, owner in visible]

    def _find_missing_rows(self) -> Iterator[list[Issue]]:
        recipes = {recipe.id: recipe for _, _, recipe in self._catalogue.all_recipes()}
        for rows in read_windows(self._database, sql.SCAN_SERVED_CHUNKS, "slot", "chunk"):
            served: dict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
            for _, chunk, base, kind, recipe, built in rows:
                served[base, kind, recipe][chunk] = built
            yield [
                issue
                for (base, kind, recipe), chunks in served.items()
                if kind in self._reachable_kinds and recipe in recipes
                for issue in self._chunks_without_row(base, kind, recipes[recipe], chunks)
            ]

    def _chunks_without_row(self, base: str, kind: str, recipe: Recipe, chunks: Mapping[int, int]) -> Iterator[Issue]:
        """Yield chunks without a row that the same generation still serves."""
        absent = self._indexes[kind].absent(recipe, list(chunks))
        with self._database.reading() as tx:
            served = confirm_chunks(tx, base, kind, recipe.id, absent)
        for chunk, hit in sorted(served.items()):
            if hit.generation == chunks[chunk]:
                what = f"chunk {chunk} of document {hit.document}"
                yield Issue(self._locate(base, kind), what, (base, str(hit.document), kind))

    def _request_rebuild(self, issues: Sequence[Issue]) -> int:
        """Request the missing rows, if their slots are at rest. Existing rows are kept and not paid again."""
        by_base: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for base, owner, kind in (issue.key for issue in issues):
            by_base[base][owner].add(kind)
        requested = {
            (base, owner) for base, owners in by_base.items() for owner in self._request_documents(base, owners)
        }
        return sum(issue.key[:2] in requested for issue in issues)

    def _request_documents(self, key: str, owners: Mapping[str, set[str]]) -> list[str]:
        """Request documents of one base; return the owners that were accepted."""
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
