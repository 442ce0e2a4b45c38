"""What every reader takes and gives: a file within limits, and its text.

A reader turns one file into text with its structure kept as Markdown where the format has any. It keeps no state
between files, asks no network, and refuses what it cannot read with a `Permanent` from `refusals`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedText:
    """The text of one file. The same bytes give the same reading."""

    text: str  # Markdown or plain; lines end in \n; no NUL, no lone surrogate, no control character but \n and \t
    title: str | None = None  # from the metadata, else the first heading
    pages: tuple[int, ...] = ()  # where each page or slide begins in the text, where pages are known
    metadata: Mapping[str, str] = field(default_factory=dict)  # author, created, language, mime …: short lines
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much one file may cost. What exceeds a limit is refused, never cut."""

    seconds: float = 120  # of wall time, and of processor time
    memory: int = 1024 * MIB  # private writable memory of the child (RLIMIT_DATA), its own 30 MiB included
    pages: int = 5000
    expanded: int = 512 * MIB  # what a zip-based document unpacks to, counted by unpacking it
    text: int = 64 * MIB  # characters
    bytes: int = 256 * MIB  # of the file itself


class Reader(Protocol):
    """Reads one family of files."""

    def read(self, path: Path, name: str) -> ExtractedText:
        """Read the file at `path`; `name` is what people call it. Refuses with `Permanent`."""
        ...
