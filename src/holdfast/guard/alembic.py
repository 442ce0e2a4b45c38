"""The tables of a guard in the migrations of an app, with Alembic.

from alembic import op
from holdfast.guard.alembic import upgrade_guard

def upgrade() -> None:
    upgrade_guard(op, schema="guard")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.store.own_tables import list_dropping_statements, read_tables_version
from holdfast.guard.place import choose_names, list_ddl
from holdfast.guard.tables import CALL_TABLES

if TYPE_CHECKING:
    from typing import Any


def upgrade_guard(
    op: Any, *, schema: str | None = None, prefix: str | None = None, from_version: str | None = None
) -> None:
    """Create the tables of the guard, or upgrade them to the version of the installed Holdfast.

    Call it once in a migration that creates them, and in a new migration after an upgrade of Holdfast that changes
    them. Without a database (`alembic upgrade --sql`), `from_version` says which version the tables have; None means
    that there are none.
    """
    context = op.get_context()
    is_postgres = context.dialect.name == "postgresql"
    names = choose_names(is_postgres, schema=schema, prefix=prefix)
    if not context.as_sql:
        from_version = read_tables_version(op.get_bind(), names)
    for statement in list_ddl(names, is_postgres=is_postgres, from_version=from_version):
        op.execute(statement)


def drop_guard(op: Any, *, schema: str | None = None, prefix: str | None = None) -> None:
    """Drop the tables of the guard, with all its jobs. A schema stays, because other tables may be in it."""
    names = choose_names(op.get_context().dialect.name == "postgresql", schema=schema, prefix=prefix)
    for statement in list_dropping_statements(names, CALL_TABLES):
        op.execute(statement)
