"""The format of a backup, which does not depend on the kind of the database. A backup is a folder.

| entry | content |
|---|---|
| `rows/<part>.jsonl` | the rows of a table or of an index, one JSON list per line; bytes as `{"bytes": "<base64>"}` |
| `files/` | the files of documents, in the layout of `blobs.folder`; each name contains the SHA-256 of its bytes |
| `rows/files.jsonl` | the names of these files |
| `manifest.json` | format, versions, counters, and the rows and the SHA-256 of each file in `rows/`; written last |
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.disk import reporting_full_disk, sync_folder
from holdfast.errors import BadBackup
from holdfast.private_files import open_private_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FORMAT = 1
MANIFEST, ROWS_FOLDER, FILES_FOLDER, FILES = "manifest.json", "rows", "files", "files"
BLOCK_BYTES = 1 << 20


class PartEntry(NamedTuple):
    """A file in `rows/`. `prefix` and `recipe` are those of an index; a table has none."""

    name: str
    rows: int
    digest: str
    prefix: str = ""
    recipe: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    id: str
    holdfast: str  # version of the program
    version: str  # of the schema
    created_at: int
    counters: dict[str, int]
    parts: list[PartEntry] = field(default_factory=list)
    missing_files: int = 0  # named by a document, but missing already when the backup was written
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Write the manifest, durably and as a whole."""
        unfinished = folder / f"{MANIFEST}.part"
        with reporting_full_disk(str(folder)), open(unfinished, "w", opener=open_private_file) as file:
            file.write(json.dumps(asdict(self) | {"parts": [part._asdict() for part in self.parts]}, indent=1))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder / ROWS_FOLDER)  # the manifest says that its files are complete
        unfinished.replace(folder / MANIFEST)
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a manifest; raise `BadBackup` if there is none, or if it is not of this format."""
        try:
            content = json.loads((folder / MANIFEST).read_text("utf-8"))
        except FileNotFoundError as error:
            raise BadBackup("backup_incomplete", path=folder) from error
        except (OSError, ValueError) as error:
            raise BadBackup("backup_damaged", path=folder, entry=MANIFEST) from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise BadBackup("backup_format", path=folder, format=FORMAT)
        try:
            return cls(**content | {"parts": [PartEntry(**part) for part in content["parts"]]})
        except (TypeError, KeyError) as error:
            raise BadBackup("backup_damaged", path=folder, entry=MANIFEST) from error


def rows_path(folder: Path, part: str) -> Path:
    return folder / ROWS_FOLDER / f"{part}.jsonl"


def write_rows(path: Path, batches: Iterable[Sequence[Sequence[Any]]]) -> tuple[int, str]:
    """Write rows; return their number and the SHA-256 of the file."""
    digest, count = hashlib.sha256(), 0
    with reporting_full_disk(str(path)), open(path, "wb", opener=open_private_file) as file:
        for batch in batches:
            lines = "".join(f"{json.dumps(list(row), default=_encode, ensure_ascii=False)}\n" for row in batch).encode()
            digest.update(lines)
            file.write(lines)
            count += len(batch)
        file.flush()
        os.fsync(file.fileno())
    return count, digest.hexdigest()


def read_rows(path: Path, skip: int = 0) -> Iterator[list[Any]]:
    """Yield rows, after the first ones."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number >= skip:
                yield [_decode(cell) for cell in json.loads(line)]


def compute_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if it is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _encode(cell: bytes) -> dict[str, str]:
    return {"bytes": b64encode(cell).decode()}


def _decode(cell: Any) -> Any:
    return b64decode(cell["bytes"]) if isinstance(cell, dict) else cell
