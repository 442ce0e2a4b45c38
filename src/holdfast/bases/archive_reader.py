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
from holdfast.catalog import CONTAINERS, BaseSettings, ItemKind, OnDuplicate
from holdfast.documents import LONGEST_NAME
from holdfast.engine import Fault
from holdfast.engine.store import make_storable
from holdfast.errors import BadArchive, BadSettings
from holdfast.llm import RestoredAnswer
from holdfast.messages import make_cause_params
from holdfast.wellformed import MAX_STORED_DEPTH, find_json_flaw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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


class ArchiveReader:
    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._size = file.seek(0, 2)
        file.seek(0)
        with _reporting_damage():
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
                raise BadArchive("archive_entry", entry=name[:100], why="archive_entry_unknown")
            if name in found:
                raise BadArchive("archive_entry", entry=name, why="archive_entry_twice")
            if entry.flag_bits & ENCRYPTED or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise BadArchive("archive_entry", entry=name, why="archive_entry_packed")
            if entry.file_size > entry.compress_size * self._limits.compression_ratio:
                raise BadArchive("archive_expands", entry=name, ratio=self._limits.compression_ratio)
            found[name] = entry
        if len(found) > self._limits.entries:
            raise BadArchive("archive_too_many_entries", count=len(found), most=self._limits.entries)
        if sum(entry.compress_size for entry in found.values()) > self._size:
            raise BadArchive("archive_overlapping")
        if missing := sorted(REQUIRED_ENTRIES - found.keys()):
            raise BadArchive("archive_entry", entry=missing[0], why="archive_entry_missing")
        return found

    def manifest(self) -> Manifest:
        """Read the manifest; raise `BadArchive` for the format of a newer version."""
        if self._entries[MANIFEST].file_size > self._limits.manifest:
            raise BadArchive("archive_entry", entry=MANIFEST, why="archive_entry_large")
        with _reporting_damage(MANIFEST):
            values = _object(_parsed(self._zip.read(MANIFEST), MANIFEST), MANIFEST)
        number = _number(values, "format", MANIFEST, least=1)
        if number > FORMAT:
            raise BadArchive("archive_too_new", format=number, known=FORMAT)
        base = _object(values.get("base"), f"{MANIFEST}:base")
        counts = _object(values.get("counts"), f"{MANIFEST}:counts")
        return Manifest(
            _text(base, "name", MANIFEST) or "",
            _settings(_object(base.get("settings"), f"{MANIFEST}:settings")),
            *(_number(counts, name, f"{MANIFEST}:counts") for name in ("items", "documents", "memos")),
        )

    def items(self) -> Iterator[ArchivedItem]:
        """Yield the items. Their ids rise, and a container comes before its children."""
        last, containers, total = 0, set[int](), 0
        for where, values in self._lines(ITEMS):
            item = self._item(values, where)
            total += item.size
            if item.id <= last:
                raise BadArchive("archive_line", place=where, why="archive_id_order")
            if item.parent and item.parent not in containers:
                raise BadArchive("archive_line", place=where, why="archive_no_parent")
            if total > self._limits.bytes:
                raise BadArchive("archive_too_large", largest=self._limits.bytes)
            if item.kind in CONTAINERS:
                containers.add(item.id)
            last = item.id
            yield item

    def _item(self, values: dict[str, Any], where: str) -> ArchivedItem:
        name, kind = _text(values, "name", where) or "", _text(values, "kind", where)
        if kind not in set(ItemKind):
            raise BadArchive("archive_line", place=where, why="archive_kind")
        if not name.strip() or len(name) > LONGEST_NAME:
            raise BadArchive("archive_line", place=where, why="archive_name")
        digest = _text(values, "digest", where)
        if digest is not None and not HEX.fullmatch(digest):
            raise BadArchive("archive_line", place=where, why="archive_digest")
        size = _number(values, "size", where) if digest else 0
        entry = self._entries.get(f"{BLOBS}{digest}")
        if digest and (entry is None or entry.file_size != size):
            raise BadArchive("archive_line", place=where, why="archive_no_bytes")
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

    def read_paid_answers(self) -> Iterator[RestoredAnswer]:
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
                where = f"{name}:{number}"
                if len(line) > self._limits.line:
                    raise BadArchive("archive_line_long", place=where, longest=self._limits.line)
                if not line.endswith(b"\n"):
                    raise BadArchive("archive_line", place=where, why="archive_line_cut")
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
            raise BadArchive("archive_hash", entry=f"{BLOBS}{self._wanted}")
        return block


