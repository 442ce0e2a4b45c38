"""Batches: a statement reads many rows of parameters as a table.

One statement serves any number of rows and is compiled once. SQLite receives the rows as VALUES with one parameter per
cell, its fastest form. PostgreSQL receives them as one JSON parameter in one round trip. Statements are the same for
both:

    row = batch(slot=int, priority=int)
    UPDATE = update(slots).values(priority=row.c.priority).where(slots.c.id == row.c.slot)
    tx.run(UPDATE, [[1, 5], [2, 5]])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ClauseElement,
    ColumnElement,
    Executable,
    Float,
    Integer,
    LargeBinary,
    Text,
    bindparam,
    column,
    literal_column,
    select,
    true,
    union_all,
    values,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Select, Subquery
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

LIMIT = bindparam("limit", type_=Integer())
MAX_ID = 2**63 - 1  # the largest BIGINT


def int_param(name: str) -> ColumnElement[int]:
    return bindparam(name, type_=BigInteger())


def text_param(name: str) -> ColumnElement[str]:
    return bindparam(name, type_=Text())


def text_literal(value: str) -> ColumnElement[str]:
    """Return a constant as a literal in the SQL: the planner matches a partial index only against literals."""
    return literal_column(f"'{value}'", Text)


def is_one_of(column: ColumnElement[Any], values: Collection[str]) -> ColumnElement[bool]:
    """Compare a column with constants, as literals."""
    if len(values) == 1:
        return column == text_literal(*values)
    return column.in_([text_literal(value) for value in sorted(values)])


# The clock of the database. sqlite.py and a migration of PostgreSQL define the function.
NOW = literal_column("(SELECT holdfast_now())", BigInteger)


class _TransactionId(FunctionElement[int]):
    """The id of the transaction on PostgreSQL, 0 on SQLite."""

    inherit_cache = True
    type = BigInteger()


XID = _TransactionId()
# On PostgreSQL: rows of older transactions are final, because no transaction that may still write them is running.
OLDEST_RUNNING_XID = literal_column(
    "(SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT))", BigInteger
)


class _Unsynced(FunctionElement[bool]):
    """Always true. On PostgreSQL, it lets the commit of its transaction not wait for the disk."""

    inherit_cache = True
    type = Boolean()


UNSYNCED = _Unsynced()

TYPES: dict[type, TypeEngine[Any]] = {int: BigInteger(), float: Float(), str: Text(), bytes: LargeBinary()}


class _BatchRows(FunctionElement[Any]):
    inherit_cache = True


class _Cell(FunctionElement[Any]):
    inherit_cache = True

    def __init__(self, position: int, type_: TypeEngine[Any]) -> None:
        super().__init__()
        self.position = position
        self.type = type_


class is_in(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Match a column against the rows of a query.

    PostgreSQL gets an array, because its planner then expects few values and uses an index. For `IN` it estimates the
    rows of the query, and a recursive query always looks large.
    """

    inherit_cache = True  # no type: SQLite would compare a Boolean with 1 and not use an index

    def __init__(self, column: ColumnElement[Any], query: Select[Any]) -> None:
        super().__init__(column, query.scalar_subquery())


@compiles(is_in, "sqlite")
def _(element: is_in, compiler: SQLCompiler, **kw: Any) -> str:
    column, query = (compiler.process(part, **kw) for part in element.clauses)
    return f"({column} IN {query})"


@compiles(is_in, "postgresql")
def _(element: is_in, compiler: SQLCompiler, **kw: Any) -> str:
    column, query = (compiler.process(part, **kw) for part in element.clauses)
    return f"({column} = ANY(ARRAY{query}))"


class for_each(Executable, ClauseElement):  # noqa: N801 - reads as a part of SQL
    """Run queries for each value of a column, as one statement; each query uses its index and its own limit.

    PostgreSQL runs each query in a loop over the values. SQLite has no LATERAL, so it gets one query for each value;
    PostgreSQL would plan each of them.
    """

    inherit_cache = False  # `Database` keeps compiled statements

    def __init__(self, matched: ColumnElement[str], wanted: Collection[str], queries: Sequence[Select[Any]]) -> None:
        self.matched = matched
        self.wanted = wanted
        self.queries = queries


