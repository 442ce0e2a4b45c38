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
from holdfast.catalog.chunk_lists import read_chunk_owners, read_chunks_of_base

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from holdfast.db import Transaction

SELECT_SERVED_CHUNKS = sql.SELECT_SERVED_CHUNKS  # what may be shown, as a statement that others narrow
RELOAD_THRESHOLD = 20  # chunks of one query whose owners are not remembered yet, above which all are read again
MAX_CACHED_CHUNKS = 2_000_000  # chunks of other bases, above which those of the first are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPassage:
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
class ServedChunk(ServedPassage):
    """A chunk that may be shown, as its slot serves it."""

    title: str | None  # of the document
    ordinal: int  # of the chunk in its document


def to_served_passage(one: ServedPassage) -> ServedPassage:
    """Return the passage alone, without what a search or an index knows about it."""
    return ServedPassage(**{field.name: getattr(one, field.name) for field in fields(ServedPassage)})


class ConfirmedChunk(NamedTuple):
    """Whose a chunk is, and in which generation and list it may be shown."""

    document: int
    generation: int
    build: int  # the list; slots of different generations may serve the same one


class ChunkOwnerTable(NamedTuple):
    """The chunks of a base in ascending order, and their owners."""

    chunks: NDArray[np.int64]  # and -1 at the end: what is past them all is none of them
    owners: NDArray[np.int64]
    last: int  # what has a higher id came later


class ChunkOwnerCache:
    """Remembers whose each chunk is, which never changes: ids are never used twice. A chunk costs 16 bytes.

    So a check of what is proposed need not read the chunks themselves. It still is the database that tells whether
    an owner serves them.
    """

    def __init__(self) -> None:
        self._bases: dict[str, ChunkOwnerTable] = {}
        self._mutex = threading.Lock()

    def find_owners(self, tx: Transaction, base: str, chunks: Sequence[int]) -> list[tuple[int, int]]:
        """Return the chunks, each with its owner; of those that are gone some may be left out."""
        import numpy as np  # noqa: PLC0415 - a client of a server loads this module, and does not have it

        asked = np.fromiter(sorted(chunks), dtype=np.int64)  # neighbours lie side by side
        known = self._bases.get(base)
        if known is None or np.count_nonzero(asked > known.last) > RELOAD_THRESHOLD:
            known = self._read(tx, base, asked)
        places = np.searchsorted(known.chunks[:-1], asked)
        there = known.chunks[places] == asked
        owned = list(zip(asked[there].tolist(), known.owners[places[there]].tolist(), strict=True))
        if len(owned) < len(asked):
            owned += read_chunk_owners(tx, asked[~there].tolist())
        return owned

    def _read(self, tx: Transaction, base: str, asked: NDArray[np.int64]) -> ChunkOwnerTable:
        """Read all of a base; what was asked for and is not there then will not be waited for again."""
        import numpy as np  # noqa: PLC0415

        rows = np.array(read_chunks_of_base(tx, base), dtype=np.int64).reshape(-1, 2)
        chunks = np.append(rows[:, 0], -1)
        known = ChunkOwnerTable(chunks, rows[:, 1].copy(), int(max(chunks.max(), asked.max(initial=0))))
        with self._mutex:
            self._bases.pop(base, None)
            while self._bases and sum(len(one.chunks) for one in self._bases.values()) > MAX_CACHED_CHUNKS:
                del self._bases[next(iter(self._bases))]
            self._bases[base] = known
        return known


def confirm_chunks(
    tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int], *, owners: ChunkOwnerCache | None = None
) -> dict[int, ConfirmedChunk]:
    """Return those of the proposed chunks that may be shown, and nothing of what they say.

    It is quicker with somebody who remembers the owners.
    """
    owned = owners.find_owners(tx, base, chunks) if owners else read_chunk_owners(tx, chunks)
    rows = tx.run(sql.SELECT_CONFIRMED_CHUNKS, owned, base=base, kind=kind, recipe=recipe)
    return {id_: ConfirmedChunk(int(owner), built, build) for id_, owner, built, build in rows}


def read_served_chunks(
    tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int]
) -> dict[int, ServedChunk]:
    """Return those of the proposed chunks that may be shown, as they are shown."""
    rows = tx.run(sql.SERVED_PASSAGES, [[chunk] for chunk in chunks], base=base, kind=kind, recipe=recipe)
    found = {}
    for id_, owner, built, ordinal, start, stop, headings, text, name, title in rows:
        found[id_] = ServedChunk(
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
