"""Selects the items of a page of a list, their order, and their total number.

A page is selected by its number or by the cursor of the page before it. With cursors, items that are added or removed
in between do not shift the pages: no item is shown twice or skipped, unless its own position changes.

A base may have millions of documents, so a list counts at most `MAX_COUNT` of them, and pages have numbers up to there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog import ID_LIMIT, ItemKind, fold_name
from holdfast.documents import list_statements as sql
from holdfast.documents.selection import combine_statuses
from holdfast.engine import Status
from holdfast.engine.store import make_storable
from holdfast.errors import BadRequest
from holdfast.paging import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from holdfast.catalog import Base
    from holdfast.db import Transaction

LARGEST_PAGE = 500
NO_LIMIT = 2**31 - 1
SEARCHED = frozenset({Status.SUCCESS, Status.DEGRADED})
_ACTIVE = frozenset({Status.INDEXING, Status.QUEUED})
RANKS = {status: 0 if status in _ACTIVE else 1 if status is Status.FAILED else 2 for status in Status}


class Order(StrEnum):
    """The order of a list. Ties are ordered by age: newest first, but by name oldest first."""

    ACTIVE = "active"  # queued and running, then failed, then the rest; newest first
    NAME = "name"
    SIZE = "size"  # largest first
    CHANGED = "changed"  # latest first


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFilter:
    """The filter of a list."""

    parent: int | None = None  # only direct children of this container, 0: of the base itself; None: the whole base
    states: Collection[str] | None = None
    text: str | None = None  # part of the name, in any case
    kinds: Collection[str] | None = None
    deleting: bool = False  # only items that are being deleted

    def __post_init__(self) -> None:
        for field, given, choices in (("states", self.states, Status), ("kinds", self.kinds, ItemKind)):
            unknown = sorted(set(given or ()) - {str(choice) for choice in choices})
            if unknown:
                raise BadRequest("unknown_choice", field=field, value=unknown[0], choices=", ".join(sorted(choices)))

    @property
    def empty(self) -> bool:
        """It matches every item that is not being deleted."""
        unnamed = all(value is None for value in (self.parent, self.states, self.kinds))
        return unnamed and not self.text and not self.deleting

    @property
    def scope(self) -> sql.ListScope:
        kinds = None if self.kinds is None else frozenset(map(str, self.kinds))
        return sql.ListScope(inside=self.parent is not None, text=bool(self.text), kinds=kinds)

    @property
    def statuses(self) -> frozenset[Status]:
        return frozenset(Status) if self.states is None else frozenset(map(Status, self.states))


NO_FILTER = DocumentFilter()


class ContainerStatus(NamedTuple):
    """A folder or sitemap, and the status of everything below it."""

    id: int
    parent: int
    kind: str
    folded: str
    status: Status
    searchable: bool


class Total(NamedTuple):
    """A number of items; if it is not exact, there are at least so many."""

    number: int
    is_exact: bool = True


class IdPage(NamedTuple):
    """The items of a page in order, the total, and the cursor of the next page."""

    ids: list[int]
    total: Total
    cursor: str | None
    containers: Mapping[int, ContainerStatus] | None  # the containers in the scope of the list, if they were read


class ListPosition(NamedTuple):
    """The last item of a page, and its sort key."""

    key: str | int
    id: int


def read_ids(
    tx: Transaction,
    base: Base,
    filter_: DocumentFilter,
    order: Order,
    *,
    down: bool,
    place: ListPosition | None,
    offset: int,
    size: int,
) -> IdPage:
    reading = _ListReader(tx, base, filter_, MAX_COUNT)
    if filter_.deleting:
        found = reading.ordered("id", place, offset, size + 1, down=True)
    elif order is Order.ACTIVE:
        found = reading.by_rank(place, offset, size + 1)
    else:
        found = reading.ordered(str(order), place, offset, size + 1, down=down)
    more = found[size - 1] if len(found) > size else None
    ids = [one.id for one in found[:size]]
    return IdPage(ids, reading.count(), more and _cursor(filter_, order, more, down=down), reading.containers)


def count_ids(tx: Transaction, base: Base, filter_: DocumentFilter) -> int:
    """Count all items that match a filter. The time grows with their number."""
    return _ListReader(tx, base, filter_).count().number


def newest_id(tx: Transaction, base: Base, filter_: DocumentFilter) -> int:
    """Return the newest item that matches a filter; 0 if there is none."""
    found = _ListReader(tx, base, filter_).ordered("id", None, 0, 1, down=True)
    return found[0].id if found else 0


def read_ids_after(tx: Transaction, base: Base, filter_: DocumentFilter, place: int, size: int) -> list[int]:
    """Return the next items that match a filter, oldest first, so containers come before their children."""
    found = _ListReader(tx, base, filter_).ordered("id", ListPosition(place, place), 0, size, down=False)
    return [one.id for one in found]


def read_containers(tx: Transaction, base: Base, below: Iterable[int] | None = None) -> dict[int, ContainerStatus]:
    """Read the statuses of containers: of a whole base, or of these and those below."""
    if below is None:
        rows = tx.run(sql.ALL_CONTAINERS, base_id=base.id)
    else:
        rows = tx.run(sql.CONTAINERS_BELOW, base_id=base.id, ids=json.dumps(list(below)))
    parts: dict[int, set[Status]] = {}
    source_statuses: dict[int, list[Status]] = {}
    found: dict[int, ContainerStatus] = {}
    served: set[int] = set()
    # Children have higher ids than their parents, so they come first.
    for id_, parent, kind, name, source, *has in sorted(rows, reverse=True):
        own = parts.setdefault(id_, set())
        own |= {status for status, there in zip(sql.CHILD_STATUSES, has, strict=False) if there}
        sources = source_statuses.setdefault(id_, [])
        sources += [Status(source)] if source else []
        if has[-1] or own & SEARCHED:
            served.add(id_)
        unsettled = [status for status in sources if status is not Status.SUCCESS]
        status = combine_statuses([*own, *unsettled] or sources)
        found[id_] = ContainerStatus(id_, parent, kind, name, status, id_ in served)
        parts.setdefault(parent, set()).update(own)
        source_statuses.setdefault(parent, []).extend(set(sources))
        if id_ in served:
            served.add(parent)
    return found


class _ListReader:
    """Reads items for one filter in one snapshot, and counts them up to a limit."""

    def __init__(self, tx: Transaction, base: Base, filter_: DocumentFilter, limit: int | None = None) -> None:
        self._tx = tx
        self._base = base
        self._filter = filter_
        self._limit = limit
        self._scope = filter_.scope
        self._states = None if filter_.states is None else frozenset(map(str, filter_.statuses))
        self._values: dict[str, Any] = {
            "base_id": base.id,
            "parent_id": filter_.parent,
            "text": f"%{_escaped(fold_name(make_storable(filter_.text or '')))}%",
        }
        self.containers: dict[int, ContainerStatus] | None = None  # within the scope of the list, once they are read

    def by_rank(self, place: ListPosition | None, offset: int, limit: int) -> list[ListPosition]:
        """Read in the order ACTIVE: one stream of documents per status, merged with the containers."""
        if place is not None:
            offset = 0
        first = int(place.key) if place else 0
        found = [(RANKS[one.status], one.id) for one in self._matching_containers()]
        if self._few is None:
            found += self._read_streams(place, first, offset + limit)
        else:
            found += [(RANKS[Status(one.status)], one.id) for one in self._few if one.status is not None]
        if place is not None:
            found = [one for one in found if (one[0], -one[1]) > (first, -place.id)]
        found.sort(key=lambda one: (one[0], -one[1]))
        return [ListPosition(*one) for one in found[offset : offset + limit]]

    def _read_streams(self, place: ListPosition | None, first: int, limit: int) -> list[tuple[int, int]]:
        ranks = tuple(sorted((one, RANKS[one]) for one in self._filter.statuses if RANKS[one] >= first))
        if not ranks:
            return []
        after = frozenset({first}) if place else frozenset[int]()
        values = {**self._values, "after": place.id if place else None, "limit": limit}
        rows: list[tuple[int, int]] = self._tx.run(sql.select_by_rank(self._scope, ranks, after), **values)
        return rows

    def ordered(
        self, column: str, place: ListPosition | None, offset: int, limit: int, *, down: bool
    ) -> list[ListPosition]:
        """Read in the order of a column."""
        if place is not None:
            offset = 0
        if self._few is not None:
            places = [ListPosition(getattr(one, column), one.id) for one in self._with_containers(self._few)]
            if place is not None:
                places = [one for one in places if (one < place if down else one > place)]
            return sorted(places, reverse=down)[offset : offset + limit]
        values = dict(self._values)
        hidden = self._filter.deleting
        states = None if hidden else self._states
        if states is not None:
            values["containers"] = json.dumps([one.id for one in self._matching_containers()])
        if place is not None:
            values |= {"key": place.key, "after": place.id}
        statement = sql.select_ordered(
            self._scope, column, down=down, after=place is not None, states=states, hidden=hidden
        )
        return [ListPosition(*row) for row in self._tx.run(statement, **values, limit=limit, offset=offset)]

    def count(self) -> Total:
        """Count the items that match the filter, up to the limit."""
        limit = NO_LIMIT if self._limit is None else self._limit
        if self._filter.deleting:
            number = self._number(sql.count_hidden(self._scope), limit)
            return Total(number, is_exact=number < limit)
        if self._few is not None:
            return Total(len(self._with_containers(self._few)))
        hidden = 0
        if not self._scope.needs_items:
            hidden = self._number(sql.count_hidden_but_counted(self._scope, self._states))
        number = self._number(sql.count(self._scope, self._states), min(NO_LIMIT, limit + hidden)) - hidden
        containers = 0 if self._states is None else len(self._matching_containers())
        return Total(min(number, limit) + containers, is_exact=number < limit)

    def _number(self, statement: Any, limit: int | None = None) -> int:
        found: int = self._tx.run(statement, **self._values, limit=limit)[0][0]
        return found

    @cached_property
    def _few(self) -> list[sql.MatchingItem] | None:
        """All items of a list with a filter by name or kind, if there are fewer than the limit; else None.

        No index finds these items, so reading them may read the whole base. That happens once, not for each status and
        for the total again.
        """
        if self._limit is None or not self._scope.needs_items or self._filter.deleting:
            return None
        statement = sql.select_matching(self._scope, self._states)
        found = [sql.MatchingItem(*row) for row in self._tx.run(statement, **self._values, limit=self._limit)]
        return found if len(found) < self._limit else None

    def _with_containers(self, found: list[sql.MatchingItem]) -> list[sql.MatchingItem]:
        """Leave out containers whose status does not match."""
        if self._states is None:
            return found
        containers = {one.id for one in self._matching_containers()}
        return [one for one in found if one.status is not None or one.id in containers]

    def _matching_containers(self) -> list[ContainerStatus]:
        filter_, text = self._filter, fold_name(make_storable(self._filter.text or ""))
        return [
            one
            for one in self._all().values()
            if (filter_.parent is None or one.parent == filter_.parent)
            and one.status in filter_.statuses
            and (filter_.kinds is None or one.kind in filter_.kinds)
            and text in one.folded
        ]

    def _all(self) -> dict[int, ContainerStatus]:
        """Read all containers within the scope of the list, once."""
        if self.containers is None:
            parent = self._filter.parent
            self.containers = read_containers(self._tx, self._base, [parent] if parent else None)
        return self.containers


def _escaped(text: str) -> str:
    """Escape the wildcards of LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _cursor(filter_: DocumentFilter, order: Order, place: ListPosition, *, down: bool) -> str:
    return f"{_cursor_prefix(filter_, order, down=down)}/{place.id}/{place.key}"


def parse_cursor(cursor: str, filter_: DocumentFilter, order: Order, *, down: bool) -> ListPosition:
    """Return the position of a cursor; raise `BadRequest` if it is of a list with another order."""
    title, _, rest = cursor.partition("/")
    id_, _, key = rest.partition("/")
    try:
        if title == _cursor_prefix(filter_, order, down=down):
            text = order is Order.NAME and not filter_.deleting
            return ListPosition(make_storable(key) if text else _number(key), _number(id_))
    except ValueError:
        pass
    raise BadRequest("bad_cursor", cursor=cursor)


def _cursor_prefix(filter_: DocumentFilter, order: Order, *, down: bool) -> str:
    if filter_.deleting:
        return "deleting"
    return f"{order}-down" if down else str(order)


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number < ID_LIMIT or str(number) != text:  # the range of ids
        raise ValueError(text)
    return number
