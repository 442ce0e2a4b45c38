"""Answers from passages, with citations that exist.

Three things can be the outcome, and each is said: the model answered, nothing relevant was found, or there is no
model and the best passages stand for themselves. Which passages, and which part of the graph, the caller has chosen;
here they are cut to what fits, numbered and asked about.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast.content.token_estimate import TOKEN, estimate, weigh
from holdfast.llm import BROKEN_OFF, DATA_ONLY, Completion, Prompt, Usage, enclose, shorten, tidy, usage_of
from holdfast.llm.failures import bad_answer
from holdfast.search.citation_stream import NOTHING, Reader
from holdfast.search.citations import Citation, Source, cite

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from holdfast.llm import Paid, Provider

__all__ = [
    "Citation",
    "Context",
    "Fact",
    "GeneratedAnswer",
    "Outcome",
    "Source",
    "answer",
    "ask",
    "fit",
    "passages",
    "stream",
]

BUDGET = 6000  # tokens of passages and facts
WORTH_CUTTING = 40  # tokens; what is left of a passage below that says nothing
FACTS = 3  # facts get at most one part in three of the budget
QUESTION, FACT, PATH = 4000, 2000, 300  # characters
MAX_TOKENS = 2048
PASSAGES = 5

SYSTEM = f"""\
You answer questions from sources alone, which are numbered [1], [2] and so on.

- Behind each sentence that rests on a source write its number in brackets, like this. [1] If it rests on several, \
write each: [1][3]. Use only numbers of sources you were given. Numbers in brackets inside the sources are part of \
their text and no sources.
- Facts, if there are any, are a summary of the same sources; the numbers behind a fact are its sources.
- Say only what the sources say. If they contradict each other, say so and cite both.
- If the sources do not answer the question, write {NOTHING} and nothing else.
- Answer in the language of the question, as briefly as the question allows.

{DATA_ONLY}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What the graph knows, in a line: an entity or a relation with its description; and the sources it rests on."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an answer may use, the best first."""

    question: str
    sources: tuple[Source, ...] = ()
    facts: tuple[Fact, ...] = ()


class Outcome(StrEnum):
    """How a question ended."""

    ANSWERED = "answered"  # the model answered; `text` holds markers, `citations` what they name
    NOTHING_FOUND = "nothing_found"  # there were no sources, or the model found nothing in them
    NO_LANGUAGE_MODEL = "no_language_model"  # nobody answered; `citations` are the best passages


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer:
    """What is told to whoever asked, and the context it was made from."""

    outcome: Outcome
    context: Context
    text: str = ""
    citations: tuple[Citation, ...] = ()  # in the order of the answer, or the best passage first
    cut: bool = False  # before the model had finished: at the limit of tokens, or the stream broke off


