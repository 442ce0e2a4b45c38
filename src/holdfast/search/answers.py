"""Answers questions from served passages, with citations that exist.

There are five ways to collect the context of an answer: the passages of a search (`naive`), facts about the entities in
the question (`local`), about their relations (`global`), both (`hybrid`), and both with the passages (`mix`). The
answer contains the context it was made from. Without a language model, the best passages are the answer.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast.catalog import ServedPassage, to_served_passage
from holdfast.search.answer_generation import AnswerOutcome, Context, GeneratedAnswer, generate_answer, stream_answer
from holdfast.search.citations import Citation  # noqa: TC001 - schemas are made from the annotations
from holdfast.search.fusion import GRAPH
from holdfast.search.results import Notice  # noqa: TC001 - schemas are made from the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from holdfast.catalog import Base
    from holdfast.indexes.graph import Fact, GraphQueries
    from holdfast.llm import MeteredProvider
    from holdfast.search.citations import Passage
    from holdfast.search.results import Hits
    from holdfast.search.search import Searcher

KIND = "answer"  # on the ledger
MAX_PASSAGES = 12  # of each way to collect


class Mode(StrEnum):
    """Ways to collect the context of an answer."""

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
class Answer:
    """An answer with its citations, and the context it was made from."""

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
    """The passages and facts for a context, best first."""

    passages: dict[int, Passage]
    facts: tuple[Fact, ...] = ()
    notices: Mapping[str, Notice] = field(default_factory=dict)  # by channel

    def __or__(self, other: Evidence) -> Evidence:
        """Join two sets; their passages alternate, so that the token budget cuts off neither."""
        first, second = list(self.passages.items()), list(other.passages.items())
        merged: dict[int, Passage] = {}
        for position in range(max(len(first), len(second))):
            for passages in (first, second):
                merged.update(passages[position : position + 1])
        facts = (*self.facts, *(fact for fact in other.facts if fact not in self.facts))
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
        """Answer a question with at most one call of the language model."""
        context, found = self.build_context(base, question, mode)
        generated = generate_answer(self._provider_of(base).charge_to(base, KIND), context)
        return _answer(generated, found, mode)

    def stream(self, base: Base, question: str, mode: Mode = Mode.MIX) -> Generator[str | Answer, None, None]:
        """Yield the text as it arrives, with citation markers, and the whole `Answer` last."""
        context, found = self.build_context(base, question, mode)
        with closing(stream_answer(self._provider_of(base).charge_to(base, KIND), context)) as parts:
            for part in parts:
                if isinstance(part, GeneratedAnswer):
                    yield _answer(part, found, mode)
                else:
                    yield part if isinstance(part, str) else part.marker

    def build_context(self, base: Base, question: str, mode: Mode) -> tuple[Context, Evidence]:
        """Collect what an answer may use."""
        found = self._gather(base, question, mode)
        return Context(question=question, sources=tuple(found.passages.values()), facts=found.facts), found

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
        """Return facts about the entities in the question (one end) or their relations (two), with their passages.

        Without facts, which need a language model at indexing, the graph channel finds the passages.
        """
        keys = self._graph_queries.find_entity_keys(base, question)
        facts = tuple(fact for fact in self._graph_queries.collect_facts(base, keys) if len(fact.keys) == ends)
        chunks = list(dict.fromkeys(chunk for fact in facts for chunk in fact.chunks))[:MAX_PASSAGES]
        found = self._searcher.read_served(base, GRAPH, chunks)
        if not found:
            return _to_evidence(self._searcher.search_channel(base, GRAPH, question, MAX_PASSAGES))
        return Evidence({chunk: found[chunk] for chunk in chunks if chunk in found}, facts)


def _to_evidence(hits: Hits) -> Evidence:
    return Evidence({hit.chunk: hit for hit in hits}, notices={notice.channel: notice for notice in hits.notices})


def _answer(generated: GeneratedAnswer, found: Evidence, mode: Mode) -> Answer:
    return Answer(
        outcome=generated.outcome,
        message=OUTCOME_MESSAGES[generated.outcome],
        mode=mode,
        text=generated.text,
        citations=list(generated.citations),
        context=[to_served_passage(found.passages[source.chunk]) for source in generated.context.sources],
        facts=[fact.sentence for fact in generated.context.facts],
        cut=generated.cut,
        notices=list(found.notices.values()),
    )
