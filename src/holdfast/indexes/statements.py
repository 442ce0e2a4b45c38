"""Statements about slots of indexes: missing chunks, chunks that are not paid for, removed documents."""

from __future__ import annotations

from sqlalchemy import and_, delete, func, insert, literal_column, select

from holdfast.catalog import DELETING, SOURCE, chunks, items, lists, missing, owner_of
from holdfast.db import LIMIT, batch, number, word
from holdfast.engine.store import owners, slots
from holdfast.llm import memo_uses

_gone = (items.c.base_id, items.c.id)
_document, _looker = owners.alias("document"), owners.alias("looker")
_asks = select(_looker.c.id).where(owner_of(_looker, SOURCE)).exists()
_row = batch(id=int)
REMOVE_DOCUMENTS = delete(items).where(items.c.id.in_(select(_row.c.id)), DELETING, ~_asks).returning(*_gone)

_row = batch(slot_id=int, chunk_id=int, reason=str)
NOTE_MISSING = insert(missing).from_select([*_row.c.keys()], select(*_row.c))
CLEAR_MISSING = delete(missing).where(missing.c.slot_id == number("slot_id"))
_row = batch(slot_id=int)
_removed = select(slots.c.id).where(slots.c.id == missing.c.slot_id, slots.c.state == literal_column("'deleting'"))
CLEAR_REMOVED = delete(missing).where(missing.c.slot_id.in_(select(_row.c.slot_id)), _removed.exists())
_row = batch(slot_id=int)
LACKING_SLOTS = select(missing.c.slot_id).where(missing.c.slot_id.in_(select(_row.c.slot_id))).distinct()

# Chunks of the newest list that have no more paid answers than `known`, and on each row how many there are.
_newest = select(func.max(lists.c.build)).where(lists.c.owner_id == owners.c.id).correlate(owners).scalar_subquery()
_answers = select(func.count()).where(memo_uses.c.chunk_id == chunks.c.id).correlate(chunks).scalar_subquery()
UNPAID_CHUNKS = (
    select(chunks.c.text, func.count().over())
    .select_from(
        owners.join(lists, and_(lists.c.owner_id == owners.c.id, lists.c.build == _newest)).join(
            chunks, chunks.c.id == lists.c.chunk_id
        )
    )
    .where(owners.c.base == word("base"), owners.c.owner == word("owner"), _answers <= number("known"))
    .limit(LIMIT)
)
