"""Closes a database while its contents move to another one, or after they have moved.

Triggers refuse every write of every process on every machine, also of processes that were started before. A version
that no program knows keeps processes from opening a database whose contents have moved, or are not complete yet. The
table `holdfast_move` says where the contents go, or come from. It exists only in such a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Column, Integer, MetaData, Table, Text, delete, insert, inspect, select, text, update

from holdfast.errors import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from holdfast.db.database import Transaction

ARRIVING, MOVED = "arriving", "moved"  # instead of the version of the schema
SOURCE, TARGET = "source", "target"  # the roles of a database
PREFIX = "holdfast_move"  # of the triggers
WRITES = ("INSERT", "UPDATE", "DELETE")
REFUSED = "holdfast: the contents of this database move to "  # the message of a trigger begins with it
REFUSED_SQLSTATE = "HF001"

move_state = Table(
    "holdfast_move",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("move", Text, nullable=False),  # the same in both databases
    Column("role", Text, nullable=False),
    Column("other", Text, nullable=False),  # address of the other database, without its password
    Column("version", Text, nullable=False),  # of the schema
    Column("details", Text, nullable=False),  # JSON: the options of the move
)


class MoveState(NamedTuple):
    """What a database knows about its move."""

    move: str
    role: str
    other: str
    version: str
    details: str


def read_move_state(connection: Connection) -> MoveState | None:
    """Return the state of a move; None for a database that takes part in none."""
    if not inspect(connection).has_table(move_state.name):
        return None
    columns = [move_state.c[name] for name in MoveState._fields]
    row = connection.execute(select(*columns)).first()
    return None if row is None else MoveState(*row)


def read_version(connection: Connection) -> str | None:
    """Return the version of the schema, `ARRIVING` or `MOVED`; None for a database without tables."""
    if not inspect(connection).has_table("holdfast_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM holdfast_version")).scalar()
    return version


def write_version(connection: Connection, version: str) -> None:
    connection.execute(text("UPDATE holdfast_version SET version_num = :version"), {"version": version})


def require_open(connection: Connection, version: str | None) -> None:
    """Raise `StoreClosed` if no process may open this database."""
    if version not in (ARRIVING, MOVED):
        return
    state = read_move_state(connection)
    other = state.other if state else ""
    raise (
        StoreClosed("database_moved", target=other)
        if version == MOVED
        else StoreClosed("database_arriving", source=other)
    )


def create_move_state(connection: Connection, state: MoveState) -> None:
    """Write the state, replacing an older one."""
    move_state.create(connection, checkfirst=True)
    connection.execute(delete(move_state))
    connection.execute(insert(move_state).values(id=1, **state._asdict()))


def write_move_details(connection: Connection, details: str) -> None:
    connection.execute(update(move_state).values(details=details))


def drop_move_state(connection: Connection) -> None:
    move_state.drop(connection, checkfirst=True)


def refuse_writes(tx: Transaction, tables: Iterable[str], other: str) -> None:
    """Create the triggers. On PostgreSQL this waits for all transactions that have written to these tables."""
    message = "'" + (REFUSED + other).replace("'", "''") + "'"
    if tx.connection.dialect.name == "postgresql":
        message = message.replace("%", "%%")  # the driver looks for placeholders
        tx.run_sql(
            f"CREATE OR REPLACE FUNCTION {PREFIX}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION USING ERRCODE = '{REFUSED_SQLSTATE}', MESSAGE = TG_ARGV[0]; END $$"
        )
        for table in tables:
            tx.run_sql(
                f"CREATE OR REPLACE TRIGGER {PREFIX} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {PREFIX}_refuse({message})"
            )
        return
    for table in tables:
        for write in WRITES:
            tx.run_sql(
                f"CREATE TRIGGER IF NOT EXISTS {PREFIX}_{table}_{write.lower()} BEFORE {write} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, {message}); END"
            )


def accept_writes(tx: Transaction, tables: Iterable[str]) -> None:
    """Drop the triggers."""
    if tx.connection.dialect.name == "postgresql":
        tx.run_sql(f"DROP FUNCTION IF EXISTS {PREFIX}_refuse() CASCADE")
        return
    for table in tables:
        for write in WRITES:
            tx.run_sql(f"DROP TRIGGER IF EXISTS {PREFIX}_{table}_{write.lower()}")


def explain_refused_write(error: BaseException) -> StoreClosed | None:
    """Return the error for a write that a trigger has refused; None for any other error."""
    first = str(error).partition("\n")[0]
    return StoreClosed("database_moving", target=first.removeprefix(REFUSED)) if first.startswith(REFUSED) else None
