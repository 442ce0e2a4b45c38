"""Reads an archive from an untrusted source: every name, number and byte is checked.

Names of entries are compared with the names that an archive may have, and never become paths. Data is counted and
hashed in blocks while it is unpacked. Errors name the line. `archive_writer` describes the format.
"""

from __future__ import annotations

import binascii
import json
import re
import struct
import zipfile
import zlib
from base64 import b64decode
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.bases.archive_writer import BLOBS, FORMAT, ITEMS, MANIFEST, MAX_COMPRESSION_RATIO, MEMOS
from holdfast.catalog import CONTAINERS, BaseSettings, ItemKind
from holdfast.documents import LONGEST_NAME
from holdfast.engine import Fault
from holdfast.engine.store import make_storable
from holdfast.errors import BadArchive, BadSettings
from holdfast.wellformed import MAX_STORED_DEPTH, find_json_flaw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO, BinaryIO, NoReturn, Self

REQUIRED_ENTRIES = frozenset({MANIFEST, ITEMS, MEMOS})
BLOB = re.compile(rf"{BLOBS}[0-9a-f]{{64}}")
HEX = re.compile(r"[0-9a-f]{64}")
CHUNK = re.compile(r"[0-9a-f]{32}")
ENCRYPTED = 0x1
ENTRY_LENGTH = 200  # bytes of an entry in the ZIP directory, at most; ours have up to 144
LARGEST_NUMBER = 2**53
DAMAGED_FILE_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Limits for an archive; beyond them it is refused."""

    entries: int = 1_000_000
    bytes: int = 256 << 30  # of all documents, without deduplication
    line: int = 64 << 20
    manifest: int = 1 << 20
    compression_ratio: int = MAX_COMPRESSION_RATIO


class Manifest(NamedTuple):
    """The manifest of an archive."""

    name: str
    settings: BaseSettings
    items: int
    documents: int
    memos: int


class ArchivedItem(NamedTuple):
    """An item of an archive."""

    id: int
    parent: int  # 0: none
    kind: ItemKind
    name: str
    metadata: Mapping[str, Any]
    source: str | None
    seen: str | None
    every: int | None
    digest: str | None
    size: int
    problem: Fault | None


class ArchivedAnswer(NamedTuple):
    """A paid answer of an archive, and the chunks of one item that use it."""

    item: int
    chunks: Sequence[str]
    key: str
    value: bytes | None  # None: an earlier line has it
    joint: bool
    tokens_in: int
    tokens_out: int


class ArchiveReader:
    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._size = file.seek(0, 2)
        file.seek(0)
        with _reporting_damage("The file"):
            self._zip = zipfile.ZipFile(_BoundedFile(file, self._size, limits.entries * ENTRY_LENGTH))
        self._entries = self._checked()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def _checked(self) -> dict[str, zipfile.ZipInfo]:
        """Check all entries of the directory before anything is unpacked."""
        found: dict[str, zipfile.ZipInfo] = {}
        for entry in self._zip.infolist():
            name = entry.orig_filename
            if name not in REQUIRED_ENTRIES and not BLOB.fullmatch(name):
                _refuse(f"It has an entry {name[:100]!r}, which no archive of ours has.")
            if name in found:
                _refuse(f"It has the entry {name!r} twice.")
            if entry.flag_bits & ENCRYPTED or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                _refuse(f"The entry {name!r} is encrypted, or packed in a way that we do not use.")
            if entry.file_size > entry.compress_size * self._limits.compression_ratio:
                _refuse(f"The entry {name!r} would become more than {self._limits.compression_ratio} times as large.")
            found[name] = entry
        if len(found) > self._limits.entries:
            _refuse(f"It has {len(found)} entries, and {self._limits.entries} is the most.")
        if sum(entry.compress_size for entry in found.values()) > self._size:
            _refuse("Its entries lie over each other.")
        if missing := sorted(REQUIRED_ENTRIES - found.keys()):
            _refuse(f"It has no entry {missing[0]!r}.")
        return found

    def manifest(self) -> Manifest:
        """Read the manifest; raise `BadArchive` for the format of a newer version."""
        if self._entries[MANIFEST].file_size > self._limits.manifest:
            _refuse(f"{MANIFEST!r} is too large.")
        with _reporting_damage(MANIFEST):
            values = _object(_parsed(self._zip.read(MANIFEST), MANIFEST), MANIFEST)
        number = _number(values, "format", MANIFEST, least=1)
        if number > FORMAT:
            raise BadArchive(
                f"This archive was made by a newer Holdfast (format {number}, this version knows {FORMAT}). Nothing "
                "was restored; install that version or a newer one."
            )
        base = _object(values.get("base"), f"{MANIFEST}, base")
        counts = _object(values.get("counts"), f"{MANIFEST}, counts")
        return Manifest(
            _text(base, "name", MANIFEST) or "",
            _settings(_object(base.get("settings"), f"{MANIFEST}, settings")),
            *(_number(counts, name, f"{MANIFEST}, counts") for name in ("items", "documents", "memos")),
        )

    def items(self) -> Iterator[ArchivedItem]:
        """Yield the items. Their ids rise, and a container comes before its children."""
        last, containers, total = 0, set[int](), 0
        for where, values in self._lines(ITEMS):
            item = self._item(values, where)
            total += item.size
            if item.id <= last:
                _refuse(f"{where}: its number {item.id} is not larger than that of the line before.")
            if item.parent and item.parent not in containers:
                _refuse(f"{where}: it stands in {item.parent}, which is no container on a line before.")
            if total > self._limits.bytes:
                _refuse(f"{where}: up to here its documents have more than {self._limits.bytes} bytes.")
            if item.kind in CONTAINERS:
                containers.add(item.id)
            last = item.id
            yield item

    def _item(self, values: dict[str, Any], where: str) -> ArchivedItem:
        name, kind = _text(values, "name", where) or "", _text(values, "kind", where)
        if kind not in set(ItemKind):
            _refuse(f"{where}: {str(kind)[:100]!r} is no kind of item.")
        if not name.strip() or len(name) > LONGEST_NAME:
            _refuse(f"{where}: an item needs a name of 1 to {LONGEST_NAME} characters.")
        digest = _text(values, "digest", where)
        if digest is not None and not HEX.fullmatch(digest):
            _refuse(f"{where}: {digest[:100]!r} is no digest.")
        size = _number(values, "size", where) if digest else 0
        entry = self._entries.get(f"{BLOBS}{digest}")
        if digest and (entry is None or entry.file_size != size):
            _refuse(f"{where}: its bytes are not in the archive, or not {size} of them.")
        return ArchivedItem(
            id=_number(values, "id", where, least=1),
            parent=_number(values, "parent", where) if "parent" in values else 0,
            kind=ItemKind(str(kind)),
            name=name,
            metadata=_metadata(values, where),
            source=_text(values, "source", where),
            seen=_text(values, "seen", where),
            every=_number(values, "every", where, least=1) if "every" in values else None,
            digest=digest,
            size=size,
            problem=_problem(values, where),
        )

    def read_paid_answers(self) -> Iterator[ArchivedAnswer]:
        """Yield paid answers, each with its uses by one item."""
        for where, values in self._lines(MEMOS):
            item = _number(values, "item", where, least=1)
            for one in _list(values, "memos", where):
                yield _parse_paid_answer(item, _object(one, where), where)

    def _lines(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the lines of an entry, each with its location for error messages."""
        with _reporting_damage(name), self._zip.open(self._entries[name]) as file:
            number = 0
            while line := file.readline(self._limits.line + 1):
                number += 1
                where = f"{name}, line {number}"
                if len(line) > self._limits.line:
                    _refuse(f"{where}: it is longer than {self._limits.line} bytes.")
                if not line.endswith(b"\n"):
                    _refuse(f"{where}: it has no end.")
                yield where, _object(_parsed(line, where), where)

    @contextmanager
    def blob(self, digest: str) -> Iterator[VerifiedBytes]:
        """Open the bytes of a document; reading to the end verifies their hash."""
        name = f"{BLOBS}{digest}"
        with _reporting_damage(name):
            file = self._zip.open(self._entries[name])
        with file:
            yield VerifiedBytes(file, digest)


