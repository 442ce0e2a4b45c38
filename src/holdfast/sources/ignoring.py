"""Which entries of a folder are left out, by patterns as in .gitignore.

Patterns are matched as git documents them: on bytes, each against the path below the folder of its file, the last one
that matches decides, and what lies in a left-out folder is never asked about. Expressions are built so that they never
scan back: a pattern made to keep a scanner busy costs as much as any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Self

from holdfast.sources.wildcards import Hopeless, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GIT_FILE, OWN_FILE = ".gitignore", ".holdfastignore"
# What nobody means by "my documents": hidden entries, what programs keep for themselves, backups of editors.
USUALLY_LEFT_OUT = (
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
MARK = b"\xef\xbb\xbf"


class Pattern(NamedTuple):
    """One line of a file: what it matches, and what that means."""

    expression: bytes
    keeps: bool  # it begins with `!`: what it matches stays
    folders_only: bool  # it ends in `/`
    name_only: bool  # it has no other `/`: the last part of a path alone is asked about


class Run(NamedTuple):
    """Patterns that follow each other and mean the same, matched at once."""

    match: re.Pattern[bytes]
    keeps: bool
    folders_only: bool
    name_only: bool


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one file, which stand for the folder `base`; empty is the root, others end in `/`."""

    base: bytes = b""
    runs: tuple[Run, ...] = ()  # the last first

    @classmethod
    def read(cls, text: bytes, base: bytes = b"") -> Self:
        """Read the lines of a file. A line that means nothing is passed over."""
        runs = tuple(
            Run(re.compile(b"(?:" + b"|".join(one.expression for one in alike) + rb")\Z", re.DOTALL), *meaning)
            for meaning, alike in groupby(_parsed(text), key=lambda pattern: pattern[1:])
        )
        return cls(base, runs[::-1])

    def verdict(self, path: bytes, *, folder: bool) -> bool | None:
        """Tell whether a path is left out (True) or kept (False); None if nothing here speaks of it."""
        below = path[len(self.base) :]
        name = below[below.rfind(b"/") + 1 :]
        for run in self.runs:
            if (folder or not run.folders_only) and run.match.match(name if run.name_only else below):
                return not run.keeps
        return None


@dataclass(frozen=True, slots=True)
class Ignoring:
    """All patterns that speak of the entries of one folder; the deepest file comes first.

    What our own files and the given patterns say decides. Where they say nothing, git's files and the usual patterns
    can leave an entry out, and neither can bring back what the other leaves out.
    """

    own: tuple[Patterns, ...] = ()
    git: tuple[Patterns, ...] = ()
    usual: tuple[Patterns, ...] = ()

    def below(self, *, git: Patterns | None = None, own: Patterns | None = None) -> Self:
        """Add the files of a folder."""
        return type(self)(
            own=(own, *self.own) if own else self.own, git=(git, *self.git) if git else self.git, usual=self.usual
        )

    def ignores(self, path: bytes, *, folder: bool) -> bool:
        """Tell whether an entry is left out; its folder is not."""
        said = _first(self.own, path, folder=folder)
        if said is not None:
            return said
        return bool(_first(self.git, path, folder=folder)) or bool(_first(self.usual, path, folder=folder))


def _first(levels: Iterable[Patterns], path: bytes, *, folder: bool) -> bool | None:
    for patterns in levels:
        said = patterns.verdict(path, folder=folder)
        if said is not None:
            return said
    return None


def _parsed(text: bytes) -> Iterator[Pattern]:
    for line in text.removeprefix(MARK).split(b"\n"):
        pattern = _without_trailing_blanks(line.removesuffix(b"\r"))
        if pattern.startswith(b"#"):
            continue
        keeps = pattern.startswith(b"!")
        pattern = pattern[1:] if keeps else pattern
        folders_only = pattern.endswith(b"/")
        pattern = pattern[:-1] if folders_only else pattern
        try:
            expression = translated(pattern.removeprefix(b"/"))
        except Hopeless:
            continue
        yield Pattern(expression, keeps, folders_only, name_only=b"/" not in pattern)


def _without_trailing_blanks(line: bytes) -> bytes:
    """Drop blanks at the end, unless a backslash stands before them."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and kept != line else kept


USUAL = Patterns.read("\n".join(USUALLY_LEFT_OUT).encode())
