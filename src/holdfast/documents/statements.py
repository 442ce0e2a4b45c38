"""Statements about documents: adding, changing, hiding, selecting, and their sources."""

from __future__ import annotations

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Subquery,
    Text,
    and_,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from holdfast.catalog import (
    BASE_OPEN,
    ITEM_DELETING,
    ITEM_VISIBLE,
    SOURCE_PREFIX,
    bases,
    chunks,
    items,
    list_entries,
    missing_chunks,
    owner_matches_item,
    slot_is_served,
)
from holdfast.db import LIMIT, NOW, batch, int_param, is_in, text_param
from holdfast.engine.store import jobs, owners, slots

_SECOND = literal_column("1000000", BigInteger)  # in microseconds
_usable = and_(BASE_OPEN, bases.c.problem.is_(None))
_SET_BY_DATABASE = {"id", "look_at", "deleting", "created_at", "changed_at"}
NEW_ITEM_COLUMNS = {column.name: column.type.python_type for column in items.c if column.name not in _SET_BY_DATABASE}
_row = batch(**NEW_ITEM_COLUMNS)
CREATE_ITEMS = (
    insert(items)
    .from_select(
        ["created_at", "changed_at", "look_at", *_row.c.keys()],
        select(NOW, NOW, NOW + _row.c.every * _SECOND, *_row.c),
    )
    .returning(items.c.id, items.c.parent_id, items.c.name)
)
_row = batch(id=int, blob=str, digest=str, size=int, metadata=str, source=str, seen=str)
CHANGE_ITEMS = (
    update(items)
    .values(
        blob=_row.c.blob,
        digest=_row.c.digest,
        size=_row.c.size,
        metadata=_row.c.metadata,
        source=_row.c.source,
        seen=_row.c.seen,
        problem=None,
        changed_at=NOW,
    )
    .where(items.c.id == _row.c.id)
)
_row = batch(id=int, metadata=str)
NOTE_METADATA = (
    update(items).values(metadata=_row.c.metadata, changed_at=NOW).where(items.c.id == _row.c.id, ITEM_VISIBLE)
)
_row = batch(id=int, seen=str)
RECORD_SEEN_SOURCES = (
    update(items)
    .values(seen=_row.c.seen, look_at=NOW + items.c.every * _SECOND)
    .where(items.c.id == _row.c.id, ITEM_VISIBLE)
)
ADOPT_FOLDER = update(items).values(local=literal_column("1")).where(items.c.id == int_param("id"), ITEM_VISIBLE)
_row = batch(base_id=int, digest=str)
FIND_COPIES = select(items).select_from(
    items.join(
        _row,
        and_(
            items.c.base_id == _row.c.base_id,
            items.c.digest == _row.c.digest,
            items.c.source.is_(None),
            ITEM_VISIBLE,
        ),
    )
)
_row = batch(id=int)
_gone = (items.c.base_id, items.c.id)
REMOVE_ITEMS = delete(items).where(items.c.id.in_(select(_row.c.id)), ITEM_DELETING).returning(*_gone)
_due = (
    select(items.c.id)
    .where(ITEM_VISIBLE, items.c.look_at.is_not(None), items.c.look_at <= NOW)
    .where(items.c.base_id.in_(select(bases.c.id).where(_usable)))
    .order_by(items.c.look_at)
    .limit(LIMIT)
)
CLAIM_DUE_SOURCES = (
    update(items)
    .values(look_at=NOW + items.c.every * _SECOND)
    .where(items.c.id.in_(_due), ITEM_VISIBLE)
    .returning(*items.c)
)


def select_subtree(roots: Select[tuple[int]]) -> CTE:
    """Select the ids of these items and of everything below them."""
    top = roots.cte("below", recursive=True)
    child = items.alias("child")
    # By a join, PostgreSQL would read all items: it expects that the children of many items are wanted.
    children = select(child.c.id).where(child.c.parent_id == top.c.id, child.c.parent_id > literal_column("0"))
    return top.union(select(items.c.id).select_from(top, items).where(is_in(items.c.id, children.correlate(top))))


def _is_at_or_below(roots: Subquery) -> ColumnElement[bool]:
    """Match these items and everything below them."""
    below = select_subtree(select(items.c.id).where(items.c.id.in_(select(roots.c.id))))
    return is_in(items.c.id, select(below.c.id))


