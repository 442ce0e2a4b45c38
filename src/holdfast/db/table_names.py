"""Where tables are: under their own names, or in a schema and with a prefix that a team has chosen.

Statements are declared with plain table names. `TableNames.localise` rewrites a compiled statement, so a connection
needs no `search_path`, and the names of an app that shares the connection keep their meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ForeignKeyConstraint, MetaData
from sqlalchemy.sql import quoted_name

from holdfast.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Table

# Compiled statements name a table `holdfast_tables.slots`; `localise` replaces the first part.
PLACEHOLDER = "holdfast_tables"
COMPILE_OPTIONS: dict[str, Any] = {"schema_translate_map": {None: PLACEHOLDER}, "render_schema_translate": True}
LOCKED_TABLES = re.compile(r"(?<= FOR UPDATE OF )\w+(?:, \w+)*")  # PostgreSQL wants them without a schema
NAME = re.compile(r"[a-z_][a-z0-9_]*")
LONGEST_NAME = 30  # with it, the name of an index has at most 63 characters, which PostgreSQL allows
# The function of a migration; a schema of the team gets no functions.
CLOCK_CALL = "holdfast_now()"
POSTGRES_CLOCK = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS BIGINT)"


@dataclass(frozen=True, slots=True)
class TableNames:
    """A schema, a prefix, or both.

    Example:
        TableNames(schema="guard").table("slots")  # 'guard.slots'
    """

    schema: str = ""
    prefix: str = ""

    def __post_init__(self) -> None:
        for option, name in (("schema", self.schema), ("prefix", self.prefix)):
            if name and (not NAME.fullmatch(name) or len(name) > LONGEST_NAME):
                raise BadSettings("table_name_invalid", option=option, name=name, most=LONGEST_NAME)

    @property
    def plain(self) -> bool:
        """Whether tables have the names under which they are declared."""
        return not self.schema and not self.prefix

    def table(self, name: str) -> str:
        """Return the name of a table in SQL."""
        return f"{self.schema}.{self.prefix}{name}" if self.schema else self.prefix + name

    def localise(self, sql: str, *, postgres: bool) -> str:
        """Rewrite a statement that was compiled with `COMPILE_OPTIONS`."""
        sql = sql.replace(f"{PLACEHOLDER}.", self.table(""))
        if self.prefix:
            sql = LOCKED_TABLES.sub(lambda locked: re.sub(r"\w+", rf"{self.prefix}\g<0>", locked[0]), sql)
        return sql.replace(CLOCK_CALL, POSTGRES_CLOCK) if postgres else sql

    def copy_tables(self, tables: Sequence[Table]) -> list[Table]:
        """Return declarations of these tables under these names. Names of indexes and constraints get the prefix."""
        metadata = MetaData()
        return [self._copy_table(table, metadata) for table in tables]

    def _copy_table(self, table: Table, metadata: MetaData) -> Table:
        options: dict[str, Any] = {"schema": self.schema or None}  # SQLAlchemy's annotation lacks None
        copy = table.to_metadata(metadata, **options, name=self.prefix + table.name)
        for index in copy.indexes:
            index.name = quoted_name(f"{self.prefix}{index.name}", quote=None)
        for constraint in list(copy.constraints):
            if isinstance(constraint, ForeignKeyConstraint):
                copy.constraints.remove(constraint)  # it names the table without the prefix
                continue
            constraint.name = f"{self.prefix}{constraint.name}"
        for foreign in table.foreign_key_constraints:
            referred = [self.table(f"{foreign.referred_table.name}.{one.column.name}") for one in foreign.elements]
            copy.append_constraint(
                ForeignKeyConstraint(foreign.column_keys, referred, name=f"{self.prefix}{foreign.name}")
            )
        return copy
