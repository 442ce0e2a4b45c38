"""Question-and-answer pairs of one chunk: something to find it by, and something to learn it with."""
# ruff: noqa: RUF001  (the question marks of other languages are meant)

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.content.token_estimate import estimate
from holdfast.llm import (
    DATA_ONLY,
    Prompt,
    Usage,
    converse,
    fold,
    material,
    objects,
    parsed,
    recipe,
    repair,
    shape,
    stems,
    string,
    telling,
    tidy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.llm import Paid, Provider

__all__ = ["RECIPE", "Pair", "ask", "distinct", "from_json", "read", "repair", "to_json", "wanted", "write"]

QUESTION, ANSWER = 300, 800  # characters
TOO_SHORT = 16  # tokens of a text that has nothing to ask about
PER_QUESTION = 120  # tokens of text
MOST = 8
SUPPORT = 0.4  # of the words of an answer must stand in the text
MAX_TOKENS = 2048

SYSTEM = f"""\
You write study cards from passages of documents. Each card is a question and its answer.

- Ask about what matters in the passage: facts, reasons, definitions, steps, differences. No two cards ask the same.
- A question can be understood by somebody who does not see the passage: name what it is about, never write "the \
passage", "the text" or "this". It ends with a question mark, in at most {QUESTION} characters.
- An answer is complete, taken from the passage and in its words, in at most {ANSWER} characters. Add nothing that you \
know from elsewhere.
- Write in the language of the passage.
- Fewer cards are better than poor ones; a passage with nothing to learn gets an empty list.

{DATA_ONLY}"""

_TEXT: dict[str, Any] = {"type": "string"}
SCHEMA = shape(pairs={"type": "array", "items": shape(question=_TEXT, answer=_TEXT)})

# Greek asks with a semicolon, Armenian within a word, Chinese and Japanese may ask by a word alone, and the
# scripts from Thai to Khmer have no mark. Closing quotes and brackets may follow.
_ASKS = re.compile(
    r"""
    (?: [?？؟⁇⁈፧꘏⳺\u037e] | (?<=[\u0370-\u03ff\u1f00-\u1fff])\s*; | ՞.*
      | [吗嗎呢么か][。.]? | [\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff] )
    [\s"'”’»」』）)\]*_]* \Z
    """,
    re.VERBOSE,
)
_EDGES = re.compile(r"\A\W+|\W+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A question that ends as one, and an answer that the text of the chunk supports."""

    question: str
    answer: str


class Asking(Protocol):
    """Whatever has a question: a pair or a card."""

    @property
    def question(self) -> str:
        """The question."""
        ...


One = TypeVar("One", bound=Asking)


def wanted(text: str) -> int:
    """Return how many pairs a text is good for; 0 if it is too short to ask about."""
    tokens = estimate(text)
    return 0 if tokens < TOO_SHORT else min(MOST, 1 + tokens // PER_QUESTION)


def ask(text: str, headings: Sequence[str] = ()) -> Prompt:
    """Return the prompt for one chunk."""
    return Prompt(
        system=SYSTEM,
        text=f"{material(text, headings)}\n\nReturn at most {wanted(text)} cards on the text as JSON.",
        schema=SCHEMA,
        max_tokens=MAX_TOKENS,
    )


def read(answer: str, text: str) -> tuple[Pair, ...]:
    """Check an answer and keep its pairs, each question once, as many as were wanted; ValueError says what is wrong.

    A pair is dropped that has no answer, does not end as a question or is not supported by the text. If none of the
    questions ends as one, the model did not understand what a question is, and that is an error.
    """
    items = objects(parsed(answer), "pairs")
    pairs = [
        Pair(question=tidy(string(item, "question"), QUESTION), answer=tidy(string(item, "answer"), ANSWER))
        for item in items
    ]
    asking = [pair for pair in pairs if asks(pair.question)]
    if pairs and not asking:
        raise ValueError("no question ends with a question mark")
    supported = [pair for pair in asking if supports(text, pair.answer)]
    return distinct(supported)[: wanted(text)]


def write(
    provider: Provider, text: str, headings: Sequence[str] = (), *, paid: Paid | None = None
) -> tuple[tuple[Pair, ...], Usage]:
    """Write the pairs of one chunk, in one turn or two; `bad_answer` if neither can be used."""
    if not wanted(text):
        return (), Usage()
    return converse(provider, ask(text, headings), partial(read, text=text), paid=paid)


def asks(question: str) -> bool:
    """Tell whether this ends as a question does in its language."""
    return _ASKS.search(question) is not None and any(character.isalnum() for character in question)


def supports(text: str, answer: str) -> bool:
    """Tell whether enough words of the answer stand in the text; small words count only if there are no others."""
    said = set(stems(answer))
    counted = set(filter(telling, said)) or said
    return bool(counted) and len(counted & set(stems(text))) >= SUPPORT * len(counted)


def distinct(pairs: Iterable[One]) -> tuple[One, ...]:
    """Return the first of those that ask the same, in their order; case, width and punctuation make no difference."""
    found: dict[str, One] = {}
    for pair in pairs:
        found.setdefault(_EDGES.sub("", fold(pair.question)), pair)
    return tuple(found.values())


def to_json(pairs: Sequence[Pair]) -> str:
    """Write pairs down; equal pairs are equal bytes."""
    return json.dumps([asdict(pair) for pair in pairs], ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def from_json(written: str) -> tuple[Pair, ...]:
    """Read what `to_json` wrote; ValueError if it is anything else."""
    items = objects({"pairs": json.loads(written)}, "pairs")
    return tuple(Pair(question=string(item, "question"), answer=string(item, "answer")) for item in items)


RECIPE = recipe("questions", ask("text"), ask("text " * 2000, ("heading",)))
