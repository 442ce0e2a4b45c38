"""Statements about the chunks of a base."""

from __future__ import annotations

from sqlalchemy import func, select

from holdfast.catalog import CHUNK_LIVE, chunks
from holdfast.db import batch, text_param
from holdfast.engine.store import owners

_of_base = chunks.join(owners, owners.c.id == chunks.c.owner_id)
COUNT_CHUNKS = select(func.count()).select_from(_of_base).where(owners.c.base == text_param("base"), CHUNK_LIVE)
_row = batch(owner=str)
SELECT_CHUNKS_OF_DOCUMENTS = (
    select(chunks.c.id)
    .select_from(_of_base.join(_row, owners.c.owner == _row.c.owner))
    .where(owners.c.base == text_param("base"), CHUNK_LIVE)
)
