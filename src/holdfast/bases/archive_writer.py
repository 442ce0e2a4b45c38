"""What an archive looks like, and how one is written: a ZIP file, a part at a time, whatever its size.

| entry | what it holds |
|---|---|
| `items.jsonl` | the tree, an item a line, containers before what stands in them |
| `blobs/<sha256>` | the bytes of documents, each content once |
| `memos.jsonl` | paid answers: a line tells which chunks of one item use them, and has those that no line before had |
| `holdfast.json` | format, version, name and settings of the base, counts; the last, so a file that has it is whole |

What shrinks further than a reader of archives would believe is stored as it is.
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
from holdfast.catalog import BLOCK_BYTES, item_from_row
from holdfast.engine.store import LARGEST_BATCH
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import IO, BinaryIO

    from holdfast.catalog import Base, BlobStore, Item
    from holdfast.db import Database, Transaction

FORMAT = 1
MANIFEST, ITEMS, MEMOS, BLOBS = "holdfast.json", "items.jsonl", "memos.jsonl", "blobs/"
MAX_COMPRESSION_RATIO = 100  # times; text shrinks 3 to 20 times
LEVEL = 1  # tried first on all that is packed, and so the quick one
MAX_PACKED_SHARE = 0.95  # of its size: what does not become smaller is stored
SPOOL = 1 << 20  # bytes of lines that are kept in memory before they go to a file
DOCUMENTS_PER_READ = 20  # documents whose memos are looked for at once
PAID_ANSWERS_PER_LINE = 100  # memos in a line
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same base makes the same entries


class ArchiveCounts(NamedTuple):
    """What went into an archive."""

    items: int
    documents: int  # items with bytes
    memos: int
    left_out: int  # documents that were deleted or changed between being listed and being read
    bytes: int = 0  # of the archive


class ArchiveWriter:
    """Writes one base into one archive."""

    def __init__(self, database: Database, blobs: BlobStore, base: Base, target: BinaryIO) -> None:
        self._database = database
        self._blobs = blobs
        self._base = base
        self._zip = zipfile.ZipFile(target, "w", allowZip64=True)
        self._contents: set[str] = set()  # digests
        self._documents: set[int] = set()
        self._left_out = 0

    def write(self, version: str, *, memos: bool) -> ArchiveCounts:
        """Write it all; the manifest last."""
        with self._zip, _open_spool() as tree, _open_spool() as paid:
            items = self._write_items(tree)
            self._copy(ITEMS, tree)
            known = self._write_paid_answers(tree, paid) if memos else 0
            self._copy(MEMOS, paid)
            told = {
                "format": FORMAT,
                "holdfast": version,
                "base": {"name": self._base.name, "settings": json.loads(self._base.settings.to_json())},
                "counts": {"items": items, "documents": len(self._documents), "memos": known},
            }
            self._zip.writestr(_entry(MANIFEST), json.dumps(told, ensure_ascii=False, indent=1))
        return ArchiveCounts(items, len(self._documents), known, self._left_out)

    # ------------------------------------------------------------ items and their bytes

    def _write_items(self, lines: IO[bytes]) -> int:
        """Write the bytes of documents, and note every item as it is read; return how many."""
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
        """Write the bytes of a document, unless another one has the same; False if they are gone."""
        digest = item.digest or ""
        try:
            with self._blobs.path(item.blob or "").open("rb") as file:
                if digest not in self._contents:
                    self._copy(f"{BLOBS}{digest}", file)
        except FileNotFoundError:
            return False
        self._contents.add(digest)
        self._documents.add(item.id)
        return True

    # ------------------------------------------------------------ memos

    def _write_paid_answers(self, tree: IO[bytes], lines: IO[bytes]) -> int:
        """Note what the documents in the archive use; return how many answers there are."""
        written: set[int] = set()
        for some in _batched(_documents(tree), DOCUMENTS_PER_READ):
            with self._database.reading() as tx:
                rows = tx.run(sql.READ_PAID_ANSWER_USES, some, tenant=self._base.settings.tenant)
                shut_out = self._find_answers_with_outside_sources(
                    tx, {memo for _, _, memo, joint in rows if joint} - written
                )
            uses = [row[:3] for row in rows if row[2] not in shut_out]
            for item, mine in groupby(uses, key=lambda row: row[0]):
                by_memo = {memo: [row[1] for row in those] for memo, those in groupby(mine, key=lambda row: row[2])}
                for portion in _batched(by_memo.items(), PAID_ANSWERS_PER_LINE):
                    self._write_paid_answer_line(item, dict(portion), written, lines)
        return len(written)

    def _find_answers_with_outside_sources(self, tx: Transaction, joint: set[int]) -> set[int]:
        """Return the memos that were also made from something that is not in the archive."""
        sources = tx.run(sql.READ_PAID_ANSWER_SOURCES, [[memo] for memo in joint], base=self._base.key)
        return {memo for memo, owner in sources if not owner.isdecimal() or int(owner) not in self._documents}

    def _write_paid_answer_line(
        self, item: int, uses: dict[int, list[str]], written: set[int], lines: IO[bytes]
    ) -> None:
        """Write a line about some memos of one item."""
        with self._database.reading() as tx:
            found = tx.run(sql.READ_PAID_ANSWERS, [[memo] for memo in uses])
        told = []
        for memo, key, value, joint, tokens_in, tokens_out in found:
            one: dict[str, Any] = {"key": key, "chunks": uses[memo]}
            if memo not in written:
                said = b64encode(bytes(value)).decode()
                one |= {"value": said, "joint": bool(joint), "tokens_in": tokens_in, "tokens_out": tokens_out}
            told.append(one)
        written.update(row[0] for row in found)
        if told:
            lines.write(_line({"item": item, "memos": told}))

    # ------------------------------------------------------------ entries

    def _copy(self, name: str, source: IO[bytes]) -> None:
        """Write an entry in blocks; how it is packed is seen first."""
        source.seek(0)
        entry = _entry(name, _choose_compression(source))
        source.seek(0)
        with self._zip.open(entry, "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, BLOCK_BYTES)


def _choose_compression(source: IO[bytes]) -> int:
    """Tell how bytes are packed: shrinking, unless that saves nothing or looks like a trap."""
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
    """Return an item as an archive tells of it: numbers are those of the archive alone."""
    problem = item.problem and {"code": item.problem.code, "params": dict(item.problem.params)}
    told = {
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
    return {name: value for name, value in told.items() if value not in (None, {})}


def _documents(tree: IO[bytes]) -> Iterator[list[Any]]:
    """Yield the items with bytes that were noted, each with the digest of these."""
    tree.seek(0)
    for line in tree:
        item = json.loads(line)
        if "digest" in item:
            yield [item["id"], item["digest"]]


def _batched(many: Iterable[Any], size: int) -> Iterator[Sequence[Any]]:
    portion: list[Any] = []
    for one in many:
        portion.append(one)
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode() + b"\n"


def _open_spool() -> IO[bytes]:
    """Return a place for lines, on the disk when they become many; it is gone when it is closed."""
    return cast("IO[bytes]", SpooledTemporaryFile(max_size=SPOOL))
