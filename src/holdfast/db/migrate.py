"""Upgrades a database to the schema of this version.

The upgrade is one transaction on both databases, under the write lock or an advisory lock. If the process is killed,
the old schema remains. If two processes start at once, the upgrade runs once.
"""

from __future__ import annotations

from functools import cache
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from sqlalchemy import text

from holdfast.db.closing import read_version, require_open
from holdfast.db.migrations import versions
from holdfast.errors import StoreTooNew

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from holdfast.db.database import Database

ADVISORY_LOCK_ID = 0x686F6C64  # "hold"


@cache
def find_head() -> str:
    """Return the newest version of the schema, from the names of the migrations: `v0017_calibrations` is 0017."""
    return max(module.name[1:5] for module in iter_modules(versions.__path__))


def migrate(database: Database) -> None:
    """Upgrade the schema if needed. If it is current, this costs one read."""
    database.prepare()
    with database.reading() as tx:
        version = read_version(tx.connection)
    if version == find_head():
        return
    with database.writing(durable=True) as tx:
        if tx.connection.dialect.name == "postgresql":
            wait_for_turn(tx.connection)
        version = read_version(tx.connection)
        require_open(tx.connection, version)
        if version != find_head():
            upgrade_tables(tx.connection)


def wait_for_turn(connection: Connection) -> None:
    """Wait until no other process upgrades the database. A long upgrade is not an error, so no timeout applies."""
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text("SET LOCAL lock_timeout = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": ADVISORY_LOCK_ID})
    connection.execute(text("SET LOCAL lock_timeout TO DEFAULT"))


def upgrade_tables(connection: Connection) -> None:
    """Upgrade the tables of Holdfast in the transaction of the caller."""
    from alembic import command  # noqa: PLC0415 - rarely needed, and slow to import
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "holdfast:db/migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    version = read_version(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise StoreTooNew("database_too_new", version=version, newest=find_head())
    command.upgrade(config, "head")
