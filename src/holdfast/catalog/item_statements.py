"""Every statement about bases and the tree of items in them.

An item is visible until it is deleted, with all that stands below it, in one statement. What is left of it then is
found by `LEFT_OWNERS` and `LEFT_ITEMS`, whoever was interrupted.
"""

from __future__ import annotations

from sqlalchemy import and_, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog.conditions import BASE_OPEN, ITEM_VISIBLE, owner_matches_item
from holdfast.catalog.tables import bases, items
from holdfast.db import NOW, batch, int_param, text_param
from holdfast.engine.store import jobs, owners, slots

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
FIND_BASE = select(bases).where(bases.c.name == text_param("name"), BASE_OPEN)
LIST_BASES = select(bases).where(BASE_OPEN).order_by(bases.c.name)
# Adding and deleting take turns; on SQLite all writers do.
LOCK_BASE = select(bases).where(bases.c.id == int_param("id")).with_for_update(key_share=True)

_this = bases.c.id == int_param("id")
_fail = update(bases).values(problem=text_param("problem")).where(_this, BASE_OPEN).returning(*bases.c)
FAIL_BASE = _fail.where(bases.c.problem.is_(None))

# ---------------------------------------------------------------- items one by one

_row = batch(base_id=int, parent_id=int, name=str)
FIND_ITEMS = select(items).select_from(
    items.join(
        _row,
        and_(
            items.c.base_id == _row.c.base_id,
            items.c.parent_id == _row.c.parent_id,
            items.c.name == _row.c.name,
            ITEM_VISIBLE,
        ),
    )
)
_row = batch(id=int)
READ_ITEMS = select(items).where(items.c.id.in_(select(_row.c.id)))

# ---------------------------------------------------------------- the tree


_document, _looker = owners.alias("document"), owners.alias("looker")

# ---------------------------------------------------------------- what is left of deleted items


# ---------------------------------------------------------------- all items of a base


# ---------------------------------------------------------------- how documents stand towards a rollout

_row = batch(id=int)
_with_slots = (
    items.join(_row, _row.c.id == items.c.id)
    .join(_document, owner_matches_item(_document))
    .join(slots, slots.c.owner_id == _document.c.id)
    .outerjoin(jobs, jobs.c.id == slots.c.job)
)
SLOTS_OF_DOCUMENTS = select(
    items.c.id, slots.c.kind, slots.c.state, slots.c.recipe, slots.c.claimed_at, jobs.c.payload
).select_from(_with_slots)

# ---------------------------------------------------------------- which documents a search is about
