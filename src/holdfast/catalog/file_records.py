"""Records of files that no item names, so that a crash or a lost connection leaves no file behind.

An upload records the file before it writes the bytes. The transaction in which an item names the file deletes the
record, and is refused if the record is gone. So an upload whose transaction was rejected, or ended in a way that nobody
knows, leaves a record exactly when no item names its file. The upload extends its records while it writes. A record
whose time is over, or whose process is dead, is settled: first it is marked as given up, which no upload can undo, then
the file is removed, then the record.

A transaction that takes a file away from an item records that the file is to be removed. The file is removed after the
commit; after a crash the record is settled like the others.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import file_statements as sql
from holdfast.catalog.blobs import ID_LENGTH, new_id
from holdfast.clock import micros
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.catalog.blobs import BlobStore
    from holdfast.db import Database, Transaction

log = logging.getLogger("holdfast")

LEASE = timedelta(minutes=2)  # how long a record is left alone
EXTEND_SECONDS = LEASE.total_seconds() / 4


class UploadExpired(StoreError):
    """The record of an upload is gone, so its file may be gone, too: nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "The upload was given up because it was silent for more than "
            f"{LEASE.total_seconds():.0f} s, and its bytes were removed. Nothing was written; add the file again."
        )


class FileRecord(NamedTuple):
    """A file that no item names."""

    id: str
    name: str | None
    holder: str
    due: bool


class UploadRecords:
    """The records of one upload; its files have these ids."""

    def __init__(self, records: FileRecords, ids: Sequence[str]) -> None:
        self._records = records
        self.ids = ids
        self._free = iter(ids)
        self._extended = time.monotonic()

    def next_id(self) -> str:
        """Return the id of the next file."""
        return next(self._free)

    def extend(self) -> None:
        """Extend the records now and then; if the database is away the upload goes on, and may be refused later."""
        if time.monotonic() >= self._extended + EXTEND_SECONDS:
            self._extended = time.monotonic()
            with suppress(StoreError):
                self._records.extend(self.ids)


class FileRecords:
    """Keeps the records of one database, and removes files that no item names."""

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        *,
        holder: str = "",
        dead: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`holder` names this process, and `dead` tells whether another one is known to be gone."""
        self._database = database
        self.blobs = blobs
        self._holder = holder
        self._dead = dead

    def record(self, count: int) -> UploadRecords:
        """Record files that are about to be written; the record survives a power cut."""
        ids = [new_id() for _ in range(count)]
        if ids:
            self._database.write(
                lambda tx: tx.run(sql.RECORD_FILES, _rows(ids), holder=self._holder, lease=micros(LEASE)), durable=True
            )
        return UploadRecords(self, ids)

    def extend(self, ids: Sequence[str]) -> None:
        """Leave records alone for another while."""
        self._database.write(lambda tx: tx.run(sql.RENEW_FILES, _rows(ids), lease=micros(LEASE)), durable=False)

    def remove_later(self, tx: Transaction, names: Sequence[str]) -> None:
        """Record, in the transaction that takes files away from items, that they are to be removed."""
        rows = [[parse_blob_id(name), name] for name in names]
        tx.run(sql.REMOVE_FILES_LATER, rows, holder=self._holder, lease=micros(LEASE))

    def remove(self, names: Sequence[str], ids: Iterable[str] = ()) -> None:
        """Remove files that no item names, and then their records; what fails now is settled later."""
        gone = {parse_blob_id(name) for name in names}
        try:
            for name in names:
                self.blobs.remove(name)
            self._forget({*gone, *ids})
        except (OSError, StoreError) as error:
            log.warning("files.not_removed count=%d error=%s", len(gone), error)

    def remove_due_files(self, limit: int) -> int:
        """Remove the files of records that are due; return how many records were settled."""
        with self._database.reading() as tx:
            found = [FileRecord(*row) for row in tx.run(sql.READ_FILE_RECORDS)]
        due = [one for one in found if self.abandoned(one)][:limit]
        given_up = self._give_up([one for one in due if one.name is None])
        leaving = {one.id for one in due if one.name == ""} | given_up
        if leaving:
            self.blobs.remove_ids(leaving)
        named = [one.name for one in due if one.name]
        for name in named:
            self.blobs.remove(name)
        self._forget(leaving | {parse_blob_id(name) for name in named})
        return len(leaving) + len(named)

    def abandoned(self, record: FileRecord) -> bool:
        """Tell whether nobody is at work on a file any more."""
        return record.due or self._dead(record.holder)

    def in_use(self) -> set[str]:
        """Return the ids of files that an upload is writing now."""
        with self._database.reading() as tx:
            found = [FileRecord(*row) for row in tx.run(sql.READ_FILE_RECORDS)]
        return {one.id for one in found if one.name is None and not self.abandoned(one)}

    def _give_up(self, records: Sequence[FileRecord]) -> set[str]:
        """Mark uploads as given up, unless they were extended or admitted meanwhile."""

        def work(tx: Transaction) -> set[str]:
            gone: set[str] = set()
            for dead in (False, True):
                rows = [[one.id, one.holder] for one in records if self._dead(one.holder) is dead]
                gone |= {id_ for (id_,) in tx.run(sql.GIVE_UP_FILES, rows, dead=int(dead))}
            return gone

        return self._database.write(work, durable=True) if records else set()

    def _forget(self, ids: Iterable[str]) -> None:
        rows = _rows(ids)
        if rows:
            self._database.write(lambda tx: tx.run(sql.FORGET_FILES, rows), durable=False)


def release_file_records(tx: Transaction, names: Sequence[str]) -> None:
    """Delete the records of files that items name from now on; refuse if one of them was given up."""
    ids = {parse_blob_id(name) for name in names}
    if len(tx.run(sql.RELEASE_FILE_RECORDS, _rows(ids))) < len(ids):
        raise UploadExpired


def parse_blob_id(name: str) -> str:
    """Return the part of a blob's name that is its own."""
    return name[-ID_LENGTH:]


def _rows(ids: Iterable[str]) -> list[list[str]]:
    return [[id_] for id_ in sorted(ids)]
