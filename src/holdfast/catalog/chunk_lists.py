"""A build is a list of chunks. The worker that holds the slot `content` writes it; the fence of the slot names it.

A chunk is a text under its headings in one document. A new build lists the unchanged chunks of an earlier build again.
So their index rows stay valid, and an edit costs only what it changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog import chunk_statements as sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import OwnerId, SlotId

    NumberedChunk = tuple[int, str, "ChunkDraft"]

CHUNKS_PER_TRANSACTION = 200


class ChunkDraft(NamedTuple):
    """A chunk before it is stored: its offsets in the text, its headings and its text."""

    start: int
    body: int
    stop: int
    headings: tuple[str, ...]
    text: str


class ChunkText(NamedTuple):
    """A chunk as an index reads it."""

    chunk: int
    headings: tuple[str, ...]
    text: str
    opening: bool  # the first chunk of the document

    @property
    def whole(self) -> str:
        """The headings and the text: what a model needs to understand the chunk without its context."""
        return "\n".join((*self.headings, self.text)) if self.headings else self.text


class ListedChunk(NamedTuple):
    """A chunk and its position in a build."""

    chunk: int
    ordinal: int
    start: int
    body: int  # where its own text begins; the part before it overlaps with the previous chunk
    stop: int
    headings: tuple[str, ...]
    text: str


class TextFacts(NamedTuple):
    """Facts about the whole text of a build."""

    title: str | None
    pages: Sequence[int]
    metadata: Mapping[str, str]
    warnings: Sequence[str]
    length: int


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Some chunks of a build, each with its ordinal and digest; the first batch also has the facts."""

    owner: OwnerId
    build: int
    facts: TextFacts | None  # in the first batch of a build only
    chunks: Sequence[NumberedChunk]

    def __len__(self) -> int:
        """Return the number of rows to write: two for each chunk."""
        return 2 * len(self.chunks)


