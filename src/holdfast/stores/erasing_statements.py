"""The statements about what is deleted and not yet gone from the disk."""

from __future__ import annotations

from sqlalchemy import Integer, case, literal_column, null, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.stores.batch import NOW, batch, largest, number, word
from holdfast.stores.tables import IS_TIMED, erasures, slots

ROWS = "rows"  # all rows that had text, counted by triggers
DOCUMENTS = "documents"  # those of them that were documents, for people to read

_zero, _one = literal_column("0", Integer), literal_column("1", Integer)
_removals = upsert(erasures).values(place=word("place"), removed=_one, erased=_zero)
NOTE_REMOVAL = _removals.on_conflict_do_update(
    index_elements=[erasures.c.place], set_={"removed": erasures.c.removed + _one}
)

READ_ERASURES = select(
    erasures.c.place,
    erasures.c.removed,
    erasures.c.erased,
    erasures.c.since,
    erasures.c.tried_at,
    erasures.c.held_since,
)
_cleaning = select(slots.c.id).where(text(IS_TIMED), slots.c.state == literal_column("'deleting'")).exists()
TIME_AND_CLEANING = select(NOW, case((_cleaning, _one), else_=_zero))

# Times are kept with the count of all rows.
_all = erasures.c.place == literal_column(f"'{ROWS}'")
SEE = update(erasures).values(since=number("since")).where(_all, erasures.c.since.is_(None))
TRY = update(erasures).values(tried_at=NOW).where(_all)
HELD = update(erasures).values(held_since=NOW).where(_all, erasures.c.held_since.is_(None))

_row = batch(place=str, removed=int)
ERASED = (
    update(erasures).values(erased=largest(erasures.c.erased, _row.c.removed)).where(erasures.c.place == _row.c.place)
)
FREED = (
    update(erasures)
    .values(held_since=null(), since=case((erasures.c.removed > erasures.c.erased, NOW), else_=null()))
    .where(_all)
)
