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

from holdfast.model.answering import Answer, Context, answer, stream
from holdfast.model.answering import Fact as Line
from holdfast.model.citations import Citation, Source
from holdfast.search.fusion import GRAPH

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from holdfast.errors import WorkError
    from holdfast.indexes.portrait import Fact, Portraits
    from holdfast.library.catalogue import Base
    from holdfast.library.metering import Metered
    from holdfast.library.serving import Served
    from holdfast.model.turns import Usage
    from holdfast.search.searching import Hits, Searching

KIND = "answer"  # on the ledger
PASSAGES = 12  # of each way to gather


class Mode(StrEnum):
    """Ways to gather what an answer may use."""

    NAIVE = "naive"  # passages alone
    LOCAL = "local"  # from the entities in the question
    GLOBAL = "global"  # from the relations of those entities
    HYBRID = "hybrid"  # both
    MIX = "mix"  # both, and passages


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and where each of its citations stands: offsets are those of the document's text."""

    answer: Answer
    places: dict[str, Served]  # by the source of a citation
    failed: Mapping[str, WorkError] = field(default_factory=dict)  # channels that could not be searched, and why

    def offsets(self, citation: Citation) -> tuple[int, int]:
        """Return where a quote stands in the text of its document."""
        start = self.places[citation.source].passage.start
        return start + citation.start, start + citation.end


@dataclass(frozen=True, slots=True)
class Gathered:
    """Passages and facts on their way into a context, the best first."""

    passages: dict[int, Served]
    facts: tuple[Fact, ...] = ()
    failed: Mapping[str, WorkError] = field(default_factory=dict)

    def __or__(self, other: Gathered) -> Gathered:
        """Let passages of both alternate, so that a budget cuts neither off."""
        mine, theirs = list(self.passages.items()), list(other.passages.items())
        merged: dict[int, Served] = {}
        for place in range(max(len(mine), len(theirs))):
            for some in (mine, theirs):
                merged.update(some[place : place + 1])
        facts = (*self.facts, *(one for one in other.facts if one not in self.facts))
        return Gathered(merged, facts, {**other.failed, **self.failed})


class Asking:
    """Answers questions about bases."""

    def __init__(self, searching: Searching, portraits: Portraits, speaker_of: Callable[[Base], Metered]) -> None:
        self._searching = searching
        self._portraits = portraits
        self._speaker_of = speaker_of

    def ask(self, base: Base, question: str, mode: Mode = Mode.MIX) -> tuple[Reply, Usage]:
        """Answer a question, in one call of the language model or none."""
        context, found = self.context(base, question, mode)
        said, usage = answer(self._speaker_of(base).charged(base, KIND), context)
        return _reply(said, found), usage

    def stream(self, base: Base, question: str, mode: Mode = Mode.MIX) -> Generator[str | Citation | Reply, None, None]:
        """Answer as the words come: texts, citations where their markers stand, and the reply last."""
        context, found = self.context(base, question, mode)
        with closing(stream(self._speaker_of(base).charged(base, KIND), context)) as parts:
            for part in parts:
                yield _reply(part, found) if isinstance(part, Answer) else part

    def context(self, base: Base, question: str, mode: Mode) -> tuple[Context, Gathered]:
        """Gather what an answer may use, and where each source stands."""
        found = self._gather(base, question, mode)
        sources = tuple(_source(chunk, one) for chunk, one in found.passages.items())
        facts = tuple(Line(text=one.sentence, sources=tuple(map(str, one.chunks))) for one in found.facts)
        return Context(question=question, sources=sources, facts=facts), found

    def _gather(self, base: Base, question: str, mode: Mode) -> Gathered:
        match mode:
            case Mode.NAIVE:
                return self._naive(base, question)
            case Mode.LOCAL:
                return self._known(base, question, ends=1)
            case Mode.GLOBAL:
                return self._known(base, question, ends=2)
            case Mode.HYBRID:
                return self._known(base, question, ends=1) | self._known(base, question, ends=2)
            case Mode.MIX:
                found = _passages(self._searching.search(base, question, PASSAGES))
                about = self._known(base, question, ends=1) | self._known(base, question, ends=2)
                return found | about

    def _naive(self, base: Base, question: str) -> Gathered:
        """Take what words and meaning find, and follow no names."""
        return _passages(self._searching.direct(base, question, PASSAGES))

    def _known(self, base: Base, question: str, *, ends: int) -> Gathered:
        """Take what is said of the entities in the question (one end) or of their relations (two), and by whom.

        Where no language model has read the documents nothing is said of them; then names lead to the passages.
        """
        keys = self._portraits.keys(base, question)
        facts = tuple(one for one in self._portraits.facts(base, keys) if len(one.keys) == ends)
        chunks = list(dict.fromkeys(chunk for one in facts for chunk in one.chunks))[:PASSAGES]
        found = self._searching.shown(base, GRAPH, chunks)
        if not found:
            return _passages(self._searching.channel(base, GRAPH, question, PASSAGES))
        return Gathered({chunk: found[chunk] for chunk in chunks if chunk in found}, facts)


def _passages(hits: Hits) -> Gathered:
    return Gathered({hit.served.passage.chunk: hit.served for hit in hits}, failed=hits.failed)


def _reply(said: Answer, found: Gathered) -> Reply:
    places = {str(chunk): one for chunk, one in found.passages.items()}
    return Reply(answer=said, places=places, failed=found.failed)


def _source(chunk: int, one: Served) -> Source:
    return Source(
        id=str(chunk),
        document=one.name,
        text=one.passage.text,
        title=one.title or "",
        headings=one.passage.headings,
    )
