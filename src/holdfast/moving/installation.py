"""The parts of an installation that a copy needs: its database, files, indexes and doctor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.engine import make_url

from holdfast.db import closing
from holdfast.db.migrate import find_head
from holdfast.errors import StoreError
from holdfast.moving.tables import EVENTS, FILLED, copied_tables, count_rows
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from holdfast.blobs import BlobStore
    from holdfast.catalog import Catalog, FileHolds
    from holdfast.db import Database
    from holdfast.db.closing import MoveState
    from holdfast.doctor import Doctor, Finding
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import IndexRegistry
    from holdfast.webhooks import SecretCipher

# Findings about the processes that run now, and about clean-up that the next worker does.
NOT_OF_THE_COPY = frozenset({"nobody_works", "build_left", "chunk_left", "delete_unasked", "delete_unfinished"})


class Library(Protocol):
    """The objects that work with one database and its files; see `wiring.Library`."""

    store: SqlStore

    @property
    def blobs(self) -> BlobStore: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def file_holds(self) -> FileHolds: ...
    @property
    def indexes(self) -> IndexRegistry: ...
    @property
    def doctor(self) -> Doctor: ...
    @property
    def webhook_cipher(self) -> SecretCipher: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A database and the place of its files, opened without upgrading the database."""

    address: str  # of the database
    data: str  # of the files
    library: Library

    @property
    def database(self) -> Database:
        return self.library.store.database

    @property
    def shown(self) -> str:
        """The address without its password."""
        return mask_secrets(self.address)

    def exists(self) -> bool:
        """Return whether the database may exist. Opening a file of SQLite would create it."""
        url = make_url(self.address)
        return url.get_backend_name() != "sqlite" or bool(url.database and Path(url.database).is_file())

    def require_current(self) -> MoveState | None:
        """Return the move in which the database takes part; raise an error if it cannot be copied."""
        if not self.exists():
            raise StoreError("source_missing", source=self.shown)
        with self.database.reading() as tx:
            version = closing.read_version(tx.connection)
            closing.require_open(tx.connection, version)
            state = closing.read_move_state(tx.connection)
        if version is None:
            raise StoreError("source_missing", source=self.shown)
        if version != find_head():
            raise StoreError("source_version", source=self.shown, version=version, needed=find_head())
        return state

    def is_same_database(self, other: Installation) -> bool:
        return _database_key(self.address) == _database_key(other.address)

    def require_empty(self) -> None:
        """Raise `StoreError` if a table has rows."""
        for table in copied_tables():
            filters: dict[str, Any] = {"since": 0} if table.name == EVENTS else {}
            if table.name not in FILLED and self.database.read(count_rows(table), **filters)[0][0]:
                raise StoreError("target_not_empty", target=self.shown, table=table.name)

    def tend(self) -> None:
        """Prepare the new database for queries: indexes of large tables, and statistics for the planner."""
        for _, kind, recipe in self.library.catalog.all_recipes():
            if kind in self.library.indexes.kinds:
                self.library.indexes[kind].tend(recipe)
        with self.database.autocommit() as tx:
            tx.run_sql("ANALYZE")

    def list_findings(self, *, deep: bool) -> list[Finding]:
        """Return what the doctor finds about the contents."""
        return [one for one in self.library.doctor.check(deep=deep) if one.code not in NOT_OF_THE_COPY]


def _database_key(address: str) -> tuple[object, ...]:
    url = make_url(address)
    if url.get_backend_name() == "sqlite":
        return ("sqlite", Path(url.database or "").resolve())
    return (url.get_backend_name(), url.host, url.port or 5432, url.database)