_row = batch(id=int)
_in_subtree = _is_at_or_below(_row)
HIDE_SUBTREES = (
    update(items).values(deleting=literal_column("1")).where(_in_subtree, ITEM_VISIBLE).returning(items.c.id)
)
_row = batch(id=int)
_parents = (
    select(items.c.id, items.c.id.label("item"), items.c.parent_id)
    .where(items.c.id.in_(select(_row.c.id)))
    .cte("above", recursive=True)
)
# A subquery, not a join: PostgreSQL may answer a join by reading all items.
_container = items.alias("container")
_next_parent = select(_container.c.parent_id).where(_container.c.id == _parents.c.parent_id).scalar_subquery()
_parents = _parents.union(
    select(_parents.c.parent_id, _parents.c.item, _next_parent).where(_parents.c.parent_id > literal_column("0"))
)
READ_ANCESTORS = select(_parents.c.item, _parents.c.id).where(_parents.c.id != _parents.c.item)
_document, _source_owner = owners.alias("document"), owners.alias("looker")
_with_owners = items.outerjoin(_document, owner_matches_item(_document)).outerjoin(
    _source_owner, owner_matches_item(_source_owner, SOURCE_PREFIX)
)
_states = (_document.c.status.label("document_status"), _source_owner.c.status.label("source_status"))
_row = batch(id=int)
READ_ITEMS_WITH_STATUS = (
    select(items, *_states).select_from(_with_owners).where(items.c.id.in_(select(_row.c.id))).order_by(items.c.id)
)
_row = batch(id=int)
_in_subtree = _is_at_or_below(_row)
READ_SUBTREE = select(items, *_states).select_from(_with_owners).where(_in_subtree).order_by(items.c.id)
_row = batch(id=int)
SELECT_ITEMS_WITH_OWNER = (
    select(items.c.id)
    .select_from(items.join(_document, owner_matches_item(_document)))
    .where(items.c.id.in_(select(_row.c.id)))
)
_row = batch(owner=str)
READ_OWNERS = select(owners.c.owner, owners.c.fingerprint, owners.c.status).where(
    owners.c.base == text_param("base"), owners.c.owner.in_(select(_row.c.owner))
)
_row = batch(owner=str)
ACTIVE_JOBS = select(jobs.c.id).where(
    jobs.c.outcome.is_(None), jobs.c.base == text_param("base"), jobs.c.owner.in_(select(_row.c.owner))
)
_row = batch(owner=str)
READ_ACTIVE_JOBS = select(jobs.c.id, jobs.c.owner, jobs.c.payload).where(
    jobs.c.outcome.is_(None), jobs.c.base == text_param("base"), jobs.c.owner.in_(select(_row.c.owner))
)
_row = batch(id=int)
_in_subtree = _is_at_or_below(_row)
READ_SOURCE_ITEMS_BELOW = select(
    items.c.id, items.c.kind, items.c.source, items.c.seen, items.c.problem.is_not(None), items.c.digest
).where(_in_subtree, ITEM_VISIBLE)
FIND_SOURCE = (
    select(items)
    .where(
        items.c.base_id == int_param("base_id"),
        items.c.parent_id == 0,
        items.c.kind == text_param("kind"),
        items.c.source == text_param("source"),
        ITEM_VISIBLE,
    )
    .order_by(items.c.id)
    .limit(1)
)
_owner = owners.alias("owner_of_item")
_key = cast(items.c.id, Text)
# IN with two names, not OR: with OR, SQLite would read all owners of the base for each item.
_owned = and_(
    _owner.c.base == cast(items.c.base_id, Text),
    _owner.c.owner.in_([_key, literal_column(f"'{SOURCE_PREFIX}'") + _key]),
)
_row = batch(id=int)
OWNERS_OF_DELETED = (
    select(items.c.id, _owner.c.base, _owner.c.owner, _owner.c.status)
    .select_from(items.join(_owner, _owned))
    .where(items.c.id.in_(select(_row.c.id)), ITEM_DELETING)
    .order_by(items.c.id, _owner.c.id)
)
SELECT_UNREQUESTED_OWNERS = (
    select(_owner.c.base, _owner.c.owner)
    .select_from(items.join(_owner, _owned))
    .where(ITEM_DELETING, _owner.c.status != literal_column("'deleting'"))
    .limit(LIMIT)
)
_child = items.alias("child")
_has_children = (
    select(_child.c.id).where(_child.c.parent_id == items.c.id, _child.c.parent_id > literal_column("0")).exists()
)
SELECT_REMOVABLE_ITEMS = (
    select(items.c.id, items.c.blob)
    .where(ITEM_DELETING, ~_has_children, ~select(_owner.c.id).where(_owned).exists())
    .limit(LIMIT)
)
_of_base = items.c.base_id == int_param("base_id")
HIDE_ALL = update(items).values(deleting=literal_column("1")).where(_of_base, ITEM_VISIBLE)
_document_of = and_(items.c.base_id == int_param("base_id"), ITEM_VISIBLE, items.c.digest.is_not(None))
READ_METADATA = select(items.c.id, items.c.metadata).where(_document_of, items.c.metadata != literal_column("'{}'"))
_row = batch(id=int)
_in_subtree = _is_at_or_below(_row)
DOCUMENTS_BELOW = select(items.c.id).where(_document_of, _in_subtree)

# The missing chunks of a document's indexes, with the beginning of the chunk's own text.
READ_MISSING = (
    select(
        slots.c.kind,
        list_entries.c.chunk_id,
        list_entries.c.ordinal,
        list_entries.c.start,
        list_entries.c.stop,
        func.substr(chunks.c.text, list_entries.c.body - list_entries.c.start + 1, cast(int_param("letters"), Integer)),
        missing_chunks.c.reason,
    )
    .select_from(
        owners.join(slots, slots.c.owner_id == owners.c.id)
        .join(missing_chunks, missing_chunks.c.slot_id == slots.c.id)
        .join(
            list_entries,
            and_(
                list_entries.c.owner_id == slots.c.owner_id,
                list_entries.c.chunk_id == missing_chunks.c.chunk_id,
                list_entries.c.build == slots.c.source,
            ),
        )
        .join(chunks, chunks.c.id == list_entries.c.chunk_id)
    )
    .where(owners.c.base == text_param("base"), owners.c.owner == text_param("owner"), slot_is_served(slots))
    .order_by(slots.c.id, list_entries.c.ordinal)
    .limit(LIMIT)
)
