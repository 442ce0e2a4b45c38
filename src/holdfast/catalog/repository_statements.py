"""Statements about bases, items and recipes."""

from __future__ import annotations

from sqlalchemy import and_, delete, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog.conditions import BASE_OPEN, ITEM_VISIBLE, owner_matches_item
from holdfast.catalog.tables import bases, items, recipes
from holdfast.db import NOW, batch, int_param, text_param
from holdfast.engine import ACTIVE_STATES
from holdfast.engine.store import jobs, owners, slots

_row = batch(name=str, settings=str, problem=str)
CREATE_BASE = (
    upsert(bases)
    .from_select(["created_at", *_row.c.keys()], select(NOW, *_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
    .returning(*bases.c)
)
_row = batch(id=int)
READ_BASES = select(bases).where(bases.c.id.in_(select(_row.c.id)))
FIND_BASE = select(bases).where(bases.c.name == text_param("name"), BASE_OPEN)
LIST_BASES = select(bases).where(BASE_OPEN).order_by(bases.c.name)
# Transactions that add or delete lock the base first, so they run one after the other. SQLite has one writer anyway.
_this = bases.c.id == int_param("id")
LOCK_BASE = select(bases).where(_this).with_for_update(key_share=True)
_fail = update(bases).values(problem=text_param("problem")).where(_this, BASE_OPEN).returning(*bases.c)
FAIL_BASE = _fail.where(bases.c.problem.is_(None))
UPDATE_BASE_PROBLEM = _fail.where(bases.c.problem.is_not(None))

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

_row = batch(id=int)
_document = owners.alias("document")
_with_slots = (
    items.join(_row, _row.c.id == items.c.id)
    .join(_document, owner_matches_item(_document))
    .join(slots, slots.c.owner_id == _document.c.id)
    .outerjoin(jobs, jobs.c.id == slots.c.job)
)
SLOTS_OF_DOCUMENTS = select(
    items.c.id, slots.c.kind, slots.c.state, slots.c.recipe, slots.c.claimed_at, jobs.c.payload
).select_from(_with_slots)

_row = batch(base=str, kind=str, spec=str)
INSERT_RECIPE = (
    upsert(recipes).from_select(["created_at", *_row.c.keys()], select(NOW, *_row.c).where(literal_column("true")))
).on_conflict_do_nothing()
READ_RECIPES = (
    select(recipes.c.id, recipes.c.spec)
    .where(recipes.c.base == text_param("base"), recipes.c.kind == text_param("kind"))
    .order_by(recipes.c.id.desc())
)
LIVE_RECIPES = READ_RECIPES.where(recipes.c.doomed_at.is_(None))
READ_RECIPES_OF_BASE = select(recipes.c.kind, recipes.c.id, recipes.c.spec).where(recipes.c.base == text_param("base"))
SELECT_RECIPE_ID = select(recipes.c.id).where(recipes.c.id == int_param("recipe"))
READ_RECIPE_SPEC = select(recipes.c.spec).where(recipes.c.id == int_param("recipe"))
ALL_RECIPES = select(recipes.c.base, recipes.c.kind, recipes.c.id, recipes.c.spec).order_by(recipes.c.id)

# Only an active slot can start to use a recipe, and it looks the recipe up after it was claimed. So a recipe that is
# doomed, unserved and has no active slot, all in one snapshot, is never used again.
_idle = ~(
    select(slots.c.id)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(owners.c.base == recipes.c.base, slots.c.kind == recipes.c.kind)
    .where(slots.c.state.in_([literal_column(f"'{state}'") for state in sorted(ACTIVE_STATES)]))
    .exists()
)
_unserved = ~select(slots.c.id).where(slots.c.recipe == recipes.c.id).exists()
_unneeded = and_(recipes.c.id == int_param("recipe"), _unserved, _idle)
_long_doomed = recipes.c.doomed_at <= NOW - int_param("since")
DOOM_RECIPE = (
    update(recipes).values(doomed_at=NOW).where(_unneeded, recipes.c.doomed_at.is_(None)).returning(recipes.c.id)
)
UNUSED_RECIPE = select(recipes.c.id).where(_unneeded, _long_doomed)
REMOVE_RECIPE = delete(recipes).where(_unneeded, _long_doomed)
