"""Statements about archives: what an export reads, and what a restore writes."""

from __future__ import annotations

from sqlalchemy import and_, func, literal_column, select, update

from holdfast.catalog import CHUNK_LIVE, ITEM_VISIBLE, chunks, items, list_entries, owner_matches_item
from holdfast.db import LIMIT, batch, int_param, text_param
from holdfast.engine.store import owners, slots
from holdfast.llm import memo_uses, memos

_of_base = and_(items.c.base_id == int_param("base_id"), ITEM_VISIBLE)
_content = slots.c.kind == literal_column("'content'")

LAST_ITEM = select(func.coalesce(func.max(items.c.id), 0)).where(_of_base)
# In the order of ids, so a container comes before its children.
READ_ITEMS = (
    select(items)
    .where(_of_base, items.c.id > int_param("after"), items.c.id <= int_param("last"))
    .order_by(items.c.id)
    .limit(LIMIT)
)
# The paid answers behind the served chunks of documents whose content is still the one in the archive.
_row = batch(id=int, digest=str)
READ_PAID_ANSWER_USES = (
    select(items.c.id, chunks.c.digest, memos.c.id, memos.c.joint)
    .select_from(
        items.join(_row, and_(items.c.id == _row.c.id, items.c.digest == _row.c.digest, ITEM_VISIBLE))
        .join(owners, owner_matches_item(owners))
        .join(slots, and_(slots.c.owner_id == owners.c.id, _content))
        .join(list_entries, and_(list_entries.c.owner_id == owners.c.id, list_entries.c.build == slots.c.source))
        .join(chunks, and_(chunks.c.id == list_entries.c.chunk_id, CHUNK_LIVE))
        .join(memo_uses, memo_uses.c.chunk_id == chunks.c.id)
        .join(memos, and_(memos.c.id == memo_uses.c.memo_id, memos.c.tenant == text_param("tenant")))
    )
    .order_by(items.c.id, memos.c.id, chunks.c.digest)
)
_row = batch(id=int)
READ_PAID_ANSWER_SOURCES = (
    select(memo_uses.c.memo_id, owners.c.owner)
    .select_from(
        memo_uses.join(_row, memo_uses.c.memo_id == _row.c.id)
        .join(chunks, chunks.c.id == memo_uses.c.chunk_id)
        .join(owners, owners.c.id == chunks.c.owner_id)
    )
    .where(owners.c.base == text_param("base"))
    .distinct()
)
_row = batch(id=int)
READ_PAID_ANSWERS = select(
    memos.c.id, memos.c.key, memos.c.value, memos.c.joint, memos.c.tokens_in, memos.c.tokens_out
).select_from(memos.join(_row, memos.c.id == _row.c.id))

COUNT_ITEMS = select(func.count()).select_from(items).where(_of_base)
_scheduled = and_(_of_base, items.c.look_at.is_not(None))
# A restored source is not read until a user requests it; after that, by its schedule.
CLEAR_SOURCE_SCHEDULES = (
    update(items)
    .values(look_at=None)
    .where(items.c.id.in_(select(items.c.id).where(_scheduled).limit(LIMIT)))
    .returning(items.c.id)
)
