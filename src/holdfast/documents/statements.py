"""Statements about documents: adding, changing, hiding, selecting, and their sources."""

from __future__ import annotations

from sqlalchemy import (
    CTE,
    BigInteger,
    Integer,
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

from holdfast.catalog import DELETING, OPEN, SOURCE, VISIBLE, bases, chunks, items, lists, missing, owner_of, serves
from holdfast.db import LIMIT, NOW, batch, number, word
from holdfast.engine.store import jobs, owners, slots

_SECOND = literal_column("1000000", BigInteger)  # in microseconds, as all times are
_usable = and_(OPEN, bases.c.problem.is_(None))
_row = batch(
    base_id=int, parent_id=int, kind=str, name=str, blob=str, digest=str, size=int, metadata=str, source=str, seen=str,
    every=int, problem=str, folded=str, local=int,
)  # fmt: skip
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
NOTE_METADATA = update(items).values(metadata=_row.c.metadata, changed_at=NOW).where(items.c.id == _row.c.id, VISIBLE)
_row = batch(id=int, seen=str)
SEE_ITEMS = (
    update(items)
    .values(seen=_row.c.seen, look_at=NOW + items.c.every * _SECOND)
    .where(items.c.id == _row.c.id, VISIBLE)
)
ADOPT_FOLDER = update(items).values(local=literal_column("1")).where(items.c.id == number("id"), VISIBLE)
_row = batch(base_id=int, digest=str)
FIND_COPIES = select(items).select_from(
    items.join(
        _row,
        and_(
            items.c.base_id == _row.c.base_id,
            items.c.digest == _row.c.digest,
            items.c.source.is_(None),
            VISIBLE,
        ),
    )
)
_row = batch(id=int)
_gone = (items.c.base_id, items.c.id)
REMOVE_ITEMS = delete(items).where(items.c.id.in_(select(_row.c.id)), DELETING).returning(*_gone)
_due = (
    select(items.c.id)
    .where(VISIBLE, items.c.look_at.is_not(None), items.c.look_at <= NOW)
    .where(items.c.base_id.in_(select(bases.c.id).where(_usable)))
    .order_by(items.c.look_at)
    .limit(LIMIT)
)
TAKE_DUE = (
    update(items).values(look_at=NOW + items.c.every * _SECOND).where(items.c.id.in_(_due), VISIBLE).returning(*items.c)
)


def _below(roots: Subquery) -> CTE:
    """Return the ids of these items and of all that stand below them."""
    top = select(items.c.id).where(items.c.id.in_(select(roots.c.id))).cte("below", recursive=True)
    return top.union(select(items.c.id).where(items.c.parent_id == top.c.id, items.c.parent_id > literal_column("0")))


_row = batch(id=int)
_subtree = _below(_row)
HIDE = (
    update(items)
    .values(deleting=literal_column("1"))
    .where(items.c.id.in_(select(_subtree.c.id)), VISIBLE)
    .returning(items.c.id)
)
_row = batch(id=int)
_parents = (
    select(items.c.id, items.c.id.label("item"), items.c.parent_id)
    .where(items.c.id.in_(select(_row.c.id)))
    .cte("above", recursive=True)
)
_parents = _parents.union(
    select(items.c.id, _parents.c.item, items.c.parent_id).where(items.c.id == _parents.c.parent_id)
)
ABOVE = select(_parents.c.item, _parents.c.id).where(_parents.c.id != _parents.c.item)
_document, _looker = owners.alias("document"), owners.alias("looker")
_with_owners = items.outerjoin(_document, owner_of(_document)).outerjoin(_looker, owner_of(_looker, SOURCE))
_states = (_document.c.status.label("document_status"), _looker.c.status.label("source_status"))
_row = batch(id=int)
PLACED = select(items, *_states).select_from(_with_owners).where(items.c.id.in_(select(_row.c.id))).order_by(items.c.id)
_row = batch(id=int)
_subtree = _below(_row)
BELOW = (
    select(items, *_states).select_from(_with_owners.join(_subtree, _subtree.c.id == items.c.id)).order_by(items.c.id)
)
_row = batch(id=int)
OWNED = (
    select(items.c.id).select_from(items.join(_document, owner_of(_document))).where(items.c.id.in_(select(_row.c.id)))
)
_row = batch(owner=str)
ACTIVE_JOBS = select(jobs.c.id).where(
    jobs.c.outcome.is_(None), jobs.c.base == word("base"), jobs.c.owner.in_(select(_row.c.owner))
)
_row = batch(id=int)
_subtree = _below(_row)
SEEN_BELOW = select(
    items.c.id, items.c.kind, items.c.source, items.c.seen, items.c.problem.is_not(None), items.c.digest
).where(items.c.id.in_(select(_subtree.c.id)), VISIBLE)
FIND_SOURCE = (
    select(items)
    .where(
        items.c.base_id == number("base_id"),
        items.c.parent_id == 0,
        items.c.kind == word("kind"),
        items.c.source == word("source"),
        VISIBLE,
    )
    .order_by(items.c.id)
    .limit(1)
)
CHILDREN = (
    select(items)
    .where(
        items.c.base_id == number("base_id"),
        items.c.parent_id == number("parent_id"),
        VISIBLE,
        items.c.id > number("after"),
    )
    .order_by(items.c.id)
    .limit(LIMIT)
)
_owner = owners.alias("owner_of_item")
_key = cast(items.c.id, Text)
# One list of names, and not two conditions joined by OR: SQLite would read all owners of the base for each item.
_owned = and_(
    _owner.c.base == cast(items.c.base_id, Text), _owner.c.owner.in_([_key, literal_column(f"'{SOURCE}'") + _key])
)
_row = batch(id=int)
OWNERS_OF_ITEMS = (
    select(_owner.c.base, _owner.c.owner)
    .select_from(items.join(_owner, _owned))
    .where(items.c.id.in_(select(_row.c.id)))
)
_row = batch(id=int)
OWNERS_OF_DELETED = (
    select(items.c.id, _owner.c.base, _owner.c.owner, _owner.c.status)
    .select_from(items.join(_owner, _owned))
    .where(items.c.id.in_(select(_row.c.id)), DELETING)
    .order_by(items.c.id, _owner.c.id)
)
LEFT_OWNERS = (
    select(_owner.c.base, _owner.c.owner)
    .select_from(items.join(_owner, _owned))
    .where(DELETING, _owner.c.status != literal_column("'deleting'"))
    .limit(LIMIT)
)
_child = items.alias("child")
_has_children = (
    select(_child.c.id).where(_child.c.parent_id == items.c.id, _child.c.parent_id > literal_column("0")).exists()
)
LEFT_ITEMS = (
    select(items.c.id, items.c.blob)
    .where(DELETING, ~_has_children, ~select(_owner.c.id).where(_owned).exists())
    .limit(LIMIT)
)
_of_base = items.c.base_id == number("base_id")
HIDE_ALL = update(items).values(deleting=literal_column("1")).where(_of_base, VISIBLE)
_document_of = and_(items.c.base_id == number("base_id"), VISIBLE, items.c.digest.is_not(None))
WITH_METADATA = select(items.c.id, items.c.metadata).where(_document_of, items.c.metadata != literal_column("'{}'"))
_row = batch(id=int)
_subtree = _below(_row)
DOCUMENTS_BELOW = select(items.c.id).where(_document_of, items.c.id.in_(select(_subtree.c.id)))

# What the indexes of a document lack of the lists that they serve, with how the own part of each chunk begins.
READ_MISSING = (
    select(
        slots.c.kind,
        lists.c.chunk_id,
        lists.c.ordinal,
        lists.c.start,
        lists.c.stop,
        func.substr(chunks.c.text, lists.c.body - lists.c.start + 1, cast(number("letters"), Integer)),
        missing.c.reason,
    )
    .select_from(
        owners.join(slots, slots.c.owner_id == owners.c.id)
        .join(missing, missing.c.slot_id == slots.c.id)
        .join(
            lists,
            and_(
                lists.c.owner_id == slots.c.owner_id,
                lists.c.chunk_id == missing.c.chunk_id,
                lists.c.build == slots.c.source,
            ),
        )
        .join(chunks, chunks.c.id == lists.c.chunk_id)
    )
    .where(owners.c.base == word("base"), owners.c.owner == word("owner"), serves(slots))
    .order_by(slots.c.id, lists.c.ordinal)
    .limit(LIMIT)
)
