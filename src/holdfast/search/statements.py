"""Statements about the chunks and the calibration of a base."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog import BASE_OPEN, CHUNK_LIVE, bases, calibrations, chunks
from holdfast.db import batch, int_param, text_param
from holdfast.engine.store import owners

_of_base = chunks.join(owners, owners.c.id == chunks.c.owner_id)
COUNT_CHUNKS = select(func.count()).select_from(_of_base).where(owners.c.base == text_param("base"), CHUNK_LIVE)
_row = batch(owner=str)
SELECT_CHUNKS_OF_DOCUMENTS = (
    select(chunks.c.id)
    .select_from(_of_base.join(_row, owners.c.owner == _row.c.owner))
    .where(owners.c.base == text_param("base"), CHUNK_LIVE)
)
READ_CALIBRATION = select(calibrations.c.chunks, calibrations.c.measured).where(
    calibrations.c.base_id == int_param("base_id")
)
_row = batch(base_id=int, chunks=int, measured=str)
# Only of a base that is not being deleted: its row goes with it.
_save = upsert(calibrations).from_select(
    _row.c.keys(), select(*_row.c).join(bases, bases.c.id == _row.c.base_id).where(BASE_OPEN)
)
SAVE_CALIBRATION = _save.on_conflict_do_update(
    index_elements=[calibrations.c.base_id],
    set_={"chunks": _save.excluded.chunks, "measured": _save.excluded.measured},
)
