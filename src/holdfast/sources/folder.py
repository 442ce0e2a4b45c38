"""Lists and opens the files below a folder, without being redirected by links.

A scan never follows a link into a folder, never opens anything but regular files, and holds a descriptor of each folder
it is in, so replacing a folder by a link during the scan has no effect. `open_found` opens a file in the same way, step
by step from the root. Unreadable entries are reported and do not stop a scan.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from holdfast.content import file_missing, not_a_file, translate_os_errors
from holdfast.errors import Permanent, Transient
from holdfast.sources import errors
from holdfast.sources.folder_limits import NO_LIMITS, FolderLimits, ResolvedLimits, is_own_name
from holdfast.sources.gitignore import DEFAULT_PATTERNS, GIT_FILE, OWN_FILE, IgnoreFile, IgnoreRules
from holdfast.wellformed import find_text_flaw, to_nfc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.clock import Moment

ALWAYS_IGNORED = frozenset({".git", ".hg", ".svn"})  # no pattern can include them
IGNORE_FILE_BYTES = 1 << 20
LONGEST_NAME = 255  # bytes, on all common file systems
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
COARSE_NS = 2_000_000_000  # the coarsest timestamps of common file systems


class Stamp(NamedTuple):
    """Changes when the file changes. Equal stamps mean equal content if the stamp is `settled`."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    def settled(self, seen: Moment) -> bool:
        """Return whether a later change gets another stamp: the last change is older than the clock resolution."""
        return max(self.modified_ns, self.changed_ns) + COARSE_NS < seen * 1000


class SkipReason(StrEnum):
    IGNORED = "ignored"  # matches an ignore pattern
    LINK = "link"  # a link that is not followed
    LINK_OUTSIDE = "link_outside"  # a link that leaves the root or is broken
    SPECIAL = "special"  # a socket, a pipe or a device
    BAD_NAME = "bad_name"  # the name is not UTF-8
    SAME_NAME = "same_name"  # another file beside it has the same name in another Unicode spelling
    OWN_DATA = "own_data"  # files of Holdfast itself
    UNREADABLE = "unreadable"  # the operating system refused access
    TOO_DEEP = "too_deep"
    TOO_MANY = "too_many"  # the scan ends here


