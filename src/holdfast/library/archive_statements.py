"""Every statement about archives: what of a base goes into one, and what is held while one is restored."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Text, and_, cast, delete, func, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.core.states import ACTIVE
from holdfast.library.item_statements import VISIBLE
from holdfast.library.statements import STANDS
from holdfast.library.tables import chunks, items, lists, memo_holds, memo_uses, memos
from holdfast.stores.batch import LIMIT, batch, number, word
from holdfast.stores.tables import owners, slots

_of_base = and_(items.c.base_id == number("base_id"), VISIBLE)
_owner_of = and_(owners.c.base == cast(items.c.base_id, Text), owners.c.owner == cast(items.c.id, Text))
_content = slots.c.kind == literal_column("'content'")

# ---------------------------------------------------------------- what goes into an archive

LAST_ITEM = select(func.coalesce(func.max(items.c.id), 0)).where(_of_base)
# Whoever came first is read first: a container before all that stands in it.
SOME_ITEMS = (
    select(items)
    .where(_of_base, items.c.id > number("after"), items.c.id <= number("last"))
    .order_by(items.c.id)
    .limit(LIMIT)
)
# The memos of documents that still have the content which is in the archive, by the chunks that they show.
_row = batch(id=int, digest=str)
USED_BY = (
    select(items.c.id, chunks.c.digest, memos.c.id, memos.c.joint)
    .select_from(
        items.join(_row, and_(items.c.id == _row.c.id, items.c.digest == _row.c.digest, VISIBLE))
        .join(owners, _owner_of)
        .join(slots, and_(slots.c.owner_id == owners.c.id, _content))
        .join(lists, and_(lists.c.owner_id == owners.c.id, lists.c.build == slots.c.source))
        .join(chunks, and_(chunks.c.id == lists.c.chunk_id, STANDS))
        .join(memo_uses, memo_uses.c.chunk_id == chunks.c.id)
        .join(memos, and_(memos.c.id == memo_uses.c.memo_id, memos.c.tenant == word("tenant")))
    )
    .order_by(items.c.id, memos.c.id, chunks.c.digest)
)
_row = batch(id=int)
SOURCES_OF = (
    select(memo_uses.c.memo_id, owners.c.owner)
    .select_from(
        memo_uses.join(_row, memo_uses.c.memo_id == _row.c.id)
        .join(chunks, chunks.c.id == memo_uses.c.chunk_id)
        .join(owners, owners.c.id == chunks.c.owner_id)
    )
    .where(owners.c.base == word("base"))
    .distinct()
)
_row = batch(id=int)
READ_MEMOS = select(
    memos.c.id, memos.c.key, memos.c.value, memos.c.joint, memos.c.tokens_in, memos.c.tokens_out
).select_from(memos.join(_row, memos.c.id == _row.c.id))

# ---------------------------------------------------------------- what comes out of one

COUNT_ITEMS = select(func.count()).select_from(items).where(_of_base)
_scheduled = and_(_of_base, items.c.look_at.is_not(None))
# What came from elsewhere is looked at when somebody asks; after that by its schedule.
REST_SOURCES = (
    update(items)
    .values(look_at=None)
    .where(items.c.id.in_(select(items.c.id).where(_scheduled).limit(LIMIT)))
    .returning(items.c.id)
)

_row = batch(key=str)
MEMO_IDS = select(memos.c.key, memos.c.id).select_from(
    memos.join(_row, and_(memos.c.tenant == word("tenant"), memos.c.key == _row.c.key))
)
_row = batch(item_id=int, digest=str, memo_id=int)
HOLD = (
    upsert(memo_holds)
    .from_select([*_row.c.keys()], select(*_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
)

_with_owner = memo_holds.join(items, and_(items.c.id == memo_holds.c.item_id, VISIBLE)).join(owners, _owner_of)
_held = (memo_holds.c.item_id, memo_holds.c.digest, memo_holds.c.memo_id)
USABLE = (
    select(*_held, chunks.c.id, owners.c.id)
    .select_from(
        _with_owner.join(chunks, and_(chunks.c.owner_id == owners.c.id, chunks.c.digest == memo_holds.c.digest, STANDS))
    )
    .limit(LIMIT)
)


def _slot(*conditions: Any) -> Any:
    """Hold where the document of a hold has a slot of which this is so."""
    document = owners.join(slots, slots.c.owner_id == owners.c.id)
    return select(slots.c.id).select_from(document).where(_owner_of, *conditions).correlate(items).exists()


_active = slots.c.state.in_([literal_column(f"'{state}'") for state in sorted(ACTIVE)])
_read = and_(_slot(_content, slots.c.built > literal_column("0")), ~_slot(_active))
IN_VAIN = (
    select(*_held)
    .select_from(memo_holds.outerjoin(items, and_(items.c.id == memo_holds.c.item_id, VISIBLE)))
    .where(or_(items.c.id.is_(None), _read))
    .limit(LIMIT)
)
_row = batch(item_id=int, digest=str, memo_id=int)
_this = and_(
    memo_holds.c.item_id == _row.c.item_id, memo_holds.c.digest == _row.c.digest, memo_holds.c.memo_id == _row.c.memo_id
)
END_HOLDS = delete(memo_holds).where(select(_row.c.memo_id).where(_this).exists()).returning(memo_holds.c.memo_id)
_row = batch(id=int)
LET_GO = delete(memo_holds).where(memo_holds.c.item_id.in_(select(_row.c.id))).returning(memo_holds.c.memo_id)
