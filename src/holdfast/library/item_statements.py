"""Every statement about bases and the tree of items in them.

An item is visible until it is deleted, with all that stands below it, in one statement. What is left of it then is
found by `LEFT_OWNERS` and `LEFT_ITEMS`, whoever was interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Text, and_, cast, delete, func, insert, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.library.tables import bases, items, recipes
from holdfast.stores.batch import LIMIT, NOW, batch, number, word
from holdfast.stores.tables import jobs, owners, pauses, quotas, slots

if TYPE_CHECKING:
    from sqlalchemy import CTE, ColumnElement, Subquery

# Literal, so that partial indexes see it.
VISIBLE = items.c.deleting == literal_column("0")
DELETING = items.c.deleting == literal_column("1")
OPEN = bases.c.deleting == literal_column("0")
SECOND = literal_column("1000000", BigInteger)  # in microseconds, as all times are

# ---------------------------------------------------------------- bases

_row = batch(name=str, settings=str)
CREATE_BASE = (
    upsert(bases)
    .from_select(["created_at", "name", "settings"], select(NOW, *_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
    .returning(*bases.c)
)
_row = batch(id=int)
READ_BASES = select(bases).where(bases.c.id.in_(select(_row.c.id)))
FIND_BASE = select(bases).where(bases.c.name == word("name"), OPEN)
LIST_BASES = select(bases).where(OPEN).order_by(bases.c.name)
# Adding and deleting take turns; on SQLite all writers do.
LOCK_BASE = select(bases).where(bases.c.id == number("id")).with_for_update(key_share=True)

_this = bases.c.id == number("id")
NAMESAKE = select(bases.c.id).where(bases.c.name == word("name"), OPEN, bases.c.id != number("id"))
RENAME_BASE = update(bases).values(name=word("name")).where(_this, OPEN).returning(*bases.c)
WRITE_SETTINGS = update(bases).values(settings=word("settings")).where(_this, OPEN).returning(*bases.c)
_fail = update(bases).values(problem=word("problem")).where(_this, OPEN).returning(*bases.c)
FAIL_BASE = _fail.where(bases.c.problem.is_(None))
FAIL_AGAIN = _fail.where(bases.c.problem.is_not(None))
MEND_BASE = update(bases).values(problem=None).where(_this, OPEN).returning(*bases.c)
CLOSE_BASE = update(bases).values(deleting=literal_column("1")).where(_this, OPEN).returning(bases.c.id)
CLOSED_BASES = select(bases).where(bases.c.deleting == literal_column("1")).order_by(bases.c.id)
_usable = and_(OPEN, bases.c.problem.is_(None))

# ---------------------------------------------------------------- items one by one

_row = batch(
    base_id=int, parent_id=int, kind=str, name=str, blob=str, digest=str, size=int, metadata=str, source=str, seen=str,
    every=int, problem=str, folded=str, local=int,
)  # fmt: skip
CREATE_ITEMS = (
    insert(items)
    .from_select(
        ["created_at", "changed_at", "look_at", *_row.c.keys()],
        select(NOW, NOW, NOW + _row.c.every * SECOND, *_row.c),
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
    update(items).values(seen=_row.c.seen, look_at=NOW + items.c.every * SECOND).where(items.c.id == _row.c.id, VISIBLE)
)
ADOPT_FOLDER = update(items).values(local=literal_column("1")).where(items.c.id == number("id"), VISIBLE)
_row = batch(base_id=int, parent_id=int, name=str)
FIND_ITEMS = select(items).select_from(
    items.join(
        _row,
        and_(
            items.c.base_id == _row.c.base_id,
            items.c.parent_id == _row.c.parent_id,
            items.c.name == _row.c.name,
            VISIBLE,
        ),
    )
)
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
READ_ITEMS = select(items).where(items.c.id.in_(select(_row.c.id)))
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
    update(items).values(look_at=NOW + items.c.every * SECOND).where(items.c.id.in_(_due), VISIBLE).returning(*items.c)
)

# ---------------------------------------------------------------- the tree


def _below(roots: Subquery) -> CTE:
    """Return the ids of these items and of all that stand below them."""
    top = select(items.c.id).where(items.c.id.in_(select(roots.c.id))).cte("below", recursive=True)
    return top.union(select(items.c.id).where(items.c.parent_id == top.c.id, items.c.parent_id > literal_column("0")))


def owner_of(owner: Any, prefix: str = "") -> ColumnElement[bool]:
    """Hold for the owner of slots that belongs to the item."""
    key = cast(items.c.id, Text)
    return and_(
        owner.c.base == cast(items.c.base_id, Text),
        owner.c.owner == (literal_column(f"'{prefix}'") + key if prefix else key),
    )


SOURCE = "source:"  # how the owner begins that looks at an item's source
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

# ---------------------------------------------------------------- what is left of deleted items

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
_asks = select(_looker.c.id).where(owner_of(_looker, SOURCE)).exists()
_row = batch(id=int)
REMOVE_DOCUMENTS = delete(items).where(items.c.id.in_(select(_row.c.id)), DELETING, ~_asks).returning(*_gone)

# ---------------------------------------------------------------- all items of a base

_of_base = items.c.base_id == number("base_id")
HIDE_ALL = update(items).values(deleting=literal_column("1")).where(_of_base, VISIBLE)
_some = select(items.c.id).where(_of_base, VISIBLE).limit(LIMIT)
HIDE_SOME = (
    update(items).values(deleting=literal_column("1")).where(items.c.id.in_(_some), VISIBLE).returning(items.c.id)
)
OWNERS_OF_BASE = (
    select(owners.c.base, owners.c.owner)
    .where(owners.c.base == word("base"), owners.c.status != literal_column("'deleting'"))
    .limit(LIMIT)
)
_has_items = select(items.c.id).where(items.c.base_id == bases.c.id).exists()
_has_owners = select(owners.c.id).where(owners.c.base == cast(bases.c.id, Text)).exists()
_has_recipes = select(recipes.c.id).where(recipes.c.base == cast(bases.c.id, Text)).exists()
_closed = bases.c.deleting == literal_column("1")
EMPTY_BASE = select(bases.c.id).where(_this, _closed, ~_has_items, ~_has_owners)
REMOVE_BASE = delete(bases).where(_this, _closed, ~_has_items, ~_has_owners, ~_has_recipes).returning(bases.c.id)
REMOVE_PAUSE = delete(pauses).where(pauses.c.base == word("base"))
REMOVE_QUOTA = delete(quotas).where(quotas.c.base == word("base"))

# ---------------------------------------------------------------- how documents stand towards a rollout

_indexed = items.join(_document, owner_of(_document))
DOCUMENTS = (
    select(items.c.id)
    .select_from(_indexed)
    .where(_of_base, VISIBLE, items.c.id > number("after"))
    .order_by(items.c.id)
    .limit(LIMIT)
)
COUNT_DOCUMENTS = select(func.count()).select_from(_indexed).where(_of_base, VISIBLE)
_row = batch(id=int)
_with_slots = (
    items.join(_row, _row.c.id == items.c.id)
    .join(_document, owner_of(_document))
    .join(slots, slots.c.owner_id == _document.c.id)
    .outerjoin(jobs, jobs.c.id == slots.c.job)
)
SLOTS_OF_DOCUMENTS = select(
    items.c.id, slots.c.kind, slots.c.state, slots.c.recipe, slots.c.claimed_at, jobs.c.payload
).select_from(_with_slots)
_of_owner = owners.join(slots, slots.c.owner_id == owners.c.id).outerjoin(jobs, jobs.c.id == slots.c.job)
ASKED_OF_BASE = (
    select(owners.c.fingerprint, slots.c.state, jobs.c.payload)
    .select_from(_of_owner)
    .where(owners.c.base == word("base"), owners.c.owner == word("owner"))
)

# ---------------------------------------------------------------- which documents a search is about

_document_of = and_(items.c.base_id == number("base_id"), VISIBLE, items.c.digest.is_not(None))
WITH_METADATA = select(items.c.id, items.c.metadata).where(_document_of, items.c.metadata != literal_column("'{}'"))
_row = batch(id=int)
_subtree = _below(_row)
DOCUMENTS_BELOW = select(items.c.id).where(_document_of, items.c.id.in_(select(_subtree.c.id)))
