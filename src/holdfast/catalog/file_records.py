"""Records files that no item references, so that a crash or a lost connection leaves no orphaned file.

An upload records the file before it writes the bytes. The transaction that stores the item deletes the record, and
fails if the record is gone. So if that transaction is rejected, or its outcome is unknown, the record exists exactly
when no item references the file. The upload extends its records while it writes. A record that has expired, or whose
process is dead, is settled in three steps: mark it as given up, which no upload can undo; remove the file; delete the
record.

A transaction that replaces or removes the file of an item records that the file must be removed. The file is removed
after the commit. After a crash, the record is settled like the others.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.blobs import new_id, parse_blob_id
from holdfast.catalog import file_statements as sql
from holdfast.clock import micros
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.blobs import BlobStore
    from holdfast.db import Database, Transaction

log = logging.getLogger("holdfast")

LEASE = timedelta(minutes=2)  # how long a record is valid without being extended
EXTEND_SECONDS = LEASE.total_seconds() / 4


class UploadExpired(StoreError):
    """The record of an upload is gone, so its file may be gone too. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("upload_expired", seconds=round(LEASE.total_seconds()))


class FileRecord(NamedTuple):
    """A file that no item references."""

    id: str
    name: str | None
    holder: str
    due: bool


class UploadRecords:
    """The records of one upload, and the ids of its files."""

    def __init__(self, records: FileRecords, ids: Sequence[str]) -> None:
        self._records = records
        self.ids = ids
        self._free = iter(ids)
        self._extended = time.monotonic()

    def next_id(self) -> str:
        return next(self._free)

    def extend(self) -> None:
        """Extend the records if a quarter of the lease has passed.

        If the database is down, the upload continues. It fails later if its records have expired.
        """
        if time.monotonic() >= self._extended + EXTEND_SECONDS:
            self._extended = time.monotonic()
            with suppress(StoreError):
                self._records.extend(self.ids)


class FileRecords:
    """Keeps the file records of one database, and removes files that no item references.

    `holder` names this process; `dead` returns whether another process is known to be dead.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        *,
        holder: str = "",
        dead: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._database = database
        self.blobs = blobs
        self._holder = holder
        self._dead = dead

    def record(self, count: int) -> UploadRecords:
        """Record files before they are written, in a durable transaction."""
        ids = [new_id() for _ in range(count)]
        if ids:
            self._database.write(
                lambda tx: tx.run(sql.RECORD_FILES, _rows(ids), holder=self._holder, lease=micros(LEASE)), durable=True
            )
        return UploadRecords(self, ids)

    def extend(self, ids: Sequence[str]) -> None:
        self._database.write(lambda tx: tx.run(sql.RENEW_FILES, _rows(ids), lease=micros(LEASE)), durable=False)

    def remove_later(self, tx: Transaction, names: Sequence[str]) -> None:
        """Record files for removal, in the transaction that removes their references."""
        rows = [[parse_blob_id(name), name] for name in names]
        tx.run(sql.REMOVE_FILES_LATER, rows, holder=self._holder, lease=micros(LEASE))

    def remove(self, names: Sequence[str], ids: Iterable[str] = ()) -> None:
        """Remove files that no item references, then their records. If that fails, the records are settled later."""
        gone = {parse_blob_id(name) for name in names}
        try:
            self.blobs.remove(names)
            self._forget({*gone, *ids})
        except (OSError, StoreError) as error:
            log.warning("files.not_removed count=%d error=%s", len(gone), error)

    def remove_due_files(self, limit: int) -> int:
        """Settle records that have expired or whose process is dead; return how many."""
        with self._database.reading() as tx:
            found = [FileRecord(*row) for row in tx.run(sql.READ_FILE_RECORDS)]
        due = [record for record in found if self.abandoned(record)][:limit]
        given_up = self._give_up([record for record in due if record.name is None])
        leaving = {record.id for record in due if record.name == ""} | given_up
        if leaving:
            self.blobs.remove_ids(leaving)
        named = [record.name for record in due if record.name]
        self.blobs.remove(named)
        self._forget(leaving | {parse_blob_id(name) for name in named})
        return len(leaving) + len(named)

    def abandoned(self, record: FileRecord) -> bool:
        """Return whether the process that wrote this record no longer works on the file."""
        return record.due or self._dead(record.holder)

    def in_use(self) -> set[str]:
        """Return the ids of files that a process is writing or removing now."""
        with self._database.reading() as tx:
            found = [FileRecord(*row) for row in tx.run(sql.READ_FILE_RECORDS)]
        return {record.id for record in found if record.name != "" and not self.abandoned(record)}

    def _give_up(self, records: Sequence[FileRecord]) -> set[str]:
        """Mark uploads as given up, except those that were extended or admitted in the meantime."""

        def work(tx: Transaction) -> set[str]:
            gone: set[str] = set()
            for dead in (False, True):
                rows = [[record.id, record.holder] for record in records if self._dead(record.holder) is dead]
                gone |= {id_ for (id_,) in tx.run(sql.GIVE_UP_FILES, rows, dead=int(dead))}
            return gone

        return self._database.write(work, durable=True) if records else set()

    def _forget(self, ids: Iterable[str]) -> None:
        rows = _rows(ids)
        if rows:
            self._database.write(lambda tx: tx.run(sql.FORGET_FILES, rows), durable=False)


def release_file_records(tx: Transaction, names: Sequence[str]) -> None:
    """Delete the records of files that items now reference; raise `UploadExpired` if one was given up."""
    ids = {parse_blob_id(name) for name in names}
    if len(tx.run(sql.RELEASE_FILE_RECORDS, _rows(ids))) < len(ids):
        raise UploadExpired


def _rows(ids: Iterable[str]) -> list[list[str]]:
    return [[id_] for id_ in sorted(ids)]
