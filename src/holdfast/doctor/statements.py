"""What the doctor reads of the library: tables from one end to the other, a window at a time.

A statement returns every row of its window, each with the verdict in its last column: so a reading is bounded by what
it looks at and not by what it finds. A verdict is of one snapshot, and holds for what moves within one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, and_, case, cast, delete, insert, literal_column, not_, or_, select

from holdfast.catalog import (
    DOOMED,
    OPEN,
    SOURCE,
    STALE,
    VISIBLE,
    bases,
    builds,
    chunks,
    items,
    lists,
    missing,
    owner_of,
    standings,
)
from holdfast.db import LIMIT, batch, number
from holdfast.engine import RESTING
from holdfast.engine.store import owners, slots
from holdfast.llm import memo_holds, memo_uses, memos

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    Condition = ColumnElement[bool]


def _behind(**columns: ColumnElement[Any]) -> Condition:
    """Hold for what comes after a place, by several columns in turn; each is a parameter of the same name."""
    (name, column), *others = columns.items()
    if not others:
        return column > number(name)
    return and_(column >= number(name), or_(column > number(name), _behind(**dict(others))))


def _window(*columns: Any, after: dict[str, ColumnElement[Any]]) -> Any:
    """Read the next rows of a table, in the order of these columns."""
    return select(*columns).where(_behind(**after)).order_by(*after.values()).limit(LIMIT)


def _going(owner: ColumnElement[int]) -> Condition:
    """Hold while something of this owner is being removed: whoever does it takes the rest along."""
    removed = select(slots.c.id).where(slots.c.owner_id == owner, slots.c.state == literal_column("'deleting'"))
    return removed.exists()


# ---------------------------------------------------------------- lists and chunks

BUILDS = _window(
    builds.c.owner_id,
    builds.c.build,
    and_(STALE, ~_going(builds.c.owner_id)),
    after={"owner": builds.c.owner_id, "build": builds.c.build},
)

_same_build = and_(builds.c.owner_id == lists.c.owner_id, builds.c.build == lists.c.build)
_served = select(slots.c.id).where(slots.c.owner_id == lists.c.owner_id, slots.c.source == lists.c.build).exists()
_stray = and_(~select(builds.c.build).where(_same_build).exists(), ~_served)
LISTS = _window(
    lists.c.owner_id,
    lists.c.chunk_id,
    lists.c.build,
    _stray,
    after={"owner": lists.c.owner_id, "chunk": lists.c.chunk_id, "build": lists.c.build},
)
_row = batch(owner_id=int, chunk_id=int, build=int)
_this = and_(
    lists.c.owner_id == _row.c.owner_id, lists.c.chunk_id == _row.c.chunk_id, lists.c.build == _row.c.build
)  # fmt: skip
REMOVE_STRAY = delete(lists).where(_stray, select(_row.c.build).where(_this).exists()).returning(lists.c.chunk_id)

_listed = select(lists.c.build).where(lists.c.owner_id == chunks.c.owner_id, lists.c.chunk_id == chunks.c.id).exists()
_owned = select(owners.c.id).where(owners.c.id == chunks.c.owner_id).exists()
CHUNKS = _window(
    chunks.c.id,
    chunks.c.owner_id,
    and_(or_(DOOMED, ~_listed, ~_owned), ~_going(chunks.c.owner_id)),
    after={"chunk": chunks.c.id},
)

_slot_gone = ~select(slots.c.id).where(slots.c.id == missing.c.slot_id).exists()
MISSING = _window(
    missing.c.slot_id,
    missing.c.chunk_id,
    _slot_gone,
    after={"slot": missing.c.slot_id, "chunk": missing.c.chunk_id},
)
_row = batch(slot_id=int, chunk_id=int)
_this = and_(missing.c.slot_id == _row.c.slot_id, missing.c.chunk_id == _row.c.chunk_id)
REMOVE_MISSING = (
    delete(missing).where(_slot_gone, select(_row.c.slot_id).where(_this).exists()).returning(missing.c.slot_id)
)

# ---------------------------------------------------------------- memos

_used = select(memo_uses.c.memo_id).where(memo_uses.c.memo_id == memos.c.id).exists()
_held = select(memo_holds.c.memo_id).where(memo_holds.c.memo_id == memos.c.id).exists()
MEMOS = _window(memos.c.id, and_(~_used, ~_held), after={"memo": memos.c.id})
_chunk_gone = ~select(chunks.c.id).where(chunks.c.id == memo_uses.c.chunk_id).exists()
USES = _window(
    memo_uses.c.memo_id,
    memo_uses.c.chunk_id,
    _chunk_gone,
    after={"memo": memo_uses.c.memo_id, "chunk": memo_uses.c.chunk_id},
)

# ---------------------------------------------------------------- what is served

_rests = slots.c.state.in_([literal_column(f"'{state}'") for state in sorted(RESTING)])
_shows = and_(slots.c.built > 0, slots.c.source.is_not(None), _rests)
# The chunks that indexes show, of slots at rest: what is being built again is about to be mended.
SHOWN_CHUNKS = (
    select(slots.c.id, lists.c.chunk_id, owners.c.base, slots.c.kind, slots.c.recipe, slots.c.built)
    .select_from(
        slots.join(owners, owners.c.id == slots.c.owner_id).join(
            lists, and_(lists.c.owner_id == slots.c.owner_id, lists.c.build == slots.c.source)
        )
    )
    .where(_behind(slot=slots.c.id, chunk=lists.c.chunk_id), _shows, slots.c.recipe.is_not(None))
    .where(slots.c.needs.is_not(None))
    .order_by(slots.c.id, lists.c.chunk_id)
    .limit(LIMIT)
)
_no_build = ~(
    select(builds.c.build).where(builds.c.owner_id == slots.c.owner_id, builds.c.build == slots.c.source).exists()
)
_no_chunks = ~(
    select(lists.c.chunk_id).where(lists.c.owner_id == slots.c.owner_id, lists.c.build == slots.c.source).exists()
)
SHOWN_LISTS = (
    select(slots.c.id, owners.c.base, owners.c.owner, slots.c.kind, and_(_shows, or_(_no_build, _no_chunks)))
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(_behind(slot=slots.c.id))
    .order_by(slots.c.id)
    .limit(LIMIT)
)

_chunk_there = select(chunks.c.id).where(chunks.c.id == lists.c.chunk_id).exists()
_busy = select(slots.c.id).where(slots.c.owner_id == lists.c.owner_id, ~_rests).exists()
SHOWN_ENTRIES = (
    select(
        lists.c.owner_id,
        lists.c.chunk_id,
        lists.c.build,
        owners.c.base,
        owners.c.owner,
        and_(~_chunk_there, _served, ~_busy),
    )
    .select_from(lists.join(owners, owners.c.id == lists.c.owner_id))
    .where(_behind(owner=lists.c.owner_id, chunk=lists.c.chunk_id, build=lists.c.build))
    .order_by(lists.c.owner_id, lists.c.chunk_id, lists.c.build)
    .limit(LIMIT)
)

# ---------------------------------------------------------------- items

_row = batch(id=int)
ITEM_BASES = select(items.c.id, items.c.base_id).where(items.c.id.in_(select(_row.c.id)))
VISIBLE_ITEMS = ITEM_BASES.where(VISIBLE, items.c.base_id.in_(select(bases.c.id).where(OPEN)))
BASE_NAMES = select(bases.c.id, bases.c.name)
ITEMS = _window(
    items.c.id,
    items.c.base_id,
    items.c.name,
    items.c.blob,
    items.c.digest,
    and_(VISIBLE, items.c.blob.is_not(None), items.c.problem.is_(None)),
    after={"item": items.c.id},
)
_row = batch(id=int, blob=str)
STILL_NAMED = select(items.c.id).select_from(
    items.join(_row, and_(items.c.id == _row.c.id, items.c.blob == _row.c.blob, VISIBLE))
)

# ---------------------------------------------------------------- how items stand

_document, _looker = owners.alias("document"), owners.alias("looker")
_own_slots = and_(slots.c.owner_id == _document.c.id, slots.c.built > 0, slots.c.needs.is_not(None))
_owned_items = items.outerjoin(_document, owner_of(_document)).outerjoin(_looker, owner_of(_looker, SOURCE))
_right = {
    "item_id": items.c.id,
    "base_id": items.c.base_id,
    "parent_id": items.c.parent_id,
    "container": cast(items.c.kind.in_([literal_column("'directory'"), literal_column("'sitemap'")]), Integer),
    "problem": cast(items.c.problem.is_not(None), Integer),
    "document": _document.c.status,
    "source": _looker.c.status,
    "served": case((select(slots.c.id).where(_own_slots).exists(), 1), else_=0),
}
_same = and_(*(standings.c[name].is_not_distinct_from(value) for name, value in _right.items() if name != "served"))
# Whether it could be searched is known for what rests; of the others the past is told.
_rests_at = {"success": 1, "degraded": 1, "failed": 0, "not_indexed": 0}
_serves = and_(
    *(
        or_(_document.c.status.is_distinct_from(literal_column(f"'{status}'")), standings.c.served == served)
        for status, served in _rests_at.items()
    )
)
_asked = or_(
    _document.c.status == literal_column("'deleting'"),
    _looker.c.status == literal_column("'deleting'"),
    and_(_document.c.id.is_(None), _looker.c.id.is_(None)),
)
STANDINGS = (
    select(
        items.c.id,
        items.c.base_id,
        items.c.name,
        case(
            (VISIBLE, or_(standings.c.item_id.is_(None), not_(and_(_same, _serves)))),
            else_=and_(standings.c.item_id.is_not(None), _asked),
        ),
    )
    .select_from(_owned_items.outerjoin(standings, standings.c.item_id == items.c.id))
    .where(items.c.id > number("item"))
    .order_by(items.c.id)
    .limit(LIMIT)
)
_item_gone = ~select(items.c.id).where(items.c.id == standings.c.item_id).exists()
STANDINGS_LEFT = _window(
    standings.c.item_id, standings.c.base_id, literal_column("''"), _item_gone, after={"item": standings.c.item_id}
)
_row = batch(id=int)
OWNERS_OF_STANDINGS = (
    select(_document.c.id, _looker.c.id).select_from(_owned_items).where(items.c.id.in_(select(_row.c.id)))
)
_row = batch(id=int)
REMOVE_STANDINGS = delete(standings).where(standings.c.item_id.in_(select(_row.c.id)))
_row = batch(id=int)
MAKE_STANDINGS = (
    insert(standings)
    .from_select(
        [*_right],
        select(*_right.values()).select_from(_owned_items).where(items.c.id.in_(select(_row.c.id)), VISIBLE),
    )
    .returning(standings.c.item_id)
)
