"""The check that every hit must pass, regardless of the index or cache that proposed it.

An index proposes chunks. A proposed chunk may be shown if, in one snapshot, its document is live and belongs to the
requested base, its slot serves the recipe that proposed it, and it is in the served list and not among the missing.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import visibility_statements as sql
from holdfast.catalog.chunk_lists import read_chunk_owners, read_chunks_of_base
from holdfast.catalog.repository import Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from holdfast.db import Transaction

SELECT_SERVED_CHUNKS = sql.SELECT_SERVED_CHUNKS  # selects what may be shown; other packages add conditions
RELOAD_THRESHOLD = 20  # reload a base if one query proposes more new chunks than this
MAX_CACHED_CHUNKS = 2_000_000  # of all other bases together; above it, the oldest base is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPassage:
    """A passage of a document, as served."""

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
    title: str | None  # of the document
    ordinal: int  # of the chunk in its document


def to_served_passage(passage: ServedPassage) -> ServedPassage:
    """Return the passage without the fields of its subclass."""
    return ServedPassage(**{field.name: getattr(passage, field.name) for field in fields(ServedPassage)})


class ConfirmedChunk(NamedTuple):
    """The document of a chunk, and the generation and list that serve it."""

    document: int
    generation: int
    build: int  # the served list; slots of different generations may serve the same one


class ChunkOwnerTable(NamedTuple):
    chunks: NDArray[np.int64]  # with -1 at the end, for lookups past the last chunk
    owners: NDArray[np.int64]
    last: int  # chunks with a higher id are newer than this table


class ChunkOwnerCache:
    """Caches the owner of each chunk, so that the check need not read the chunks. It uses 16 bytes per chunk.

    The owner of a chunk never changes, and ids are never used twice. Whether an owner serves the chunk is always read
    from the database.
    """

    def __init__(self) -> None:
        self._bases: dict[str, ChunkOwnerTable] = {}
        self._mutex = threading.Lock()

    @property
    def bytes(self) -> int:
        """The memory of this cache."""
        return sum(table.chunks.nbytes + table.owners.nbytes for table in list(self._bases.values()))

    def clear(self) -> None:
        self._bases.clear()

    def find_owners(self, tx: Transaction, base: str, chunks: Sequence[int]) -> list[tuple[int, int]]:
        """Return chunks with their owners; chunks that are gone may be left out."""
        import numpy as np  # noqa: PLC0415 - a client of a server loads this module without having numpy

        wanted = np.fromiter(sorted(chunks), dtype=np.int64)  # sorted for the lookup
        known = self._bases.get(base)
        if known is None or np.count_nonzero(wanted > known.last) > RELOAD_THRESHOLD:
            known = self._read(tx, base, wanted)
        places = np.searchsorted(known.chunks[:-1], wanted)
        there = known.chunks[places] == wanted
        owned = list(zip(wanted[there].tolist(), known.owners[places[there]].tolist(), strict=True))
        if len(owned) < len(wanted):
            owned += read_chunk_owners(tx, wanted[~there].tolist())
        return owned

    def _read(self, tx: Transaction, base: str, wanted: NDArray[np.int64]) -> ChunkOwnerTable:
        """Read all chunks of a base. Requested chunks that do not exist do not cause another reload."""
        import numpy as np  # noqa: PLC0415

        rows = np.array(read_chunks_of_base(tx, base), dtype=np.int64).reshape(-1, 2)
        chunks = np.append(rows[:, 0], -1)
        known = ChunkOwnerTable(chunks, rows[:, 1].copy(), int(max(chunks.max(), wanted.max(initial=0))))
        with self._mutex:
            self._bases.pop(base, None)
            while self._bases and sum(len(table.chunks) for table in self._bases.values()) > MAX_CACHED_CHUNKS:
                del self._bases[next(iter(self._bases))]
            self._bases[base] = known
        return known


def confirm_chunks(
    tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int], *, owners: ChunkOwnerCache | None = None
) -> dict[int, ConfirmedChunk]:
    """Return the proposed chunks that may be shown, without their texts; `owners` makes it faster."""
    owned = owners.find_owners(tx, base, chunks) if owners else read_chunk_owners(tx, chunks)
    rows = tx.run(sql.SELECT_CONFIRMED_CHUNKS, owned, base=base, kind=kind, recipe=recipe)
    return {id_: ConfirmedChunk(int(owner), built, build) for id_, owner, built, build in rows}


def read_served_chunks(
    tx: Transaction, base: str, kind: str, recipe: int, chunks: Sequence[int]
) -> dict[int, ServedChunk]:
    """Return the proposed chunks that may be shown, with their texts."""
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
    """Return the recipes that serve documents of an index, newest first; each needs a query of its own."""
    return [recipe for (recipe,) in tx.run(sql.SERVED_RECIPES, base=base, kind=kind)]


def served_recipes_of_base(tx: Transaction, base: str) -> dict[str, list[Recipe]]:
    """Return the same for all indexes of a base, by kind."""
    found: dict[str, list[Recipe]] = {}
    for kind, id_, spec in tx.run(sql.SERVED_RECIPES_OF_BASE, base=base):
        found.setdefault(kind, []).append(Recipe(id=id_, spec=spec))
    return found
