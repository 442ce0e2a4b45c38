"""Which entries of a folder are left out, by patterns as in .gitignore.

Patterns match as git documents it: on bytes, against the path below the folder of their file. The last pattern that
matches decides, and nothing below an ignored folder is matched. The library pathspec disagrees with git, and one
hostile pattern stops it (docs/decisions/0017).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Self

from holdfast.sources.wildcards import InvalidPattern, translate_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GIT_FILE, OWN_FILE = ".gitignore", ".holdfastignore"
# Rarely documents: hidden entries, caches of programs, backups of editors.
DEFAULT_PATTERN_LINES = (
    ".*",
    "node_modules/",
    "__pycache__/",
    "__MACOSX/",
    "$RECYCLE.BIN/",
    "System Volume Information/",
    "lost+found/",
    "*.py[cod]",
    "*~",
    "\\#*#",
    "*.bak",
    "*.sw[a-p]",
    "*.tmp",
    "~$*",
    "*.part",
    "*.crdownload",
    "Thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
)
UTF8_BOM = b"\xef\xbb\xbf"


class IgnorePattern(NamedTuple):
    """One line of an ignore file."""

    expression: bytes
    negated: bool  # begins with `!`: a match stays
    folders_only: bool  # ends in `/`
    name_only: bool  # has no other `/`: matches the last part of a path


class PatternGroup(NamedTuple):
    """Consecutive patterns with the same flags, as one expression."""

    match: re.Pattern[bytes]
    negated: bool
    folders_only: bool
    name_only: bool


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of the ignore file in the folder `base`: empty for the root, else it ends in `/`."""

    base: bytes = b""
    groups: tuple[PatternGroup, ...] = ()  # the last first

    @classmethod
    def parse(cls, text: bytes, base: bytes = b"") -> Self:
        """Parse the lines of a file; lines that git ignores are skipped."""
        runs = tuple(
            PatternGroup(re.compile(b"(?:" + b"|".join(one.expression for one in alike) + rb")\Z", re.DOTALL), *meaning)
            for meaning, alike in groupby(_parsed(text), key=lambda pattern: pattern[1:])
        )
        return cls(base, runs[::-1])

    def verdict(self, path: bytes, *, folder: bool) -> bool | None:
        """Return True if the path is ignored, False if a `!` pattern keeps it, None if no pattern matches."""
        below = path[len(self.base) :]
        name = below[below.rfind(b"/") + 1 :]
        for run in self.groups:
            if (folder or not run.folders_only) and run.match.match(name if run.name_only else below):
                return not run.negated
        return None


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """All patterns for the entries of one folder, those of the deepest file first.

    Our own files and the patterns of the request decide first. If none of them matches, git's files and the usual
    patterns can each ignore an entry, and neither can bring back what the other ignores.
    """

    own: tuple[IgnoreFile, ...] = ()
    git: tuple[IgnoreFile, ...] = ()
    defaults: tuple[IgnoreFile, ...] = ()

    def with_subfolder(self, *, git: IgnoreFile | None = None, own: IgnoreFile | None = None) -> Self:
        """Add the ignore files of a subfolder."""
        return type(self)(
            own=(own, *self.own) if own else self.own, git=(git, *self.git) if git else self.git, defaults=self.defaults
        )

    def ignores(self, path: bytes, *, folder: bool) -> bool:
        """Return whether an entry is ignored; its parent folder must not be."""
        said = _first(self.own, path, folder=folder)
        if said is not None:
            return said
        return bool(_first(self.git, path, folder=folder)) or bool(_first(self.defaults, path, folder=folder))


def _first(levels: Iterable[IgnoreFile], path: bytes, *, folder: bool) -> bool | None:
    for patterns in levels:
        said = patterns.verdict(path, folder=folder)
        if said is not None:
            return said
    return None


def _parsed(text: bytes) -> Iterator[IgnorePattern]:
    for line in text.removeprefix(UTF8_BOM).split(b"\n"):
        pattern = _without_trailing_blanks(line.removesuffix(b"\r"))
        if pattern.startswith(b"#"):
            continue
        keeps = pattern.startswith(b"!")
        pattern = pattern[1:] if keeps else pattern
        folders_only = pattern.endswith(b"/")
        pattern = pattern[:-1] if folders_only else pattern
        try:
            expression = translate_pattern(pattern.removeprefix(b"/"))
        except InvalidPattern:
            continue
        yield IgnorePattern(expression, keeps, folders_only, name_only=b"/" not in pattern)


def _without_trailing_blanks(line: bytes) -> bytes:
    """Remove trailing blanks, except one that a backslash escapes."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and kept != line else kept


DEFAULT_PATTERNS = IgnoreFile.parse("\n".join(DEFAULT_PATTERN_LINES).encode())
