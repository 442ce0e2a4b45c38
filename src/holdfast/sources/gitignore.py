"""Decides which entries of a folder are ignored, by patterns as in .gitignore.

Patterns match as git documents it: on bytes, against the path below the folder of the ignore file. The last matching
pattern decides, and nothing below an ignored folder is matched. The library pathspec deviates from git, and a hostile
pattern makes it hang (docs/decisions/0017).
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
# Hidden entries, caches and backups are rarely documents.
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
    negated: bool  # begins with `!`: a match is not ignored
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
    """The patterns of one ignore file."""

    base: bytes = b""  # its folder: empty for the root, else ending in `/`
    groups: tuple[PatternGroup, ...] = ()  # the last first

    @classmethod
    def parse(cls, text: bytes, base: bytes = b"") -> Self:
        """Parse an ignore file; lines that git ignores are skipped."""
        groups = tuple(
            PatternGroup(re.compile(b"(?:" + b"|".join(one.expression for one in same) + rb")\Z", re.DOTALL), *flags)
            for flags, same in groupby(_parsed(text), key=lambda pattern: pattern[1:])
        )
        return cls(base, groups[::-1])

    def verdict(self, path: bytes, *, folder: bool) -> bool | None:
        """Return True if the path is ignored, False if a `!` pattern keeps it, None if no pattern matches."""
        below = path[len(self.base) :]
        name = below[below.rfind(b"/") + 1 :]
        for group in self.groups:
            if (folder or not group.folders_only) and group.match.match(name if group.name_only else below):
                return not group.negated
        return None


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """All patterns for the entries of one folder, those of the deepest file first.

    Files named .holdfastignore and the patterns of the request decide first. If none of them matches, .gitignore files
    and the default patterns can each ignore an entry, and neither can include what the other ignores.
    """

    own: tuple[IgnoreFile, ...] = ()
    git: tuple[IgnoreFile, ...] = ()
    defaults: tuple[IgnoreFile, ...] = ()

    def with_subfolder(self, *, git: IgnoreFile | None = None, own: IgnoreFile | None = None) -> Self:
        """Return these rules with the ignore files of a subfolder."""
        return type(self)(
            own=(own, *self.own) if own else self.own, git=(git, *self.git) if git else self.git, defaults=self.defaults
        )

    def ignores(self, path: bytes, *, folder: bool) -> bool:
        """Return whether an entry is ignored; its parent folder must not be."""
        verdict = _first(self.own, path, folder=folder)
        if verdict is not None:
            return verdict
        return bool(_first(self.git, path, folder=folder)) or bool(_first(self.defaults, path, folder=folder))


def _first(files: Iterable[IgnoreFile], path: bytes, *, folder: bool) -> bool | None:
    verdicts = (file.verdict(path, folder=folder) for file in files)
    return next((verdict for verdict in verdicts if verdict is not None), None)


def _parsed(text: bytes) -> Iterator[IgnorePattern]:
    for line in text.removeprefix(UTF8_BOM).split(b"\n"):
        pattern = _without_trailing_blanks(line.removesuffix(b"\r"))
        if pattern.startswith(b"#"):
            continue
        negated = pattern.startswith(b"!")
        pattern = pattern[1:] if negated else pattern
        folders_only = pattern.endswith(b"/")
        pattern = pattern[:-1] if folders_only else pattern
        try:
            expression = translate_pattern(pattern.removeprefix(b"/"))
        except InvalidPattern:
            continue
        yield IgnorePattern(expression, negated, folders_only, name_only=b"/" not in pattern)


def _without_trailing_blanks(line: bytes) -> bytes:
    """Remove trailing blanks, except one that a backslash escapes."""
    stripped = line.rstrip(b" ")
    backslashes = len(stripped) - len(stripped.rstrip(b"\\"))
    return stripped + b" " if backslashes % 2 and stripped != line else stripped


DEFAULT_PATTERNS = IgnoreFile.parse("\n".join(DEFAULT_PATTERN_LINES).encode())