class ChunkLists:
    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, tx: Transaction, batches: Sequence[ChunkBatch]) -> None:
        """Write batches of builds, in a transaction that has already checked the fences of their slots.

        The first batch of a build also creates the build. Chunks that exist are listed again, not written again.
        """
        self._begin(tx, [batch for batch in batches if batch.facts is not None])
        listed = [(batch, *numbered) for batch in batches for numbered in batch.chunks]
        found = tx.run(sql.SELECT_KNOWN_CHUNKS, [[batch.owner, digest] for batch, _, digest, _ in listed])
        known = {(owner, digest): chunk for owner, digest, chunk in found}
        headings = {
            path: to_json(path) for path in {part.headings for _, _, _, part in listed}
        }  # many chunks share theirs
        made = tx.run(
            sql.CREATE_CHUNKS,
            [
                [batch.owner, digest, headings[part.headings], part.text, int(ordinal == 0)]
                for batch, ordinal, digest, part in listed
                if (batch.owner, digest) not in known
            ],
        )
        known |= {(owner, digest): chunk for owner, digest, chunk in made}
        tx.run(
            sql.INSERT_LIST_ENTRIES,
            [
                [
                    batch.owner, known[batch.owner, digest], batch.build, ordinal,
                    part.start, part.body, part.stop,
                ]
                for batch, ordinal, digest, part in listed
            ],
        )  # fmt: skip

    def _begin(self, tx: Transaction, batches: Sequence[ChunkBatch]) -> None:
        mark_for_gc(tx, [batch.owner for batch in batches])
        tx.run(
            sql.INSERT_BUILDS,
            [
                [
                    batch.owner, batch.build, facts.title, to_json(facts.pages),
                    to_json({"metadata": dict(facts.metadata), "warnings": facts.warnings}), facts.length,
                ]
                for batch in batches
                if (facts := batch.facts) is not None
            ],
        )  # fmt: skip

    def compare_batch(self, batch: ChunkBatch) -> tuple[int, int]:
        """Return how many chunks of a batch exist already, and how many of these are in the served list."""
        rows = [[batch.owner, digest] for _, digest, _ in batch.chunks]
        with self._database.reading() as tx:
            found = tx.run(sql.SELECT_KNOWN_AND_SERVED, rows)
        return len(found), sum(bool(served) for *_, served in found)

    def count_served(self, owner: OwnerId) -> int:
        """Return the length of the list that an owner serves."""
        with self._database.reading() as tx:
            count: int = tx.run(sql.COUNT_SERVED, owner_id=owner)[0][0]
        return count

    def count_replaced(self, slots: Sequence[tuple[SlotId, int, int]]) -> dict[SlotId, int]:
        """Count the chunks that each slot serves now, and will not serve with a new build and recipe.

        The slots are given as (slot, build, recipe). A chunk with another recipe counts as another one.
        """
        with self._database.reading() as tx:
            return dict(tx.run(sql.COUNT_REPLACED, slots))

    def read_chunk_ids(self, sources: Sequence[tuple[OwnerId, int]]) -> dict[OwnerId, list[int]]:
        """Read the chunk ids of one build each of several owners, in the order of the text."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_LISTS, sources)
        found: dict[OwnerId, list[tuple[int, int]]] = {owner: [] for owner, _ in sources}
        for owner, chunk, ordinal in rows:
            found[owner].append((ordinal, chunk))
        return {owner: [chunk for _, chunk in sorted(chunks)] for owner, chunks in found.items()}

    def read_texts(self, chunks: Sequence[int]) -> list[ChunkText]:
        """Read chunks in the order of their ids as given; chunks that are gone are left out."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_CHUNKS, [[chunk] for chunk in chunks])
        headings = {path: tuple(json.loads(path)) for path in {row[1] for row in rows}}  # mostly shared
        found = {id_: ChunkText(id_, headings[above], text, bool(opening)) for id_, above, text, opening in rows}
        return [found[chunk] for chunk in chunks if chunk in found]

    def read_listed_chunks(self, owner: OwnerId, build: int, *, first: int = 0, limit: int = 100) -> list[ListedChunk]:
        """Read up to `limit` chunks of a build, from the ordinal `first` on."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_LISTED_CHUNKS, owner_id=owner, build=build, first=first, limit=limit)
        return [
            ListedChunk(id_, ordinal, start, body, stop, tuple(json.loads(headings)), text)
            for id_, ordinal, start, body, stop, headings, text in rows
        ]


def number_chunks(parts: Iterable[ChunkDraft]) -> Iterator[list[NumberedChunk]]:
    """Give each chunk its ordinal and its digest, in batches.

    The digest contains the occurrence number of equal chunks, so each keeps its row when another one disappears. It
    also contains whether the chunk opens the document, because indexes may treat that chunk differently.
    """
    seen: dict[str, int] = {}
    batch: list[NumberedChunk] = []
    for ordinal, part in enumerate(parts):
        content = "\0".join((*part.headings, part.text))
        occurrence = seen[content] = seen.get(content, 0) + 1
        digest = blake2b(
            f"{occurrence}\0{ordinal == 0}\0{content}".encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        batch.append((ordinal, digest, part))
        if len(batch) == CHUNKS_PER_TRANSACTION:
            yield batch
            batch = []
    if batch:
        yield batch


def to_json(value: Any) -> str:
    return _JSON.encode(value)


_JSON = json.JSONEncoder(ensure_ascii=False)


def mark_for_gc(tx: Transaction, owners: Iterable[int]) -> None:
    """Mark the builds of owners for the garbage collector, which skips settled builds."""
    tx.run(sql.UNSETTLE_BUILDS, [[owner] for owner in owners])


def read_chunk_owners(tx: Transaction, chunks: Iterable[int]) -> list[tuple[int, int]]:
    """Return chunks with their owners; chunks that are gone are left out."""
    return [(chunk, owner) for chunk, owner in tx.run(sql.READ_CHUNK_OWNERS, [[chunk] for chunk in chunks])]


def read_chunks_of_base(tx: Transaction, base: str) -> list[tuple[Any, ...]]:
    """Return all live chunks of a base with their owners."""
    return tx.run(sql.READ_CHUNKS_OF_BASE, base=base)
