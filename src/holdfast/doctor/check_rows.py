"""Checks the indexes against what is served, from the side of their stores, wherever these are.

A store outside our database knows no snapshot, so whoever seems wrong is looked at again. A row is left over if its
chunk was gone while it was there. A row lacks if its chunk was served by the same generation before and after.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast.catalog import confirmed
from holdfast.doctor import statements as sql
from holdfast.doctor.check_items import visible
from holdfast.doctor.report import Check, Portion, Trouble, windows
from holdfast.documents import locked, still_there
from holdfast.engine import Operation, Request
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import BaseFailed, UnknownBase
from holdfast.indexes import CONTENT, without_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.catalog import Catalogue, Recipe
    from holdfast.db import Transaction
    from holdfast.documents import Adding
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import Indexes

log = logging.getLogger("holdfast")

DOCTOR = "doctor"  # the cause of what it asks for


class RowChecks:
    """Looks through every recipe of every index, and through every list that is served."""

    def __init__(
        self, store: SqlStore, catalogue: Catalogue, indexes: Indexes, adding: Adding, named: Callable[[str], str]
    ) -> None:
        self._store = store
        self._database = store.database
        self._catalogue = catalogue
        self._indexes = indexes
        self._adding = adding
        self._named = named  # what people call a base
        self._kinds = set(indexes.kinds)  # that are installed here, and answer

    def checks(self) -> list[Check]:
        """Return them, first who answers; what has no list is asked for before its rows are missed."""
        return [
            Check("index_away", self._away),
            Check("row_left", self._rows_left, self._drop),
            Check("list_lacks", self._lists_lacking, self._renew),
            Check("row_lacks", self._rows_lacking, self._renew),
        ]

    def _away(self) -> Iterator[Portion]:
        """Ask every index for something; those that do not answer are not asked again."""
        recipes = [one for one in self._catalogue.all_recipes() if one[1] in self._kinds]
        found = []
        for base, kind, recipe in recipes:
            try:
                self._indexes[kind].scan(recipe, 0, 1)
            except Exception as error:
                log.exception("index.away kind=%s recipe=%d", kind, recipe.id)
                self._kinds.discard(kind)
                found.append(Trouble(f"{kind} of {self._named(base)}", str(error) or type(error).__name__, recipe))
        yield Portion(len(recipes), found)

    # ------------------------------------------------------------ rows whose chunk is gone

    def _rows_left(self) -> Iterator[Portion]:
        for base, kind, recipe in self._catalogue.all_recipes():
            if kind not in self._kinds:
                continue
            index, after = self._indexes[kind], 0
            while self._catalogue.known(recipe) and (found := index.scan(recipe, after, LARGEST_BATCH)):
                left = self._still_there(kind, recipe, self._without_chunk(found))
                where = f"{kind} of {self._named(base)}"
                yield Portion(len(found), [Trouble(where, f"chunk {chunk}", (kind, recipe, chunk)) for chunk in left])
                after = found[-1]

    def _without_chunk(self, found: Sequence[int]) -> list[int]:
        with self._database.reading() as tx:
            return without_chunk(tx, found)

    def _still_there(self, kind: str, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Leave out the rows that went before their chunks did, after they were seen."""
        gone = set(self._indexes[kind].absent(recipe, chunks)) if chunks else set()
        return [chunk for chunk in chunks if chunk not in gone]

    def _drop(self, troubles: Sequence[Trouble]) -> int:
        by_recipe: dict[tuple[str, Recipe], list[int]] = defaultdict(list)
        for kind, recipe, chunk in (one.key for one in troubles):
            by_recipe[kind, recipe].append(chunk)
        for (kind, recipe), chunks in by_recipe.items():
            self._indexes[kind].drop(recipe, chunks)
        return len(troubles)

    # ------------------------------------------------------------ what is served and cannot be found

    def _lists_lacking(self) -> Iterator[Portion]:
        """Look for documents whose list is gone, empty, or names chunks that are gone; each counts once."""
        kinds = {CONTENT, *self._indexes.kinds}
        seen: set[tuple[str, str]] = set()
        for rows in windows(self._database, sql.SHOWN_LISTS, "slot"):
            wrong = {(base, owner) for _, base, owner, kind, lacks in rows if lacks and kind in kinds}
            yield Portion(len(rows), self._documents(wrong - seen))
            seen |= wrong
        for rows in windows(self._database, sql.SHOWN_ENTRIES, "owner", "chunk", "build"):
            wrong = {(base, owner) for _, _, _, base, owner, lacks in rows if lacks}
            yield Portion(len(rows), self._documents(wrong - seen))
            seen |= wrong

    def _documents(self, owners: set[tuple[str, str]]) -> list[Trouble]:
        """Leave out what is no document or deleted meanwhile."""
        with self._database.reading() as tx:
            found = sorted(owners & visible(tx, sorted(owners)))
        return [Trouble(self._named(base), f"document {owner}", (base, owner, CONTENT)) for base, owner in found]

    def _rows_lacking(self) -> Iterator[Portion]:
        recipes = {recipe.id: recipe for _, _, recipe in self._catalogue.all_recipes()}
        for rows in windows(self._database, sql.SHOWN_CHUNKS, "slot", "chunk"):
            shown: dict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
            for _, chunk, base, kind, recipe, built in rows:
                shown[base, kind, recipe][chunk] = built
            troubles = [
                trouble
                for (base, kind, recipe), chunks in shown.items()
                if kind in self._kinds and recipe in recipes
                for trouble in self._without_row(base, kind, recipes[recipe], chunks)
            ]
            yield Portion(len(rows), troubles)

    def _without_row(self, base: str, kind: str, recipe: Recipe, chunks: Mapping[int, int]) -> Iterator[Trouble]:
        """Yield chunks that have no row, if the generation that was seen to serve them still does."""
        absent = self._indexes[kind].absent(recipe, list(chunks))
        with self._database.reading() as tx:
            served = confirmed(tx, base, kind, recipe.id, absent)
        for chunk, one in served.items():
            if one.generation == chunks[chunk]:
                what = f"chunk {chunk} of document {one.document}"
                yield Trouble(f"{kind} of {self._named(base)}", what, (base, str(one.document), kind))

    def _renew(self, troubles: Sequence[Trouble]) -> int:
        """Ask for what is lacking to be built again, which costs only what is not there; it must be at rest."""
        by_base: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for base, owner, kind in (one.key for one in troubles):
            by_base[base][owner].add(kind)
        asked = {(base, owner) for base, owners in by_base.items() for owner in self._ask(base, owners)}
        return sum(one.key[:2] in asked for one in troubles)

    def _ask(self, key: str, owners: Mapping[str, set[str]]) -> list[str]:
        """Ask for documents of one base; return those that are being built."""
        base = self._catalogue.base(int(key))
        if base is None:
            return []
        requests: list[Request] = []

        def write(tx: Transaction) -> list[Request]:
            specs = self._adding.slots(locked(tx, base, building=True))
            requests[:] = still_there(tx, [
                Request(
                    base=key,
                    owner=owner,
                    operation=Operation.RENEW,
                    slots=specs,
                    kinds=tuple(sorted(kinds)),
                    cause=DOCTOR,
                )
                for owner, kinds in owners.items()
            ])  # fmt: skip
            return requests

        try:
            answers = self._store.admit_with(write)
        except (BaseFailed, UnknownBase):  # nothing can be built there now
            return []
        return [request.owner for request, answer in zip(requests, answers, strict=True) if answer.accepted]
