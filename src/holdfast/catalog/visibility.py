"""What may be shown: the check that every hit passes, whichever index or cache it comes from.

An index proposes chunks; here, in one snapshot, it is read which of them belong to a live document of the asked base,
whose slot serves the recipe that proposed them, and stand in the list that is served and not among what it lacks.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import visibility_statements as sql
from holdfast.catalog.chunk_lists import chunks_of_base, owners_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from holdfast.db import Transaction

SERVED = sql.SERVED  # what may be shown, as a statement that others narrow
NEW = 20  # chunks of one query whose owners are not remembered yet, above which all are read again
REMEMBERED = 2_000_000  # chunks of other bases, above which those of the first are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A passage of a document, as it is served."""

    document: int
    name: str
    chunk: int
    generation: int
    start: int
    end: int
    headings: list[str]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Place):
    """A chunk that may be shown, as its slot serves it."""

    title: str | None  # of the document
    ordinal: int  # of the chunk in its document


def place_of(one: Place) -> Place:
    """Return the passage alone, without what a search or an index knows about it."""
    return Place(**{field.name: getattr(one, field.name) for field in fields(Place)})


class Confirmed(NamedTuple):
    """Whose a chunk is, and in which generation and list it may be shown."""

    document: int
    generation: int
    build: int  # the list; slots of different generations may serve the same one


class Owned(NamedTuple):
    """The chunks of a base in ascending order, and their owners."""

    chunks: NDArray[np.int64]  # and -1 at the end: what is past them all is none of them
    owners: NDArray[np.int64]
    last: int  # what has a higher id came later


class Owners:
    """Remembers whose each chunk is, which never changes: ids are never used twice. A chunk costs 16 bytes.

    So a check of what is proposed need not read the chunks themselves. It still is the database that tells whether
    an owner serves them.
    """

    def __init__(self) -> None:
        self._bases: dict[str, Owned] = {}
        self._mutex = threading.Lock()

    def of(self, tx: Transaction, base: str, chunks: Sequence[int]) -> list[tuple[int, int]]:
        """Return the chunks, each with its owner; of those that are gone some may be left out."""
        import numpy as np  # noqa: PLC0415 - a client of a server loads this module, and does not have it

        asked = np.fromiter(sorted(chunks), dtype=np.int64)  # neighbours lie side by side
        known = self._bases.get(base)
        if known is None or np.count_nonzero(asked > known.last) > NEW:
            known = self._read(tx, base, asked)
        places = np.searchsorted(known.chunks[:-1], asked)
        there = known.chunks[places] == asked
        owned = list(zip(asked[there].tolist(), known.owners[places[there]].tolist(), strict=True))
        if len(owned) < len(asked):
            owned += owners_of(tx, asked[~there].tolist())
        return owned

    def _read(self, tx: Transaction, base: str, asked: NDArray[np.int64]) -> Owned:
        """Read all of a base; what was asked for and is not there then will not be waited for again."""
        import numpy as np  # noqa: PLC0415

        rows = np.array(chunks_of_base(tx, base), dtype=np.int64).reshape(-1, 2)
        chunks = np.append(rows[:, 0], -1)
        known = Owned(chunks, rows[:, 1].copy(), int(max(chunks.max(), asked.max(initial=0))))
        with self._mutex:
            self._bases.pop(base, None)
            while self._bases and sum(len(one.chunks) for one in self._bases.values()) > REMEMBERED:
                del self._bases[next(iter(self._bases))]
            self._bases[base] = known
        return known


def confirmed(
    tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int], *, owners: Owners | None = None
) -> dict[int, Confirmed]:
    """Return those of the proposed chunks that may be shown, and nothing of what they say.

    It is quicker with somebody who remembers the owners.
    """
    owned = owners.of(tx, base, chunks) if owners else owners_of(tx, chunks)
    rows = tx.run(sql.CONFIRMED, owned, base=base, kind=kind, recipe=recipe)
    return {id_: Confirmed(int(owner), built, build) for id_, owner, built, build in rows}


def served(tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int]) -> dict[int, Served]:
    """Return those of the proposed chunks that may be shown, as they are shown."""
    rows = tx.run(sql.SERVED_PASSAGES, [[chunk] for chunk in chunks], base=base, kind=kind, recipe=recipe)
    found = {}
    for id_, owner, built, ordinal, start, stop, headings, text, name, title in rows:
        found[id_] = Served(
            document=int(owner),
            name=name,
            chunk=id_,
            generation=built,
            start=start,
            end=stop,
            headings=json.loads(headings),
            text=text,
            title=title,
            ordinal=ordinal,
        )
    return found


def served_recipes(tx: Transaction, base: str, kind: str) -> list[int]:
    """Name the recipes of an index that some document is served by, newest first; each needs a query of its own."""
    return [recipe for (recipe,) in tx.run(sql.SERVED_RECIPES, base=base, kind=kind)]
