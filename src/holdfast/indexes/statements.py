"""Statements about index slots: missing chunks, unpaid chunks, deleted documents."""

from __future__ import annotations

from sqlalchemy import and_, delete, func, insert, literal_column, select

from holdfast.catalog import (
    ITEM_DELETING,
    SOURCE_PREFIX,
    chunks,
    items,
    list_entries,
    missing_chunks,
    owner_matches_item,
)
from holdfast.db import LIMIT, batch, int_param, text_param
from holdfast.engine.store import owners, slots
from holdfast.llm import memo_uses

_gone = (items.c.base_id, items.c.id)
_source_owner = owners.alias("looker")
_has_source_owner = select(_source_owner.c.id).where(owner_matches_item(_source_owner, SOURCE_PREFIX)).exists()
_row = batch(id=int)
REMOVE_DOCUMENTS = (
    delete(items).where(items.c.id.in_(select(_row.c.id)), ITEM_DELETING, ~_has_source_owner).returning(*_gone)
)

_row = batch(slot_id=int, chunk_id=int, reason=str)
NOTE_MISSING = insert(missing_chunks).from_select([*_row.c.keys()], select(*_row.c))
CLEAR_MISSING = delete(missing_chunks).where(missing_chunks.c.slot_id == int_param("slot_id"))
_row = batch(slot_id=int)
_removed = select(slots.c.id).where(
    slots.c.id == missing_chunks.c.slot_id, slots.c.state == literal_column("'deleting'")
)
DELETE_MISSING_OF_DELETED_SLOTS = delete(missing_chunks).where(
    missing_chunks.c.slot_id.in_(select(_row.c.slot_id)), _removed.exists()
)
_row = batch(slot_id=int)
SELECT_INCOMPLETE_SLOTS = (
    select(missing_chunks.c.slot_id).where(missing_chunks.c.slot_id.in_(select(_row.c.slot_id))).distinct()
)

# Chunks of the newest list with at most `known` paid answers; each row has their total number.
_newest = (
    select(func.max(list_entries.c.build))
    .where(list_entries.c.owner_id == owners.c.id)
    .correlate(owners)
    .scalar_subquery()
)
_answers = select(func.count()).where(memo_uses.c.chunk_id == chunks.c.id).correlate(chunks).scalar_subquery()
SELECT_UNPAID_CHUNKS = (
    select(chunks.c.text, func.count().over())
    .select_from(
        owners.join(list_entries, and_(list_entries.c.owner_id == owners.c.id, list_entries.c.build == _newest)).join(
            chunks, chunks.c.id == list_entries.c.chunk_id
        )
    )
    .where(owners.c.base == text_param("base"), owners.c.owner == text_param("owner"), _answers <= int_param("known"))
    .limit(LIMIT)
)
