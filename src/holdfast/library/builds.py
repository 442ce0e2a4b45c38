"""A build is a list of chunks, written by the worker that holds the slot `content`, and named by its fence.

A chunk is a text under its headings in one document. A build that finds a chunk of an earlier one lists it again, so
rows that indexes made for it stay where they are, and an edit costs only what it changed.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from holdfast.library import statements as sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.core.slot import OwnerId
    from holdfast.stores.database import Database, Transaction

PORTION = 200  # chunks written in one transaction


class Part(NamedTuple):
    """A chunk as it is written: where it stands in the text, under which headings, and what it says."""

    start: int
    body: int
    stop: int
    headings: tuple[str, ...]
    text: str


class Piece(NamedTuple):
    """A chunk as an index sees it."""

    chunk: int
    headings: tuple[str, ...]
    text: str
    opening: bool  # the document begins with it

    @property
    def whole(self) -> str:
        """The text with the headings it stands under: what is understood best without its surroundings."""
        return "\n".join((*self.headings, self.text)) if self.headings else self.text


class Passage(NamedTuple):
    """A chunk in its place in a build."""

    chunk: int
    ordinal: int
    start: int
    body: int  # what precedes it repeats the chunk before
    stop: int
    headings: tuple[str, ...]
    text: str


class Facts(NamedTuple):
    """What is known of the whole text of a build."""

    title: str | None
    pages: Sequence[int]
    metadata: Mapping[str, str]
    warnings: Sequence[str]
    length: int


class Builds:
    """Writes and reads lists of chunks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, tx: Transaction, owner: OwnerId, build: int, facts: Facts) -> None:
        """Write down a new build, within a transaction that proved that its worker holds the slot."""
        tx.run(sql.UNSETTLE_BUILDS, owner_id=owner)
        told = json.dumps({"metadata": dict(facts.metadata), "warnings": list(facts.warnings)}, ensure_ascii=False)
        pages = json.dumps(list(facts.pages))
        tx.run(sql.BEGIN_BUILD, [[owner, build, facts.title, pages, told, facts.length]])

    def extend(self, tx: Transaction, owner: OwnerId, build: int, parts: Sequence[tuple[int, str, Part]]) -> None:
        """List more chunks, each with its ordinal and digest; one that is known is listed again."""
        known = dict(tx.run(sql.KNOWN_CHUNKS, [[owner, digest] for _, digest, _ in parts]))
        known |= tx.run(
            sql.CREATE_CHUNKS,
            [
                [owner, digest, json.dumps(part.headings, ensure_ascii=False), part.text, int(ordinal == 0)]
                for ordinal, digest, part in parts
                if digest not in known
            ],
        )
        tx.run(
            sql.LIST_CHUNKS,
            [
                [owner, known[digest], build, ordinal, part.start, part.body, part.stop]
                for ordinal, digest, part in parts
            ],
        )

    def listed(self, sources: Sequence[tuple[OwnerId, int]]) -> dict[OwnerId, list[int]]:
        """Read the chunks of builds of different owners, each in order."""
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_LISTS, sources)
        found: dict[OwnerId, list[tuple[int, int]]] = {owner: [] for owner, _ in sources}
        for owner, chunk, ordinal in rows:
            found[owner].append((ordinal, chunk))
        return {owner: [chunk for _, chunk in sorted(chunks)] for owner, chunks in found.items()}

    def pieces(self, chunks: Sequence[int]) -> list[Piece]:
        """Read what chunks say, in the order asked for."""
        with self._database.reading() as tx:
            found = {
                id_: Piece(id_, tuple(json.loads(headings)), text, bool(opening))
                for id_, headings, text, opening in tx.run(sql.READ_CHUNKS, [[chunk] for chunk in chunks])
            }
        return [found[chunk] for chunk in chunks if chunk in found]

    def passages(self, owner: OwnerId, build: int, *, first: int = 0, limit: int = 100) -> list[Passage]:
        """Read a build from a place on."""
        with self._database.reading() as tx:
            rows = tx.run(sql.PASSAGES, owner_id=owner, build=build, first=first, limit=limit)
        return [
            Passage(id_, ordinal, start, body, stop, tuple(json.loads(headings)), text)
            for id_, ordinal, start, body, stop, headings, text in rows
        ]


def numbered(parts: Iterable[Part]) -> Iterator[list[tuple[int, str, Part]]]:
    """Give each chunk its ordinal and a digest of what it is, in portions.

    Equal chunks of a document are told apart by counting them, so each keeps its row when another one goes. What opens
    a document is another chunk than the same text in its middle, because indexes may see more in it.
    """
    seen: dict[str, int] = {}
    portion: list[tuple[int, str, Part]] = []
    for ordinal, part in enumerate(parts):
        said = "\0".join((*part.headings, part.text))
        occurrence = seen[said] = seen.get(said, 0) + 1
        digest = blake2b(
            f"{occurrence}\0{ordinal == 0}\0{said}".encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        portion.append((ordinal, digest, part))
        if len(portion) == PORTION:
            yield portion
            portion = []
    if portion:
        yield portion
