"""Statements about recipes."""

from __future__ import annotations

from sqlalchemy import and_, delete, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog.tables import recipes
from holdfast.db import NOW, batch, int_param, text_param
from holdfast.engine import ACTIVE_STATES
from holdfast.engine.store import owners, slots

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

# Only a slot at work can bring a recipe into use, and it looked for the recipe after it was claimed. So what is doomed,
# unserved and without such a slot, all in one look, stays so.
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
