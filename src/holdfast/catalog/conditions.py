"""Conditions of statements in several packages: visible, served, garbage."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Text, and_, cast, literal_column, select

from holdfast.catalog.tables import bases, builds, chunks, items
from holdfast.engine.store import slots

SOURCE_PREFIX = "source:"  # of the owner of the slot `source` of an item

# Literals instead of parameters, so that the database uses its partial indexes.
ITEM_VISIBLE = items.c.deleting == literal_column("0")
ITEM_DELETING = items.c.deleting == literal_column("1")
BASE_OPEN = bases.c.deleting == literal_column("0")
CHUNK_LIVE = chunks.c.doomed == literal_column("0")
CHUNK_DOOMED = chunks.c.doomed == literal_column("1")

_of_owner = slots.c.owner_id == builds.c.owner_id
BUILD_SERVED = select(slots.c.id).where(_of_owner, slots.c.source == builds.c.build).exists()
_being_written = (
    select(slots.c.id)
    .where(_of_owner, slots.c.needs.is_(None), slots.c.state == literal_column("'running'"))
    .where(slots.c.fence == builds.c.build)
    .exists()
)
BUILD_STALE = and_(~BUILD_SERVED, ~_being_written)  # a build that no slot serves and no worker writes


def owner_matches_item(owner: Any, prefix: str = "") -> ColumnElement[bool]:
    """Match the owner of the item's slots; with `SOURCE_PREFIX`, for the owner of its slot `source`."""
    key = cast(items.c.id, Text)
    return and_(
        owner.c.base == cast(items.c.base_id, Text),
        owner.c.owner == (literal_column(f"'{prefix}'") + key if prefix else key),
    )


def slot_is_served(slot: Any) -> ColumnElement[bool]:
    """Match slots that serve a published generation and are not being deleted."""
    return and_(slot.c.built > 0, slot.c.state != literal_column("'deleting'"))
