"""Splits a text into units, the smallest parts of a chunk, each with its weight and the quality of a cut before it.

A short block is one unit. A longer block is split into sentences, or into lines if it is code or a table. A very long
sentence or line is split into grains of a few words, or of a few characters if it has no words. The boundaries of a
unit depend on the text near it and never on its position, so an edit changes only the units around it.

Most paragraphs are never cut. So a paragraph of medium length stays whole at first, and `UnitSplitter.divide` returns
its pieces when a cut must go through it.
"""
# ruff: noqa: RUF001  (Chinese and Japanese punctuation is intended)

from __future__ import annotations

import re
import unicodedata
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from holdfast.content.blocks import Block, BlockKind, parse_blocks
from holdfast.content.token_estimate import MAX_CHARACTER_WEIGHT, TOKEN_WEIGHT, character_weights, sum_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Span = tuple[int, int, int]  # start, end, and the rank of a cut before it; 0 for the first span of a division
    Division = Callable[[str, int, int], Iterator[Span]]


class CutRank:
    """The quality of a cut before a unit; the lowest is best. 1 to 6 are headings, by their level.

    These are plain integers because enums are too slow: they are compared for every few words of a text.
    """

    BLOCK = 7  # a blank line between blocks
    ITEM = 8  # a list item; code, a table, or text after a colon, which belongs to the text before it
    INNER = 9  # something indented, so part of the text before it; a blank line in code
    LINE = 10  # a line of code or of a table; a line end that ends a sentence
    SENTENCE = 11
    BREAK = 12  # a line end inside a sentence, as in wrapped prose
    CLAUSE = 13
    SPACE = 14
    ANY = 15  # between two characters
    GLUED = 16  # after a heading, a code fence, or a table header, which should not be separated from what follows


class Unit(NamedTuple):
    """A part of the text between two possible cuts."""

    start: int
    end: int  # only white space lies between this and the next unit
    start_weight: int  # of the text up to the start of the unit
    end_weight: int  # of the text up to the end of the unit
    cut_key: int  # rank and a hash of the first characters; the lowest key is the best cut
    level: int  # of the heading it begins with, else 0
    solid: bool  # code or table, which has no sentences
    undivided: bool  # can still be split into pieces
    headings: tuple[str, ...]  # above the unit

    @property
    def rank(self) -> int:
        return self.cut_key >> 32

    @property
    def glued(self) -> bool:
        """Whether a cut before the unit is the last resort."""
        return self.cut_key >= _GLUED


