"""Text that needs no parser: plain text, Markdown, tables, data and source code are decoded and kept as they are.

Decoding can do no harm, so small files of these kinds are read without a cage; they are the common case.
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


class PlainReader:
    """Reads what is text already."""

    def __init__(self, kind: FileFormat, limits: ReadLimits) -> None:
        self._kind = kind
        self._limits = limits

    def read(self, path: Path, name: str) -> ExtractedText:  # noqa: ARG002 - the kind is known
        """Decode the file."""
        decoded = decode(read_bytes(path, self._limits))
        text = clean(decoded.text)
        if not has_words(text):
            raise errors.no_text()
        return ExtractedText(
            text=text,
            title=_title(text) if self._kind == MARKDOWN else None,
            metadata=self._kind.metadata,
            warnings=encoding_warnings(decoded),
        )


def encoding_warnings(decoded: DecodedText) -> tuple[str, ...]:
    """Say that an encoding was guessed."""
    return () if decoded.certain else (f"The encoding is not declared; the text was read as {decoded.encoding}.",)


def _title(markdown: str) -> str | None:
    front = FRONT_MATTER.match(markdown)
    named = FRONT_TITLE.search(front[1]) if front else None
    title = drop_placeholder(named[1].strip(" \t'\"")) if named else None
    return title or first_heading(markdown[front.end() :] if front else markdown)
