"""Collects files that no item references: files of failed uploads, and files without a record.

Recorded files (see `file_records`) are settled as soon as their upload is given up. A file without a record was left by
an earlier version, or by a process that was suspended for a long time and then continued to write. The sweep removes
such a file when it is a day old; the doctor reports it at once.

The age only selects candidates, because clocks jump and uploads may be slow. The database decides: one transaction,
which locks all bases, marks blobs without a row as *condemned*. From then on no row can reference them, and only then
the file is removed. An upload that comes too late fails and must be repeated; it never references a missing file. The
names of condemned blobs are kept, because names are never used twice.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.blobs import UNFINISHED_SUFFIX, parse_blob_id
from holdfast.catalog import file_statements as sql
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog.file_records import FileRecords
    from holdfast.clock import Clock
    from holdfast.db import Database, Transaction

ORPHAN_AGE = timedelta(days=1)  # younger files may still get a row


class OrphanBlobCollector:
    """Scans the files of one database in batches and removes orphans."""

    def __init__(self, database: Database, files: FileRecords, clock: Clock) -> None:
        self._database = database
        self.files = files
        self._blobs = files.blobs
        self._clock = clock
        self._after = ""

    def sweep(self, limit: int) -> int:
        """Settle due records, check the next files, and remove old orphans; return how many were removed."""
        settled = self.files.remove_due_files(limit)
        before = self._clock.now() / 1_000_000 - ORPHAN_AGE.total_seconds()
        unfinished = self.remove_unfinished(before) if not self._after else 0
        left, self._after = self.find_orphans(self._after, limit, before)
        return settled + unfinished + len(self.remove(left))

    def find_orphans(self, after: str, limit: int, before: float = math.inf) -> tuple[list[str], str]:
        """Return the orphans among the next `limit` files after the file `after`, and the name to continue from.

        The name is empty after the last file. Files that a process is writing or removing, or that were written since
        `before`, are not orphans.
        """
        seen = self._blobs.list_blobs(after, limit)
        in_use = self.files.in_use()
        chosen = [one.name for one in seen if parse_blob_id(one.name) not in in_use and one.written_at < before]
        with self._database.reading() as tx:
            return _unnamed(tx, chosen), seen[-1].name if len(seen) == limit else ""

    def remove(self, names: Sequence[str]) -> list[str]:
        """Condemn and remove files that no row references; return the removed names."""
        gone = self._database.write(lambda tx: _condemn(tx, names), durable=True) if names else []
        self._blobs.remove(gone)
        return gone

    def unfinished(self, before: float = math.inf) -> list[str]:
        """Return unfinished files that no upload is writing."""
        found = self._blobs.unfinished(before)
        writing = self.files.in_use()
        still = set(self._blobs.unfinished())  # an upload may have finished one in the meantime
        return [name for name in found if name in still and name.removesuffix(UNFINISHED_SUFFIX) not in writing]

    def remove_unfinished(self, before: float = math.inf) -> int:
        found = self.unfinished(before)
        for name in found:
            self._blobs.remove_unfinished(name)
        return len(found)


def refuse_condemned(tx: Transaction, names: Sequence[str]) -> None:
    """Raise if a blob was condemned, in the transaction that would reference it."""
    if tx.run(sql.SELECT_CONDEMNED_BLOBS, [[name] for name in names]):
        raise StoreError("upload_swept")


def _unnamed(tx: Transaction, names: Sequence[str]) -> list[str]:
    named = {name for (name,) in tx.run(sql.SELECT_NAMED_BLOBS, [[name] for name in names])}
    return [name for name in names if name not in named]


def _condemn(tx: Transaction, names: Sequence[str]) -> list[str]:
    """Condemn the blobs that still have no row. Uploads wait for this transaction, and then see its result."""
    tx.run(sql.LOCK_ALL_BASES)
    left = _unnamed(tx, names)
    tx.run(sql.CONDEMN_BLOBS, [[name] for name in left])
    return left