@compiles(for_each, "sqlite")
def _(element: for_each, compiler: SQLCompiler, **kw: Any) -> str:
    parts = [
        select(query.where(element.matched == value).subquery())
        for value in element.wanted
        for query in element.queries
    ]
    return compiler.process(union_all(*parts), **kw)


@compiles(for_each, "postgresql")
def _(element: for_each, compiler: SQLCompiler, **kw: Any) -> str:
    each = values(column("value", Text()), name="each", literal_binds=True).data([(value,) for value in element.wanted])
    loops = [query.where(element.matched == each.c.value).lateral() for query in element.queries]
    return compiler.process(union_all(*(select(loop).select_from(each.join(loop, true())) for loop in loops)), **kw)


class least(FunctionElement[int]):  # noqa: N801 - reads as a SQL function
    inherit_cache = True
    type = BigInteger()


class greatest(FunctionElement[int]):  # noqa: N801 - reads as a SQL function
    inherit_cache = True
    type = BigInteger()


def batch(**columns: type) -> Subquery:
    """Return the parameter `rows` as a table with these columns, in this order."""
    table = _BatchRows().table_valued("value", name="row")
    cells = [_Cell(position, TYPES[kind]).label(name) for position, (name, kind) in enumerate(columns.items())]
    return select(*cells).select_from(table).subquery("batch")


ROWS = bindparam("rows", type_=Text())  # the whole batch


@compiles(_BatchRows, "sqlite")
def _(_element: _BatchRows, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(VALUES ({compiler.process(ROWS, **kw)}))"


@compiles(_BatchRows, "postgresql")
def _(_element: _BatchRows, compiler: SQLCompiler, **kw: Any) -> str:
    # The condition is always true. Because of it the planner expects one row instead of a hundred, so it looks each row
    # up by an index. For a hundred rows it would read the whole of every table that is small or not analysed yet.
    elements = f"jsonb_array_elements(CAST({compiler.process(ROWS, **kw)} AS JSONB))"
    return f"(SELECT value FROM {elements} WHERE jsonb_typeof(value) = 'array')"  # noqa: S608 - a parameter


@compiles(_Cell, "sqlite")
def _(element: _Cell, _compiler: SQLCompiler, **_kw: Any) -> str:
    return f'"row".column{element.position + 1}'


@compiles(_Cell, "postgresql")
def _(element: _Cell, compiler: SQLCompiler, **_kw: Any) -> str:
    if isinstance(element.type, LargeBinary):  # JSON has no bytes, so they are sent as hexadecimal
        return f"decode(\"row\".value ->> {element.position}, 'hex')"
    cast = compiler.dialect.type_compiler_instance.process(element.type)
    return f'CAST("row".value ->> {element.position} AS {cast})'


@compiles(least, "sqlite")
def _(element: least, compiler: SQLCompiler, **kw: Any) -> str:
    return f"min({compiler.process(element.clauses, **kw)})"


@compiles(least, "postgresql")
def _(element: least, compiler: SQLCompiler, **kw: Any) -> str:
    return f"least({compiler.process(element.clauses, **kw)})"


@compiles(greatest, "sqlite")
def _(element: greatest, compiler: SQLCompiler, **kw: Any) -> str:
    return f"max({compiler.process(element.clauses, **kw)})"


@compiles(greatest, "postgresql")
def _(element: greatest, compiler: SQLCompiler, **kw: Any) -> str:
    return f"greatest({compiler.process(element.clauses, **kw)})"


@compiles(_TransactionId, "sqlite")
def _(_element: _TransactionId, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "0"


@compiles(_TransactionId, "postgresql")
def _(_element: _TransactionId, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "(SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT))"


@compiles(_Unsynced, "sqlite")
def _(_element: _Unsynced, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "1"


@compiles(_Unsynced, "postgresql")
def _(_element: _Unsynced, _compiler: SQLCompiler, **_kw: Any) -> str:
    return "(SELECT set_config('synchronous_commit', 'off', TRUE)) = 'off'"