def sentence_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the starts of the sentences in a span, except the first."""
    return (first for first, _, rank in _sentences(text, start, end) if rank)


class UnitSplitter:
    """Splits one text into units of at most `size` tokens."""

    def __init__(self, text: str, size: int) -> None:
        self._text = text
        self._weights = character_weights(text)
        self._size = size * TOKEN_WEIGHT
        self._short = self._size // 3
        self._path: list[tuple[int, str]] = []  # level and title of each heading above

    def weigh(self, start: int, end: int) -> int:
        return sum_weights(self._weights[start:end])

    def split(self, whole: int) -> Iterator[Unit]:
        """Yield the units in order, in one pass.

        A paragraph stays undivided if, together with the headings glued to it, it weighs at most `whole`.
        """
        before = Block(0, 0, BlockKind.PROSE)
        tail = opened = 0  # weights up to the end of the previous block, and up to the headings glued to this one
        headings: tuple[str, ...] = ()
        for block in parse_blocks(self._text):
            start, end, kind, level, _ = block
            rank = self._rank(before, block)
            if level:
                headings = self._leave_sections(level)
            head = tail + sum(self._weights[before.end : start])
            tail = head + sum_weights(self._weights[start:end])
            if rank != CutRank.GLUED:
                opened = head
            long = tail - head > self._short
            solid = kind is _CODE or self._text[start] == "|" or (long and self._is_table(start, end))
            key = self._key(rank, start, end)
            unit = _unit((start, end, head, tail, key, level, solid, long and not solid, headings))
            if long and tail - opened > (self._size if solid else whole):
                yield from self._split_lines(unit) if solid else self._split_prose(unit)
            else:
                yield unit
            if level:
                headings = self._enter_section(block)
            before = block

    def divide(self, unit: Unit) -> list[Unit]:
        return list(self._split_prose(unit))

    def _rank(self, before: Block, block: Block) -> int:
        text, start, kind, level = self._text, block.start, block.kind, block.level
        if level and not 0 < before.level < level:
            return level
        if before.level:
            return CutRank.GLUED
        first = text[start]
        if first in " \t":
            return CutRank.INNER
        if kind is _CODE or first == "|" or kind is before.kind is _ITEM:
            return CutRank.ITEM
        if text[before.end - 1 : before.end] in _COLONS or text.count("\n", before.end, start) == 1:
            return CutRank.ITEM
        return CutRank.BLOCK

    def _is_table(self, start: int, end: int) -> bool:
        return self._text.find("|", start, end) >= 0 and _TABLE.match(self._text, start, end) is not None

    def _leave_sections(self, level: int) -> tuple[str, ...]:
        """Close the sections that a heading of this level ends; return the headings that remain."""
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        return self._titles()

    def _enter_section(self, heading: Block) -> tuple[str, ...]:
        """Open the section of a heading; return the headings above the following text."""
        self._path.append((heading.level, heading.title))
        return self._titles()

    def _titles(self) -> tuple[str, ...]:
        return tuple([title for _, title in self._path if title])

    def _split_prose(self, unit: Unit) -> Iterator[Unit]:
        return self._split_recursively(unit, _sentences, _prose_lines, self._grains)

    def _split_lines(self, unit: Unit) -> Iterator[Unit]:
        return self._split_recursively(unit, _lines, self._grains)

    def _split_recursively(self, unit: Unit, divide: Division, *finer: Division) -> Iterator[Unit]:
        """Yield the pieces of a unit, splitting those that are still too long with the finer divisions."""
        tail, past = unit.start_weight, unit.start
        for start, end, rank in divide(self._text, unit.start, unit.end):
            head = tail + sum(self._weights[past:start])
            tail, past = head + sum_weights(self._weights[start:end]), end
            key, level = self._key(rank or unit.rank, start, end), 0 if rank else unit.level
            piece = _unit((start, end, head, tail, key, level, unit.solid, False, unit.headings))
            if finer and tail - head > self._size // 2:
                yield from self._split_recursively(piece, *finer)
            else:
                yield piece

    def _grains(self, text: str, start: int, end: int) -> Iterator[Span]:
        return _grains(text, start, end, self._size // MAX_CHARACTER_WEIGHT // 3)

    def _key(self, rank: int, start: int, end: int) -> int:
        """Combine a rank with a hash of the first characters of a unit."""
        opening = self._text[start : min(end, start + _OPENING)].encode("utf-8", "surrogatepass")
        return rank << 32 | crc32(opening[:_OPENING])


_unit = partial(tuple.__new__, Unit)  # twice as fast as calling Unit
_CODE, _ITEM = BlockKind.CODE, BlockKind.ITEM
_GLUED = CutRank.GLUED << 32
_OPENING = 64  # bytes that are hashed; an edit further on does not change the cut key
_COLONS = (":", "：")
_CLAUSE_ENDS = ",;:，、；：）」』】》"

# Characters that must stay with the one before: accents and vowel signs, joiners, variation selectors, skin tones.
# Every Python has the tables of Unicode 3.2, so the result is the same everywhere; newer and higher characters are
# listed.
_MARKS = "".join(c for c in map(chr, range(0x300, 0x3100)) if unicodedata.ucd_3_2_0.category(c)[0] == "M")
_MARKS += "\u0350-\u036f\u0610-\u061a\u0656-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u200d\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f"
_MARKS += "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef"

_TABLE = re.compile(r"[^\n|]*\|.*\n[ \t]*\|?[ \t]*:?-+:?[ \t\r]*(?:\||$)", re.MULTILINE)
_LINE = re.compile(r"[^\S\n]*\S.*")
# The end of a sentence and the space after it. The pattern begins with a character set, which makes the search fast.
_SENTENCE_END = re.compile(
    rf"""
    [.!?…。！？；]
    (?: (?<=[.!?…]) [])"'”’»*_`]* (?=\s) (?!\s*[a-z])
      | (?<=[。！？；]) [。！？；…」』）】》”’]* (?![{_MARKS}])
    )
    () [^\S\n]* (\n)? \s*
    """,
    re.VERBOSE,
)


def _sentences(text: str, start: int, end: int) -> Iterator[Span]:
    rank, first = 0, start
    for match in _SENTENCE_END.finditer(text, start, end):
        yield first, match.start(1), rank
        rank, first = CutRank.LINE if match[2] else CutRank.SENTENCE, match.end()
    if first < end:
        yield first, end, rank


def _lines(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the lines of code or of a table; fences and table headers are glued to the next line."""
    rank, past, ruled = 0, end, False
    for match in _LINE.finditer(text, start, end):
        first, line = match.start(), match.group().rstrip()
        rule = _is_rule_line(line)
        if first > past:
            blank = text.count("\n", past, first) > 1
            rank = CutRank.GLUED if rule or ruled else CutRank.INNER if blank else CutRank.LINE
        past, ruled = first + len(line), rule
        yield first, past, rank


def _is_rule_line(line: str) -> bool:
    """Return whether the line is a code fence or the rule under a table header."""
    mark = line.lstrip()
    return mark.startswith(("```", "~~~")) or ("-" in mark and not mark.strip("-|: \t"))


def _prose_lines(text: str, start: int, end: int) -> Iterator[Span]:
    return ((first, past, rank and CutRank.BREAK) for first, past, rank in _lines(text, start, end))


def _grains(text: str, start: int, end: int, most: int) -> Iterator[Span]:
    """Yield a few words or characters at a time, at most `2 * most + 1` characters."""
    rank, past = 0, end
    for match in _grain(most).finditer(text, start, end):
        first = match.start()
        if first >= past:
            rank = CutRank.CLAUSE if text[past - 1] in _CLAUSE_ENDS else CutRank.SPACE if first > past else CutRank.ANY
        past = first + len(match.group().rstrip())
        yield first, past, rank


@cache
def _grain(most: int) -> re.Pattern[str]:
    """Return the pattern of grains: up to a near space or comma, else up to a character whose code is divisible by 4.

    Any fixed set of end characters works: since grains end at the same characters wherever they begin, the grains after
    an edit soon coincide with the old ones. Combining marks stay with their character, up to `most` of them.
    """
    fourth = re.escape("".join(map(chr, range(0x24, 0x10000, 4))))
    some = f".{{{most // 4},{most}}}?"
    return re.compile(
        rf"\S(?:{some}(?:(?<=\S)(?=\s|\Z)|(?<=[{_CLAUSE_ENDS}]))|{some}(?<=[{fourth}])|.{{0,{most}}})"
        rf"(?:[{_MARKS}]|(?<=\u200d).){{0,{most}}}"
    )
