"""Statements that decide what a search may show: a chunk that they do not return is not shown."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    and_,
    case,
    cast,
    func,
    literal_column,
    select,
)

from holdfast.catalog.conditions import BASE_OPEN, ITEM_VISIBLE, slot_is_served
from holdfast.catalog.tables import bases, builds, chunks, items, list_entries, missing_chunks, recipes
from holdfast.db import batch, int_param, text_param
from holdfast.engine.store import owners, slots

# Owners of a base itself are not numbers, and a query plan may evaluate the cast before it filters them out.
_is_number = func.substr(owners.c.owner, 1, 1).in_([literal_column(f"'{digit}'") for digit in range(10)])
_item_id = case((_is_number, cast(owners.c.owner, BigInteger)))

_row = batch(chunk=int)
_owned = batch(chunk=int, owner_id=int)


def _if_served(proposed: Any, chunk: Any, owner: Any, *columns: Any) -> Any:
    """Select columns of the proposed chunks that may be shown. The condition is the same for every caller.

    `proposed` has chunks and their owners. The join with the owner's list also proves that the chunk belongs to it.
    """
    lacks = (
        select(missing_chunks.c.chunk_id)
        .where(missing_chunks.c.slot_id == slots.c.id, missing_chunks.c.chunk_id == chunk)
        .exists()
    )
    served = (
        proposed.join(slots, and_(slots.c.owner_id == owner, slots.c.kind == text_param("kind")))
        .join(owners, owners.c.id == slots.c.owner_id)
        .join(
            list_entries,
            and_(
                list_entries.c.owner_id == owner,
                list_entries.c.chunk_id == chunk,
                list_entries.c.build == slots.c.source,
            ),
        )
        .join(builds, and_(builds.c.owner_id == list_entries.c.owner_id, builds.c.build == list_entries.c.build))
        .join(items, items.c.id == _item_id)
        .join(bases, bases.c.id == items.c.base_id)
    )
    return (
        select(chunk, owners.c.owner, slots.c.built, *columns)
        .select_from(served)
        .where(
            owners.c.base == text_param("base"),
            BASE_OPEN,
            ITEM_VISIBLE,
            slot_is_served(slots),
            slots.c.recipe == int_param("recipe"),
            ~lacks,
        )
    )


_of_chunks = (_row.join(chunks, chunks.c.id == _row.c.chunk), chunks.c.id, chunks.c.owner_id)
SELECT_SERVED_CHUNKS = _if_served(*_of_chunks)
SELECT_CONFIRMED_CHUNKS = _if_served(_owned, _owned.c.chunk, _owned.c.owner_id, slots.c.source)
SERVED_PASSAGES = _if_served(
    *_of_chunks,
    list_entries.c.ordinal,
    list_entries.c.start,
    list_entries.c.stop,
    chunks.c.headings,
    chunks.c.text,
    items.c.name,
    builds.c.title,
)
_serves = select(slots.c.id).where(slots.c.recipe == recipes.c.id, slot_is_served(slots)).exists()
_of_base = recipes.c.base == text_param("base")
SERVED_RECIPES = (
    select(recipes.c.id).where(_of_base, recipes.c.kind == text_param("kind"), _serves).order_by(recipes.c.id.desc())
)
SERVED_RECIPES_OF_BASE = (
    select(recipes.c.kind, recipes.c.id, recipes.c.spec).where(_of_base, _serves).order_by(recipes.c.id.desc())
)
