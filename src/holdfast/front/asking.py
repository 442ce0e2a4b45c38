"""What a base is asked: searches, answers, its graph, its cards."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.access.callers import Scope
from holdfast.errors import BadRequest, UnknownEntity
from holdfast.front.checking import Checked, one_of
from holdfast.front.cursors import place
from holdfast.front.sentences import accepted, answered, problem, progress
from holdfast.front.shown import card
from holdfast.front.values import (
    Answer,
    AnswerOutcome,
    Card,
    Cards,
    Citation,
    GraphView,
    Hit,
    Hits,
    Mode,
    Notice,
    Page,
    Place,
    Portrait,
    Scored,
)
from holdfast.model.citations import Citation as Cited
from holdfast.search.searching import CHANNELS

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from typing import Any

    from holdfast.errors import WorkError
    from holdfast.front.reception import Reception
    from holdfast.front.values import Entity, Reply
    from holdfast.library.serving import Served
    from holdfast.search.asking import Reply as Answered
    from holdfast.search.searching import Hit as Found

MEANING = {
    AnswerOutcome.ANSWERED: "The language model answered from the passages that are cited.",
    AnswerOutcome.NOTHING_FOUND: "Nothing relevant was found in this base.",
    AnswerOutcome.NO_LANGUAGE_MODEL: "No language model is set, so these are the best passages, not an answer.",
}
LONGEST_QUERY = 10_000
MOST_HITS = 100
MOST_NODES, MOST_EDGES, DEEPEST = 1000, 5000, 3
MOST_PLACES = 500


class LocalAsking(Checked):
    """Searches and answers on a database."""

    def __init__(self, reception: Reception) -> None:
        self._at = reception
        self._library = reception.library

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
        unknown = sorted(set(channels or ()) - set(CHANNELS))
        if unknown:
            raise BadRequest(f"There is no channel {unknown[0]!r}; there are {', '.join(CHANNELS)}.")
        shelf = self._at.open(base)
        within = self._library.items.documents(shelf, below=below, metadata=metadata)
        if documents is not None:
            within = sorted(set(documents) if within is None else set(documents).intersection(within))
        found = self._library.searching.search(shelf, query, limit, documents=within, channels=channels)
        return Hits((_hit(rank, hit) for rank, hit in enumerate(found, start=1)), _notices(found.failed))

    def ask(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Answer:
        """Answer a question with citations; without a language model, the best passages."""
        _check(question)
        chosen = one_of(Mode, "mode", mode)
        said, _ = self._library.asking.ask(self._at.open(base), question, chosen)
        return _answer(said, chosen)

    def stream(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Generator[str | Answer, None, None]:
        """Answer as the words come; the whole answer last. Closing this ends the request to the language model."""
        _check(question)
        chosen = one_of(Mode, "mode", mode)
        return _told(self._library.asking.stream(self._at.open(base), question, chosen), chosen)

    # ------------------------------------------------------------ the graph

    def entities(self, base: str, *, text: str = "", limit: int = 50) -> list[Entity]:
        """Return the entities that most documents speak of, whose names begin with these words."""
        return self._library.portraits.entities(self._at.open(base), min(limit, 1000), text)

    def entity(self, base: str, key: str, *, limit: int = 50) -> Portrait:
        """Return all that is known of an entity, and what stands beside it."""
        shelf = self._at.open(base)
        found = self._library.portraits.entity(shelf, key)
        if found is None:
            raise UnknownEntity(base, key)
        return Portrait(
            entity=found.entity,
            description=found.description,
            merged=found.merged,
            relations=list(found.relations),
            mentions=list(found.mentions),
            neighbours=self._library.portraits.neighbours(shelf, key, limit),
        )

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
        return GraphView(nodes=list(drawn.nodes), edges=list(drawn.edges), cut=drawn.cut)

    def evidence(self, base: str, source: str, target: str, *, limit: int = 50) -> list[Place]:
        """Return the passages that speak of two entities, those first in which a relation between them was found."""
        found = self._library.drawings.evidence(self._at.open(base), source, target, min(max(limit, 1), MOST_PLACES))
        return [Place(**_place(one)) for one in found]


class LocalCards(Checked):
    """The study cards of bases."""

    def __init__(self, reception: Reception) -> None:
        self._at = reception
        self._cards = reception.library.cards

    def generate(self, base: str) -> Reply:
        """Ask for a new set; a conflict names the one that is being made."""
        return accepted(answered(self._cards.generate(self._at.open(base, Scope.WRITE), requester=self._at.requester)))

    def cancel(self, base: str) -> Reply:
        """Stop making a set; the one that is served stays."""
        return accepted(answered(self._cards.cancel(self._at.open(base, Scope.WRITE), requester=self._at.requester)))

    def status(self, base: str) -> Cards:
        """Tell what is served, and how far the next set is."""
        found = self._cards.status(self._at.open(base))
        return Cards(
            status=found.status,
            generation=found.generation,
            cards=found.cards,
            job=found.job,
            progress=progress(found.progress),
            error=problem(found.error),
        )

    def list(self, base: str, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        """Return some of the cards, each with its passage."""
        found = self._cards.page(self._at.open(base), after=place(cursor) or 0, limit=limit)
        items = [card(one.place, one.card.question, one.card.answer, one.source) for one in found]
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


def _place(one: Served) -> dict[str, Any]:
    passage = one.passage
    return {
        "document": one.document,
        "name": one.name,
        "chunk": passage.chunk,
        "generation": one.generation,
        "start": passage.start,
        "end": passage.stop,
        "headings": list(passage.headings),
        "text": passage.text,
    }


def _hit(rank: int, hit: Found) -> Hit:
    channels = {kind: Scored(score=one.score, rank=one.rank) for kind, one in hit.channels.items()}
    return Hit(**_place(hit.served), rank=rank, score=hit.score, title=hit.served.title, channels=channels)


def _told(parts: Generator[str | Cited | Answered, None, None], mode: Mode) -> Generator[str | Answer, None, None]:
    with closing(parts):
        for part in parts:
            yield part if isinstance(part, str) else part.marker if isinstance(part, Cited) else _answer(part, mode)


def _notices(failed: Mapping[str, WorkError]) -> list[Notice]:
    """Name the channels that could not be searched."""
    return [
        Notice(
            channel=channel,
            code=error.code,
            message=str(error),
            params={name: value for name, value in error.params.items() if name != "message"},
        )
        for channel, error in failed.items()
    ]


def _answer(said: Answered, mode: Mode) -> Answer:
    return Answer(
        outcome=said.answer.outcome,
        message=MEANING[said.answer.outcome],
        mode=mode,
        text=said.answer.text,
        citations=[_citation(said, one) for one in said.answer.citations],
        context=[Place(**_place(said.places[one.id])) for one in said.answer.context.sources if one.id in said.places],
        facts=[one.text for one in said.answer.context.facts],
        cut=said.answer.cut,
        notices=_notices(said.failed),
    )


def _citation(said: Answered, one: Cited) -> Citation:
    place = said.places[one.source]
    start, end = said.offsets(one)
    return Citation(
        number=one.number,
        document=place.document,
        name=place.name,
        chunk=place.passage.chunk,
        generation=place.generation,
        start=start,
        end=end,
        quote=one.quote,
    )
