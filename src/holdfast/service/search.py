"""What a base is asked: searches, answers, its graph, its cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.errors import BadRequest, UnknownEntity
from holdfast.search.answers import MEANING
from holdfast.service.cursors import place
from holdfast.service.messages import accepted, answered
from holdfast.service.schemas import (
    Answer,
    Card,
    Cards,
    GraphView,
    Hits,
    Mode,
    Page,
    Place,
    Portrait,
)
from holdfast.service.validation import Checked, one_of

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from typing import Any

    from holdfast.service.authorization import Authorization
    from holdfast.service.schemas import Entity, Reply

__all__ = ["MEANING", "LocalAsking", "LocalCards"]

LONGEST_QUERY = 10_000
MOST_HITS = 100
MOST_NODES, MOST_EDGES, DEEPEST = 1000, 5000, 3
MOST_PLACES = 500


class LocalAsking(Checked):
    """Searches and answers on a database."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._library = authorization.library

    def search(
        self,
        base: str,
        query: str,
        *,
        limit: int = 10,
        channels: Collection[str] | None = None,
        documents: Collection[int] | None = None,
        below: Sequence[int] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Hits:
        """Return the best passages; `documents`, `below` and `metadata` narrow what counts.

        A channel that fails now, such as one whose provider is down, is left out and named in `notices` of the result.
        If every channel fails, this raises an error that says why.
        """
        _check(query)
        if not 1 <= limit <= MOST_HITS:
            raise BadRequest(f"A search returns 1 to {MOST_HITS} hits, not {limit}.")
        known = self._library.searching.channels
        unknown = sorted(set(channels or ()) - set(known))
        if unknown:
            raise BadRequest(f"There is no channel {unknown[0]!r}; there are {', '.join(known)}.")
        shelf = self._at.open(base)
        within = self._library.items.documents(shelf, below=below, metadata=metadata)
        if documents is not None:
            within = sorted(set(documents) if within is None else set(documents).intersection(within))
        return self._library.searching.search(shelf, query, limit, documents=within, channels=channels)

    def ask(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Answer:
        """Answer a question with citations; without a language model, the best passages."""
        _check(question)
        chosen = one_of(Mode, "mode", mode)
        answer, _ = self._library.asking.ask(self._at.open(base), question, chosen)
        return answer

    def stream(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Generator[str | Answer, None, None]:
        """Answer as the words come; the whole answer last. Closing this ends the request to the language model."""
        _check(question)
        chosen = one_of(Mode, "mode", mode)
        return self._library.asking.stream(self._at.open(base), question, chosen)

    # ------------------------------------------------------------ the graph

    def entities(self, base: str, *, text: str = "", limit: int = 50) -> list[Entity]:
        """Return the entities that most documents speak of, whose names begin with these words."""
        return self._library.portraits.entities(self._at.open(base), min(limit, 1000), text)

    def entity(self, base: str, key: str, *, limit: int = 50) -> Portrait:
        """Return all that is known of an entity, and what stands beside it."""
        shelf = self._at.open(base)
        found = self._library.portraits.entity(shelf, key, neighbours=limit)
        if found is None:
            raise UnknownEntity(base, key)
        return found

    def graph(self, base: str, *, around: str | None = None, depth: int = 1, limit: int = 300) -> GraphView:
        """Return the entities that most documents speak of with what joins them, or what stands around one of them."""
        if not (1 <= limit <= MOST_NODES and 1 <= depth <= DEEPEST):
            raise BadRequest(f"A graph is drawn with 1 to {MOST_NODES} entities and 1 to {DEEPEST} steps around one.")
        shelf, drawings = self._at.open(base), self._library.drawings
        if around is None:
            drawn = drawings.whole(shelf, nodes=limit, edges=MOST_EDGES)
        else:
            near = drawings.around(shelf, around, depth=depth, nodes=limit, edges=MOST_EDGES)
            if near is None:
                raise UnknownEntity(base, around)
            drawn = near
        return drawn

    def evidence(self, base: str, source: str, target: str, *, limit: int = 50) -> list[Place]:
        """Return the passages that speak of two entities, those first in which a relation between them was found."""
        return self._library.drawings.evidence(self._at.open(base), source, target, min(max(limit, 1), MOST_PLACES))


class LocalCards(Checked):
    """The study cards of bases."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._cards = authorization.library.cards

    def generate(self, base: str) -> Reply:
        """Ask for a new set; a conflict names the one that is being made."""
        return accepted(answered(self._cards.generate(self._at.open(base, Scope.WRITE), requester=self._at.requester)))

    def cancel(self, base: str) -> Reply:
        """Stop making a set; the one that is served stays."""
        return accepted(answered(self._cards.cancel(self._at.open(base, Scope.WRITE), requester=self._at.requester)))

    def status(self, base: str) -> Cards:
        """Tell what is served, and how far the next set is."""
        return self._cards.status(self._at.open(base))

    def list(self, base: str, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        """Return some of the cards, each with its passage."""
        items = self._cards.page(self._at.open(base), after=place(cursor) or 0, limit=limit)
        return Page(items=items, next_cursor=str(items[-1].place) if len(items) == limit else None)

    def export(self, base: str, form: str) -> str:
        """Write all cards as `csv`, `json` or `anki`."""
        return self._cards.export(self._at.open(base), form)


def _check(query: str) -> None:
    if len(query) > LONGEST_QUERY:
        raise BadRequest(
            f"A question has at most {LONGEST_QUERY} characters, not {len(query)}.",
            "question_too_long",
            longest=LONGEST_QUERY,
        )
