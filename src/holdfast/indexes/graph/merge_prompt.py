"""Merges the texts of many chunks about one entity or relation into one description.

Most subjects need no model: their texts are short or repeat each other. Whether a model is needed, and its exact
prompt, depends on the set of texts and not on their order. So a subject without new texts has the same digest as before
and is not paid for again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.content import estimate_tokens
from holdfast.llm import (
    DATA_ONLY,
    Prompt,
    build_recipe_name,
    fold,
    object_schema,
    parse_object,
    require_string,
    shorten,
    to_single_line,
    wrap_untrusted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.indexes.graph.extraction import ExtractedRelation

DESCRIPTION_LIMIT = 1500  # characters, with or without a model
MAX_JOINED_TEXTS, MAX_JOINED_TOKENS = 8, 400  # limits for joining without a model
MAX_COMPARED_TEXTS = 100  # limit for the pairwise comparison
MAX_PROMPT_TOKENS = 6000  # of texts
MAX_TOKENS = 1024

SYSTEM = f"""\
You are given what several passages say of one subject. Write one description that keeps every fact, names the \
subject, says nothing twice and can be understood alone. Where the passages contradict each other, say so. Add \
nothing that you know from elsewhere. Write in the language of most of the passages, in at most {DESCRIPTION_LIMIT} \
characters.

{DATA_ONLY}"""
SCHEMA = object_schema(description={"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SubjectText:
    """A text of one document about a subject."""

    document: str
    text: str


def format_relation(relation: ExtractedRelation) -> str:
    """Return a relation as one line with its direction, which the key of a merged relation loses."""
    return f"{relation.source} → {relation.label} → {relation.target}: {relation.description}"


def most_frequent(counted: Counter[str]) -> str:
    """Return the most frequent string; among equals the first in alphabetical order."""
    return min(counted, key=lambda text: (-counted[text], text))


def distinct_texts(texts: Iterable[SubjectText]) -> tuple[str, ...]:
    """Return the texts without duplicates, alternating between documents.

    Among at most `MAX_COMPARED_TEXTS`, a text inside another one is dropped as well. Order and repetition of the input
    make no difference.
    """
    distinct: dict[str, SubjectText] = {}
    for text in texts:
        plain = SubjectText(document=text.document, text=to_single_line(text.text, DESCRIPTION_LIMIT))
        key = fold(plain.text)
        if key and (key not in distinct or plain < distinct[key]):
            distinct[key] = plain
    if len(distinct) <= MAX_COMPARED_TEXTS:
        distinct = {
            key: distinct[key] for key in distinct if not any(key != other and key in other for other in distinct)
        }
    return tuple(_interleave_documents(distinct.values()))


def _interleave_documents(texts: Iterable[SubjectText]) -> list[str]:
    """Return the longest text of every document, then the second longest of every document, and so on."""
    rank: Counter[str] = Counter()
    ranked = []
    for text in sorted(texts, key=lambda text: (-len(text.text), text.text)):
        ranked.append((rank[text.document], text.document, text.text))
        rank[text.document] += 1
    return [text for _, _, text in sorted(ranked)]


def needs_model(texts: Sequence[str]) -> bool:
    """Return whether the texts (from `distinct_texts`) are too many or too long to be joined without a model."""
    return len(texts) > MAX_JOINED_TEXTS or sum(map(estimate_tokens, texts)) > MAX_JOINED_TOKENS


def join_texts(texts: Sequence[str]) -> str:
    """Return one description without a model."""
    return shorten("\n".join(texts), DESCRIPTION_LIMIT)


def digest(name: str, texts: Iterable[str]) -> str:
    """Return a hash of the prompt input, independent of the order of the texts."""
    return hashlib.sha256(json.dumps([name, sorted(_take_fitting(texts))]).encode()).hexdigest()


def build_prompt(name: str, texts: Iterable[str]) -> Prompt:
    """Return the prompt; equal digests give equal prompts."""
    listed = "\n".join(f"- {text}" for text in sorted(_take_fitting(texts)))
    parts = wrap_untrusted([("subject", to_single_line(name, DESCRIPTION_LIMIT)), ("passages", listed)])
    return Prompt(
        system=SYSTEM,
        text=f"{parts}\n\nReturn the one description of the subject as JSON.",
        schema=SCHEMA,
        max_tokens=MAX_TOKENS,
    )


def parse_answer(answer: str) -> str:
    """Check an answer and return its description; raise ValueError with the reason if it has none."""
    body: dict[str, Any] = parse_object(answer)
    description = to_single_line(require_string(body, "description"), DESCRIPTION_LIMIT)
    if not description:
        raise ValueError('"description" is empty')
    return description


def _take_fitting(texts: Iterable[str]) -> list[str]:
    """Return the first texts that fit into the prompt; further texts change neither prompt nor digest."""
    room, taken = MAX_PROMPT_TOKENS, []
    for text in texts:
        room -= estimate_tokens(text) + 1
        if room < 0:
            break
        taken.append(text)
    return taken


RECIPE = build_recipe_name("merging", build_prompt("subject", ("one", "other")))
