"""Cleans extracted text: all readers use these functions."""

from __future__ import annotations

import re
from itertools import islice

# NUL and other controls, lone surrogates, byte order marks, characters that Unicode will never assign.
NOISE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
ASCII_NOISE = bytes((*range(9), *range(0x0E, 0x20), 0x7F))  # the ASCII part of NOISE, for the faster `bytes.translate`
GAPS = re.compile(r"\n{3,}")
HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
MARKDOWN_MARKS = re.compile(r"[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}|[ \t]+#+[ \t]*$|\\(?=[^\w\s])")
# Default titles and authors of programs.
PLACEHOLDER = re.compile(
    r"untitled( .*)?|\(?(anonymous|unspecified|unknown)\)?|(powerpoint )?presentation\d*|slide \d+|document\d*|"
    r"microsoft word - .*|python-docx|openpyxl",
    re.IGNORECASE,
)
HEADING_WITHIN_LINES = 500
SHORT = 200


def clean(text: str) -> str:
    """Normalise line ends, strip trailing blanks, and remove control characters and other noise."""
    # A regular expression would be quadratic on long runs of blanks.
    return "\n".join(map(str.rstrip, _drop_noise(text).splitlines())).strip("\n")


def _drop_noise(text: str) -> str:
    return text.encode().translate(None, ASCII_NOISE).decode() if text.isascii() else NOISE.sub("", text)


def collapse_blank_lines(text: str) -> str:
    return GAPS.sub("\n\n", text).strip("\n")


def has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def to_short_line(value: object) -> str:
    """Return a metadata value as one short line; empty if there is no value."""
    return " ".join(clean(str(value or "")).split())[:SHORT].rstrip()


def drop_placeholder(value: object) -> str | None:
    """Return a title or a name from metadata; None if it is empty or a default of a program."""
    line = to_short_line(value)
    return None if not has_words(line) or PLACEHOLDER.fullmatch(line) else line


def strip_markdown(heading: str) -> str:
    return to_short_line(MARKDOWN_MARKS.sub("", heading))


def first_heading(markdown: str) -> str | None:
    """Return the first heading outside code fences, without Markdown marks."""
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
