"""Reads Jupyter notebooks: Markdown cells unchanged, code cells and their printed output in code fences.

kreuzberg is not used here because it joins the lines of prose and corrupts characters beyond ASCII.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers.base import ExtractedText, ReadLimits
from holdfast.content.readers.cleaning import clean, first_heading, has_words, to_short_line
from holdfast.content.readers.decoding import decode
from holdfast.content.readers.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.content.readers.formats import FileFormat

BACKTICKS = re.compile(r"`{3,}")
OUTPUT_CHARACTERS = 2000  # per cell: enough to find a result without a whole training log


def read_notebook(path: Path, format_: FileFormat, limits: ReadLimits) -> ExtractedText:
    try:
        notebook = json.loads(decode(read_bytes(path, limits)).text)
        language = to_short_line(notebook.get("metadata", {}).get("kernelspec", {}).get("language", ""))
        text = clean("\n\n".join(part for cell in notebook["cells"] for part in _parts(cell, language)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise errors.unreadable() from None
    if not has_words(text):
        raise errors.no_text()
    metadata = format_.metadata | ({"programming_language": language} if language else {})
    return ExtractedText(text=text, title=first_heading(text), metadata=metadata)


def _parts(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", ""))
    if cell.get("cell_type") != "code":
        yield source
        return
    if source.strip():
        yield _fenced(source, language)
    output = "".join(_output_text(output) for output in cell.get("outputs", ()))[:OUTPUT_CHARACTERS]
    if output.strip():
        yield _fenced(output, "")


def _output_text(output: dict[str, Any]) -> str:
    """Return the plain text form of an output; pictures and widgets have none."""
    return _joined(output.get("text") or output.get("data", {}).get("text/plain", ""))


def _joined(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def _fenced(code: str, language: str) -> str:
    longest = max((len(run) for run in BACKTICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"
