"""Generates an answer from passages and facts.

An answer has one of three outcomes: the model answered, nothing relevant was found, or there is no model and the best
passages are returned. The caller chooses passages and facts; this module cuts them to the token budget, numbers them
and calls the model.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast.content import TOKEN_WEIGHT, estimate_tokens, weigh
from holdfast.llm import (
    DATA_ONLY,
    Completion,
    Prompt,
    bad_answer,
    shorten,
    to_single_line,
    wrap_untrusted,
)
from holdfast.search.citation_stream import NO_ANSWER, CitationReader
from holdfast.search.citations import Citation, cite

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from holdfast.indexes.graph import Fact
    from holdfast.llm import Provider
    from holdfast.search.citations import Passage

BUDGET = 6000  # tokens for passages and facts
MIN_CUT_TOKENS = 40  # a shorter rest of a passage is useless
FACTS_DIVISOR = 3  # facts get at most a third of the budget
QUESTION_LIMIT, FACT_LIMIT, PATH_LIMIT = 4000, 2000, 300  # characters
MAX_TOKENS = 2048
MAX_PASSAGES = 5

SYSTEM = f"""\
You answer questions from sources alone, which are numbered [1], [2] and so on.

- Behind each sentence that rests on a source write its number in brackets, like this. [1] If it rests on several, \
write each: [1][3]. Use only numbers of sources you were given. Numbers in brackets inside the sources are part of \
their text and no sources.
- Facts, if there are any, are a summary of the same sources; the numbers behind a fact are its sources.
- Say only what the sources say. If they contradict each other, say so and cite both.
- If the sources do not answer the question, write {NO_ANSWER} and nothing else.
- Answer in the language of the question, as briefly as the question allows.

