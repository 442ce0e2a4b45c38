"""Statements about study cards."""

from __future__ import annotations

from sqlalchemy import and_, delete, func, insert, literal_column, select, tuple_

from holdfast.catalog import slot_is_served
from holdfast.db import LIMIT, batch, int_param, text_param
from holdfast.engine.store import owners, slots
from holdfast.indexes.questions import cards, question_pairs

_of_base = owners.c.base == text_param("base")
_owned = slots.join(owners, owners.c.id == slots.c.owner_id)
READ_QUESTION_SOURCES = (
    select(slots.c.owner_id, slots.c.source, slots.c.recipe)
    .select_from(_owned)
    .where(_of_base, slots.c.kind == literal_column("'questions'"), slots.c.recipe.is_not(None), slot_is_served(slots))
    .order_by(slots.c.owner_id)
)
SERVED_SET = (
    select(slots.c.owner_id, slots.c.source)
    .select_from(_owned)
    .where(
        _of_base,
        owners.c.owner == literal_column("'cards'"),
        slots.c.kind == literal_column("'cards'"),
        slot_is_served(slots),
    )
)
# Pairs that were removed since they were chosen are left out.
_row = batch(owner_id=int, build=int, place=int, pair_id=int)
PUT_CARDS = insert(cards).from_select(
    [*_row.c.keys()], select(*_row.c).select_from(_row.join(question_pairs, question_pairs.c.id == _row.c.pair_id))
)
_in_set = and_(cards.c.owner_id == int_param("owner_id"), cards.c.build == int_param("build"))
_chosen = cards.join(question_pairs, question_pairs.c.id == cards.c.pair_id)
READ_CARDS = (
    select(
        cards.c.place,
        question_pairs.c.recipe,
        question_pairs.c.chunk_id,
        question_pairs.c.question,
        question_pairs.c.answer,
    )
    .select_from(_chosen)
    .where(_in_set, cards.c.place > int_param("after"))
    .order_by(cards.c.place)
    .limit(LIMIT)
)
COUNT_CARDS = select(func.count()).select_from(_chosen).where(_in_set)
_key = tuple_(cards.c.owner_id, cards.c.build, cards.c.place)
_other = and_(cards.c.owner_id == int_param("owner_id"), cards.c.build != int_param("build"))
CLEAR_OTHERS = (
    delete(cards)
    .where(_key.in_(select(cards.c.owner_id, cards.c.build, cards.c.place).where(_other).limit(LIMIT)))
    .returning(cards.c.place)
)
