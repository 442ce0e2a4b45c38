"""Operations on the content of a base: search, answers, the knowledge graph and study cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.errors import BadRequest, UnknownEntity
from holdfast.paging import Page
from holdfast.search import OUTCOME_MESSAGES, Answer, Mode
from holdfast.service.cursors import parse_cursor
from holdfast.service.messages import make_job_reply, require_accepted
from holdfast.service.validation import ValidatedOperations, parse_choice

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from typing import Any

    from holdfast.bases import CardSetStatus
    from holdfast.catalog import ServedPassage
    from holdfast.documents import Card
    from holdfast.indexes.graph import Entity, EntityDetails, GraphView
    from holdfast.search import Hits
    from holdfast.service.authorization import Authorization
    from holdfast.service.messages import Reply

__all__ = ["OUTCOME_MESSAGES", "LocalCards", "LocalSearch"]

MAX_QUERY_LENGTH = 10_000
MAX_HITS = 100
MAX_NODES, MAX_EDGES, MAX_DEPTH = 1000, 5000, 3
MAX_EVIDENCE = 500


class LocalSearch(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
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
        """Return the best passages. `documents`, `below` and `metadata` limit the search to some documents.

        If a channel fails, for example because its provider is down, the hits come from the other channels, and
        `notices` of the result names it. If every channel fails, this raises an error.

        Example:
            for hit in library.asking.search("handbook", "parental leave", limit=5):
                print(hit.name, hit.text)
        """
        _check_query_length(query)
        if not 1 <= limit <= MAX_HITS:
            raise BadRequest("hits_out_of_range", limit=limit, most=MAX_HITS)
        known = self._library.searcher.channels
        unknown = sorted(set(channels or ()) - set(known))
        if unknown:
            raise BadRequest("unknown_channel", channel=unknown[0], known=", ".join(known))
        target = self._authorization.find_base(base)
        within = self._library.items.select_documents(target, below=below, metadata=metadata)
        if documents is not None:
            within = sorted(set(documents) if within is None else set(documents).intersection(within))
        return self._library.searcher.search(target, query, limit, documents=within, channels=channels)

    def ask(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Answer:
        """Answer a question with citations. Without a language model, the answer only lists the best passages."""
        _check_query_length(question)
        chosen = parse_choice(Mode, "mode", mode)
        return self._library.answerer.ask(self._authorization.find_base(base), question, chosen)

    def stream(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Generator[str | Answer, None, None]:
        """Yield the words of an answer as they arrive, then the answer. Closing the generator stops the paid call."""
        _check_query_length(question)
        chosen = parse_choice(Mode, "mode", mode)
        return self._library.answerer.stream(self._authorization.find_base(base), question, chosen)

    def entities(self, base: str, *, text: str = "", limit: int = 50) -> list[Entity]:
        """Return the entities with the most documents; `text` is the beginning of their names."""
        return self._library.graph_queries.list_entities(self._authorization.find_base(base), min(limit, 1000), text)

    def entity(self, base: str, key: str, *, limit: int = 50) -> EntityDetails:
        """Return an entity with its mentions, relations and neighbours."""
        target = self._authorization.find_base(base)
        entity = self._library.graph_queries.describe_entity(target, key, neighbours=limit)
        if entity is None:
            raise UnknownEntity(base, key)
        return entity

    def graph(self, base: str, *, around: str | None = None, depth: int = 1, limit: int = 300) -> GraphView:
        """Return the entities with the most documents and their relations, or the entities around one of them."""
        if not (1 <= limit <= MAX_NODES and 1 <= depth <= MAX_DEPTH):
            raise BadRequest("graph_out_of_range", limit=limit, depth=depth, most=MAX_NODES, deepest=MAX_DEPTH)
        target, views = self._authorization.find_base(base), self._library.graph_views
        if around is None:
            return views.draw_overview(target, nodes=limit, edges=MAX_EDGES)
        view = views.draw_around(target, around, depth=depth, nodes=limit, edges=MAX_EDGES)
        if view is None:
            raise UnknownEntity(base, around)
        return view

    def evidence(self, base: str, source: str, target: str, *, limit: int = 50) -> list[ServedPassage]:
        """Return the passages that mention two entities. Passages that state a relation between them come first."""
        return self._library.graph_views.list_evidence(
            self._authorization.find_base(base), source, target, min(max(limit, 1), MAX_EVIDENCE)
        )


class LocalCards(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._cards = authorization.library.cards

    def generate(self, base: str) -> Reply:
        """Generate a new set of cards. The old set stays visible until the new one is complete."""
        target = self._authorization.find_base(base, Scope.WRITE)
        return require_accepted(make_job_reply(self._cards.generate(target, requester=self._authorization.requester)))

    def cancel(self, base: str) -> Reply:
        """Stop generating cards. The current set stays."""
        target = self._authorization.find_base(base, Scope.WRITE)
        return require_accepted(make_job_reply(self._cards.cancel(target, requester=self._authorization.requester)))

    def status(self, base: str) -> CardSetStatus:
        """Return the status of the current set of cards, and the progress of the next set."""
        return self._cards.status(self._authorization.find_base(base))

    def list(self, base: str, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        """Return study cards, each with the passage it comes from."""
        items = self._cards.page(self._authorization.find_base(base), after=parse_cursor(cursor) or 0, limit=limit)
        return Page(items=items, next_cursor=str(items[-1].place) if len(items) == limit else None)

    def export(self, base: str, form: str) -> str:
        """Return all cards as `csv`, `json` or `anki`."""
        return self._cards.export(self._authorization.find_base(base), form)


def _check_query_length(query: str) -> None:
    if len(query) > MAX_QUERY_LENGTH:
        raise BadRequest("question_too_long", longest=MAX_QUERY_LENGTH)
