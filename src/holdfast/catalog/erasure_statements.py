"""Statements about deleted data that is still on the disk."""

from __future__ import annotations

from sqlalchemy import Integer, case, func, literal_column, null, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog.tables import erasure_stages, erasures
from holdfast.db import NOW, batch, greatest, int_param, text_param
from holdfast.engine.store import IS_TIMED, jobs, slots

ROWS = "rows"  # all rows with text, counted by triggers
DOCUMENTS = "documents"  # those of them that were documents, for reports

_zero, _one = literal_column("0", Integer), literal_column("1", Integer)
_removals = upsert(erasures).values(place=text_param("place"), removed=_one, overwritten=_zero, compacted=_zero)
NOTE_REMOVAL = _removals.on_conflict_do_update(
    index_elements=[erasures.c.place], set_={"removed": erasures.c.removed + _one}
)

READ_COUNTS = select(erasures.c.place, erasures.c.removed, erasures.c.overwritten, erasures.c.compacted)
READ_STAGES = select(
    erasure_stages.c.stage,
    erasure_stages.c.since,
    erasure_stages.c.tried_at,
    erasure_stages.c.done_at,
    erasure_stages.c.obstacle,
    erasure_stages.c.blocked_since,
)
_cleaning = select(slots.c.id).where(text(IS_TIMED), slots.c.state == literal_column("'deleting'")).exists()
_working = select(jobs.c.id).where(jobs.c.outcome.is_(None)).exists()
_finished_at = select(func.max(jobs.c.finished_at)).where(jobs.c.finished_at.is_not(None)).scalar_subquery()
READ_ACTIVITY = select(NOW, case((_cleaning, _one), else_=_zero), case((_working, _one), else_=_zero), _finished_at)

_stage = erasure_stages.c.stage == text_param("stage")
MARK_STAGE_PENDING = update(erasure_stages).values(since=NOW).where(_stage, erasure_stages.c.since.is_(None))
MARK_STAGE_TRIED = update(erasure_stages).values(tried_at=NOW).where(_stage)
MARK_STAGE_BLOCKED = (
    update(erasure_stages)
    .values(obstacle=text_param("obstacle"), blocked_since=func.coalesce(erasure_stages.c.blocked_since, NOW))
    .where(_stage)
)
MARK_STAGE_COMPLETE = (
    update(erasure_stages)
    .values(since=int_param("since"), done_at=NOW, obstacle=null(), blocked_since=null())
    .where(_stage)
)

_row = batch(place=str, count=int)
_same = erasures.c.place == _row.c.place
RAISE_OVERWRITTEN_COUNTS = (
    update(erasures).values(overwritten=greatest(erasures.c.overwritten, _row.c["count"])).where(_same)
)
RAISE_COMPACTED_COUNTS = update(erasures).values(compacted=greatest(erasures.c.compacted, _row.c["count"])).where(_same)
