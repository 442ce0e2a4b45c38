"""The smallest pieces a chunk is made of, each with its weight and with how good a place to cut lies before it.

A block that is short enough is one unit. A longer one becomes sentences, or lines when it is code or a table; a
sentence or line without end becomes grains of some words, or of some characters where it has no words. A unit is found
by what it says and never by how much text precedes it, so an edit changes the units around it and no others.

Most paragraphs are never cut. So one of middle length stays whole at first; `Units.divided` gives its pieces when a cut
must go through it.
"""
# ruff: noqa: RUF001  (the wide punctuation of Chinese and Japanese is meant)

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

    Span = tuple[int, int, int]  # start, end, and the rank of a cut before it; 0 if it begins what was divided
    Division = Callable[[str, int, int], Iterator[Span]]


class CutRank:
    """How good it is to cut before a unit; the least is best. 1 to 6 are headings, by their level.

    Plain numbers: they are compared for every few words of a text, which enums are too slow for.
    """

    BLOCK = 7  # a blank line between blocks
    ITEM = 8  # a list item; code, a table, or what follows a colon: all belong to the text before them
    INNER = 9  # something indented, so part of what precedes it; a blank line in code
    LINE = 10  # a line of code or of a table; a line end that ends a sentence
    SENTENCE = 11
    BREAK = 12  # a line end inside a sentence, as prose has it that was wrapped
    CLAUSE = 13
    SPACE = 14
    ANY = 15  # between two characters
    GLUED = 16  # after a heading, a fence, or the head of a table: they should not stand alone


class Unit(NamedTuple):
    """A piece of the text between two places to cut. Weights are counted from the start of the text."""

    start: int
    end: int  # from here to the next unit is nothing but white space
    start_weight: int  # weight of the text up to its start
    end_weight: int  # weight of the text up to its end
    cut_key: int  # rank, then a hash of its opening: among several, cut before the least
    level: int  # of the heading it begins with, else 0
    solid: bool  # code or table, which has no sentences
    undivided: bool  # it has pieces that were not looked for yet
    headings: tuple[str, ...]  # those it stands under, itself not among them

    @property
    def rank(self) -> int:
        """How good it is to cut before it."""
        return self.cut_key >> 32

    @property
    def glued(self) -> bool:
        """Tell whether a cut before it is what is done if nothing else is left."""
        return self.cut_key >= _GLUED


def sentence_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where sentences begin in this part of the text, other than at its start."""
    return (first for first, _, rank in _sentences(text, start, end) if rank)


class UnitSplitter:
    """The units of one text, none of them heavier than a chunk of so many tokens."""

    def __init__(self, text: str, size: int) -> None:
        self._text = text
        self._weights = character_weights(text)
        self._size = size * TOKEN_WEIGHT
        self._short = self._size // 3
        self._path: list[tuple[int, str]] = []  # level and title of each heading above

    def weigh(self, start: int, end: int) -> int:
        """Return the weight of what lies between two places."""
        return sum_weights(self._weights[start:end])

    def split(self, whole: int) -> Iterator[Unit]:
        """Yield the units in order, in one pass.

        A paragraph that weighs, with the headings it must stand with, no more than `whole` is not divided yet.
        """
        before = Block(0, 0, BlockKind.PROSE)
        tail = opened = 0  # weight up to the end of the block before; up to the headings that must stand with this one
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
        """Return the pieces of a unit that is still whole."""
        return list(self._split_prose(unit))

    def _rank(self, before: Block, block: Block) -> int:
        """Tell how good it is to cut before this block."""
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
        """Leave every section that ends where a heading of this level begins; return the headings that stay."""
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        return self._titles()

    def _enter_section(self, heading: Block) -> tuple[str, ...]:
        """Enter the section of a heading; return the headings that what follows stands under."""
        self._path.append((heading.level, heading.title))
        return self._titles()

    def _titles(self) -> tuple[str, ...]:
        return tuple([title for _, title in self._path if title])

    def _split_prose(self, unit: Unit) -> Iterator[Unit]:
        return self._split_recursively(unit, _sentences, _prose_lines, self._grains)

    def _split_lines(self, unit: Unit) -> Iterator[Unit]:
        return self._split_recursively(unit, _lines, self._grains)

    def _split_recursively(self, unit: Unit, divide: Division, *finer: Division) -> Iterator[Unit]:
        """Yield the pieces of a unit, and of each that is still too long its own."""
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
        """Join a rank with a hash of how a unit opens."""
        opening = self._text[start : min(end, start + _OPENING)].encode("utf-8", "surrogatepass")
        return rank << 32 | crc32(opening[:_OPENING])


_unit = partial(tuple.__new__, Unit)  # from its cells, in less than half the time
_CODE, _ITEM = BlockKind.CODE, BlockKind.ITEM
_GLUED = CutRank.GLUED << 32
_OPENING = 64  # bytes by which a unit is told from others; what is edited further on does not matter
_COLONS = (":", "：")
_CLAUSE_ENDS = ",;:，、；：）」』】》"

# What must stay with the character before it: accents and vowel signs, joiners, variants, tones of skin. Unicode 3.2 is
# the one edition that every Python has; what it does not know, or has far behind, is named.
_MARKS = "".join(c for c in map(chr, range(0x300, 0x3100)) if unicodedata.ucd_3_2_0.category(c)[0] == "M")
_MARKS += "\u0350-\u036f\u0610-\u061a\u0656-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u200d\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f"
_MARKS += "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef"

_TABLE = re.compile(r"[^\n|]*\|.*\n[ \t]*\|?[ \t]*:?-+:?[ \t\r]*(?:\||$)", re.MULTILINE)
_LINE = re.compile(r"[^\S\n]*\S.*")
# The end of a sentence, and the space after it. It begins with one set of characters, which makes the search fast.
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
    """Yield the lines of code or of a table; fences and the head of a table stay with the line beside them."""
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
    """Tell whether the line is a fence, or the rule under the head of a table."""
    mark = line.lstrip()
    return mark.startswith(("```", "~~~")) or ("-" in mark and not mark.strip("-|: \t"))


def _prose_lines(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the lines of prose."""
    return ((first, past, rank and CutRank.BREAK) for first, past, rank in _lines(text, start, end))


def _grains(text: str, start: int, end: int, most: int) -> Iterator[Span]:
    """Yield a few words or characters at a time, no more than twice so many and one."""
    rank, past = 0, end
    for match in _grain(most).finditer(text, start, end):
        first = match.start()
        if first >= past:
            rank = CutRank.CLAUSE if text[past - 1] in _CLAUSE_ENDS else CutRank.SPACE if first > past else CutRank.ANY
        past = first + len(match.group().rstrip())
        yield first, past, rank


@cache
def _grain(most: int) -> re.Pattern[str]:
    """Return what finds grains: up to a space or comma if one is near, else up to some character of every fourth kind.

    Which characters end a grain does not matter as long as it depends on nothing else: so the grains after an edit soon
    fall into step with those before it. Marks stay with their character, up to as many as a grain has characters.
    """
    fourth = re.escape("".join(map(chr, range(0x24, 0x10000, 4))))
    some = f".{{{most // 4},{most}}}?"
    return re.compile(
        rf"\S(?:{some}(?:(?<=\S)(?=\s|\Z)|(?<=[{_CLAUSE_ENDS}]))|{some}(?<=[{fourth}])|.{{0,{most}}})"
        rf"(?:[{_MARKS}]|(?<=\u200d).){{0,{most}}}"
    )
