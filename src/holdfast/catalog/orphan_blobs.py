"""Files that no item names: those of uploads that came to nothing, and those that no record tells of.

Recorded files (see `file_records`) are settled as soon as their upload is given up. A file without a record was left by
an earlier version, or by a process that was stopped for long and went on writing. The sweep removes it when it is a day
old; the doctor reports it at once. How old a file is only says that it is worth a look: clocks jump, and an upload may
be slow. The database decides. In one transaction in which nobody adds anything, a blob that no row names is
*condemned*: from then on no row can name it, and only then the file goes. An upload that comes too late is refused, and
has to be made again; it never names a file that is not there. The names of condemned blobs are kept, since names are
never used twice.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.catalog import file_statements as sql
from holdfast.catalog.blobs import UNFINISHED_SUFFIX
from holdfast.catalog.file_records import parse_blob_id
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog.file_records import FileRecords
    from holdfast.clock import Clock
    from holdfast.db import Database, Transaction

ORPHAN_AGE = timedelta(days=1)  # what is younger may still get its row


class OrphanBlobCollector:
    """Goes round the files of one database, some at a time."""

    def __init__(self, database: Database, files: FileRecords, clock: Clock) -> None:
        self._database = database
        self.files = files
        self._blobs = files.blobs
        self._clock = clock
        self._after = ""

    def sweep(self, limit: int) -> int:
        """Settle records, look at the next files, and remove old ones that no row names; return how many went."""
        settled = self.files.remove_due_files(limit)
        before = self._clock.now() / 1_000_000 - ORPHAN_AGE.total_seconds()
        unfinished = self.remove_unfinished(before) if not self._after else 0
        left, self._after = self.find_orphans(self._after, limit, before)
        return settled + unfinished + len(self.remove(left))

    def find_orphans(self, after: str, limit: int, before: float = math.inf) -> tuple[list[str], str]:
        """Name the files that no row names, among the next from behind `after` on, and where to go on.

        That is nowhere when all were seen. Files that an upload is writing are not named, nor those that were written
        to since `before`.
        """
        seen = self._blobs.names(after, limit)
        writing = self.files.in_use()
        chosen = [name for name in seen if parse_blob_id(name) not in writing and self._older(name, before)]
        with self._database.reading() as tx:
            return _unnamed(tx, chosen), seen[-1] if len(seen) == limit else ""

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove files that no row names and none will; return those that went."""
        gone = self._database.write(lambda tx: _condemn(tx, names), durable=True) if names else []
        for name in gone:
            self._blobs.remove(name)
        return gone

    def unfinished(self, before: float = math.inf) -> list[str]:
        """Name the files that were begun and that no upload is writing."""
        found = self._blobs.unfinished(before)
        writing = self.files.in_use()
        still = set(self._blobs.unfinished())  # an upload may have finished one meanwhile
        return [name for name in found if name in still and name.removesuffix(UNFINISHED_SUFFIX) not in writing]

    def remove_unfinished(self, before: float = math.inf) -> int:
        """Remove them; return how many."""
        found = self.unfinished(before)
        for name in found:
            self._blobs.remove_unfinished(name)
        return len(found)

    def _older(self, name: str, before: float) -> bool:
        return (self._blobs.written_at(name) or before) < before


def refuse_condemned(tx: Transaction, names: Sequence[str]) -> None:
    """Refuse to name blobs whose files are gone or about to go, within the transaction that would name them."""
    if tx.run(sql.SELECT_CONDEMNED_BLOBS, [[name] for name in names]):
        raise StoreError(
            "The bytes were swept before anything named them: by the clock of this machine, more than a day has passed "
            "since they came in. Nothing was written; add them again."
        )


def _unnamed(tx: Transaction, names: Sequence[str]) -> list[str]:
    named = {name for (name,) in tx.run(sql.SELECT_NAMED_BLOBS, [[name] for name in names])}
    return [name for name in names if name not in named]


def _condemn(tx: Transaction, names: Sequence[str]) -> list[str]:
    """Condemn those of the blobs that still have no row; whoever adds something waits, and then sees it."""
    tx.run(sql.LOCK_ALL_BASES)
    left = _unnamed(tx, names)
    tx.run(sql.CONDEMN_BLOBS, [[name] for name in left])
    return left
