"""Every statement about lists of items: which stand on a page, how they stand, how many there are.

A list in the order of work is a few streams, one for each status, each read from its newest on by an index; what a page
costs does not grow with the base. What is hidden and still has its standing is left out by looking at the item, which
is the truth. Those that filter are made for the filters in use, so that each has the plan that its filters allow.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BigInteger, Text, and_, func, literal_column, or_, select, union_all
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from holdfast.catalog import DELETING, OPEN, VISIBLE, bases, builds, chunks, items, lists, recipes, serves, standings
from holdfast.db import LIMIT, number, word
from holdfast.engine import Status
from holdfast.engine.store import jobs, owners, slots

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement
    from sqlalchemy.sql.compiler import SQLCompiler

    Condition = ColumnElement[bool]


class _among(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Hold for a column that has one of the values of a JSON array: very many of them in one parameter.

    PostgreSQL is given an array, because it takes few values in one for granted, and looks them up by an index.
    """

    inherit_cache = True  # of no type: one that is Boolean would be compared with 1 on SQLite, and nothing looked up


@compiles(_among, "sqlite")
def _(element: _among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values, type_ = _parts(element, compiler, **kw)
    # Cast, because SQLite looks nothing up by values that might be of another type.
    return f"({column} IN (SELECT CAST(value AS {type_}) FROM json_each({values})))"  # noqa: S608 - compiled clauses


@compiles(_among, "postgresql")
def _(element: _among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values, type_ = _parts(element, compiler, **kw)
    each = f"SELECT CAST(value AS {type_}) FROM jsonb_array_elements_text(CAST({values} AS JSONB))"  # noqa: S608
    return f"({column} = ANY(ARRAY({each})))"


def _parts(element: _among, compiler: SQLCompiler, **kw: Any) -> tuple[str, str, str]:
    """Return the column, the array, and the type of both."""
    column, values = element.clauses
    type_ = compiler.dialect.type_compiler_instance.process(column.type)
    return compiler.process(column, **kw), compiler.process(values, **kw), type_


def _text(value: str) -> ColumnElement[str]:
    return literal_column(f"'{value}'", Text)


def _one_of(column: Any, values: Collection[str]) -> Condition:
    """Hold for a column with one of these words of ours; of none, for nothing."""
    return column.in_([_text(value) for value in sorted(values)]) if values else literal_column("1 = 0")


_of_base = standings.c.base_id == number("base_id")
_own = items.c.base_id == number("base_id")
_items = standings.join(items, items.c.id == standings.c.item_id)

# ---------------------------------------------------------------- items by their ids

READ_ROWS = (
    select(*items.c, standings.c.status)
    .select_from(items.outerjoin(standings, standings.c.item_id == items.c.id))
    .where(
        _among(items.c.id, word("ids")), items.c.base_id + literal_column("0") == number("base_id")
    )  # checked, and not looked up by
)
NAMES = select(items.c.id, items.c.name).where(_among(items.c.id, word("ids")))
_named = (*slots.c, owners.c.base, owners.c.owner)
SLOTS_OF = (
    select(*_named)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(owners.c.base == word("base"), _among(owners.c.owner, word("owners")))
    .order_by(slots.c.id)
)
_line = (
    select(jobs.c.id, (func.row_number().over(order_by=(jobs.c.priority, jobs.c.created_at, jobs.c.id)) - 1).label("n"))
    .where(jobs.c.outcome.is_(None))
    .subquery("line")
)
AHEAD_OF = select(_line.c.id, _line.c.n).where(_among(_line.c.id, word("jobs")))

# ---------------------------------------------------------------- how containers stand

LEAVES = tuple(Status)
_child, _child_item = standings.alias("child"), items.alias("child_item")


def _has(container: Any, status: Status, *more: Condition) -> Any:
    """Tell whether something of this status stands in a container."""
    return (
        select(_child.c.item_id)
        .select_from(_child.join(_child_item, _child_item.c.id == _child.c.item_id))
        .where(
            _child.c.base_id == number("base_id"),
            _child.c.parent_id == container.c.item_id,
            _child.c.status == _text(status),
            _child_item.c.deleting == literal_column("0"),
            *more,
        )
        .exists()
    )


def _told(container: Any, source: Any) -> Any:
    """Read containers with what is directly in them."""
    still = _child.c.served == literal_column("1")
    return (
        select(
            container.c.item_id,
            container.c.parent_id,
            items.c.kind,
            items.c.folded,
            container.c.source,
            *(_has(container, status) for status in LEAVES),
            or_(_has(container, Status.INDEXING, still), _has(container, Status.QUEUED, still)),
        )
        .select_from(source.join(items, items.c.id == container.c.item_id))
        .where(VISIBLE, container.c.base_id == number("base_id"))
    )


ALL_CONTAINERS = _told(standings, standings).where(standings.c.status.is_(None))
_top = (
    select(standings.c.item_id)
    .where(_among(standings.c.item_id, word("ids")), standings.c.container == literal_column("1"))
    .cte("containers", recursive=True)
)
_inner = standings.alias("inner_one")
_tree = _top.union(
    select(_inner.c.item_id).where(
        _inner.c.base_id == number("base_id"), _inner.c.parent_id == _top.c.item_id, _inner.c.status.is_(None)
    )
)
_below = standings.alias("below")
CONTAINERS_BELOW = _told(_below, _tree.join(_below, _below.c.item_id == _tree.c.item_id))

# ---------------------------------------------------------------- pages


class Scope(NamedTuple):
    """Which filters a statement has; their values are parameters."""

    inside: bool = False  # of one container only
    text: bool = False
    kinds: frozenset[str] | None = None

    @property
    def narrow(self) -> bool:
        """Items have to be looked at to tell which are meant."""
        return self.text or self.kinds is not None

    def place(self, of: Any) -> list[Condition]:
        """Tell where they stand."""
        own = [of.c.base_id == number("base_id")]
        return [*own, of.c.parent_id == number("parent_id")] if self.inside else own

    def filters(self) -> list[Condition]:
        """Tell what else holds for them."""
        found: list[Condition] = []
        if self.text:
            found.append(items.c.folded.like(word("text"), escape="\\"))
        if self.kinds is not None:
            found.append(_one_of(items.c.kind, self.kinds))
        return found


@cache
def streams(scope: Scope, ranks: tuple[tuple[Status, int], ...], after: frozenset[int]) -> Any:
    """Name documents of some statuses by rank, the newest first; those of the ranks in `after` behind a place."""
    parts = []
    for status, rank in ranks:
        behind = [standings.c.item_id < number("after")] if rank in after else []
        one = (
            select(literal_column(str(rank), BigInteger).label("rank"), standings.c.item_id)
            .select_from(_items)
            .where(*scope.place(standings), standings.c.status == _text(status), VISIBLE, *scope.filters(), *behind)
            .order_by(standings.c.item_id.desc())
            .limit(LIMIT)
            .subquery(f"{status}_ones")
        )
        parts.append(select(one.c.rank, one.c.item_id))
    both = union_all(*parts).subquery("ones")
    return select(both.c.rank, both.c.item_id).order_by(both.c.rank, both.c.item_id.desc()).limit(LIMIT)


COLUMNS: dict[str, ColumnElement[Any]] = {
    "name": items.c.folded,
    "size": items.c.size,
    "changed": items.c.changed_at,
    "id": items.c.id,
}


@cache
def ordered(scope: Scope, column: str, *, down: bool, after: bool, states: frozenset[str] | None, hidden: bool) -> Any:
    """Name items in the order of a column; `after` continues behind one, `hidden` are those being deleted."""
    by = COLUMNS[column]
    key = word("key") if column == "name" else number("key")
    conditions = [*scope.place(items), DELETING if hidden else VISIBLE, *scope.filters()]
    if after:
        beyond = by < key if down else by > key
        next_ = items.c.id < number("after") if down else items.c.id > number("after")
        conditions.append(and_(by <= key if down else by >= key, or_(beyond, and_(by == key, next_))))
    read = select(by.label("key"), items.c.id)
    if states is not None:
        read = read.select_from(items.join(standings, standings.c.item_id == items.c.id))
        stands = _one_of(standings.c.status, states)
        conditions.append(or_(stands, _among(items.c.id, word("containers"))))
    order = (by.desc(), items.c.id.desc()) if down else (by, items.c.id)
    return read.where(*conditions).order_by(*order).limit(LIMIT).offset(number("offset"))


# ---------------------------------------------------------------- numbers


@cache
def count(scope: Scope, states: frozenset[str] | None) -> Any:
    """Count what stands there, of some statuses or with the containers all; what is hidden is not there."""
    read = select(func.count()).select_from(_items if scope.narrow else standings).where(*scope.place(standings))
    if states is not None:
        read = read.where(_one_of(standings.c.status, states))
    return read.where(VISIBLE, *scope.filters()) if scope.narrow else read


@cache
def count_still(scope: Scope, states: frozenset[str] | None) -> Any:
    """Count those that are hidden and were counted, because their standing goes a moment later."""
    read = (
        select(func.count())
        .select_from(items.join(standings, standings.c.item_id == items.c.id))
        .where(*scope.place(items), DELETING)
    )
    return read if states is None else read.where(_one_of(standings.c.status, states))


@cache
def count_hidden(scope: Scope) -> Any:
    """Count items that are being deleted."""
    return select(func.count()).select_from(items).where(*scope.place(items), DELETING, *scope.filters())


_by_status = select(standings.c.status, func.count()).group_by(standings.c.status)
COUNT_BASE = _by_status.where(_of_base)
STILL_IN_BASE = _by_status.select_from(items.join(standings, standings.c.item_id == items.c.id)).where(_own, DELETING)
_open = standings.join(bases, bases.c.id == standings.c.base_id)
COUNT_ALL = (
    select(standings.c.base_id, standings.c.status, func.count())
    .select_from(_open)
    .where(OPEN)
    .group_by(standings.c.base_id, standings.c.status)
)
HIDDEN_ALL = (
    select(standings.c.base_id, standings.c.status, func.count())
    .select_from(items.join(standings, standings.c.item_id == items.c.id))
    .where(DELETING)
    .group_by(standings.c.base_id, standings.c.status)
)
BYTES = select(func.coalesce(func.sum(items.c.size), 0)).where(_own, VISIBLE)
BYTES_ALL = select(items.c.base_id, func.sum(items.c.size)).where(VISIBLE).group_by(items.c.base_id)

# ---------------------------------------------------------------- one document

LISTED = (
    select(lists.c.build, func.count()).where(lists.c.owner_id == number("owner_id")).group_by(lists.c.build)
)  # fmt: skip
SPECS = select(recipes.c.id, recipes.c.spec).where(_among(recipes.c.id, word("ids")))
_in_build = and_(lists.c.owner_id == number("owner_id"), lists.c.build == number("build"))
BUILD = select(builds.c.title, builds.c.pages, builds.c.length).where(
    builds.c.owner_id == number("owner_id"), builds.c.build == number("build")
)
PARTS = (
    select(lists.c.start, lists.c.stop, chunks.c.text)
    .select_from(lists.join(chunks, chunks.c.id == lists.c.chunk_id))
    .where(_in_build, lists.c.stop > number("first"), lists.c.start < number("past"))
    .order_by(lists.c.ordinal)
)
# The newest list that is served and has this chunk, and the generation that serves it.
SERVED_CHUNK = (
    select(
        lists.c.owner_id, lists.c.build, slots.c.built, lists.c.start, lists.c.body, lists.c.stop,
        chunks.c.headings, chunks.c.text,
    )
    .select_from(
        owners.join(slots, slots.c.owner_id == owners.c.id)
        .join(lists, and_(lists.c.owner_id == slots.c.owner_id, lists.c.build == slots.c.source))
        .join(chunks, chunks.c.id == lists.c.chunk_id)
    )
    .where(
        owners.c.base == word("base"), owners.c.owner == word("owner"), lists.c.chunk_id == number("chunk"),
        serves(slots),
    )
    .order_by(lists.c.build.desc(), slots.c.built.desc())
    .limit(1)
)  # fmt: skip
