"""A question is answered from passages that are served, with citations that exist.

Five ways to gather what an answer may use: the passages that a search finds (`naive`), what is known of the entities in
the question (`local`), of their relations (`global`), of both (`hybrid`), and both beside the passages (`mix`). Whoever
asks is told which of it the answer was made from. Without a language model the best passages are the answer.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast.catalog import ServedPassage, to_served_passage
from holdfast.search.answer_generation import AnswerOutcome, Context, GeneratedAnswer, generate_answer, stream_answer
from holdfast.search.answer_generation import ContextFact as Line
from holdfast.search.citations import SourceCitation, SourcePassage
from holdfast.search.fusion import GRAPH
from holdfast.search.results import Notice  # noqa: TC001 - schemas are made from the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from holdfast.catalog import Base, ServedChunk
    from holdfast.indexes.graph import Fact, GraphQueries
    from holdfast.llm import MeteredProvider
    from holdfast.search.results import Hit, Hits
    from holdfast.search.search import Searcher

    Passage = ServedChunk | Hit

KIND = "answer"  # on the ledger
MAX_PASSAGES = 12  # of each way to gather


class Mode(StrEnum):
    """Ways to gather what an answer may use."""

    NAIVE = "naive"  # passages alone
    LOCAL = "local"  # from the entities in the question
    GLOBAL = "global"  # from the relations of those entities
    HYBRID = "hybrid"  # both
    MIX = "mix"  # both, and passages


OUTCOME_MESSAGES = {
    AnswerOutcome.ANSWERED: "The language model answered from the passages that are cited.",
    AnswerOutcome.NOTHING_FOUND: "Nothing relevant was found in this base.",
    AnswerOutcome.NO_LANGUAGE_MODEL: "No language model is set, so these are the best passages, not an answer.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What a marker in an answer stands for: `quote` is what stands in the document from `start` to `end`."""

    number: int
    document: int
    name: str
    chunk: int
    generation: int
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer with the passages it rests on, and the context it was made from."""

    outcome: AnswerOutcome
    message: str  # what the outcome means
    mode: Mode
    text: str
    citations: list[Citation]
    context: list[ServedPassage]
    facts: list[str]
    cut: bool = False
    notices: list[Notice] = field(default_factory=list)  # channels that could not be searched


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passages and facts on their way into a context, the best first."""

    passages: dict[int, Passage]
    facts: tuple[Fact, ...] = ()
    notices: Mapping[str, Notice] = field(default_factory=dict)  # by channel

    def __or__(self, other: Evidence) -> Evidence:
        """Let passages of both alternate, so that a budget cuts neither off."""
        mine, theirs = list(self.passages.items()), list(other.passages.items())
        merged: dict[int, Passage] = {}
        for place in range(max(len(mine), len(theirs))):
            for some in (mine, theirs):
                merged.update(some[place : place + 1])
        facts = (*self.facts, *(one for one in other.facts if one not in self.facts))
        return Evidence(merged, facts, {**other.notices, **self.notices})


class QuestionAnswerer:
    """Answers questions about bases."""

    def __init__(
        self, searching: Searcher, portraits: GraphQueries, speaker_of: Callable[[Base], MeteredProvider]
    ) -> None:
        self._searcher = searching
        self._graph_queries = portraits
        self._provider_of = speaker_of

    def ask(self, base: Base, question: str, mode: Mode = Mode.MIX) -> Answer:
        """Answer a question, in one call of the language model or none."""
        context, found = self.build_context(base, question, mode)
        said = generate_answer(self._provider_of(base).charge_to(base, KIND), context)
        return _answer(said, found, mode)

    def stream(self, base: Base, question: str, mode: Mode = Mode.MIX) -> Generator[str | Answer, None, None]:
        """Answer as the words come, with the markers of citations; the whole answer last."""
        context, found = self.build_context(base, question, mode)
        with closing(stream_answer(self._provider_of(base).charge_to(base, KIND), context)) as parts:
            for part in parts:
                if isinstance(part, GeneratedAnswer):
                    yield _answer(part, found, mode)
                else:
                    yield part if isinstance(part, str) else part.marker

    def build_context(self, base: Base, question: str, mode: Mode) -> tuple[Context, Evidence]:
        """Gather what an answer may use, and where each source stands."""
        found = self._gather(base, question, mode)
        sources = tuple(_source(chunk, one) for chunk, one in found.passages.items())
        facts = tuple(Line(text=one.sentence, sources=tuple(map(str, one.chunks))) for one in found.facts)
        return Context(question=question, sources=sources, facts=facts), found

    def _gather(self, base: Base, question: str, mode: Mode) -> Evidence:
        match mode:
            case Mode.NAIVE:
                direct = self._searcher.direct_channels  # follow no names
                return _to_evidence(self._searcher.search(base, question, MAX_PASSAGES, channels=direct))
            case Mode.LOCAL:
                return self._gather_facts(base, question, ends=1)
            case Mode.GLOBAL:
                return self._gather_facts(base, question, ends=2)
            case Mode.HYBRID:
                return self._gather_facts(base, question, ends=1) | self._gather_facts(base, question, ends=2)
            case Mode.MIX:
                found = _to_evidence(self._searcher.search(base, question, MAX_PASSAGES))
                about = self._gather_facts(base, question, ends=1) | self._gather_facts(base, question, ends=2)
                return found | about

    def _gather_facts(self, base: Base, question: str, *, ends: int) -> Evidence:
        """Take what is said of the entities in the question (one end) or of their relations (two), and by whom.

        Where no language model has read the documents nothing is said of them; then names lead to the passages.
        """
        keys = self._graph_queries.find_entity_keys(base, question)
        facts = tuple(one for one in self._graph_queries.collect_facts(base, keys) if len(one.keys) == ends)
        chunks = list(dict.fromkeys(chunk for one in facts for chunk in one.chunks))[:MAX_PASSAGES]
        found = self._searcher.read_served(base, GRAPH, chunks)
        if not found:
            return _to_evidence(self._searcher.search_channel(base, GRAPH, question, MAX_PASSAGES))
        return Evidence({chunk: found[chunk] for chunk in chunks if chunk in found}, facts)


def _to_evidence(hits: Hits) -> Evidence:
    return Evidence({hit.chunk: hit for hit in hits}, notices={one.channel: one for one in hits.notices})


def _answer(said: GeneratedAnswer, found: Evidence, mode: Mode) -> Answer:
    """Return an answer with its citations where they stand in documents, not in the sources that a model was given."""
    places = {str(chunk): one for chunk, one in found.passages.items()}
    return Answer(
        outcome=said.outcome,
        message=OUTCOME_MESSAGES[said.outcome],
        mode=mode,
        text=said.text,
        citations=[_citation(one, places[one.source]) for one in said.citations],
        context=[to_served_passage(places[one.id]) for one in said.context.sources if one.id in places],
        facts=[one.text for one in said.context.facts],
        cut=said.cut,
        notices=list(found.notices.values()),
    )


def _citation(one: SourceCitation, place: Passage) -> Citation:
    return Citation(
        number=one.number,
        document=place.document,
        name=place.name,
        chunk=place.chunk,
        generation=place.generation,
        start=place.start + one.start,
        end=place.start + one.end,
        quote=one.quote,
    )


def _source(chunk: int, one: Passage) -> SourcePassage:
    return SourcePassage(
        id=str(chunk),
        document=one.name,
        text=one.text,
        title=one.title or "",
        headings=tuple(one.headings),
    )