class VerifiedBytes:
    """Hashes bytes while they are read, and raises at the end if the hash is wrong."""

    def __init__(self, file: IO[bytes], digest: str) -> None:
        self._file = file
        self._wanted = digest
        self._digest = sha256()

    def read(self, size: int, /) -> bytes:
        with _reporting_damage(f"{BLOBS}{self._wanted}"):
            block = self._file.read(size)
        self._digest.update(block)
        if not block and self._digest.hexdigest() != self._wanted:
            _refuse(f"The bytes of {BLOBS}{self._wanted} are not those that were packed.")
        return block


class _BoundedFile:
    """Limits each read, because `zipfile` trusts the lengths in the file."""

    def __init__(self, file: BinaryIO, size: int, most: int) -> None:
        self._file = file
        self._size = size
        self._most = most

    def read(self, size: int = -1, /) -> bytes:
        if size > self._most:
            _refuse("Its directory is larger than that of any archive.")
        there = self._size - self._file.tell()  # a larger read would allocate that much memory
        return self._file.read(max(0, min(there, self._most if size < 0 else size)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _parse_paid_answer(item: int, values: dict[str, Any], where: str) -> ArchivedAnswer:
    key = _text(values, "key", where) or ""
    chunks = _list(values, "chunks", where)
    if not HEX.fullmatch(key) or not chunks or not all(isinstance(one, str) and CHUNK.fullmatch(one) for one in chunks):
        _refuse(f"{where}: a paid answer has no key, or names no chunk.")
    if "value" not in values:
        return ArchivedAnswer(item, chunks, key, None, joint=False, tokens_in=0, tokens_out=0)
    try:
        value = b64decode(_text(values, "value", where) or "", validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"{where}: a paid answer is not written as base64.")
    if not isinstance(values.get("joint"), bool):
        _refuse(f"{where}: 'joint' is true or false.")
    return ArchivedAnswer(
        item,
        chunks,
        key,
        value,
        joint=values["joint"],
        tokens_in=_number(values, "tokens_in", where),
        tokens_out=_number(values, "tokens_out", where),
    )


def _settings(values: dict[str, Any]) -> BaseSettings:
    """Read settings; each value needs the type of its default. Names that only a newer version knows are ignored."""
    usual = json.loads(BaseSettings().to_json())
    known = {name: value for name, value in values.items() if name in usual}
    for name, value in known.items():
        like = usual[name]
        fits = (int, str, type(None)) if like is None else (int, float) if isinstance(like, float) else (type(like),)
        if type(value) not in fits:
            _refuse(f"{MANIFEST}: the setting {name!r} is not {json.dumps(value)[:100]}.")
    lists = [one for name in ("indexes", "languages") for one in known.get(name, [])]
    texts = [*lists, *(value for value in known.values() if isinstance(value, str))]
    if not all(isinstance(one, str) and make_storable(one) == one for one in texts):
        _refuse(f"{MANIFEST}: a setting is no text that can be kept.")
    try:
        return BaseSettings.from_json(json.dumps(usual | known))
    except (BadSettings, ValueError) as error:
        raise BadArchive(f"The settings of the archive cannot be used. {error} Nothing was restored.") from error


def _metadata(values: dict[str, Any], where: str) -> Mapping[str, Any]:
    metadata = _object(values.get("metadata", {}), where)
    flaw = find_json_flaw(metadata, deepest=MAX_STORED_DEPTH)
    if flaw is not None:
        _refuse(f"{where}: its metadata cannot be stored and shown ({flaw.kind}).")
    return metadata


def _problem(values: dict[str, Any], where: str) -> Fault | None:
    if "problem" not in values:
        return None
    problem = _object(values["problem"], where)
    params = _object(problem.get("params", {}), where)
    code = _text(problem, "code", where)
    if not code or "code" in params:
        _refuse(f"{where}: its problem has no code.")
    return Fault(code, {name: _text(params, name, where) or "" for name in params})


def _parsed(text: bytes, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: _refuse(f"{where}: a number is no number."))
    except (ValueError, RecursionError):
        _refuse(f"{where}: it is not JSON.")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{where}: an object is missing.")
    return value


def _list(values: dict[str, Any], name: str, where: str) -> list[Any]:
    if not isinstance(values.get(name), list):
        _refuse(f"{where}: {name!r} is a list.")
    return list(values[name])


def _text(values: dict[str, Any], name: str, where: str) -> str | None:
    """Return a text that both databases store unchanged; None if it is absent."""
    value = values.get(name)
    if value is not None and (not isinstance(value, str) or make_storable(value) != value):
        _refuse(f"{where}: {name!r} is no text that can be kept.")
    return value


def _number(values: dict[str, Any], name: str, where: str, *, least: int = 0) -> int:
    value = values.get(name)
    if type(value) is not int or not least <= value < LARGEST_NUMBER:
        _refuse(f"{where}: {name!r} is a number from {least} on.")
    return int(value)


@contextmanager
def _reporting_damage(where: str) -> Iterator[None]:
    """Translate errors of a damaged file, naming the damaged part."""
    try:
        yield
    except DAMAGED_FILE_ERRORS as error:
        raise BadArchive(
            f"This is no archive, or it is cut off or damaged: {where} cannot be read ({error}). Nothing was restored."
        ) from error


def _refuse(sentence: str) -> NoReturn:
    raise BadArchive(f"This archive cannot be restored, nothing of it is kept. {sentence}")
