"""Statements about lists of items: the items of a page, their statuses, and counts.

A list in the order ACTIVE merges one stream per status. An index yields each stream newest first, so the cost of a page
does not grow with the base. A hidden item may still have a row in `item_statuses`, so statements check the item itself.
Statements with filters are built for the filters in use, so that each gets the best query plan.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BigInteger, Text, and_, func, literal_column, or_, select, union_all
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from holdfast.catalog import (
    BASE_OPEN,
    CONTAINERS,
    ITEM_DELETING,
    ITEM_VISIBLE,
    bases,
    builds,
    chunks,
    item_statuses,
    items,
    list_entries,
    recipes,
    slot_is_served,
)
from holdfast.db import LIMIT, int_param, text_param
from holdfast.documents.statements import select_subtree
from holdfast.engine import Status
from holdfast.engine.store import jobs, owners, slots

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement
    from sqlalchemy.sql.compiler import SQLCompiler

    Condition = ColumnElement[bool]


class _among(FunctionElement[bool]):  # noqa: N801 - reads as a SQL function
    """Match a column against the values of a JSON array: very many values in one parameter.

    PostgreSQL gets an array, because its planner then expects few values and uses an index.
    """

    inherit_cache = True  # no type: SQLite would compare a Boolean with 1 and not use an index


@compiles(_among, "sqlite")
def _(element: _among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values, type_ = _parts(element, compiler, **kw)
    # SQLite uses an index only for values of a known type.
    return f"({column} IN (SELECT CAST(value AS {type_}) FROM json_each({values})))"  # noqa: S608 - compiled clauses


@compiles(_among, "postgresql")
def _(element: _among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values, type_ = _parts(element, compiler, **kw)
    each = f"SELECT CAST(value AS {type_}) FROM jsonb_array_elements_text(CAST({values} AS JSONB))"  # noqa: S608
    return f"({column} = ANY(ARRAY({each})))"


def _parts(element: _among, compiler: SQLCompiler, **kw: Any) -> tuple[str, str, str]:
    column, values = element.clauses
    type_ = compiler.dialect.type_compiler_instance.process(column.type)
    return compiler.process(column, **kw), compiler.process(values, **kw), type_


def _text(value: str) -> ColumnElement[str]:
    return literal_column(f"'{value}'", Text)


def _one_of(column: Any, values: Collection[str]) -> Condition:
    """Match a column against constants of this code; an empty collection matches nothing."""
    return column.in_([_text(value) for value in sorted(values)]) if values else literal_column("1 = 0")


_items = item_statuses.join(items, items.c.id == item_statuses.c.item_id)

_selected = and_(
    _among(items.c.id, text_param("ids")), items.c.base_id + literal_column("0") == int_param("base_id")
)  # + 0: a check only; the index on ids is used
READ_ITEMS_WITH_STATUS = (
    select(*items.c, item_statuses.c.status)
    .select_from(items.outerjoin(item_statuses, item_statuses.c.item_id == items.c.id))
    .where(_selected)
)
COUNT_SELECTED = select(func.count(), func.count(items.c.source)).where(_selected)
READ_SELECTED = select(items.c.id).where(_selected)
FIND_WITHOUT_SOURCE = select(items.c.name).where(_selected, items.c.source.is_(None)).order_by(items.c.id).limit(1)
_covered = select_subtree(READ_SELECTED)
COUNT_COVERED = select(func.count()).select_from(select(_covered.c.id).limit(LIMIT).subquery())  # up to the limit
READ_NAMES = select(items.c.id, items.c.name).where(_among(items.c.id, text_param("ids")))
_named = (*slots.c, owners.c.base, owners.c.owner)
READ_SLOTS = (
    select(*_named)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(owners.c.base == text_param("base"), _among(owners.c.owner, text_param("owners")))
    .order_by(slots.c.id)
)
_order = (jobs.c.priority, jobs.c.created_at, jobs.c.id)
_first_jobs = select(*_order).where(jobs.c.outcome.is_(None)).order_by(*_order).limit(LIMIT).subquery("first_jobs")
_number = func.row_number().over(order_by=tuple(_first_jobs.c)) - 1
_line = select(_first_jobs.c.id, _number.label("n")).subquery("line")
# The number of jobs before these; jobs after the limit are left out.
COUNT_JOBS_AHEAD = select(_line.c.id, _line.c.n).where(_among(_line.c.id, text_param("jobs")))

CHILD_STATUSES = tuple(Status)
_child, _child_item = item_statuses.alias("child"), items.alias("child_item")


def _has(container: Any, status: Status, *more: Condition) -> Any:
    """Match containers with a child of this status.

    This is neither EXISTS nor a join, because PostgreSQL may answer these by reading all children of all containers.
    """
    deleting = select(_child_item.c.deleting).where(_child_item.c.id == _child.c.item_id).scalar_subquery()
    first = (
        select(_child.c.item_id)
        .where(
            _child.c.base_id == int_param("base_id"),
            _child.c.parent_id == container.c.item_id,
            _child.c.status == _text(status),
            deleting == literal_column("0"),
            *more,
        )
        .limit(literal_column("1"))
        .scalar_subquery()
    )
    return first.is_not(None)


def _select_containers(container: Any, source: Any) -> Any:
    """Select containers with the statuses of their direct children."""
    still = _child.c.served == literal_column("1")
    return (
        select(
            container.c.item_id,
            container.c.parent_id,
            items.c.kind,
            items.c.folded,
            container.c.source,
            *(_has(container, status) for status in CHILD_STATUSES),
            or_(_has(container, Status.INDEXING, still), _has(container, Status.QUEUED, still)),
        )
        .select_from(source.join(items, items.c.id == container.c.item_id))
        .where(ITEM_VISIBLE, container.c.base_id == int_param("base_id"))
    )


ALL_CONTAINERS = _select_containers(item_statuses, item_statuses).where(item_statuses.c.status.is_(None))
_top = (
    select(item_statuses.c.item_id)
    .where(_among(item_statuses.c.item_id, text_param("ids")), item_statuses.c.container == literal_column("1"))
    .cte("containers", recursive=True)
)
_inner = item_statuses.alias("inner_one")
_tree = _top.union(
    select(_inner.c.item_id).where(
        _inner.c.base_id == int_param("base_id"), _inner.c.parent_id == _top.c.item_id, _inner.c.status.is_(None)
    )
)
_below = item_statuses.alias("below")
CONTAINERS_BELOW = _select_containers(_below, _tree.join(_below, _below.c.item_id == _tree.c.item_id))


class ListScope(NamedTuple):
    """The filters of a statement; their values are parameters."""

    inside: bool = False  # direct children of one container only
    text: bool = False
    kinds: frozenset[str] | None = None

    @property
    def needs_items(self) -> bool:
        """The filters need columns of `items`."""
        return self.text or self.kinds is not None

    def location_conditions(self, of: Any) -> list[Condition]:
        own = [of.c.base_id == int_param("base_id")]
        return [*own, of.c.parent_id == int_param("parent_id")] if self.inside else own

    def filters(self) -> list[Condition]:
        found: list[Condition] = []
        if self.text:
            found.append(items.c.folded.like(text_param("text"), escape="\\"))
        if self.kinds is not None:
            found.append(_one_of(items.c.kind, self.kinds))
        return found


def _item_matches(scope: ListScope) -> Condition:
    """Match rows of `item_statuses` whose item is visible and matches the filters.

    This is no join, because PostgreSQL may answer a join with LIMIT by reading the items from their end.
    """
    conditions = [items.c.id == item_statuses.c.item_id, ITEM_VISIBLE, *scope.filters()]
    one: ColumnElement[int] = literal_column("1")
    return select(one).select_from(items).where(*conditions).correlate(item_statuses).scalar_subquery() == one


@cache
def select_by_rank(scope: ListScope, ranks: tuple[tuple[Status, int], ...], after: frozenset[int]) -> Any:
    """Select documents by rank, newest first; streams with a rank in `after` continue after a position."""
    parts = []
    for status, rank in ranks:
        behind = [item_statuses.c.item_id < int_param("after")] if rank in after else []
        one = (
            select(literal_column(str(rank), BigInteger).label("rank"), item_statuses.c.item_id)
            .where(
                *scope.location_conditions(item_statuses),
                item_statuses.c.status == _text(status),
                _item_matches(scope),
                *behind,
            )
            .order_by(item_statuses.c.item_id.desc())
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
def select_ordered(
    scope: ListScope, column: str, *, down: bool, after: bool, states: frozenset[str] | None, hidden: bool
) -> Any:
    """Select items in the order of a column; `after` continues after a position, `hidden` selects deleted items."""
    by = COLUMNS[column]
    key = text_param("key") if column == "name" else int_param("key")
    conditions = [*scope.location_conditions(items), ITEM_DELETING if hidden else ITEM_VISIBLE, *scope.filters()]
    if after:
        beyond = by < key if down else by > key
        next_ = items.c.id < int_param("after") if down else items.c.id > int_param("after")
        conditions.append(and_(by <= key if down else by >= key, or_(beyond, and_(by == key, next_))))
    read = select(by.label("key"), items.c.id)
    if states is not None:
        read = read.select_from(items.join(item_statuses, item_statuses.c.item_id == items.c.id))
        matches = _one_of(item_statuses.c.status, states)
        conditions.append(or_(matches, _among(items.c.id, text_param("containers"))))
    order = (by.desc(), items.c.id.desc()) if down else (by, items.c.id)
    return read.where(*conditions).order_by(*order).limit(LIMIT).offset(int_param("offset"))


class MatchingItem(NamedTuple):
    """An item with the columns by which lists are ordered. The status of a container is None."""

    id: int
    status: str | None
    name: str
    size: int
    changed: int


@cache
def select_matching(scope: ListScope, states: frozenset[str] | None) -> Any:
    """Select items without an order, up to the limit; with some statuses, containers are included."""
    read = (
        select(items.c.id, item_statuses.c.status, items.c.folded, items.c.size, items.c.changed_at)
        .select_from(_items)
        .where(*scope.location_conditions(items), ITEM_VISIBLE, *scope.filters())
    )
    container = item_statuses.c.status.is_(None)
    if scope.kinds is not None and scope.kinds <= CONTAINERS:
        read = read.where(container, item_statuses.c.base_id == int_param("base_id"))  # an index finds containers
    elif states is not None:
        read = read.where(or_(_one_of(item_statuses.c.status, states), container))
    return read.limit(LIMIT)


def _count_rows(read: Any, *order: ColumnElement[Any]) -> Any:
    """Count the rows of a query, up to the limit.

    The order is that of an index. Without it, PostgreSQL may read the whole table for the few rows of a small base.
    """
    return select(func.count()).select_from(read.order_by(*order).limit(LIMIT).subquery("counted"))


@cache
def count(scope: ListScope, states: frozenset[str] | None) -> Any:
    """Count items, of some statuses or all with containers, up to the limit; see `count_hidden_but_counted`."""
    read = (
        select(item_statuses.c.item_id)
        .select_from(_items if scope.needs_items else item_statuses)
        .where(*scope.location_conditions(item_statuses))
    )
    if states is not None:
        read = read.where(_one_of(item_statuses.c.status, states))
    visible = read.where(ITEM_VISIBLE, *scope.filters()) if scope.needs_items else read
    return _count_rows(visible, item_statuses.c.status, item_statuses.c.item_id)


@cache
def count_hidden_but_counted(scope: ListScope, states: frozenset[str] | None) -> Any:
    """Count hidden items that still have a row in `item_statuses`, to subtract them from `count`."""
    read = (
        select(func.count())
        .select_from(items.join(item_statuses, item_statuses.c.item_id == items.c.id))
        .where(*scope.location_conditions(items), ITEM_DELETING)
    )
    return read if states is None else read.where(_one_of(item_statuses.c.status, states))


@cache
def count_hidden(scope: ListScope) -> Any:
    """Count items that are being deleted, up to the limit."""
    read = select(items.c.id).where(*scope.location_conditions(items), ITEM_DELETING, *scope.filters())
    return _count_rows(read, items.c.id)


def _count_with_status(status: Status | None) -> Any:
    """Count the items of a base with a status, or its containers, up to the limit. Hidden items are included.

    The status is compared as a range, because the order by a status that equals a constant is that of the primary key,
    and PostgreSQL might read all items by it.
    """
    column, text = item_statuses.c.status, status and _text(status)
    matches = column.is_(None) if text is None else column.between(text, text)
    read = select(item_statuses.c.item_id).where(item_statuses.c.base_id == bases.c.id, matches).correlate(bases)
    return _count_rows(read, column, item_statuses.c.item_id).scalar_subquery()


COUNTED_STATUSES = (*Status, None)  # None: containers
_open_base = and_(BASE_OPEN, _among(bases.c.id, text_param("bases")))
COUNT_BY_STATUS = select(bases.c.id, *map(_count_with_status, COUNTED_STATUSES)).where(_open_base)
_per_status = (item_statuses.c.base_id, item_statuses.c.status)
# Hidden items that still have a row in `item_statuses`, to subtract them.
COUNT_HIDDEN_BY_STATUS = (
    select(*_per_status, func.count())
    .select_from(items.join(item_statuses, item_statuses.c.item_id == items.c.id))
    .where(ITEM_DELETING, _among(items.c.base_id, text_param("bases")))
    .group_by(*_per_status)
)
SUM_SIZES = (
    select(items.c.base_id, func.sum(items.c.size))
    .where(ITEM_VISIBLE, _among(items.c.base_id, text_param("bases")))
    .group_by(items.c.base_id)
)

COUNT_CHUNKS_BY_BUILD = (
    select(list_entries.c.build, func.count())
    .where(list_entries.c.owner_id == int_param("owner_id"))
    .group_by(list_entries.c.build)
)
READ_SPECS = select(recipes.c.id, recipes.c.spec).where(_among(recipes.c.id, text_param("ids")))
_in_build = and_(list_entries.c.owner_id == int_param("owner_id"), list_entries.c.build == int_param("build"))
READ_BUILD = select(builds.c.title, builds.c.pages, builds.c.length).where(
    builds.c.owner_id == int_param("owner_id"), builds.c.build == int_param("build")
)
READ_TEXT_PARTS = (
    select(list_entries.c.start, list_entries.c.stop, chunks.c.text)
    .select_from(list_entries.join(chunks, chunks.c.id == list_entries.c.chunk_id))
    .where(_in_build, list_entries.c.stop > int_param("first"), list_entries.c.start < int_param("past"))
    .order_by(list_entries.c.ordinal)
)
# The newest served list with this chunk, and the generation that serves it.
SERVED_CHUNK = (
    select(
        list_entries.c.owner_id, list_entries.c.build, slots.c.built, list_entries.c.start, list_entries.c.body,
        list_entries.c.stop, chunks.c.headings, chunks.c.text,
    )
    .select_from(
        owners.join(slots, slots.c.owner_id == owners.c.id)
        .join(list_entries, and_(list_entries.c.owner_id == slots.c.owner_id, list_entries.c.build == slots.c.source))
        .join(chunks, chunks.c.id == list_entries.c.chunk_id)
    )
    .where(
        owners.c.base == text_param("base"), owners.c.owner == text_param("owner"),
        list_entries.c.chunk_id == int_param("chunk"), slot_is_served(slots),
    )
    .order_by(list_entries.c.build.desc(), slots.c.built.desc())
    .limit(1)
)  # fmt: skip
