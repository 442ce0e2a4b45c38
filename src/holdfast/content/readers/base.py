"""The contract of readers: `(path, format, limits) -> ExtractedText`.

A reader turns one file into text and keeps its structure as Markdown where the format has one. It keeps no state
between files, uses no network, and raises a `Permanent` from `content.errors` for a file that it cannot read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.content.errors import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedText:
    """The text of one file. The same bytes always give the same result."""

    text: str  # Markdown or plain; lines end in \n; no NUL, no lone surrogate, no control character but \n and \t
    title: str | None = None  # from the metadata, else the first heading
    pages: tuple[int, ...] = ()  # offset of each page or slide in the text, if known
    metadata: Mapping[str, str] = field(default_factory=dict)  # author, created, language, mime …: short lines
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much one file may cost. A file beyond a limit is refused, never truncated."""

    seconds: float = 120  # of wall time, and of processor time
    memory: int = 1024 * MIB  # private writable memory of the child (RLIMIT_DATA), including 30 MiB for itself
    pages: int = 5000
    expanded: int = 512 * MIB  # unpacked size of a zip-based document, measured by unpacking it
    text: int = 64 * MIB  # characters
    bytes: int = 256 * MIB  # of the file itself
