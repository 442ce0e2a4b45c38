"""Citations: the sentence of a source that supports a claim."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.content import sentence_starts
from holdfast.llm import extract_stems, is_significant, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.catalog import ServedChunk
    from holdfast.search.results import Hit

    Passage = ServedChunk | Hit

QUOTE_LIMIT = 400  # characters of a quote
QUESTION_WORD_WEIGHT = 0.25  # of a question word, relative to a claim word; decides for claims such as "Yes."
SMALL_WORD_WEIGHT = 0.25  # of a stop word, relative to other words

# Blank lines, list items, table rows and headings also end a sentence.
_BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+|>#]|\d+[.)]))|^[ \t]*#{1,6} [^\n]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The source of a marker in an answer: `quote` is the text of the document from `start` to `end`."""

    number: int
    document: int
    name: str
    chunk: int
    generation: int
    start: int
    end: int
    quote: str

    @property
    def marker(self) -> str:
        return f"[{self.number}]"


def last_sentence(text: str) -> str:
    """Return the last sentence with words, complete or not."""
    for start, end in reversed(sentences(text)):
        if extract_stems(text[start:end]):
            return text[start:end]
    return text


def cite(source: Passage, number: int, claim: str, question: str = "") -> Citation:
    """Quote the sentence of the source that shares most words with the claim; of equals the first.

    Words that occur in few sentences count more, and words of the question a little.
    """
    pieces = sentences(source.text) or [(0, 0)]
    words = [set(extract_stems(source.text[start:end])) for start, end in pieces]
    spread = Counter(word for known in words for word in known)
    wanted = dict.fromkeys(extract_stems(question), QUESTION_WORD_WEIGHT) | dict.fromkeys(extract_stems(claim), 1.0)

    def shared(position: int) -> float:
        found = sorted(words[position] & wanted.keys())
        return sum(
            wanted[word] * (1 if is_significant(word) else SMALL_WORD_WEIGHT) * math.log(1 + len(pieces) / spread[word])
            for word in found
        )

    start, end = pieces[max(range(len(pieces)), key=shared)]
    return Citation(
        number=number,
        document=source.document,
        name=source.name,
        chunk=source.chunk,
        generation=source.generation,
        start=source.start + start,
        end=source.start + end,
        quote=source.text[start:end],
    )


def sentences(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence, at most `QUOTE_LIMIT` long; list items and table rows are separate."""
    found: list[tuple[int, int]] = []
    start = 0
    for end in (*(gap.end() for gap in _BLOCK.finditer(text)), len(text)):
        bounds = [start, *sentence_starts(text, start, end), end]
        for first, last in pairwise(bounds):
            found.extend(_trimmed(text, first, last))
        start = end
    return found


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield this range without surrounding white space, in pieces of at most `QUOTE_LIMIT`."""
    while start < end:
        while start < end and text[start].isspace():
            start += 1
        piece = shorten(text[start:end].rstrip(), QUOTE_LIMIT)
        if piece:
            yield start, start + len(piece)
        start += max(1, len(piece))
