"""What lies below a folder, and reading it without being led elsewhere.

A scan never follows a link into a folder, never opens what is no regular file, and holds a descriptor of each folder
it is in, so that a folder that is swapped for a link meanwhile leads nowhere. A file that is found is opened the same
way, step by step from the root. What cannot be seen is reported and does not stop a scan.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from holdfast.content.errors import file_missing, not_a_file
from holdfast.content.readers.files import explained
from holdfast.sources import errors
from holdfast.sources.folder_limits import NO_LIMITS, Fences, FolderLimits, is_own_name
from holdfast.sources.gitignore import GIT_FILE, OWN_FILE, USUAL, Ignoring, Patterns
from holdfast.wellformed import nfc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.clock import Moment

ALWAYS_LEFT_OUT = frozenset({".git", ".hg", ".svn"})  # no pattern brings them back
IGNORE_FILE_BYTES = 1 << 20
LONGEST_NAME = 255  # bytes, on every file system we meet
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
COARSE_NS = 2_000_000_000  # the coarsest clock of a file system we meet


class Stamp(NamedTuple):
    """What changes when a file does. Equal stamps mean the same content, if the stamp is `settled`."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    def settled(self, seen: Moment) -> bool:
        """Tell whether a later change would show: the last one lies longer back than a tick of the file's clock."""
        return max(self.modified_ns, self.changed_ns) + COARSE_NS < seen * 1000


class Why(StrEnum):
    """Why an entry was not yielded as a file."""

    IGNORED = "ignored"  # a pattern leaves it out
    LINK = "link"  # a link that is not followed
    LINK_OUTSIDE = "link_outside"  # a link that leaves the root, or leads nowhere
    SPECIAL = "special"  # a socket, a pipe or a device
    BAD_NAME = "bad_name"  # the name is not UTF-8
    SAME_NAME = "same_name"  # another file beside it has the same name in another Unicode spelling
    OWN_DATA = "own_data"  # files of Holdfast itself
    UNREADABLE = "unreadable"  # the system refused to show it
    TOO_DEEP = "too_deep"
    TOO_MANY = "too_many"  # the scan ends here


