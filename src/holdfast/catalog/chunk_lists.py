"""A build is a list of chunks, written by the worker that holds the slot `content`, and named by its fence.

A chunk is a text under its headings in one document. A build that finds a chunk of an earlier one lists it again, so
rows that indexes made for it stay where they are, and an edit costs only what it changed.
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
    from holdfast.engine import OwnerId

    NumberedChunk = tuple[int, str, "ChunkDraft"]

CHUNKS_PER_TRANSACTION = 200  # chunks written in one transaction


class ChunkDraft(NamedTuple):
    """A chunk as it is written: where it stands in the text, under which headings, and what it says."""

    start: int
    body: int
    stop: int
    headings: tuple[str, ...]
    text: str


class ChunkText(NamedTuple):
    """A chunk as an index sees it."""

    chunk: int
    headings: tuple[str, ...]
    text: str
    opening: bool  # the document begins with it

    @property
    def whole(self) -> str:
        """The text with the headings it stands under: what is understood best without its surroundings."""
        return "\n".join((*self.headings, self.text)) if self.headings else self.text


class ListedChunk(NamedTuple):
    """A chunk in its place in a build."""

    chunk: int
    ordinal: int
    start: int
    body: int  # what precedes it repeats the chunk before
    stop: int
    headings: tuple[str, ...]
    text: str


class TextFacts(NamedTuple):
    """What is known of the whole text of a build."""

    title: str | None
    pages: Sequence[int]
    metadata: Mapping[str, str]
    warnings: Sequence[str]
    length: int


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Some chunks of a build, each with its ordinal and digest."""

    owner: OwnerId
    build: int
    facts: TextFacts | None  # with the first portion
    chunks: Sequence[NumberedChunk]

    def __len__(self) -> int:
        """Return how many rows there are to write: each chunk, and its place in the list."""
        return 2 * len(self.chunks)


class ChunkLists:
    """Writes and reads lists of chunks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, tx: Transaction, portions: Sequence[ChunkBatch]) -> None:
        """Write portions of builds, within a transaction that proved that their workers hold the slots.

        The first portion of a build begins it. A chunk that is known is listed again.
        """
        self._begin(tx, [portion for portion in portions if portion.facts is not None])
        listed = [(portion, *one) for portion in portions for one in portion.chunks]
        found = tx.run(sql.SELECT_KNOWN_CHUNKS, [[portion.owner, digest] for portion, _, digest, _ in listed])
        known = {(owner, digest): chunk for owner, digest, chunk in found}
        headings = {one: to_json(one) for one in {part.headings for _, _, _, part in listed}}  # many share theirs
        made = tx.run(
            sql.CREATE_CHUNKS,
            [
                [portion.owner, digest, headings[part.headings], part.text, int(ordinal == 0)]
                for portion, ordinal, digest, part in listed
                if (portion.owner, digest) not in known
            ],
        )
        known |= {(owner, digest): chunk for owner, digest, chunk in made}
        tx.run(
            sql.INSERT_LIST_ENTRIES,
            [
                [
                    portion.owner, known[portion.owner, digest], portion.build, ordinal,
                    part.start, part.body, part.stop,
                ]
                for portion, ordinal, digest, part in listed
            ],
        )  # fmt: skip

    def _begin(self, tx: Transaction, portions: Sequence[ChunkBatch]) -> None:
        """Write down new builds."""
        mark_for_gc(tx, [portion.owner for portion in portions])
        tx.run(
            sql.INSERT_BUILDS,
            [
                [
                    portion.owner, portion.build, facts.title, to_json(facts.pages),
                    to_json({"metadata": dict(facts.metadata), "warnings": facts.warnings}), facts.length,
                ]
                for portion in portions
                if (facts := portion.facts) is not None
            ],
        )  # fmt: skip

    def read_chunk_ids(self, sources: Sequence[tuple[OwnerId, int]]) -> dict[OwnerId, list[int]]:
        """Read the chunks of builds of different owners, each in order."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_LISTS, sources)
        found: dict[OwnerId, list[tuple[int, int]]] = {owner: [] for owner, _ in sources}
        for owner, chunk, ordinal in rows:
            found[owner].append((ordinal, chunk))
        return {owner: [chunk for _, chunk in sorted(chunks)] for owner, chunks in found.items()}

    def read_texts(self, chunks: Sequence[int]) -> list[ChunkText]:
        """Read what chunks say, in the order asked for."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_CHUNKS, [[chunk] for chunk in chunks])
        headings = {one: tuple(json.loads(one)) for one in {row[1] for row in rows}}  # many share theirs
        found = {id_: ChunkText(id_, headings[above], text, bool(opening)) for id_, above, text, opening in rows}
        return [found[chunk] for chunk in chunks if chunk in found]

    def read_listed_chunks(self, owner: OwnerId, build: int, *, first: int = 0, limit: int = 100) -> list[ListedChunk]:
        """Read a build from a place on."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_LISTED_CHUNKS, owner_id=owner, build=build, first=first, limit=limit)
        return [
            ListedChunk(id_, ordinal, start, body, stop, tuple(json.loads(headings)), text)
            for id_, ordinal, start, body, stop, headings, text in rows
        ]


def number_chunks(parts: Iterable[ChunkDraft]) -> Iterator[list[NumberedChunk]]:
    """Give each chunk its ordinal and a digest of what it is, in portions.

    Equal chunks of a document are told apart by counting them, so each keeps its row when another one goes. What opens
    a document is another chunk than the same text in its middle, because indexes may see more in it.
    """
    seen: dict[str, int] = {}
    portion: list[NumberedChunk] = []
    for ordinal, part in enumerate(parts):
        said = "\0".join((*part.headings, part.text))
        occurrence = seen[said] = seen.get(said, 0) + 1
        digest = blake2b(
            f"{occurrence}\0{ordinal == 0}\0{said}".encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        portion.append((ordinal, digest, part))
        if len(portion) == CHUNKS_PER_TRANSACTION:
            yield portion
            portion = []
    if portion:
        yield portion


def to_json(value: Any) -> str:
    """Return a value as it is kept: JSON as short as it can be read by people."""
    return _JSON.encode(value)


_JSON = json.JSONEncoder(ensure_ascii=False)


def mark_for_gc(tx: Transaction, owners: Iterable[int]) -> None:
    """Let the garbage collector check the builds of owners again."""
    tx.run(sql.UNSETTLE_BUILDS, [[owner] for owner in owners])


def read_chunk_owners(tx: Transaction, chunks: Iterable[int]) -> list[tuple[int, int]]:
    """Read which owner each chunk belongs to; a chunk that is gone is left out."""
    return [(chunk, owner) for chunk, owner in tx.run(sql.READ_CHUNK_OWNERS, [[chunk] for chunk in chunks])]


def read_chunks_of_base(tx: Transaction, base: str) -> list[tuple[Any, ...]]:
    """Read all chunks of a base, each with its owner."""
    return tx.run(sql.READ_CHUNKS_OF_BASE, base=base)
