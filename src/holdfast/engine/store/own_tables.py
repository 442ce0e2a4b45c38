"""The engine's tables alone, in a schema or with a prefix, for an app that has only the guard in its database.

They have the version of the whole database (`db/migrate.py`). A new set of tables is created as it is declared; a
migration that changes a table of the engine also adds its statements to `UPGRADES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Dialect, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from holdfast.db.migrate import find_head, upgrade_tables, wait_for_turn
from holdfast.engine.store.old_tables import list_old_works, move_rows
from holdfast.engine.store.tables import (
    ENGINE_TABLES,
    events,
    job_details,
    jobs,
    metric_increments,
    metric_totals,
    schema_version,
    work_quotas,
)
from holdfast.errors import BadSettings, StoreTooNew

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Index, Table

    from holdfast.db import Database, TableNames

FIRST_VERSION = "0023"  # the oldest version of tables of their own
# The statements of a migration for the tables of the engine, by version.


def _add_job_details(names: TableNames, dialect: Dialect) -> list[str]:
    added = names.copy_tables((job_details, work_quotas))
    return [statement for table in added for statement in list_table_statements(table, dialect)]


UPGRADES: Mapping[str, Callable[[TableNames, Dialect], Sequence[str]]] = {"0024": _add_job_details}

COUNTERS = tuple(
    f"stale_write_rejected.{verb}" for verb in ("completed", "failed", "released", "forgotten", "extended", "guarded")
)
MARKS = ("swept", "metrics")
VACUUM_EARLY = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02"
VACUUM_INSERTS = f"{VACUUM_EARLY}, autovacuum_vacuum_insert_scale_factor = 0.05"
# As migrations 0018 and 0020 set them.
STORAGE_PARAMETERS = {
    "owners": VACUUM_EARLY,
    "slots": VACUUM_EARLY,
    jobs.name: f"{VACUUM_EARLY}, fillfactor = 85",
    events.name: VACUUM_INSERTS,
    "duplicates": VACUUM_INSERTS,
    metric_increments.name: VACUUM_EARLY,
    metric_totals.name: "fillfactor = 50",
}


def list_creating_statements(names: TableNames, dialect: Dialect, more: Sequence[Table]) -> list[str]:
    """Return the SQL that creates the tables at the newest version, in order. `more` are tables of the caller.

    Example:
        list_creating_statements(TableNames(schema="guard"), postgresql.dialect(), ())[0]
        # 'CREATE SCHEMA IF NOT EXISTS guard'
    """
    statements = [f"CREATE SCHEMA IF NOT EXISTS {names.schema}"] if names.schema else []
    for table in names.copy_tables((*ENGINE_TABLES, *more, schema_version)):
        statements += list_table_statements(table, dialect)
    if dialect.name == "postgresql":
        statements += [
            f"ALTER TABLE {names.table(table)} SET ({parameters})" for table, parameters in STORAGE_PARAMETERS.items()
        ]
    rows = [
        *(("counters", f"(name, value) VALUES ('{name}', 0)") for name in COUNTERS),
        *(("event_marks", f"(name, xid, id) VALUES ('{name}', 0, 0)") for name in MARKS),
        (schema_version.name, f"(version_num) VALUES ('{find_head()}')"),
    ]
    return [*statements, *(f"INSERT INTO {names.table(table)} {row}" for table, row in rows)]


def list_dropping_statements(names: TableNames, more: Sequence[Table]) -> list[str]:
    """Return the SQL that drops the tables. A schema stays, because other tables may be in it."""
    return [f"DROP TABLE {names.table(table.name)}" for table in (schema_version, *more, *reversed(ENGINE_TABLES))]


def list_table_statements(table: Table, dialect: Dialect) -> list[str]:
    """Return the SQL that creates a table and its indexes."""
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    elements: list[DDLElement] = [
        CreateTable(table),
        *(CreateIndex(index) for index in indexes if _exists_on(index, dialect)),
    ]
    return [_tidy(str(element.compile(dialect=dialect))) for element in elements]


def _exists_on(index: Index, dialect: Dialect) -> bool:
    return dialect.name == "postgresql" or not str(index.name).endswith("events_order")


def _tidy(sql: str) -> str:
    return "\n".join(line.rstrip() for line in sql.strip().replace("\t", "  ").splitlines())


def list_upgrading_statements(names: TableNames, dialect: Dialect, version: str) -> list[str]:
    """Return the SQL that upgrades tables of this version to the newest one.

    Raises `StoreTooNew` if the tables are newer, and `BadSettings` if there was no such version.
    """
    head = find_head()
    if version > head:
        raise StoreTooNew("database_too_new", version=version, newest=head)
    if version < FIRST_VERSION:
        raise BadSettings("guard_tables_version_unknown", version=version, first=FIRST_VERSION, newest=head)
    if version == head:
        return []
    changes = [
        statement
        for number, upgrade in sorted(UPGRADES.items())
        if number > version
        for statement in upgrade(names, dialect)
    ]
    return [*changes, f"UPDATE {names.table(schema_version.name)} SET version_num = '{head}'"]  # noqa: S608


def read_tables_version(connection: Connection, names: TableNames) -> str | None:
    """Return the version of the tables; None if there are none."""
    if not inspect(connection).has_table(names.prefix + schema_version.name, schema=names.schema or None):
        return None
    version: str | None = connection.execute(
        text(f"SELECT version_num FROM {names.table(schema_version.name)}")  # noqa: S608 - our own words
    ).scalar()
    return version


def prepare_own_tables(database: Database, more: Sequence[Table], *, create: bool) -> None:
    """Create or upgrade the tables if needed, in one transaction. If they are current, this costs one read.

    Rows of a guard that an older version kept in the tables of Holdfast are moved. Without `create`, nothing is
    changed, and tables that are missing or old raise `BadSettings`.
    """
    names = database.names
    database.prepare()
    with database.reading() as tx:
        version = read_tables_version(tx.connection, names)
    if version == find_head():
        return
    if not create:
        list_upgrading_statements(names, database.engine.dialect, version or FIRST_VERSION)  # refuses newer tables
        raise BadSettings("guard_tables_missing" if version is None else "guard_tables_old", tables=names.table("…"))
    with database.writing(durable=True) as tx:
        _create_or_upgrade(tx.connection, names, more)


def _create_or_upgrade(connection: Connection, names: TableNames, more: Sequence[Table]) -> None:
    if connection.dialect.name == "postgresql":
        wait_for_turn(connection)
    version = read_tables_version(connection, names)
    if version is not None:
        statements = list_upgrading_statements(names, connection.dialect, version)
    else:
        statements = list_creating_statements(names, connection.dialect, more)
        if names.schema and names.schema in inspect(connection).get_schema_names():
            del statements[0]  # it needs a right that the user of an app may lack
    for statement in statements:
        try:
            connection.exec_driver_sql(statement)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != "42501":
                raise
            raise BadSettings("guard_tables_not_created", tables=names.table("…"), detail=error.orig) from error
    if version is None and list_old_works(connection):
        upgrade_tables(connection)
        move_rows(connection, names)