UNSEEN = frozenset({SkipReason.UNREADABLE, SkipReason.TOO_DEEP, SkipReason.TOO_MANY})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A regular file."""

    path: str  # below the root
    stamp: Stamp
    real_path: str  # differs from `path` only for a followed link


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """An entry that was skipped; a folder with everything in it."""

    path: str  # displayable; invalid bytes are written as \\xNN
    reason: SkipReason

    @property
    def unseen(self) -> bool:
        """Whether files may still exist there, so that known files must not be taken for deleted."""
        return self.reason in UNSEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRules:
    patterns: tuple[str, ...] = ()  # as in .gitignore at the root; `!` includes what the defaults ignore
    use_default_ignores: bool = True  # skip hidden files, backups and caches
    use_gitignore: bool = True
    follow_links: bool = False  # follow links to files below the root
    files: int = 100_000
    depth: int = 64
    limits: FolderLimits = NO_LIMITS

    @property
    def ignore_rules(self) -> IgnoreRules:
        """The patterns that apply before any ignore file is read."""
        given = IgnoreFile.parse("\n".join(self.patterns).encode("utf-8", "surrogatepass"))
        return IgnoreRules(
            own=(given,) if given.groups else (), defaults=(DEFAULT_PATTERNS,) if self.use_default_ignores else ()
        )


DEFAULT_RULES = FolderRules()


class OpenFile:
    """An open file, with its stamp from before the first read."""

    def __init__(self, file: BinaryIO, stamp: Stamp) -> None:
        self._file = file
        self.stamp = stamp

    def read(self, most: int = -1) -> bytes:
        """Read `most` bytes or the rest; empty at the end."""
        with translate_os_errors():
            return self._file.read(most)


def scan(root: Path, rules: FolderRules = DEFAULT_RULES) -> Iterator[FoundFile | Skipped]:
    """Yield the files below a folder, sorted by path components, and the entries that were skipped.

        files = [entry.path for entry in scan(Path("docs")) if isinstance(entry, FoundFile)]

    The data of Holdfast itself is skipped. Raises `Permanent` if the folder itself is such data or not allowed, and
    `Transient` if it is missing: an unmounted drive is not an empty folder.
    """
    with ExitStack() as stack:
        resolved = ResolvedLimits(rules.limits)
        descriptor = _open_root(root, resolved)
        stack.callback(os.close, descriptor)
        count = 0
        for entry in _FolderScan(root, rules, resolved).walk(descriptor, "", rules.ignore_rules, 1):
            if isinstance(entry, FoundFile):
                count += 1
                if count > rules.files:
                    yield Skipped(path=to_displayable(entry.path), reason=SkipReason.TOO_MANY)
                    return
            yield entry


def require_allowed(root: Path, limits: FolderLimits) -> None:
    """Raise the error that a scan of this folder would raise at its start."""
    os.close(_open_root(root, ResolvedLimits(limits)))


@contextmanager
def open_found(root: Path, relative: str, limits: FolderLimits = NO_LIMITS) -> Iterator[OpenFile]:
    """Open a file below the root; raise `Transient` at the end if it changed while it was open.

    Raises `Permanent` for a path outside the root or through a link, for anything but a regular file, and for the data
    of Holdfast itself.
    """
    parts = _parts(relative)
    resolved = ResolvedLimits(limits)
    with ExitStack() as stack:
        folder = _open_root(root, resolved)
        stack.callback(os.close, folder)
        with translate_os_errors():
            for part in parts[:-1]:
                folder = _open_subfolder(part, folder)
                stack.callback(os.close, folder)
                if resolved.is_own(os.fstat(folder)):
                    raise errors.own_data()
            file = stack.enter_context(os.fdopen(_open_file(parts[-1], folder), "rb"))
            if resolved.is_own(os.fstat(file.fileno())) or is_own_name(parts[-1], resolved.own_names(folder)):
                raise errors.own_data()
        before = _require_regular(file)
        yield OpenFile(file, before)
        if _require_regular(file) != before:
            raise Transient("file_changed")


def to_displayable(path: str) -> str:
    """Escape invalid bytes of a path, so that it can be stored and shown."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class _FolderScan:
    def __init__(self, root: Path, rules: FolderRules, resolved: ResolvedLimits) -> None:
        self._rules = rules
        self._resolved = resolved
        self._real_root = os.path.realpath(root)

    def walk(self, folder: int, prefix: str, ignoring: IgnoreRules, depth: int) -> Iterator[FoundFile | Skipped]:
        """Yield the entries of an open folder whose path is `prefix`: empty, or ending in `/`."""
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
            ignoring = self._add_ignore_files(folder, prefix, entries, ignoring)
        except OSError:
            yield Skipped(path=to_displayable(prefix.removesuffix("/")), reason=SkipReason.UNREADABLE)
            return
        own, twins = self._resolved.own_names(folder), _find_unicode_duplicates(entries)
        for entry in entries:
            path = prefix + entry.name
            is_folder = _is_folder(entry)
            if is_own_name(entry.name, own):
                yield Skipped(path=to_displayable(path), reason=SkipReason.OWN_DATA)
            elif entry.name in ALWAYS_IGNORED or ignoring.ignores(os.fsencode(path), folder=is_folder):
                yield Skipped(path=to_displayable(path), reason=SkipReason.IGNORED)
            elif entry.name in twins:
                yield Skipped(path=to_displayable(path), reason=SkipReason.SAME_NAME)
            elif not path.isascii() and not _is_utf8(entry.name):
                yield Skipped(path=to_displayable(path), reason=SkipReason.BAD_NAME)
            elif is_folder:
                yield from self._enter(folder, entry.name, path, ignoring, depth)
            else:
                yield from self._inspect_entry(entry, path)

    def _enter(
        self, parent: int, name: str, path: str, ignoring: IgnoreRules, depth: int
    ) -> Iterator[FoundFile | Skipped]:
        if depth >= self._rules.depth:
            yield Skipped(path=to_displayable(path), reason=SkipReason.TOO_DEEP)
            return
        try:
            folder = os.open(name, FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            yield Skipped(path=to_displayable(path), reason=SkipReason.UNREADABLE)
            return
        try:
            if self._resolved.is_own(os.fstat(folder)):
                yield Skipped(path=to_displayable(path), reason=SkipReason.OWN_DATA)
            else:
                yield from self.walk(folder, path + "/", ignoring, depth + 1)
        finally:
            os.close(folder)

    def _inspect_entry(self, entry: os.DirEntry[str], path: str) -> Iterator[FoundFile | Skipped]:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # gone since the folder was listed
            return
        except OSError:
            yield Skipped(path=to_displayable(path), reason=SkipReason.UNREADABLE)
            return
        if self._resolved.is_own(status):
            yield Skipped(path=to_displayable(path), reason=SkipReason.OWN_DATA)
        elif stat.S_ISREG(status.st_mode):
            yield FoundFile(path=path, stamp=_stamp(status), real_path=path)
        elif stat.S_ISLNK(status.st_mode):
            yield self._resolve_link(path)
        else:
            yield Skipped(path=to_displayable(path), reason=SkipReason.SPECIAL)

    def _resolve_link(self, path: str) -> FoundFile | Skipped:
        """Resolve a link if links are followed."""
        if not self._rules.follow_links:
            return Skipped(path=to_displayable(path), reason=SkipReason.LINK)
        target = os.path.realpath(os.path.join(self._real_root, path))  # noqa: PTH118 - Path changes some names
        inside = target.removeprefix(self._real_root.rstrip("/") + "/")
        try:
            status = os.lstat(target)
        except OSError:
            return Skipped(path=to_displayable(path), reason=SkipReason.LINK_OUTSIDE)
        if inside == target or not ALWAYS_IGNORED.isdisjoint(inside.split("/")) or not _is_utf8(inside):
            return Skipped(path=to_displayable(path), reason=SkipReason.LINK_OUTSIDE)
        if not stat.S_ISREG(status.st_mode):
            return Skipped(path=to_displayable(path), reason=SkipReason.LINK)
        if self._rules.limits.is_own(target):
            return Skipped(path=to_displayable(path), reason=SkipReason.OWN_DATA)
        return FoundFile(path=path, stamp=_stamp(status), real_path=inside)

    def _add_ignore_files(
        self, folder: int, prefix: str, entries: list[os.DirEntry[str]], ignoring: IgnoreRules
    ) -> IgnoreRules:
        names = {entry.name for entry in entries}
        base = os.fsencode(prefix)
        git = _read_ignore_file(GIT_FILE, folder, base) if self._rules.use_gitignore and GIT_FILE in names else None
        own = _read_ignore_file(OWN_FILE, folder, base) if OWN_FILE in names else None
        return ignoring.with_subfolder(git=git, own=own)


def _read_ignore_file(name: str, folder: int, base: bytes) -> IgnoreFile | None:
    """Read an ignore file unless it is a link or a pipe. One that is too large makes its folder unreadable."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return None
    with os.fdopen(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as file:
        text = file.read(IGNORE_FILE_BYTES + 1)
    if len(text) > IGNORE_FILE_BYTES:
        raise OSError(name)
    return IgnoreFile.parse(text, base)


def _open_root(root: Path, resolved: ResolvedLimits) -> int:
    descriptor = _open_folder(root)
    try:
        resolved.require_allowed(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open_folder(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (NotADirectoryError, ValueError):
        raise Permanent("not_a_folder", params={"folder": str(root)}) from None
    except PermissionError:
        raise Permanent("folder_not_permitted", params={"folder": str(root)}) from None
    except OSError:  # missing, or on a drive that fails
        raise Transient("folder_missing", params={"folder": str(root)}) from None


def _open_file(name: str, folder: int) -> int:
    """Open a regular file. Nothing else is opened, since opening a device can have side effects."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise not_a_file()
    return os.open(name, FILE_FLAGS, dir_fd=folder)


def _open_subfolder(name: str, folder: int) -> int:
    """Open a subfolder that is not a link."""
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise errors.outside_folder()
    return os.open(name, FOLDER_FLAGS, dir_fd=folder)


def _parts(relative: str) -> list[str]:
    parts = relative.split("/")
    if "\0" in relative or not {"", ".", ".."}.isdisjoint(parts):  # an absolute path begins with an empty part
        raise errors.outside_folder()
    if not _is_utf8(relative) or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise file_missing()
    return parts


def _require_regular(file: BinaryIO) -> Stamp:
    """Return the stamp of an open file; check its type again, since it may have been replaced before it was opened."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file()
    return _stamp(status)


def _find_unicode_duplicates(entries: list[os.DirEntry[str]]) -> set[str]:
    """Return names whose NFC form equals that of another entry; of several spellings the NFC one is kept."""
    names = {entry.name for entry in entries if not entry.name.isascii() and _is_utf8(entry.name)}
    kept = {to_nfc(name): name for name in sorted(names, key=lambda name: (name == to_nfc(name), name))}
    return names - set(kept.values())


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # `_inspect_entry` reports it
        return False


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _is_utf8(name: str) -> bool:
    return find_text_flaw(name) is None