UNSEEN = frozenset({Why.UNREADABLE, Why.TOO_DEEP, Why.TOO_MANY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A regular file: its path below the root, and where its bytes are, which differs for a followed link only."""

    path: str
    stamp: Stamp
    opens: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """An entry that was left out; of a folder, all that lies in it."""

    path: str  # to be shown; a byte that is no text is written as \\xNN
    why: Why

    @property
    def unseen(self) -> bool:
        """Whether files may still be there: what was found before must not be taken for gone."""
        return self.why in UNSEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRules:
    """What of a folder is wanted."""

    patterns: tuple[str, ...] = ()  # as in .gitignore, for the root; `!` brings back what is usually left out
    usual: bool = True  # leave out hidden files, backups and what programs keep for themselves
    git: bool = True  # heed .gitignore files
    links: bool = False  # follow links to files below the root
    files: int = 100_000
    depth: int = 64
    limits: FolderLimits = NO_LIMITS

    @property
    def ignoring(self) -> Ignoring:
        """The patterns that hold before any file in the folder is read."""
        given = Patterns.read("\n".join(self.patterns).encode("utf-8", "surrogatepass"))
        return Ignoring(own=(given,) if given.runs else (), usual=(USUAL,) if self.usual else ())


EVERYTHING_USUAL = FolderRules()


class Opened:
    """A file that is being read, and its stamp before the first byte."""

    def __init__(self, file: BinaryIO, stamp: Stamp) -> None:
        self._file = file
        self.stamp = stamp

    def read(self, most: int = -1) -> bytes:
        """Read on, `most` bytes or all that is left; empty at the end."""
        with explained():
            return self._file.read(most)


def scan(root: Path, rules: FolderRules = EVERYTHING_USUAL) -> Iterator[Found | Skipped]:
    """Yield what lies below a folder, in the order of paths part by part; the same tree gives the same order.

    Our own data is left out. Raises `Permanent` if the folder itself is our own or not allowed, and `Transient` if it
    is not there: a drive that is not mounted is no empty folder.
    """
    with ExitStack() as held:
        fences = Fences(rules.limits)
        descriptor = _open_root(root, fences)
        held.callback(os.close, descriptor)
        found = 0
        for one in _Scan(root, rules, fences).walk(descriptor, "", rules.ignoring, 1):
            if isinstance(one, Found):
                found += 1
                if found > rules.files:
                    yield Skipped(path=shown(one.path), why=Why.TOO_MANY)
                    return
            yield one


def require_allowed(root: Path, limits: FolderLimits) -> None:
    """Raise what a scan of this folder would raise before it reads anything."""
    os.close(_open_root(root, Fences(limits)))


@contextmanager
def open_found(root: Path, relative: str, limits: FolderLimits = NO_LIMITS) -> Iterator[Opened]:
    """Open a file below the root, and raise `Transient` at the end if it changed while it was open.

    Refuses with `Permanent` what is not below the root, what is reached through a link or is no regular file, and our
    own data.
    """
    parts = _parts(relative)
    fences = Fences(limits)
    with ExitStack() as held:
        folder = _open_root(root, fences)
        held.callback(os.close, folder)
        with explained():
            for part in parts[:-1]:
                folder = _step(part, folder)
                held.callback(os.close, folder)
                if fences.own(os.fstat(folder)):
                    raise errors.own_data()
            file = held.enter_context(os.fdopen(_open_file(parts[-1], folder), "rb"))
            if fences.own(os.fstat(file.fileno())) or is_own_name(parts[-1], fences.own_names(folder)):
                raise errors.own_data()
        before = _regular(file)
        yield Opened(file, before)
        if _regular(file) != before:
            raise errors.file_changed()


def shown(path: str) -> str:
    """Write a path so that it can be stored and shown anywhere."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class _Scan:
    """One walk below one root."""

    def __init__(self, root: Path, rules: FolderRules, fences: Fences) -> None:
        self._rules = rules
        self._fences = fences
        self._real_root = os.path.realpath(root)

    def walk(self, folder: int, prefix: str, ignoring: Ignoring, depth: int) -> Iterator[Found | Skipped]:
        """Yield what lies in an open folder whose path is `prefix`: empty, or ending in `/`."""
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
            ignoring = self._with_files_of(folder, prefix, entries, ignoring)
        except OSError:
            yield Skipped(path=shown(prefix.removesuffix("/")), why=Why.UNREADABLE)
            return
        own, twins = self._fences.own_names(folder), _twins(entries)
        for entry in entries:
            path = prefix + entry.name
            is_folder = _is_folder(entry)
            if is_own_name(entry.name, own):
                yield Skipped(path=shown(path), why=Why.OWN_DATA)
            elif entry.name in ALWAYS_LEFT_OUT or ignoring.ignores(os.fsencode(path), folder=is_folder):
                yield Skipped(path=shown(path), why=Why.IGNORED)
            elif entry.name in twins:
                yield Skipped(path=shown(path), why=Why.SAME_NAME)
            elif not path.isascii() and not _is_text(entry.name):
                yield Skipped(path=shown(path), why=Why.BAD_NAME)
            elif is_folder:
                yield from self._enter(folder, entry.name, path, ignoring, depth)
            else:
                yield from self._look(entry, path)

    def _enter(self, parent: int, name: str, path: str, ignoring: Ignoring, depth: int) -> Iterator[Found | Skipped]:
        if depth >= self._rules.depth:
            yield Skipped(path=shown(path), why=Why.TOO_DEEP)
            return
        try:
            folder = os.open(name, FOLDER, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            yield Skipped(path=shown(path), why=Why.UNREADABLE)
            return
        try:
            if self._fences.own(os.fstat(folder)):
                yield Skipped(path=shown(path), why=Why.OWN_DATA)
            else:
                yield from self.walk(folder, path + "/", ignoring, depth + 1)
        finally:
            os.close(folder)

    def _look(self, entry: os.DirEntry[str], path: str) -> Iterator[Found | Skipped]:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # gone since the folder was listed
            return
        except OSError:
            yield Skipped(path=shown(path), why=Why.UNREADABLE)
            return
        if self._fences.own(status):
            yield Skipped(path=shown(path), why=Why.OWN_DATA)
        elif stat.S_ISREG(status.st_mode):
            yield Found(path=path, stamp=_stamp(status), opens=path)
        elif stat.S_ISLNK(status.st_mode):
            yield self._behind(path)
        else:
            yield Skipped(path=shown(path), why=Why.SPECIAL)

    def _behind(self, path: str) -> Found | Skipped:
        """Look where a link leads, if links are followed."""
        if not self._rules.links:
            return Skipped(path=shown(path), why=Why.LINK)
        target = os.path.realpath(os.path.join(self._real_root, path))  # noqa: PTH118 - Path cannot hold every name
        inside = target.removeprefix(self._real_root.rstrip("/") + "/")
        try:
            status = os.lstat(target)
        except OSError:
            return Skipped(path=shown(path), why=Why.LINK_OUTSIDE)
        if inside == target or not ALWAYS_LEFT_OUT.isdisjoint(inside.split("/")) or not _is_text(inside):
            return Skipped(path=shown(path), why=Why.LINK_OUTSIDE)
        if not stat.S_ISREG(status.st_mode):
            return Skipped(path=shown(path), why=Why.LINK)
        if self._rules.limits.own(target):
            return Skipped(path=shown(path), why=Why.OWN_DATA)
        return Found(path=path, stamp=_stamp(status), opens=inside)

    def _with_files_of(self, folder: int, prefix: str, entries: list[os.DirEntry[str]], ignoring: Ignoring) -> Ignoring:
        names = {entry.name for entry in entries}
        base = os.fsencode(prefix)
        git = _patterns(GIT_FILE, folder, base) if self._rules.git and GIT_FILE in names else None
        own = _patterns(OWN_FILE, folder, base) if OWN_FILE in names else None
        return ignoring.below(git=git, own=own)


def _patterns(name: str, folder: int, base: bytes) -> Patterns | None:
    """Read an ignore file; a link or a pipe of that name is not one. A file too long to read hides its folder."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return None
    with os.fdopen(os.open(name, FILE, dir_fd=folder), "rb") as file:
        text = file.read(IGNORE_FILE_BYTES + 1)
    if len(text) > IGNORE_FILE_BYTES:
        raise OSError(name)
    return Patterns.read(text, base)


def _open_root(root: Path, fences: Fences) -> int:
    descriptor = _open_folder(root)
    try:
        fences.require(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_folder(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise errors.folder_missing() from None
    except (NotADirectoryError, ValueError):
        raise errors.not_a_folder() from None
    except PermissionError:
        raise errors.folder_not_permitted() from None
    except OSError:
        raise errors.folder_missing() from None


def _open_file(name: str, folder: int) -> int:
    """Open what is a regular file; nothing else is opened, since opening a device can do something."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise not_a_file()
    return os.open(name, FILE, dir_fd=folder)


def _step(name: str, folder: int) -> int:
    """Go one folder down, and through no link."""
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise errors.outside_folder()
    return os.open(name, FOLDER, dir_fd=folder)


def _parts(relative: str) -> list[str]:
    parts = relative.split("/")
    if "\0" in relative or not {"", ".", ".."}.isdisjoint(parts):  # an absolute path begins with an empty part
        raise errors.outside_folder()
    if not _is_text(relative) or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise file_missing()
    return parts


def _regular(file: BinaryIO) -> Stamp:
    """Return the stamp of an open file, which may have become something else between look and open."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file()
    return _stamp(status)


def _twins(entries: list[os.DirEntry[str]]) -> set[str]:
    """Return names that mean the same as another one here; of several spellings the composed one counts."""
    names = {entry.name for entry in entries if not entry.name.isascii() and _is_text(entry.name)}
    kept = {nfc(name): name for name in sorted(names, key=lambda name: (name == nfc(name), name))}
    return names - set(kept.values())


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # it is looked at once more, and reported then
        return False


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
