"""What Holdfast asks of an index, in its own database or in any store outside.

Rows belong to a chunk and a recipe and are written if absent: a late worker writes the same row or none. An index
need not know which of its rows are served; whoever searches checks each hit (`catalog.visibility`). So it may answer
from caches, and rows that nobody needs any more only cost room until they are swept.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from holdfast.catalog import NO_CHAT, OFFLINE
from holdfast.engine import Problem
from holdfast.errors import StateConflict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.db import Database, Transaction
    from holdfast.engine.task import Task
    from holdfast.errors import WorkError
    from holdfast.llm import MeteredProvider, PaidAnswerCache


CONTENT = "content"  # the slot that the slots of all indexes need
CHUNK_LIST_VERSION = 2  # of how a text is divided and which headings a chunk stands under
WORD_CACHE_MEGABYTES = 60


def chunk_list_spec(base: Base) -> Mapping[str, Any]:
    """Return all that the list of a document's chunks depends on beside its bytes."""
    return {"size": base.settings.chunk_size, "overlap": base.settings.chunk_overlap, "version": CHUNK_LIST_VERSION}


class NotEnabled(StateConflict):
    """This index cannot run with the providers of the base; it counts neither as failed nor as degraded."""

    def __init__(self, message: str, subcode: str = "") -> None:
        super().__init__("not_enabled", message)
        self.subcode = subcode


def describe_not_enabled(not_enabled: Mapping[str, NotEnabled]) -> dict[str, Problem]:
    """Return why a base cannot have some indexes, by their kinds."""
    return {kind: Problem(code=one.subcode or one.reason, message=str(one)) for kind, one in not_enabled.items()}


class Found(NamedTuple):
    """A chunk that an index proposes, and how well it fits; scores of one query compare with each other only."""

    chunk: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What an index is made with."""

    database: Database
    memos: PaidAnswerCache
    embedder: MeteredProvider
    speaker: MeteredProvider  # the language model
    here: MeteredProvider  # this machine: it embeds for nothing, and has no language model
    words_memory: int = WORD_CACHE_MEGABYTES  # megabytes that are kept of words where that is quicker than the database

    def embedder_of(self, base: Base) -> MeteredProvider:
        """Return who embeds what is indexed in a base from now on."""
        return self.here if base.settings.embedding == OFFLINE else self.embedder

    def speaker_of(self, base: Base) -> MeteredProvider:
        """Return the language model that a base may ask; one that is nobody, where it may ask none."""
        return self.here if base.settings.chat == NO_CHAT else self.speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One document on its way into an index."""

    task: Task
    base: Base
    recipe: Recipe
    database: Database
    pieces: Sequence[ChunkText] = field(default=())  # the chunks that have no row yet

    @contextmanager
    def guarded(self) -> Iterator[Transaction]:
        """Open a transaction for rows in our own database; it refuses when the work is no longer ours."""
        with self.task.guarded() as connection:
            yield self.database.wrap_connection(connection)


@runtime_checkable
class Together(Protocol):
    """An index in our own database that can leave the rows of a small work to the transaction that publishes it.

    They are then written together with those of other documents.
    """

    def ready(self, work: Work) -> Mapping[int, Any] | None:
        """Return the rows of all pieces by chunk, if they can be had at once and are few; else `fill` is called."""
        ...

    def keep(self, tx: Transaction, recipe: int, rows: Mapping[int, Any]) -> None:
        """Write rows whose chunk has none yet."""
        ...


@runtime_checkable
class Rescores(Protocol):
    """An index that can also score chunks that only other channels found, such as one by similarity."""

    def scores(self, recipe: Recipe, query: str, chunks: Sequence[int]) -> tuple[Mapping[int, float], float]:
        """Return the scores of these chunks, and the score that means nothing, such as the mean over the base."""
        ...


class Index(Protocol):
    """Keeps rows by recipe and chunk, and finds them.

    Each index is a channel of the search: a package that registers one under the entry point `holdfast.indexes` needs
    to do nothing else to be built, searched, listed and offered in API, CLI and page.
    """

    kind: str

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return all that a row depends on beside its chunk, or raise `NotEnabled` with the reason."""
        ...

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return those of the chunks that have no row yet."""
        ...

    def prepare(self, works: Sequence[Work]) -> None:
        """See the works of many documents before they are filled one by one; what is best done together is done here.

        It may fail: whatever is not ready then is done, or fails, in `fill`.
        """
        ...

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Make and keep the rows of the work's pieces; return the chunks that can never have one, and why.

        Rows in a store outside the transaction are kept under chunk and recipe as well, so that writing them twice
        or late does no harm.
        """
        ...

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks; some or all may be gone already."""
        ...

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Propose chunks for a query, best first; `within` names the only ones that count."""
        ...

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        """Name the chunks that have a row, in ascending order, from behind `after` on."""
        ...

    def forget(self, recipe: Recipe) -> None:
        """Remove what is kept for a recipe beside its rows, which are gone; nobody will use it again."""
        ...

    def tend(self, recipe: Recipe) -> None:
        """Do what keeps queries quick; called now and then, by any worker."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...
