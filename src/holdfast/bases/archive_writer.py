"""The format of an archive, and the writer. An archive is a ZIP file, written as a stream.

| entry | content |
|---|---|
| `items.jsonl` | the items, one per line, containers before their children |
| `blobs/<sha256>` | the bytes of documents, each content once |
| `memos.jsonl` | paid answers, and the chunks of one item that use them; the first line with an answer has its value |
| `holdfast.json` | format, version, name and settings of the base, counts; last, so a file that has it is complete |

Data that compresses better than the reader's limit allows is stored uncompressed.
"""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from base64 import b64encode
from itertools import groupby
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.bases import archive_statements as sql
from holdfast.blobs import BLOCK_BYTES
from holdfast.catalog import item_from_row
from holdfast.engine.store import LARGEST_BATCH
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import IO, BinaryIO

    from holdfast.blobs import BlobStore
    from holdfast.catalog import Base, Item
    from holdfast.db import Database, Transaction

FORMAT = 1
MANIFEST, ITEMS, MEMOS, BLOBS = "holdfast.json", "items.jsonl", "memos.jsonl", "blobs/"
MAX_COMPRESSION_RATIO = 100  # the reader refuses more; text compresses 3 to 20 times
LEVEL = 1  # the fastest, because all data is compressed twice
MAX_PACKED_SHARE = 0.95  # of the size; data that does not compress is stored
SPOOL = 1 << 20  # bytes of lines in memory before they go to a temporary file
DOCUMENTS_PER_READ = 20  # when reading paid answers
PAID_ANSWERS_PER_LINE = 100
EPOCH = (1980, 1, 1, 0, 0, 0)  # a constant time stamp, so that equal bases give equal entries


class ArchiveCounts(NamedTuple):
    """The contents of an archive."""

    items: int
    documents: int  # items with bytes
    memos: int
    left_out: int  # documents that were deleted or changed between being listed and being read
    bytes: int = 0  # of the archive


