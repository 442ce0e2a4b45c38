"""SQL of the cache of paid answers, the answers of a restored base, and the ledger."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Text, and_, case, cast, delete, func, insert, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog import CHUNK_LIVE, ITEM_VISIBLE, bases, chunks, items, owner_matches_item, recipes
from holdfast.db import LIMIT, NOW, batch, int_param, text_param
from holdfast.engine import ACTIVE_STATES
from holdfast.engine.store import owners, slots
from holdfast.llm.tables import ledger, memo_holds, memo_uses, memos


def _insert_missing(table: Any, rows: Any, **values: Any) -> Any:
    """Insert the rows that do not exist yet, each with these additional values."""
    selected = select(*values.values(), *rows.c).where(literal_column("true"))
    return upsert(table).from_select([*values, *rows.c.keys()], selected).on_conflict_do_nothing()


_row = batch(id=int)
_lives = select(slots.c.id).where(slots.c.owner_id == chunks.c.owner_id, slots.c.state != literal_column("'deleting'"))
SELECT_LIVE_CHUNKS = select(chunks.c.id).where(chunks.c.id.in_(select(_row.c.id)), _lives.exists())
_row = batch(key=str)
SELECT_MEMOS = select(memos.c.key, memos.c.id, memos.c.value, memos.c.tokens_in, memos.c.tokens_out).select_from(
    memos.join(_row, and_(memos.c.tenant == text_param("tenant"), memos.c.key == _row.c.key))
)
_row = batch(key=str)
SELECT_MEMO_COSTS = select(memos.c.key, memos.c.tokens_in, memos.c.tokens_out).select_from(
    memos.join(_row, and_(memos.c.tenant == text_param("tenant"), memos.c.key == _row.c.key))
)
_row = batch(key=str, value=bytes, joint=int, tokens_in=int, tokens_out=int)
INSERT_MEMOS = _insert_missing(memos, _row, tenant=text_param("tenant"), created_at=NOW)
_row = batch(memo_id=int, chunk_id=int)
INSERT_MEMO_USES = _insert_missing(memo_uses, _row)
_row = batch(id=int)
DELETE_MEMO_USES = delete(memo_uses).where(memo_uses.c.chunk_id.in_(select(_row.c.id))).returning(memo_uses.c.memo_id)
_row = batch(id=int)
_used = select(memo_uses.c.memo_id).where(memo_uses.c.memo_id == memos.c.id).exists()
DELETE_JOINT_USES = (
    delete(memo_uses)
    .where(memo_uses.c.memo_id.in_(select(memos.c.id).join(_row, memos.c.id == _row.c.id).where(memos.c.joint == 1)))
    .returning(memo_uses.c.memo_id)
)
DELETE_JOINT_HOLDS = delete(memo_holds).where(
    memo_holds.c.memo_id.in_(select(memos.c.id).join(_row, memos.c.id == _row.c.id).where(memos.c.joint == 1))
)
_is_held = select(memo_holds.c.memo_id).where(memo_holds.c.memo_id == memos.c.id).exists()
DELETE_UNUSED_MEMOS = delete(memos).where(memos.c.id.in_(select(_row.c.id)), ~_used, ~_is_held)

_row = batch(
    base=str,
    owner=str,
    job=str,
    generation=int,
    kind=str,
    model=str,
    paid=int,
    texts=int,
    tokens_in=int,
    tokens_out=int,
    price=float,
    estimated=int,
)
SELECT_BASE_OF_RECIPE = select(bases.c.id, bases.c.name, bases.c.settings).where(
    cast(bases.c.id, Text) == select(recipes.c.base).where(recipes.c.id == int_param("recipe")).scalar_subquery()
)
INSERT_CHARGES = insert(ledger).from_select(["at", *_row.c.keys()], select(NOW, *_row.c)).returning(ledger.c.id)
_row = batch(id=int, tokens_in=int, tokens_out=int, price=float, estimated=int)
UPDATE_CHARGES = (
    update(ledger)
    .values(tokens_in=_row.c.tokens_in, tokens_out=_row.c.tokens_out, price=_row.c.price, estimated=_row.c.estimated)
    .where(ledger.c.id == _row.c.id)
)
_row = batch(id=int)
DELETE_CHARGES = delete(ledger).where(ledger.c.id.in_(select(_row.c.id)))
_sums = (
    func.sum(ledger.c.texts),
    func.sum(ledger.c.tokens_in),
    func.sum(ledger.c.tokens_out),
    func.sum(ledger.c.price),
    func.sum(case((ledger.c.price.is_(None), ledger.c.texts), else_=0)),
    func.sum(case((ledger.c.estimated == 1, ledger.c.tokens_in + ledger.c.tokens_out), else_=0)),
)
SUM_CHARGES = (
    select(ledger.c.kind, ledger.c.paid, *_sums)
    .where(ledger.c.base == text_param("base"))
    .group_by(ledger.c.kind, ledger.c.paid)
    .order_by(ledger.c.kind, ledger.c.paid)
)
_row = batch(owner=str)
SUM_CHARGES_OF_OWNERS = SUM_CHARGES.where(ledger.c.owner.in_(select(_row.c.owner)))
_row = batch(base=str, owner=str, job=str)
# With base and owner, so that an index finds the lines.
SUM_CHARGES_OF_JOBS = (
    select(ledger.c.job, ledger.c.kind, ledger.c.paid, *_sums)
    .select_from(
        ledger.join(
            _row, and_(ledger.c.base == _row.c.base, ledger.c.owner == _row.c.owner, ledger.c.job == _row.c.job)
        )
    )
    .group_by(ledger.c.job, ledger.c.kind, ledger.c.paid)
    .order_by(ledger.c.job, ledger.c.kind, ledger.c.paid)
)
SUM_CHARGES_BY_BASE = select(ledger.c.base, ledger.c.paid, *_sums).group_by(ledger.c.base, ledger.c.paid)

_content = slots.c.kind == literal_column("'content'")
_row = batch(key=str)
SELECT_MEMO_IDS = select(memos.c.key, memos.c.id).select_from(
    memos.join(_row, and_(memos.c.tenant == text_param("tenant"), memos.c.key == _row.c.key))
)
_row = batch(item_id=int, digest=str, memo_id=int)
INSERT_HOLDS = _insert_missing(memo_holds, _row)

_with_owner = memo_holds.join(items, and_(items.c.id == memo_holds.c.item_id, ITEM_VISIBLE)).join(
    owners, owner_matches_item(owners)
)
_held = (memo_holds.c.item_id, memo_holds.c.digest, memo_holds.c.memo_id)
SELECT_USABLE_HOLDS = (
    select(*_held, chunks.c.id, owners.c.id)
    .select_from(
        _with_owner.join(
            chunks, and_(chunks.c.owner_id == owners.c.id, chunks.c.digest == memo_holds.c.digest, CHUNK_LIVE)
        )
    )
    .limit(LIMIT)
)


def _slot(*conditions: Any) -> Any:
    """Match holds whose document has a slot with these conditions."""
    document = owners.join(slots, slots.c.owner_id == owners.c.id)
    return (
        select(slots.c.id)
        .select_from(document)
        .where(owner_matches_item(owners), *conditions)
        .correlate(items)
        .exists()
    )


_active = slots.c.state.in_([literal_column(f"'{state}'") for state in sorted(ACTIVE_STATES)])
_read = and_(_slot(_content, slots.c.built > literal_column("0")), ~_slot(_active))
SELECT_STALE_HOLDS = (
    select(*_held)
    .select_from(memo_holds.outerjoin(items, and_(items.c.id == memo_holds.c.item_id, ITEM_VISIBLE)))
    .where(or_(items.c.id.is_(None), _read))
    .limit(LIMIT)
)
_row = batch(item_id=int, digest=str, memo_id=int)
_this = and_(
    memo_holds.c.item_id == _row.c.item_id, memo_holds.c.digest == _row.c.digest, memo_holds.c.memo_id == _row.c.memo_id
)
DELETE_HOLDS = delete(memo_holds).where(select(_row.c.memo_id).where(_this).exists()).returning(memo_holds.c.memo_id)
_row = batch(id=int)
DELETE_HOLDS_OF_ITEMS = (
    delete(memo_holds).where(memo_holds.c.item_id.in_(select(_row.c.id))).returning(memo_holds.c.memo_id)
)
