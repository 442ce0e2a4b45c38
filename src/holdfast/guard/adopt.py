"""Adopts the rows of an existing table into the guard: active rows become done keys, others stay not indexed.

Rows are read by key in batches, and each batch is one transaction. Keys that the guard knows are not changed, so
adopting can be interrupted and repeated, and can run beside the application.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import column, create_engine, literal_column, select, table
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from holdfast.engine import Operation, Request, SlotSpec
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import BadRequest
from holdfast.url_secrets import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnClause, Engine

    from holdfast.guard.guard import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionSource:
    """The table, its key column, and the SQL condition for an active row."""

    database: str
    table: str
    key: str = "id"
    active: str = "is_active"


@dataclass(slots=True, kw_only=True)
class AdoptionResult:
    """The number of rows by result."""

    success: int = 0  # active, and now done in the guard
    not_indexed: int = 0  # not active; nothing is written
    known: int = 0  # active, but the guard knew the key already


def adopt(guard: Guard, work: str, source: AdoptionSource, *, dry_run: bool = False) -> AdoptionResult:
    """Adopt the rows as keys of a work; with `dry_run`, only count them.

    Example:
        adopt(guard, "invoices", AdoptionSource(database="postgresql+psycopg://…", table="invoices", key="number"))
    """
    adopted = AdoptionResult()
    engine = _open_engine(source.database)
    try:
        for rows in _read_batches(engine, source):
            active = [str(key) for key, is_active in rows if is_active]
            adopted.not_indexed += len(rows) - len(active)
            new = guard.store.find_unknown_owners(work, active)
            adopted.known += len(active) - len(new)
            adopted.success += len(new) if dry_run else guard.store.adopt([_request(work, key) for key in new])
    except DBAPIError as error:
        raise BadRequest(
            "adoption_table_unreadable", table=source.table, key=source.key, active=source.active, detail=error.orig
        ) from error
    finally:
        engine.dispose()
    return adopted


def _request(work: str, key: str) -> Request:
    return Request(base=work, owner=key, operation=Operation.INDEX, slots=(SlotSpec(work),), cause="adopted")


def _open_engine(database: str) -> Engine:
    try:
        return create_engine(database)
    except (NoSuchModuleError, ImportError) as error:
        raise BadRequest("adoption_driver_missing", detail=error) from error
    except (ArgumentError, ValueError) as error:
        shown = MASK if "@" in database else database  # it may contain a password
        raise BadRequest("adoption_database_invalid", address=shown) from error


def _read_batches(engine: Engine, source: AdoptionSource) -> Iterator[list[tuple[Any, bool]]]:
    """Yield rows in order of their key, so that no transaction stays open and each key is read once."""
    key: ColumnClause[Any] = column(source.key)
    rows = table(source.table, key)
    statement = select(key, literal_column(f"CASE WHEN {source.active} THEN 1 ELSE 0 END")).select_from(rows)
    last: Any = None
    while True:
        after = statement if last is None else statement.where(key > last)
        with engine.connect() as connection:
            result = connection.execute(after.order_by(key).limit(LARGEST_BATCH))
            batch = [(value, bool(active)) for value, active in result]
        if not batch:
            return
        values = {value for value, _ in batch}
        if None in values or len(values) < len(batch):
            raise BadRequest("adoption_key_not_unique", key=source.key, table=source.table)
        yield batch
        last = batch[-1][0]
