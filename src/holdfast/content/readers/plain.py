"""Reads text that needs no parser: plain text, Markdown, tables, data and source code are only decoded.

Decoding is safe, so `reading.read` decodes small files of these formats without the sandbox. They are the common case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.content import errors
from holdfast.content.readers.base import ExtractedText, ReadLimits
from holdfast.content.readers.cleaning import clean, drop_placeholder, first_heading, has_words
from holdfast.content.readers.decoding import DecodedText, decode
from holdfast.content.readers.files import read_bytes
from holdfast.content.readers.formats import MARKDOWN, FileFormat

if TYPE_CHECKING:
    from pathlib import Path

FRONT_MATTER = re.compile(r"---\n((?:.*\n){0,100}?)---(?:\n|$)")
FRONT_TITLE = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE)


def read_plain(path: Path, format_: FileFormat, limits: ReadLimits) -> ExtractedText:
    decoded = decode(read_bytes(path, limits))
    text = clean(decoded.text)
    if not has_words(text):
        raise errors.no_text()
    return ExtractedText(
        text=text,
        title=_title(text) if format_ == MARKDOWN else None,
        metadata=format_.metadata,
        warnings=encoding_warnings(decoded),
    )


def encoding_warnings(decoded: DecodedText) -> tuple[str, ...]:
    return () if decoded.certain else (f"The encoding is not declared; the text was read as {decoded.encoding}.",)


def _title(markdown: str) -> str | None:
    front = FRONT_MATTER.match(markdown)
    named = FRONT_TITLE.search(front[1]) if front else None
    title = drop_placeholder(named[1].strip(" \t'\"")) if named else None
    return title or first_heading(markdown[front.end() :] if front else markdown)