class ArchiveWriter:
    def __init__(self, database: Database, blobs: BlobStore, base: Base, target: BinaryIO) -> None:
        self._database = database
        self._blobs = blobs
        self._base = base
        self._zip = zipfile.ZipFile(target, "w", allowZip64=True)
        self._contents: set[str] = set()  # digests
        self._documents: set[int] = set()
        self._left_out = 0

    def write(self, version: str, *, memos: bool) -> ArchiveCounts:
        with self._zip, _open_spool() as tree, _open_spool() as paid:
            items = self._write_items(tree)
            self._copy(ITEMS, tree)
            known = self._write_paid_answers(tree, paid) if memos else 0
            self._copy(MEMOS, paid)
            values = {
                "format": FORMAT,
                "holdfast": version,
                "base": {"name": self._base.name, "settings": json.loads(self._base.settings.to_json())},
                "counts": {"items": items, "documents": len(self._documents), "memos": known},
            }
            self._zip.writestr(_entry(MANIFEST), json.dumps(values, ensure_ascii=False, indent=1))
        return ArchiveCounts(items, len(self._documents), known, self._left_out)

    def _write_items(self, lines: IO[bytes]) -> int:
        """Write the bytes of all documents, and a line for each item; return the number of items."""
        count, after = 0, 0
        with self._database.reading() as tx:
            ((last,),) = tx.run(sql.LAST_ITEM, base_id=self._base.id)
        while found := self._read_items(after, last):
            for item in found:
                if item.blob is None or self._pack_bytes(item):
                    lines.write(_line(_item_to_json(item)))
                    count += 1
                else:
                    self._left_out += 1
            after = found[-1].id
        return count

    def _read_items(self, after: int, last: int) -> list[Item]:
        with self._database.reading() as tx:
            rows = tx.run(sql.READ_ITEMS, base_id=self._base.id, after=after, last=last, limit=LARGEST_BATCH)
        return [item_from_row(row) for row in rows]

    def _pack_bytes(self, item: Item) -> bool:
        """Write the bytes of a document once per content; return False if the file is gone."""
        digest, blob = item.digest or "", item.blob or ""
        if digest in self._contents:
            if self._blobs.find_missing([blob]):
                return False
        else:
            try:
                with self._blobs.local_file(blob) as path, path.open("rb") as file:
                    self._copy(f"{BLOBS}{digest}", file)
            except FileNotFoundError:
                return False
        self._contents.add(digest)
        self._documents.add(item.id)
        return True

    def _write_paid_answers(self, tree: IO[bytes], lines: IO[bytes]) -> int:
        """Write the paid answers that the archived documents use; return how many."""
        written: set[int] = set()
        for documents in _batched(_documents(tree), DOCUMENTS_PER_READ):
            with self._database.reading() as tx:
                rows = tx.run(sql.READ_PAID_ANSWER_USES, documents, tenant=self._base.settings.tenant)
                excluded = self._find_answers_with_outside_sources(
                    tx, {memo for _, _, memo, joint in rows if joint} - written
                )
            uses = [row[:3] for row in rows if row[2] not in excluded]
            for item, uses_of_item in groupby(uses, key=lambda row: row[0]):
                by_memo = {
                    memo: [row[1] for row in uses_of_answer]
                    for memo, uses_of_answer in groupby(uses_of_item, key=lambda row: row[2])
                }
                for batch in _batched(by_memo.items(), PAID_ANSWERS_PER_LINE):
                    self._write_paid_answer_line(item, dict(batch), written, lines)
        return len(written)

    def _find_answers_with_outside_sources(self, tx: Transaction, joint: set[int]) -> set[int]:
        """Return answers that were also made from documents outside the archive."""
        sources = tx.run(sql.READ_PAID_ANSWER_SOURCES, [[memo] for memo in joint], base=self._base.key)
        return {memo for memo, owner in sources if not owner.isdecimal() or int(owner) not in self._documents}

    def _write_paid_answer_line(
        self, item: int, uses: dict[int, list[str]], written: set[int], lines: IO[bytes]
    ) -> None:
        with self._database.reading() as tx:
            found = tx.run(sql.READ_PAID_ANSWERS, [[memo] for memo in uses])
        values = []
        for memo, key, value, joint, tokens_in, tokens_out in found:
            line_values: dict[str, Any] = {"key": key, "chunks": uses[memo]}
            if memo not in written:
                encoded = b64encode(bytes(value)).decode()
                line_values |= {
                    "value": encoded,
                    "joint": bool(joint),
                    "tokens_in": tokens_in,
                    "tokens_out": tokens_out,
                }
            values.append(line_values)
        written.update(row[0] for row in found)
        if values:
            lines.write(_line({"item": item, "memos": values}))

    def _copy(self, name: str, source: IO[bytes]) -> None:
        """Write an entry in blocks; a first pass chooses the compression."""
        source.seek(0)
        entry = _entry(name, _choose_compression(source))
        source.seek(0)
        with self._zip.open(entry, "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, BLOCK_BYTES)


def _choose_compression(source: IO[bytes]) -> int:
    """Choose to compress, unless that saves nothing or exceeds the ratio that the reader accepts."""
    packer, size, packed = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS), 0, 0
    while block := source.read(BLOCK_BYTES):
        size += len(block)
        packed += len(packer.compress(block))
    packed += len(packer.flush())
    fits = packed < size * MAX_PACKED_SHARE and size <= packed * MAX_COMPRESSION_RATIO
    return zipfile.ZIP_DEFLATED if fits else zipfile.ZIP_STORED


def _entry(name: str, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = method
    entry._compresslevel = LEVEL  # type: ignore[attr-defined]  # noqa: SLF001 - its name until Python 3.13
    if hasattr(entry, "compress_level"):
        entry.compress_level = LEVEL
    return entry


def _item_to_json(item: Item) -> dict[str, Any]:
    """Return the line of an item; its ids are valid in the archive only."""
    problem = item.problem and {"code": item.problem.code, "params": dict(item.problem.params)}
    values = {
        "id": item.id,
        "parent": item.parent or None,
        "kind": str(item.kind),
        "name": item.name,
        "metadata": dict(item.metadata),
        "source": item.source and mask_secrets(item.source),
        "seen": item.seen,
        "every": item.every,
        "digest": item.digest,
        "size": item.size if item.digest else None,
        "problem": problem,
    }
    return {name: value for name, value in values.items() if value not in (None, {})}


def _documents(tree: IO[bytes]) -> Iterator[list[Any]]:
    """Yield id and digest of the items with bytes that were written."""
    tree.seek(0)
    for line in tree:
        item = json.loads(line)
        if "digest" in item:
            yield [item["id"], item["digest"]]


def _batched(many: Iterable[Any], size: int) -> Iterator[Sequence[Any]]:
    batch: list[Any] = []
    for line_values in many:
        batch.append(line_values)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"


def _open_spool() -> IO[bytes]:
    return cast("IO[bytes]", SpooledTemporaryFile(max_size=SPOOL))