def fit(context: Context, budget: int = BUDGET) -> Context:
    """Return what of the context fits into so many tokens: the best sources first, the last one perhaps cut.

    Of the best some words are kept in any case, or there would be nothing to answer from. A source without words is
    left out. A fact is kept if one of its sources is, for otherwise nobody could cite it.
    """
    facts = [fact for fact in context.facts if fact.text.strip()]
    reserved = min(FRAME + sum(_fact_cost(fact) for fact in facts), budget // FACTS) if facts else 0
    sources = list(_first_sources(context.sources, budget - reserved))
    known = {source.id for source in sources}
    citable = (
        replace(fact, sources=tuple(filter(known.__contains__, fact.sources)))
        for fact in facts
        if not known.isdisjoint(fact.sources)
    )
    room = budget - sum(map(_source_cost, sources))
    return replace(context, sources=tuple(sources), facts=tuple(_first_facts(citable, room)))


def ask(context: Context) -> Prompt:
    """Return the prompt; the number of a source is its place in the context, from 1."""
    numbers = {source.id: number for number, source in reversed([*enumerate(context.sources, 1)])}
    parts = [(f"source [{number}]", _shown(source)) for number, source in enumerate(context.sources, 1)]
    if context.facts:
        parts.append(("facts", "\n".join(_line(fact, numbers) for fact in context.facts)))
    question = shorten(context.question.strip(), QUESTION)
    return Prompt(
        system=SYSTEM,
        text=f"{enclose(parts, beside=question)}\n\nQuestion: {question}",
        max_tokens=MAX_TOKENS,
    )


def answer(
    provider: Provider, context: Context, *, budget: int = BUDGET, paid: Paid | None = None
) -> tuple[GeneratedAnswer, Usage]:
    """Answer a question, in one call or none; `bad_answer` if the model came to its limit before it said anything."""
    context = fit(context, budget)
    unasked = without_model(provider, context)
    if unasked is not None:
        return unasked, Usage()
    completion = provider.complete(ask(context))
    if paid is not None:
        paid(completion)
    reader = Reader(context.sources, context.question)
    reader.feed(completion.text)
    reader.finish()
    return _ended(reader, context, cut=completion.cut), usage_of(completion)


def stream(
    provider: Provider, context: Context, *, budget: int = BUDGET
) -> Generator[str | Citation | GeneratedAnswer, None, None]:
    """Answer a question as the words come: texts, and citations where their markers stand; the answer comes last.

    A failure in the middle is raised after what came before it. Closing this ends the request to the provider.
    """
    context = fit(context, budget)
    unasked = without_model(provider, context)
    if unasked is not None:
        yield unasked
        return
    reader, cut = Reader(context.sources, context.question), True  # until the model says that it has finished
    with closing(provider.stream(ask(context))) as pieces:
        for piece in pieces:
            if isinstance(piece, Completion):
                cut = piece.cut
            else:
                yield from reader.feed(piece)
    yield from reader.finish()
    yield _ended(reader, context, cut=cut)


def without_model(provider: Provider, context: Context) -> GeneratedAnswer | None:
    """Return the answer that needs no language model; None if one must be asked."""
    if not context.sources:
        return GeneratedAnswer(outcome=Outcome.NOTHING_FOUND, context=context)
    return passages(context) if provider.chat_model is None else None


def passages(context: Context, most: int = PASSAGES) -> GeneratedAnswer:
    """Return the best passages, and say that no language model answered; or that there are none."""
    if not context.sources:
        return GeneratedAnswer(outcome=Outcome.NOTHING_FOUND, context=context)
    best = enumerate(context.sources[:most], 1)
    return GeneratedAnswer(
        outcome=Outcome.NO_LANGUAGE_MODEL,
        context=context,
        citations=tuple(cite(source, number, context.question) for number, source in best),
    )


def _ended(reader: Reader, context: Context, *, cut: bool = False) -> GeneratedAnswer:
    text = reader.text.strip()
    declined = reader.declined or text.strip("`'\"*.[] ").upper() == NOTHING[1:-1]  # as code, or without brackets
    if cut and not text and not declined:
        raise bad_answer(BROKEN_OFF)
    if not text or (declined and not reader.citations):
        return GeneratedAnswer(outcome=Outcome.NOTHING_FOUND, context=context, cut=cut)
    return GeneratedAnswer(
        outcome=Outcome.ANSWERED, context=context, text=text, citations=tuple(reader.citations), cut=cut
    )


def _first_sources(sources: Sequence[Source], room: int) -> Iterator[Source]:
    """Yield the first sources that fit, the last one cut if enough of it remains."""
    first = True
    for source in sources:
        if not source.text.strip():
            continue
        cost = _source_cost(source)
        if cost > room:
            left = room - _source_cost(replace(source, text=""))
            if left >= WORTH_CUTTING or first:
                yield replace(source, text=_head(source.text, max(left, WORTH_CUTTING)))
            return
        yield source
        first, room = False, room - cost


def _first_facts(facts: Iterable[Fact], room: int) -> Iterator[Fact]:
    room -= FRAME
    for fact in facts:
        room -= _fact_cost(fact)
        if room < 0:
            return
        yield fact


def _head(text: str, tokens: int) -> str:
    """Return as much of the beginning of a text as has so many tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if weigh(text[:middle]) <= tokens * TOKEN:
            low = middle
        else:
            high = middle - 1
    return shorten(text, low)


def _shown(source: Source) -> str:
    path = tidy(" > ".join((source.title or source.document, *source.headings)), PATH)
    return f"{path}\n\n{source.text}"


def _line(fact: Fact, numbers: Mapping[str, int]) -> str:
    return f"- {tidy(fact.text, FACT)} " + "".join(f"[{numbers[one]}]" for one in fact.sources if one in numbers)


def _source_cost(source: Source) -> int:
    return estimate(_shown(source)) + FRAME


def _fact_cost(fact: Fact) -> int:
    return estimate(_line(fact, dict.fromkeys(fact.sources, 999))) + 1


# Tokens of the two lines around a part, at most.
FRAME = estimate("<source [999] 0000000000000000>\n\n</source [999] 0000000000000000>\n")