class _BoundedFile:
    """Limits each read, because `zipfile` trusts the lengths in the file."""

    def __init__(self, file: BinaryIO, size: int, most: int) -> None:
        self._file = file
        self._size = size
        self._most = most

    def read(self, size: int = -1, /) -> bytes:
        if size > self._most:
            raise BadArchive("archive_directory_large")
        there = self._size - self._file.tell()  # a larger read would allocate that much memory
        return self._file.read(max(0, min(there, self._most if size < 0 else size)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _parse_paid_answer(item: int, values: dict[str, Any], where: str) -> RestoredAnswer:
    key = _text(values, "key", where) or ""
    chunks = _list(values, "chunks", where)
    if not HEX.fullmatch(key) or not chunks or not all(isinstance(one, str) and CHUNK.fullmatch(one) for one in chunks):
        raise BadArchive("archive_line", place=where, why="archive_answer_key")
    if "value" not in values:
        return RestoredAnswer(item, chunks, key, None, joint=False, tokens_in=0, tokens_out=0)
    try:
        value = b64decode(_text(values, "value", where) or "", validate=True)
    except (binascii.Error, ValueError):
        raise BadArchive("archive_line", place=where, why="archive_base64") from None
    if not isinstance(values.get("joint"), bool):
        raise BadArchive("archive_field", place=where, field="joint", why="archive_boolean")
    return RestoredAnswer(
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
        fits = (int, type(None)) if like is None else (int, float) if isinstance(like, float) else (type(like),)
        if type(value) not in fits:
            raise BadArchive("archive_setting", setting=name, value=json.dumps(value)[:100])
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        if not all(isinstance(one, str) and make_storable(one) == one for one in texts):
            raise BadArchive("archive_field", place=f"{MANIFEST}:settings", field=name, why="archive_text")
    if known.get("on_duplicate", OnDuplicate.REJECT) not in set(OnDuplicate):
        raise BadArchive("archive_setting", setting="on_duplicate", value=json.dumps(known["on_duplicate"])[:100])
    try:
        return BaseSettings.from_json(json.dumps(usual | known))
    except BadSettings as error:
        raise BadArchive("archive_settings", **make_cause_params(error.subcode, error.params)) from error


def _metadata(values: dict[str, Any], where: str) -> Mapping[str, Any]:
    metadata = _object(values.get("metadata", {}), where)
    if find_json_flaw(metadata, deepest=MAX_STORED_DEPTH) is not None:
        raise BadArchive("archive_line", place=where, why="archive_metadata")
    return metadata


def _problem(values: dict[str, Any], where: str) -> Fault | None:
    if "problem" not in values:
        return None
    problem = _object(values["problem"], where)
    params = _object(problem.get("params", {}), where)
    code = _text(problem, "code", where)
    if not code or "code" in params:
        raise BadArchive("archive_line", place=where, why="archive_problem")
    return Fault(code, {name: _text(params, name, where) or "" for name in params})


def _parsed(text: bytes, where: str) -> Any:
    def refuse_constant(_: str) -> NoReturn:
        raise BadArchive("archive_line", place=where, why="archive_not_finite")

    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise BadArchive("archive_line", place=where, why="archive_not_json") from None


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadArchive("archive_line", place=where, why="archive_no_object")
    return value


def _list(values: dict[str, Any], name: str, where: str) -> list[Any]:
    if not isinstance(values.get(name), list):
        raise BadArchive("archive_field", place=where, field=name, why="archive_list")
    return list(values[name])


def _text(values: dict[str, Any], name: str, where: str) -> str | None:
    """Return a text that both databases store unchanged; None if it is absent."""
    value = values.get(name)
    if value is not None and (not isinstance(value, str) or make_storable(value) != value):
        raise BadArchive("archive_field", place=where, field=name, why="archive_text")
    return value


def _number(values: dict[str, Any], name: str, where: str, *, least: int = 0) -> int:
    value = values.get(name)
    if type(value) is not int or not least <= value < LARGEST_NUMBER:
        why = "archive_from_one" if least else "archive_from_zero"
        raise BadArchive("archive_field", place=where, field=name, why=why)
    return int(value)


@contextmanager
def _reporting_damage(entry: str = "") -> Iterator[None]:
    """Turn errors of a damaged file into `BadArchive`, which names the damaged entry if it is known."""
    try:
        yield
    except DAMAGED_FILE_ERRORS as error:
        if entry:
            raise BadArchive("archive_part_unreadable", entry=entry, detail=error) from error
        raise BadArchive("archive_unreadable", detail=error) from error
