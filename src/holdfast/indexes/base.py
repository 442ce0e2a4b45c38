"""The contract of an index, for indexes in Holdfast's own database and in external stores.

A row belongs to a chunk and a recipe and is written only if absent, so a late worker writes the same row or none. An
index need not know which of its rows are served: the search checks every hit (`catalog.visibility`). Therefore an index
may answer from caches, and unneeded rows only cost space until garbage collection removes them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from holdfast.catalog import NO_CHAT, OFFLINE
from holdfast.engine import Problem
from holdfast.errors import StateConflict
from holdfast.indexes.search_memory import SearchMemory
from holdfast.messages import format_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.db import Database, Transaction
    from holdfast.engine.task import Task
    from holdfast.errors import WorkError
    from holdfast.llm import MeteredProvider, PaidAnswerCache


CONTENT = "content"  # the slot that all index slots depend on
CHUNK_LIST_VERSION = 2  # of chunk boundaries and heading paths


def chunk_list_spec(base: Base) -> Mapping[str, Any]:
    """Return all settings that the chunk list of a document depends on, beside its bytes."""
    return {"size": base.settings.chunk_size, "overlap": base.settings.chunk_overlap, "version": CHUNK_LIST_VERSION}


class NotEnabled(StateConflict):
    """The index cannot run with the providers of the base. It counts neither as failed nor as degraded.

    An index from another package uses its own code, with a message.

    Example:
        raise NotEnabled("plot_without_soil", "The index 'plot' needs soil. Set PLOT_SOIL.")
    """

    def __init__(self, subcode: str, message: str = "", /, **params: object) -> None:
        super().__init__("not_enabled", message or format_message(f"problem.{subcode}", params), **params)
        self.subcode = subcode
        self.own_message = message  # empty: the catalogue has the message


def describe_not_enabled(not_enabled: Mapping[str, NotEnabled]) -> dict[str, Problem]:
    """Return the reasons why a base cannot have some indexes, by kind."""
    return {
        kind: Problem(code=error.subcode, message=str(error), params=dict(error.params))
        for kind, error in not_enabled.items()
    }


class Found(NamedTuple):
    """A chunk that an index proposes, with its score. Scores are comparable only within one query."""

    chunk: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The dependencies that the constructor of an index receives."""

    database: Database
    memos: PaidAnswerCache
    embedder: MeteredProvider
    speaker: MeteredProvider  # the language model
    here: MeteredProvider  # this machine: embeds for free, has no language model
    search_memory: SearchMemory = field(default_factory=SearchMemory)

    def embedder_of(self, base: Base) -> MeteredProvider:
        """Return the provider that embeds new content of a base."""
        return self.here if base.settings.embedding == OFFLINE else self.embedder

    def speaker_of(self, base: Base) -> MeteredProvider:
        """Return the language model of a base; its `chat_model` is None if the base may use none."""
        return self.here if base.settings.chat == NO_CHAT else self.speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One document to be indexed."""

    task: Task
    base: Base
    recipe: Recipe
    database: Database
    pieces: Sequence[ChunkText] = field(default=())  # the chunks that have no row yet

    @contextmanager
    def guarded(self) -> Iterator[Transaction]:
        """Open a transaction for rows in our own database; it raises if this worker has lost its claim."""
        with self.task.guarded() as connection:
            yield self.database.wrap_connection(connection)


@runtime_checkable
class Together(Protocol):
    """An index in our own database that can defer the rows of a small document to the publishing transaction.

    The worker then writes the rows of many documents in one transaction.
    """

    def ready(self, work: Work) -> Mapping[int, Any] | None:
        """Return the rows of all pieces by chunk, if they are few and available now; else None, and `fill` runs."""
        ...

    def keep(self, tx: Transaction, recipe: int, rows: Mapping[int, Any]) -> None:
        """Write the rows of chunks that have none yet."""
        ...


@runtime_checkable
class Rescores(Protocol):
    """An index that can also score chunks which only other channels found, for example by similarity."""

    def scores(self, recipe: Recipe, query: str, chunks: Sequence[int]) -> tuple[Mapping[int, float], float]:
        """Return the scores of these chunks, and the neutral score, such as the mean over the base."""
        ...


@runtime_checkable
class Paid(Protocol):
    """An index whose rows may be made from paid answers."""

    def record_reuse(self, work: Work, chunks: Sequence[int]) -> None:
        """Record on the ledger what the answers about these chunks cost: their rows exist and are used again."""
        ...


@runtime_checkable
class Probed(Protocol):
    """An index that can test its provider. Repairing a failed base calls the test before anything is built again."""

    def probe(self, base: Base, recipe: Recipe) -> None:
        """Raise a `WorkError` if the provider cannot build this index."""
        ...


class Index(Protocol):
    """Stores rows by recipe and chunk, and searches them.

    Each index is a search channel. A package registers its class under the entry point `holdfast.indexes`. Holdfast
    then builds and searches the index, and offers it in API, CLI and page:

        [project.entry-points."holdfast.indexes"]
        backwards = "my_package:BackwardsIndex"
    """

    kind: str

    def spec(self, base: Base) -> Mapping[str, Any]:
        """Return all settings that a row depends on beside its chunk, or raise `NotEnabled` with the reason."""
        ...

    def absent(self, recipe: Recipe, chunks: Sequence[int]) -> list[int]:
        """Return the chunks that have no row yet."""
        ...

    def prepare(self, works: Sequence[Work]) -> None:
        """Prepare the work of many documents together, for example embed their texts in shared calls.

        Holdfast calls this before `fill` runs for each document. An error here fails no document: `fill` then does
        everything itself.
        """
        ...

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the rows of the work's pieces; return the chunks that can never have one, with the error of each.

        An external store keeps rows under chunk and recipe as well, so that a repeated or late write does no harm.
        """
        ...

    def drop(self, recipe: Recipe, chunks: Sequence[int]) -> None:
        """Remove the rows of these chunks; some or all may be gone already."""
        ...

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the best chunks for a query, best first; `within` limits the search to these chunks."""
        ...

    def scan(self, recipe: Recipe, after: int, limit: int) -> list[int]:
        """Return the chunks with a row, in ascending order, after the chunk `after`."""
        ...

    def forget(self, recipe: Recipe) -> None:
        """Remove everything else that belongs to a recipe. Its rows are gone, and nothing uses it again."""
        ...

    def tend(self, recipe: Recipe) -> None:
        """Do maintenance that keeps queries fast; any worker calls this from time to time."""
        ...

    def close(self) -> None:
        """Close open resources."""
        ...
