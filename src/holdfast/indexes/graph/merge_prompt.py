"""What many chunks say of one entity or relation becomes one description.

Most need no model: what is said is short, or always the same. Whether one is needed, and what exactly it is asked,
follows from the sayings alone and not from their order; so an entity of which nothing new is said has the same digest
as before and is not paid for again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.content.token_estimate import estimate_tokens
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

DESCRIPTION_LIMIT = 1500  # characters of a description, whoever made it
MAX_JOINED_TEXTS, MAX_JOINED_TOKENS = 8, 400  # sayings, and tokens of them, that are joined without a model
MAX_COMPARED_TEXTS = 100  # sayings of which each is looked for in each
MAX_PROMPT_TOKENS = 6000  # tokens of sayings that a model is given
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
    """What one chunk of a document says of a subject."""

    document: str
    text: str


def format_relation(relation: ExtractedRelation) -> str:
    """Return what is said by a relation, with who does it to whom: merged, its ends have no order any more."""
    return f"{relation.source} → {relation.label} → {relation.target}: {relation.description}"


def most_frequent(counted: Counter[str]) -> str:
    """Return the most frequent, of several the first by the alphabet."""
    return min(counted, key=lambda one: (-counted[one], one))


def distinct_texts(sayings: Iterable[SubjectText]) -> tuple[str, ...]:
    """Return what is said, nothing twice, from all documents in turn; among few, nothing that another one contains.

    The order and the number of times it is said make no difference.
    """
    heard: dict[str, SubjectText] = {}
    for saying in sayings:
        plain = SubjectText(document=saying.document, text=to_single_line(saying.text, DESCRIPTION_LIMIT))
        key = fold(plain.text)
        if key and (key not in heard or plain < heard[key]):
            heard[key] = plain
    if len(heard) <= MAX_COMPARED_TEXTS:
        heard = {key: heard[key] for key in heard if not any(key != other and key in other for other in heard)}
    return tuple(_interleave_documents(heard.values()))


def _interleave_documents(sayings: Iterable[SubjectText]) -> list[str]:
    """Return the longest of every document first, then the second of every document, and so on."""
    rank: Counter[str] = Counter()
    ranked = []
    for saying in sorted(sayings, key=lambda one: (-len(one.text), one.text)):
        ranked.append((rank[saying.document], saying.document, saying.text))
        rank[saying.document] += 1
    return [text for _, _, text in sorted(ranked)]


def needs_model(said: Sequence[str]) -> bool:
    """Tell whether so much is said that a language model shall merge it; `said` is what `texts` returned."""
    return len(said) > MAX_JOINED_TEXTS or sum(map(estimate_tokens, said)) > MAX_JOINED_TOKENS


def join_texts(said: Sequence[str]) -> str:
    """Return what is said as one description without a model, within its bounds."""
    return shorten("\n".join(said), DESCRIPTION_LIMIT)


def digest(name: str, said: Iterable[str]) -> str:
    """Return the hash under which a merge of this is remembered, whatever the order."""
    return hashlib.sha256(json.dumps([name, sorted(_take_fitting(said))]).encode()).hexdigest()


def build_prompt(name: str, said: Iterable[str]) -> Prompt:
    """Return the prompt that merges what is said of one subject; the same for the same digest."""
    listed = "\n".join(f"- {text}" for text in sorted(_take_fitting(said)))
    parts = wrap_untrusted([("subject", to_single_line(name, DESCRIPTION_LIMIT)), ("passages", listed)])
    return Prompt(
        system=SYSTEM,
        text=f"{parts}\n\nReturn the one description of the subject as JSON.",
        schema=SCHEMA,
        max_tokens=MAX_TOKENS,
    )


def parse_answer(answer: str) -> str:
    """Check an answer and return its description; ValueError says what is wrong."""
    body: dict[str, Any] = parse_object(answer)
    description = to_single_line(require_string(body, "description"), DESCRIPTION_LIMIT)
    if not description:
        raise ValueError('"description" is empty')
    return description


def _take_fitting(said: Iterable[str]) -> list[str]:
    """Return as many of the first as a model is given; what is beyond changes nothing and costs nothing."""
    room, taken = MAX_PROMPT_TOKENS, []
    for text in said:
        room -= estimate_tokens(text) + 1
        if room < 0:
            break
        taken.append(text)
    return taken


RECIPE = build_recipe_name("merging", build_prompt("subject", ("one", "other")))
