"""Splits a Markdown text into blocks: headings, code, list items, and paragraphs.

This is not a Markdown parser. One pass of one regular expression finds the places where a text may be cut and the
headings above them. Everything unknown is a paragraph, so any text can be split. Two differences to CommonMark are
intended: a code fence may be indented, as it is inside lists, and every list item is its own block, nested or not.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLE_LENGTH = 200  # characters; even a very long line may begin with a hash


class BlockKind(IntEnum):
    PROSE = 0  # a paragraph, a table, or anything unknown
    ITEM = 1  # a list item with its lines
    CODE = 2  # a fenced block with its fences; the front matter of a file
    HEADING = 3  # a line that begins with hashes, or underlined lines


class Block(NamedTuple):
    """A span of the text, from the start of its line to its last visible character."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0  # of a heading, 1 to 6
    title: str = ""  # of a heading


_UNDERLINE = r"[ ]{0,3}(?:=+|-+)[ \t\r]*$"
_INTERRUPTS = r"\s*?\n | [ \t]*(?:```|~~~|[-*+][ \t]|\d{1,9}[.)][ \t]) | [ ]{0,3}\#{1,6}(?:\s|\Z)"

_BLOCK = re.compile(
    rf"""
      (?P<matter>\A---[ \t\r]*\n(?:[^\S\n]*\S.*\n)*?---[ \t\r]*$)
    | ^[ \t]*(?P<code>(?P<fence>```+(?=[^`\n]*$)|~~~+).*(?:\n.*)*?(?:\n[ \t]*(?P=fence)[`~]*[ \t\r]*$|\Z))
    | ^[ ]{{0,3}}(?P<hashes>\#{{1,6}})(?P<heading>[ \t].*|\r?)$
    | ^(?P<item>[ \t]*(?:[-*+]|\d{{1,9}}[.)])[ \t].*(?:\n(?!{_INTERRUPTS}).*)*)
    | ^(?P<prose>[^\S\n]*\S.*(?:\n(?!{_INTERRUPTS}|{_UNDERLINE}).*)*)(?P<underline>\n{_UNDERLINE})?
    """,
    re.VERBOSE | re.MULTILINE,
)
_KINDS = {"matter": BlockKind.CODE, "code": BlockKind.CODE, "item": BlockKind.ITEM, "prose": BlockKind.PROSE}
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+$")


def parse_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of the text in order; only white space lies between them."""
    for match in _BLOCK.finditer(text):
        start, end = match.span()
        if text[end - 1].isspace():
            end = start + len(match.group().rstrip())
        group = match.lastgroup or ""
        if group in _KINDS:
            yield tuple.__new__(Block, (start, end, _KINDS[group], 0, ""))
        else:
            yield _heading(match, start, end)


def _heading(match: re.Match[str], start: int, end: int) -> Block:
    """Return the heading block; a rule under a rule has no title and counts as prose."""
    if match.lastgroup == "heading":
        title = _CLOSING_HASHES.sub("", match["heading"].strip())
        return Block(start, end, BlockKind.HEADING, len(match["hashes"]), title[:TITLE_LENGTH].strip())
    title = " ".join(match["prose"][: 2 * TITLE_LENGTH].split())[:TITLE_LENGTH].strip()
    level = 1 if "=" in match["underline"] else 2
    return (
        Block(start, end, BlockKind.HEADING, level, title)
        if title.strip("-=*_ ")
        else Block(start, end, BlockKind.PROSE)
    )
