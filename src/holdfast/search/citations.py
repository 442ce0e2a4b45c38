"""What an answer rests on: sources, and the sentences of them that support it."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast.content.units import sentence_starts
from holdfast.llm import extract_stems, is_significant, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

QUOTE_LIMIT = 400  # characters of a quote
QUESTION_WORD_WEIGHT = (
    0.25  # what a word of the question weighs beside one of the claim: it decides where the claim is "Yes."
)
SMALL_WORD_WEIGHT = 0.25  # what a small word weighs beside one that says something

# Blank lines, the beginnings of items and rows, and headings end a sentence that has no other end.
_BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+|>#]|\d+[.)]))|^[ \t]*#{1,6} [^\n]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePassage:
    """A passage that an answer may rest on."""

    id: str
    document: str
    text: str
    title: str = ""  # of the document, as the model is told it; without one it is told the document
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCitation:
    """A source that an answer rests on: `quote` is exactly what stands in its text from `start` to `end`."""

    number: int
    source: str
    document: str
    start: int
    end: int
    quote: str

    @property
    def marker(self) -> str:
        """How it stands in the answer."""
        return f"[{self.number}]"


def last_sentence(said: str) -> str:
    """Return the last sentence of a text that has words, whether it has ended or not."""
    for start, end in reversed(sentences(said)):
        if extract_stems(said[start:end]):
            return said[start:end]
    return said


def cite(source: SourcePassage, number: int, claim: str, question: str = "") -> SourceCitation:
    """Quote the sentence of the source that shares most with the claim; of several, and if none does, the first.

    Words that stand in few sentences count more, and words of the question a little.
    """
    pieces = sentences(source.text) or [(0, 0)]
    words = [set(extract_stems(source.text[start:end])) for start, end in pieces]
    spread = Counter(word for known in words for word in known)
    wanted = dict.fromkeys(extract_stems(question), QUESTION_WORD_WEIGHT) | dict.fromkeys(extract_stems(claim), 1.0)

    def shared(place: int) -> float:
        found = sorted(words[place] & wanted.keys())
        return sum(
            wanted[word] * (1 if is_significant(word) else SMALL_WORD_WEIGHT) * math.log(1 + len(pieces) / spread[word])
            for word in found
        )

    start, end = pieces[max(range(len(pieces)), key=shared)]
    return SourceCitation(
        number=number,
        source=source.id,
        document=source.document,
        start=start,
        end=end,
        quote=source.text[start:end],
    )


def sentences(text: str) -> list[tuple[int, int]]:
    """Return where the sentences of a text begin and end, none longer than a quote; lines of lists and tables alone."""
    found: list[tuple[int, int]] = []
    start = 0
    for end in (*(gap.end() for gap in _BLOCK.finditer(text)), len(text)):
        bounds = [start, *sentence_starts(text, start, end), end]
        for first, last in pairwise(bounds):
            found.extend(_trimmed(text, first, last))
        start = end
    return found


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield this part without white space around it, in as many pieces as quotes need."""
    while start < end:
        while start < end and text[start].isspace():
            start += 1
        piece = shorten(text[start:end].rstrip(), QUOTE_LIMIT)
        if piece:
            yield start, start + len(piece)
        start += max(1, len(piece))
