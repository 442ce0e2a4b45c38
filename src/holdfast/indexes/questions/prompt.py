"""Question-and-answer pairs of one chunk, for search and for study cards: the prompt, and the check of the answer."""
# ruff: noqa: RUF001  (the question marks of other languages are meant)

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.content import estimate_tokens
from holdfast.llm import (
    DATA_ONLY,
    Prompt,
    Usage,
    build_recipe_name,
    call_structured,
    extract_stems,
    fold,
    is_significant,
    object_schema,
    parse_object,
    require_objects,
    require_string,
    to_single_line,
    wrap_passage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.llm import Provider

QUESTION_LIMIT, ANSWER_LIMIT = 300, 800  # characters
MIN_TEXT_TOKENS = 16  # a shorter text gets no questions
TOKENS_PER_QUESTION = 120  # of text
MAX_PAIRS = 8
MIN_SUPPORTED_SHARE = 0.4  # of the words of an answer must occur in the text
MAX_TOKENS = 2048

SYSTEM = f"""\
You write study cards from passages of documents. Each card is a question and its answer.

- Ask about what matters in the passage: facts, reasons, definitions, steps, differences. No two cards ask the same.
- A question can be understood by somebody who does not see the passage: name what it is about, never write "the \
passage", "the text" or "this". It ends with a question mark, in at most {QUESTION_LIMIT} characters.
- An answer is complete, taken from the passage and in its words, in at most {ANSWER_LIMIT} characters. Add nothing \
that you know from elsewhere.
- Write in the language of the passage.
- Fewer cards are better than poor ones; a passage with nothing to learn gets an empty list.

{DATA_ONLY}"""

_TEXT: dict[str, Any] = {"type": "string"}
SCHEMA = object_schema(pairs={"type": "array", "items": object_schema(question=_TEXT, answer=_TEXT)})

# Greek uses a semicolon, Armenian a mark inside a word, Chinese and Japanese may use a particle alone, and the
# scripts from Thai to Khmer have no mark. Closing quotes and brackets may follow.
_QUESTION_END = re.compile(
    r"""
    (?: [?？؟⁇⁈፧꘏⳺\u037e] | (?<=[\u0370-\u03ff\u1f00-\u1fff])\s*; | ՞.*
      | [吗嗎呢么か][。.]? | [\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff] )
    [\s"'”’»」』）)\]*_]* \Z
    """,
    re.VERBOSE,
)
_OUTER_PUNCTUATION = re.compile(r"\A\W+|\W+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPair:
    """A question, and an answer that the text of the chunk supports."""

    question: str
    answer: str


class HasQuestion(Protocol):
    """A pair or a card."""

    @property
    def question(self) -> str: ...


HasQuestionT = TypeVar("HasQuestionT", bound=HasQuestion)


def count_wanted_pairs(text: str) -> int:
    """Return how many pairs to request for a text; 0 if it is too short."""
    tokens = estimate_tokens(text)
    return 0 if tokens < MIN_TEXT_TOKENS else min(MAX_PAIRS, 1 + tokens // TOKENS_PER_QUESTION)


def build_prompt(text: str, headings: Sequence[str] = ()) -> Prompt:
    return Prompt(
        system=SYSTEM,
        text=f"{wrap_passage(text, headings)}\n\nReturn at most {count_wanted_pairs(text)} cards on the text as JSON.",
        schema=SCHEMA,
        max_tokens=MAX_TOKENS,
    )


def parse_answer(answer: str, text: str) -> tuple[QuestionPair, ...]:
    """Check an answer and return its usable pairs; raise ValueError with the reason if the answer is unusable.

    A pair is dropped if it has no answer, is not a question, is not supported by the text, or repeats a question. If no
    question ends as one, the model misunderstood the task, and that is an error.
    """
    items = require_objects(parse_object(answer), "pairs")
    pairs = [
        QuestionPair(
            question=to_single_line(require_string(item, "question"), QUESTION_LIMIT),
            answer=to_single_line(require_string(item, "answer"), ANSWER_LIMIT),
        )
        for item in items
    ]
    asking = [pair for pair in pairs if is_question(pair.question)]
    if pairs and not asking:
        raise ValueError("no question ends with a question mark")
    supported = [pair for pair in asking if supports(text, pair.answer)]
    return remove_duplicate_questions(supported)[: count_wanted_pairs(text)]


def write_pairs(provider: Provider, text: str, headings: Sequence[str] = ()) -> tuple[tuple[QuestionPair, ...], Usage]:
    """Return the pairs of one chunk, and the tokens used; raises `bad_answer` like `call_structured`."""
    if not count_wanted_pairs(text):
        return (), Usage()
    return call_structured(provider, build_prompt(text, headings), partial(parse_answer, text=text))


def is_question(question: str) -> bool:
    """Return whether a text ends as a question does in its language."""
    return _QUESTION_END.search(question) is not None and any(character.isalnum() for character in question)


def supports(text: str, answer: str) -> bool:
    """Return whether enough words of the answer occur in the text; stop words count only if there are no others."""
    stems = set(extract_stems(answer))
    counted = set(filter(is_significant, stems)) or stems
    return bool(counted) and len(counted & set(extract_stems(text))) >= MIN_SUPPORTED_SHARE * len(counted)


def remove_duplicate_questions(pairs: Iterable[HasQuestionT]) -> tuple[HasQuestionT, ...]:
    """Return the first of each question, in order; case, width and punctuation are ignored."""
    found: dict[str, HasQuestionT] = {}
    for pair in pairs:
        found.setdefault(_OUTER_PUNCTUATION.sub("", fold(pair.question)), pair)
    return tuple(found.values())


def to_json(pairs: Sequence[QuestionPair]) -> str:
    """Serialise pairs; equal pairs give equal bytes."""
    return json.dumps([asdict(pair) for pair in pairs], ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def from_json(written: str) -> tuple[QuestionPair, ...]:
    """Parse what `to_json` wrote; ValueError for anything else."""
    items = require_objects({"pairs": json.loads(written)}, "pairs")
    return tuple(
        QuestionPair(question=require_string(item, "question"), answer=require_string(item, "answer")) for item in items
    )


RECIPE = build_recipe_name("questions", build_prompt("text"), build_prompt("text " * 2000, ("heading",)))
