"""Keeps files from being removed while a backup copies those that its snapshot names.

A hold is a record among the file records, with an id that no file has. While it is valid, the blob store of every
process refuses to remove files, as if it were read-only: deletes stay invisible, and their clean-up waits. A process
that removes a file looks for holds after it has committed the removal of the row. So a file that it removes in spite of
a new hold is not named by a snapshot that was opened after the hold.

The process of a hold extends it. If that process is killed, the hold expires and its record is settled like that of an
abandoned upload.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from holdfast.catalog import file_statements as sql
from holdfast.catalog.file_records import EXTEND_SECONDS, LEASE
from holdfast.clock import micros
from holdfast.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from holdfast.blobs import BlobStore
    from holdfast.db import Database


class FileHolds:
    """The holds of one database.

    `holder` names this process; `dead` returns whether another process is known to be dead.
    """

    def __init__(self, database: Database, holder: str, dead: Callable[[str], bool]) -> None:
        self._database = database
        self._holder = holder
        self._dead = dead

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Keep all files inside the block. Raise `StoreError` at its end if the hold was lost meanwhile."""
        row = [[f"{sql.HOLD_PREFIX}{secrets.token_hex(4)}"]]
        ended = threading.Event()
        lost = threading.Event()

        def extend() -> None:
            while not ended.wait(EXTEND_SECONDS):
                if not self._extend(row):
                    lost.set()

        self._database.write(
            lambda tx: tx.run(sql.RECORD_FILES, row, holder=self._holder, lease=micros(LEASE)), durable=True
        )
        thread = threading.Thread(target=extend, name="holdfast-hold", daemon=True)
        thread.start()
        try:
            yield
            if lost.is_set() or not self._extend(row):
                raise StoreError("hold_lost", seconds=round(LEASE.total_seconds()))
        finally:
            ended.set()
            thread.join()
            self._database.write(lambda tx: tx.run(sql.FORGET_FILES, row), durable=False)

    def exist(self) -> bool:
        """Return whether a running process holds the files."""
        return any(not due and not self._dead(holder) for holder, due in self._database.read(sql.SELECT_HOLDS))

    def _extend(self, row: list[list[str]]) -> bool:
        """Extend a hold; return whether it was still valid. An unreachable database counts as lost."""
        try:
            renewed = self._database.write(lambda tx: tx.run(sql.RENEW_HOLDS, row, lease=micros(LEASE)), durable=False)
        except StoreError:
            return False
        return bool(renewed)


class HoldableBlobStore:
    """A blob store that removes nothing while a process holds the files. Everything else is that of the store."""

    def __init__(self, blobs: BlobStore, holds: FileHolds) -> None:
        self._blobs = blobs
        self._holds = holds

    def remove(self, names: Collection[str]) -> None:
        self._require_no_hold(names)
        self._blobs.remove(names)

    def remove_ids(self, ids: Collection[str]) -> None:
        self._require_no_hold(ids)
        self._blobs.remove_ids(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def _require_no_hold(self, names: Collection[str]) -> None:
        if names and self._holds.exist():
            raise StoreUnavailable("files_held")


def make_holdable(blobs: BlobStore, holds: FileHolds) -> BlobStore:
    return cast("BlobStore", HoldableBlobStore(blobs, holds))
