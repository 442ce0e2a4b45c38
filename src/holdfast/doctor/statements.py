"""The statements of the doctor: scans of whole tables, one window at a time.

A scan returns all rows of its window, and its last column is true for a wrong row. So the cost of a read is bounded by
the rows it scans, not by the issues it finds. The verdict is valid for rows that change together in one transaction,
because it comes from one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, and_, case, cast, delete, insert, literal_column, not_, or_, select

from holdfast.catalog import (
    BASE_OPEN,
    BUILD_STALE,
    CHUNK_DOOMED,
    ITEM_VISIBLE,
    SOURCE_PREFIX,
    bases,
    builds,
    chunks,
    item_statuses,
    items,
    list_entries,
    missing_chunks,
    owner_matches_item,
)
from holdfast.db import LIMIT, batch, int_param
from holdfast.engine import RESTING_STATES
from holdfast.engine.store import owners, slots
from holdfast.llm import memo_holds, memo_uses, memos

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    Condition = ColumnElement[bool]


def _comes_after(**columns: ColumnElement[Any]) -> Condition:
    """Return the condition for rows after a position, in lexicographic order; each column has a parameter."""
    (name, column), *others = columns.items()
    if not others:
        return column > int_param(name)
    return and_(column >= int_param(name), or_(column > int_param(name), _comes_after(**dict(others))))


def _window(*columns: Any, after: dict[str, ColumnElement[Any]]) -> Any:
    """Return a scan of the next rows, in the order of the columns of `after`."""
    return select(*columns).where(_comes_after(**after)).order_by(*after.values()).limit(LIMIT)


def _being_removed(owner: ColumnElement[int]) -> Condition:
    """Return whether a slot of this owner is being deleted; its clean-up removes the rest, too."""
    deleting = select(slots.c.id).where(slots.c.owner_id == owner, slots.c.state == literal_column("'deleting'"))
    return deleting.exists()


SCAN_BUILDS = _window(
    builds.c.owner_id,
    builds.c.build,
    and_(BUILD_STALE, ~_being_removed(builds.c.owner_id)),
    after={"owner": builds.c.owner_id, "build": builds.c.build},
)

_same_build = and_(builds.c.owner_id == list_entries.c.owner_id, builds.c.build == list_entries.c.build)
_served = (
    select(slots.c.id)
    .where(slots.c.owner_id == list_entries.c.owner_id, slots.c.source == list_entries.c.build)
    .exists()
)
_stray = and_(~select(builds.c.build).where(_same_build).exists(), ~_served)
SCAN_LISTS = _window(
    list_entries.c.owner_id,
    list_entries.c.chunk_id,
    list_entries.c.build,
    _stray,
    after={"owner": list_entries.c.owner_id, "chunk": list_entries.c.chunk_id, "build": list_entries.c.build},
)
_row = batch(owner_id=int, chunk_id=int, build=int)
_this = and_(
    list_entries.c.owner_id == _row.c.owner_id,
    list_entries.c.chunk_id == _row.c.chunk_id,
    list_entries.c.build == _row.c.build,
)
DELETE_STRAY_ENTRIES = (
    delete(list_entries).where(_stray, select(_row.c.build).where(_this).exists()).returning(list_entries.c.chunk_id)
)

_listed = (
    select(list_entries.c.build)
    .where(list_entries.c.owner_id == chunks.c.owner_id, list_entries.c.chunk_id == chunks.c.id)
    .exists()
)
_owned = select(owners.c.id).where(owners.c.id == chunks.c.owner_id).exists()
SCAN_CHUNKS = _window(
    chunks.c.id,
    chunks.c.owner_id,
    and_(or_(CHUNK_DOOMED, ~_listed, ~_owned), ~_being_removed(chunks.c.owner_id)),
    after={"chunk": chunks.c.id},
)

_slot_gone = ~select(slots.c.id).where(slots.c.id == missing_chunks.c.slot_id).exists()
SCAN_MISSING_CHUNKS = _window(
    missing_chunks.c.slot_id,
    missing_chunks.c.chunk_id,
    _slot_gone,
    after={"slot": missing_chunks.c.slot_id, "chunk": missing_chunks.c.chunk_id},
)
_row = batch(slot_id=int, chunk_id=int)
_this = and_(missing_chunks.c.slot_id == _row.c.slot_id, missing_chunks.c.chunk_id == _row.c.chunk_id)
DELETE_MISSING_CHUNKS = (
    delete(missing_chunks)
    .where(_slot_gone, select(_row.c.slot_id).where(_this).exists())
    .returning(missing_chunks.c.slot_id)
)

_used = select(memo_uses.c.memo_id).where(memo_uses.c.memo_id == memos.c.id).exists()
_held = select(memo_holds.c.memo_id).where(memo_holds.c.memo_id == memos.c.id).exists()
SCAN_PAID_ANSWERS = _window(memos.c.id, and_(~_used, ~_held), after={"memo": memos.c.id})
_chunk_gone = ~select(chunks.c.id).where(chunks.c.id == memo_uses.c.chunk_id).exists()
SCAN_ANSWER_USES = _window(
    memo_uses.c.memo_id,
    memo_uses.c.chunk_id,
    _chunk_gone,
    after={"memo": memo_uses.c.memo_id, "chunk": memo_uses.c.chunk_id},
)

_at_rest = slots.c.state.in_([literal_column(f"'{state}'") for state in sorted(RESTING_STATES)])
_is_served = and_(slots.c.built > 0, slots.c.source.is_not(None), _at_rest)
# The served chunks of slots at rest; a build that is running repairs the others.
SCAN_SERVED_CHUNKS = (
    select(slots.c.id, list_entries.c.chunk_id, owners.c.base, slots.c.kind, slots.c.recipe, slots.c.built)
    .select_from(
        slots.join(owners, owners.c.id == slots.c.owner_id).join(
            list_entries, and_(list_entries.c.owner_id == slots.c.owner_id, list_entries.c.build == slots.c.source)
        )
    )
    .where(_comes_after(slot=slots.c.id, chunk=list_entries.c.chunk_id), _is_served, slots.c.recipe.is_not(None))
    .where(slots.c.needs.is_not(None))
    .order_by(slots.c.id, list_entries.c.chunk_id)
    .limit(LIMIT)
)
_no_build = ~(
    select(builds.c.build).where(builds.c.owner_id == slots.c.owner_id, builds.c.build == slots.c.source).exists()
)
_no_chunks = ~(
    select(list_entries.c.chunk_id)
    .where(list_entries.c.owner_id == slots.c.owner_id, list_entries.c.build == slots.c.source)
    .exists()
)
SCAN_SERVED_LISTS = (
    select(slots.c.id, owners.c.base, owners.c.owner, slots.c.kind, and_(_is_served, or_(_no_build, _no_chunks)))
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(_comes_after(slot=slots.c.id))
    .order_by(slots.c.id)
    .limit(LIMIT)
)

_chunk_there = select(chunks.c.id).where(chunks.c.id == list_entries.c.chunk_id).exists()
_busy = select(slots.c.id).where(slots.c.owner_id == list_entries.c.owner_id, ~_at_rest).exists()
SCAN_SERVED_ENTRIES = (
    select(
        list_entries.c.owner_id,
        list_entries.c.chunk_id,
        list_entries.c.build,
        owners.c.base,
        owners.c.owner,
        and_(~_chunk_there, _served, ~_busy),
    )
    .select_from(list_entries.join(owners, owners.c.id == list_entries.c.owner_id))
    .where(_comes_after(owner=list_entries.c.owner_id, chunk=list_entries.c.chunk_id, build=list_entries.c.build))
    .order_by(list_entries.c.owner_id, list_entries.c.chunk_id, list_entries.c.build)
    .limit(LIMIT)
)

_row = batch(id=int)
SELECT_ITEM_BASES = select(items.c.id, items.c.base_id).where(items.c.id.in_(select(_row.c.id)))
SELECT_VISIBLE_ITEMS = SELECT_ITEM_BASES.where(ITEM_VISIBLE, items.c.base_id.in_(select(bases.c.id).where(BASE_OPEN)))
SELECT_BASE_NAMES = select(bases.c.id, bases.c.name)
SCAN_ITEMS = _window(
    items.c.id,
    items.c.base_id,
    items.c.name,
    items.c.blob,
    items.c.digest,
    and_(ITEM_VISIBLE, items.c.blob.is_not(None), items.c.problem.is_(None)),
    after={"item": items.c.id},
)
_row = batch(id=int, blob=str)
SELECT_UNCHANGED_FILES = select(items.c.id).select_from(
    items.join(_row, and_(items.c.id == _row.c.id, items.c.blob == _row.c.blob, ITEM_VISIBLE))
)

_document_owner, _source_owner = owners.alias("document"), owners.alias("looker")
_own_slots = and_(slots.c.owner_id == _document_owner.c.id, slots.c.built > 0, slots.c.needs.is_not(None))
_owned_items = items.outerjoin(_document_owner, owner_matches_item(_document_owner)).outerjoin(
    _source_owner, owner_matches_item(_source_owner, SOURCE_PREFIX)
)
_expected = {
    "item_id": items.c.id,
    "base_id": items.c.base_id,
    "parent_id": items.c.parent_id,
    "container": cast(items.c.kind.in_([literal_column("'directory'"), literal_column("'sitemap'")]), Integer),
    "problem": cast(items.c.problem.is_not(None), Integer),
    "document": _document_owner.c.status,
    "source": _source_owner.c.status,
    "served": case((select(slots.c.id).where(_own_slots).exists(), 1), else_=0),
}
_is_as_expected = and_(
    *(item_statuses.c[name].is_not_distinct_from(value) for name, value in _expected.items() if name != "served")
)
# `served` follows from a resting status; for other statuses it is the previous value.
_served_by_status = {"success": 1, "degraded": 1, "failed": 0, "not_indexed": 0}
_serves = and_(
    *(
        or_(_document_owner.c.status.is_distinct_from(literal_column(f"'{status}'")), item_statuses.c.served == served)
        for status, served in _served_by_status.items()
    )
)
_cleanup_requested = or_(
    _document_owner.c.status == literal_column("'deleting'"),
    _source_owner.c.status == literal_column("'deleting'"),
    and_(_document_owner.c.id.is_(None), _source_owner.c.id.is_(None)),
)
SCAN_STATUSES = (
    select(
        items.c.id,
        items.c.base_id,
        items.c.name,
        case(
            (ITEM_VISIBLE, or_(item_statuses.c.item_id.is_(None), not_(and_(_is_as_expected, _serves)))),
            else_=and_(item_statuses.c.item_id.is_not(None), _cleanup_requested),
        ),
    )
    .select_from(_owned_items.outerjoin(item_statuses, item_statuses.c.item_id == items.c.id))
    .where(items.c.id > int_param("item"))
    .order_by(items.c.id)
    .limit(LIMIT)
)
_item_gone = ~select(items.c.id).where(items.c.id == item_statuses.c.item_id).exists()
SCAN_ORPHAN_STATUSES = _window(
    item_statuses.c.item_id,
    item_statuses.c.base_id,
    literal_column("''"),
    _item_gone,
    after={"item": item_statuses.c.item_id},
)
_row = batch(id=int)
SELECT_STATUS_OWNERS = (
    select(_document_owner.c.id, _source_owner.c.id).select_from(_owned_items).where(items.c.id.in_(select(_row.c.id)))
)
_row = batch(id=int)
DELETE_STATUSES = delete(item_statuses).where(item_statuses.c.item_id.in_(select(_row.c.id)))
_row = batch(id=int)
INSERT_STATUSES = (
    insert(item_statuses)
    .from_select(
        [*_expected],
        select(*_expected.values()).select_from(_owned_items).where(items.c.id.in_(select(_row.c.id)), ITEM_VISIBLE),
    )
    .returning(item_statuses.c.item_id)
)
