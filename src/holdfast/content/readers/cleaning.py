"""Text as we keep it: what every reader does to its words before it hands them over."""

from __future__ import annotations

import re
from itertools import islice

# NUL and other controls, lone surrogates, byte order marks, characters that Unicode will never assign.
NOISE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
ASCII_NOISE = bytes((*range(9), *range(0x0E, 0x20), 0x7F))  # as far as it is in ASCII, where it is looked for faster
GAPS = re.compile(r"\n{3,}")
HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
MARKDOWN_MARKS = re.compile(r"[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}|[ \t]+#+[ \t]*$|\\(?=[^\w\s])")
# What programs write where nobody said anything.
PLACEHOLDER = re.compile(
    r"untitled( .*)?|\(?(anonymous|unspecified|unknown)\)?|(powerpoint )?presentation\d*|slide \d+|document\d*|"
    r"microsoft word - .*|python-docx|openpyxl",
    re.IGNORECASE,
)
HEADING_WITHIN_LINES = 500
SHORT = 200


def clean(text: str) -> str:
    """Make lines end in one newline and without blanks, and drop what is no text."""
    # Not a regular expression: that would be quadratic on long runs of blanks.
    return "\n".join(map(str.rstrip, _drop_noise(text).splitlines())).strip("\n")


def _drop_noise(text: str) -> str:
    return text.encode().translate(None, ASCII_NOISE).decode() if text.isascii() else NOISE.sub("", text)


def collapse_blank_lines(text: str) -> str:
    """Leave at most one empty line between paragraphs."""
    return GAPS.sub("\n\n", text).strip("\n")


def has_words(text: str) -> bool:
    """Tell whether there is anything to find in a text."""
    return any(character.isalnum() for character in text)


def to_short_line(value: object) -> str:
    """Make one short line of a piece of metadata; empty if there is nothing to say."""
    return " ".join(clean(str(value or "")).split())[:SHORT].rstrip()


def drop_placeholder(value: object) -> str | None:
    """Take a title or a name from metadata, unless a program made it up."""
    line = to_short_line(value)
    return None if not has_words(line) or PLACEHOLDER.fullmatch(line) else line


def strip_markdown(heading: str) -> str:
    """Return the words of a heading without Markdown marks, as titles are kept."""
    return to_short_line(MARKDOWN_MARKS.sub("", heading))


def first_heading(markdown: str) -> str | None:
    """Find the first heading outside fenced code, as words without marks."""
    fence, above = "", ""
    for line in islice(markdown.split("\n"), HEADING_WITHIN_LINES):
        edge = FENCE.match(line)
        if edge and edge[1].startswith(fence):  # ends with at least as many marks as it began with
            fence = "" if fence else edge[1]
        elif not fence:
            found = HEADING.fullmatch(line)
            words = found[1] if found else above if UNDERLINE.fullmatch(line) else ""
            if has_words(words):
                return strip_markdown(words)
            above = line.strip()
    return None
