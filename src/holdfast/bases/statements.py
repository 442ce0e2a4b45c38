"""Statements about bases: settings, deleting, clean-up and rollout."""

from __future__ import annotations

from sqlalchemy import Text, and_, cast, delete, func, literal_column, select, update

from holdfast.bases.slots import BASE
from holdfast.catalog import BASE_OPEN, ITEM_VISIBLE, bases, calibrations, items, owner_matches_item, recipes
from holdfast.db import LIMIT, int_param, text_literal, text_param
from holdfast.engine.store import jobs, owners, pauses, quotas, slots

_this = bases.c.id == int_param("id")
SELECT_BASE_WITH_SAME_NAME = select(bases.c.id).where(
    bases.c.name == text_param("name"), BASE_OPEN, bases.c.id != int_param("id")
)
RENAME_BASE = update(bases).values(name=text_param("name")).where(_this, BASE_OPEN).returning(*bases.c)
# Everything stored, also settings that only a newer version knows.
STORED_SETTINGS = select(bases.c.settings).where(_this)
WRITE_SETTINGS = update(bases).values(settings=text_param("settings")).where(_this, BASE_OPEN).returning(*bases.c)
CLEAR_BASE_PROBLEM = update(bases).values(problem=None).where(_this, BASE_OPEN).returning(*bases.c)
CLOSE_BASE = update(bases).values(deleting=literal_column("1")).where(_this, BASE_OPEN).returning(bases.c.id)
CLOSED_BASES = select(bases).where(bases.c.deleting == literal_column("1")).order_by(bases.c.id)
_document = owners.alias("document")
_of_base = items.c.base_id == int_param("base_id")
_some = select(items.c.id).where(_of_base, ITEM_VISIBLE).limit(LIMIT)
HIDE_ITEMS = (
    update(items).values(deleting=literal_column("1")).where(items.c.id.in_(_some), ITEM_VISIBLE).returning(items.c.id)
)
OWNERS_OF_BASE = (
    select(owners.c.base, owners.c.owner)
    .where(owners.c.base == text_param("base"), owners.c.status != literal_column("'deleting'"))
    .limit(LIMIT)
)
_has_items = select(items.c.id).where(items.c.base_id == bases.c.id).exists()
# Without the owner of the removal itself, which goes last.
_has_owners = (
    select(owners.c.id).where(owners.c.base == cast(bases.c.id, Text), owners.c.owner != text_literal(BASE)).exists()
)
_has_recipes = select(recipes.c.id).where(recipes.c.base == cast(bases.c.id, Text)).exists()
_closed = bases.c.deleting == literal_column("1")
SELECT_EMPTY_BASE = select(bases.c.id).where(_this, _closed, ~_has_items, ~_has_owners)
REMOVE_BASE = delete(bases).where(_this, _closed, ~_has_items, ~_has_owners, ~_has_recipes).returning(bases.c.id)
REMOVE_CALIBRATION = delete(calibrations).where(calibrations.c.base_id == int_param("id"))
REMOVE_PAUSE = delete(pauses).where(pauses.c.base == text_param("base"))
REMOVE_QUOTA = delete(quotas).where(quotas.c.base == text_param("base"))
_indexed = items.join(_document, owner_matches_item(_document))
READ_DOCUMENT_IDS = (
    select(items.c.id)
    .select_from(_indexed)
    .where(_of_base, ITEM_VISIBLE, items.c.id > int_param("after"))
    .order_by(items.c.id)
    .limit(LIMIT)
)
COUNT_ITEMS = select(func.count()).select_from(items).where(_of_base)
COUNT_DOCUMENTS = select(func.count()).select_from(_indexed).where(_of_base, ITEM_VISIBLE)
# Active jobs of documents that a rollout requested: their payload is the id of its job.
_requested = and_(jobs.c.outcome.is_(None), jobs.c.base == text_param("base"), jobs.c.payload == text_param("job"))
COUNT_REQUESTED = select(func.count()).select_from(jobs).where(_requested)
READ_REQUESTED = select(jobs.c.id).where(_requested).limit(LIMIT)
_of_owner = owners.join(slots, slots.c.owner_id == owners.c.id).outerjoin(jobs, jobs.c.id == slots.c.job)
READ_SLOTS_OF_OWNER = (
    select(owners.c.fingerprint, slots.c.state, jobs.c.payload)
    .select_from(_of_owner)
    .where(owners.c.base == text_param("base"), owners.c.owner == text_param("owner"))
)

_by_it = select(slots.c.id).where(slots.c.recipe == recipes.c.id, slots.c.built > 0).exists()
USED_RECIPES = select(recipes.c.kind, recipes.c.spec).where(recipes.c.base == text_param("base"), _by_it)
# Of a base that is being deleted and has no owners left, so no worker can add rows.
REMOVE_LAST_RECIPE = delete(recipes).where(
    recipes.c.id == int_param("recipe"),
    ~select(owners.c.id).where(owners.c.base == recipes.c.base, owners.c.owner != text_literal(BASE)).exists(),
)