{DATA_ONLY}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The material of an answer, best first."""

    question: str
    sources: tuple[Passage, ...] = ()
    facts: tuple[Fact, ...] = ()


class AnswerOutcome(StrEnum):
    """The outcome of a question."""

    ANSWERED = "answered"  # `text` has markers, `citations` their sources
    NOTHING_FOUND = "nothing_found"  # no sources, or no answer in them
    NO_LANGUAGE_MODEL = "no_language_model"  # `citations` are the best passages


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer:
    """A generated answer, and the context it was made from."""

    outcome: AnswerOutcome
    context: Context
    text: str = ""
    citations: tuple[Citation, ...] = ()  # in the order of the answer, or the best passage first
    cut: bool = False  # at the token limit, or because the stream broke off


def fit_context(context: Context, budget: int = BUDGET) -> Context:
    """Return the part of the context that fits into the token budget; the last source may be cut.

    The best source always keeps some words, or there would be nothing to answer from. Blank sources are dropped. A fact
    is kept only with one of its sources, because otherwise it could not be cited.
    """
    facts = [fact for fact in context.facts if fact.sentence.strip()]
    reserved = min(FRAME + sum(_fact_cost(fact) for fact in facts), budget // FACTS_DIVISOR) if facts else 0
    sources = list(_take_fitting_sources(context.sources, budget - reserved))
    known = {source.chunk for source in sources}
    citable = (
        replace(fact, chunks=tuple(filter(known.__contains__, fact.chunks)))
        for fact in facts
        if not known.isdisjoint(fact.chunks)
    )
    room = budget - sum(map(_source_cost, sources))
    return replace(context, sources=tuple(sources), facts=tuple(_take_fitting_facts(citable, room)))


def build_prompt(context: Context) -> Prompt:
    """Return the prompt; sources are numbered by position, from 1."""
    numbers = {source.chunk: number for number, source in reversed([*enumerate(context.sources, 1)])}
    parts = [(f"source [{number}]", _format_source(source)) for number, source in enumerate(context.sources, 1)]
    if context.facts:
        parts.append(("facts", "\n".join(_format_fact(fact, numbers) for fact in context.facts)))
    question = shorten(context.question.strip(), QUESTION_LIMIT)
    return Prompt(
        system=SYSTEM,
        text=f"{wrap_untrusted(parts, beside=question)}\n\nQuestion: {question}",
        max_tokens=MAX_TOKENS,
    )


def generate_answer(provider: Provider, context: Context, *, budget: int = BUDGET) -> GeneratedAnswer:
    """Answer with at most one call; raises `bad_answer` if the model reached its limit before any text."""
    context = fit_context(context, budget)
    unasked = answer_without_model(provider, context)
    if unasked is not None:
        return unasked
    completion = provider.complete(build_prompt(context))
    reader = CitationReader(context.sources, context.question)
    reader.feed(completion.text)
    reader.finish()
    return _finish_answer(reader, context, cut=completion.truncated)


def stream_answer(
    provider: Provider, context: Context, *, budget: int = BUDGET
) -> Generator[str | Citation | GeneratedAnswer, None, None]:
    """Yield the text and the citations as they arrive, and the answer last.

    An error is raised after the text that arrived before it. Closing this generator ends the request to the provider.
    """
    context = fit_context(context, budget)
    unasked = answer_without_model(provider, context)
    if unasked is not None:
        yield unasked
        return
    reader, cut = CitationReader(context.sources, context.question), True  # until the model reports its end
    with closing(provider.stream(build_prompt(context))) as pieces:
        for piece in pieces:
            if isinstance(piece, Completion):
                cut = piece.truncated
            else:
                yield from reader.feed(piece)
    yield from reader.finish()
    yield _finish_answer(reader, context, cut=cut)


def answer_without_model(provider: Provider, context: Context) -> GeneratedAnswer | None:
    """Return the answer if no call is needed; None if the model must be called."""
    if not context.sources:
        return GeneratedAnswer(outcome=AnswerOutcome.NOTHING_FOUND, context=context)
    if provider.chat_model is not None:
        return None
    best = enumerate(context.sources[:MAX_PASSAGES], 1)
    return GeneratedAnswer(
        outcome=AnswerOutcome.NO_LANGUAGE_MODEL,
        context=context,
        citations=tuple(cite(source, number, context.question) for number, source in best),
    )


def _finish_answer(reader: CitationReader, context: Context, *, cut: bool = False) -> GeneratedAnswer:
    text = reader.text.strip()
    declined = reader.declined or text.strip("`'\"*.[] ").upper() == NO_ANSWER[1:-1]  # as code, or without brackets
    if cut and not text and not declined:
        raise bad_answer("answer_cut_off")
    if not text or (declined and not reader.citations):
        return GeneratedAnswer(outcome=AnswerOutcome.NOTHING_FOUND, context=context, cut=cut)
    return GeneratedAnswer(
        outcome=AnswerOutcome.ANSWERED, context=context, text=text, citations=tuple(reader.citations), cut=cut
    )


def _take_fitting_sources(sources: Sequence[Passage], room: int) -> Iterator[Passage]:
    """Yield the first sources that fit; the last one is cut if enough of it remains."""
    first = True
    for source in sources:
        if not source.text.strip():
            continue
        cost = _source_cost(source)
        if cost > room:
            left = room - _source_cost(replace(source, text=""))
            if left >= MIN_CUT_TOKENS or first:
                yield replace(source, text=_truncate(source.text, max(left, MIN_CUT_TOKENS)))
            return
        yield source
        first, room = False, room - cost


def _take_fitting_facts(facts: Iterable[Fact], room: int) -> Iterator[Fact]:
    room -= FRAME
    for fact in facts:
        room -= _fact_cost(fact)
        if room < 0:
            return
        yield fact


def _truncate(text: str, tokens: int) -> str:
    """Return the beginning of a text with at most this many tokens."""
    ends = range(1, len(text) + 1)
    return shorten(text, bisect_right(ends, tokens * TOKEN_WEIGHT, key=lambda end: weigh(text[:end])))


def _format_source(source: Passage) -> str:
    path = to_single_line(" > ".join((source.title or source.name, *source.headings)), PATH_LIMIT)
    return f"{path}\n\n{source.text}"


def _format_fact(fact: Fact, numbers: Mapping[int, int]) -> str:
    return f"- {to_single_line(fact.sentence, FACT_LIMIT)} " + "".join(
        f"[{numbers[chunk]}]" for chunk in fact.chunks if chunk in numbers
    )


def _source_cost(source: Passage) -> int:
    return estimate_tokens(_format_source(source)) + FRAME


def _fact_cost(fact: Fact) -> int:
    return estimate_tokens(_format_fact(fact, dict.fromkeys(fact.chunks, 999))) + 1


# Tokens of the two lines around a part, at most.
FRAME = estimate_tokens("<source [999] 0000000000000000>\n\n</source [999] 0000000000000000>\n")
