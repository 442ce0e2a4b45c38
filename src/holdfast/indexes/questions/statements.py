"""Statements about questions and cards, the same on both databases."""

from __future__ import annotations

from sqlalchemy import (
    and_,
    delete,
    insert,
    select,
)

from holdfast.catalog import list_entries
from holdfast.db import LIMIT, batch, int_param
from holdfast.indexes.questions.tables import cards, question_chunks, question_pairs

RECIPE = int_param("recipe")

_row = batch(recipe=int, chunk_id=int, place=int, question=str, answer=str)
PUT_PAIRS = (
    insert(question_pairs)
    .from_select([*_row.c.keys()], select(*_row.c))
    .returning(question_pairs.c.id, question_pairs.c.chunk_id, question_pairs.c.place)
)
_row = batch(chunk_id=int)
SELECT_PAIRS_OF_CHUNKS = select(
    question_pairs.c.id,
    question_pairs.c.chunk_id,
    question_pairs.c.place,
    question_pairs.c.question,
    question_pairs.c.answer,
).select_from(
    question_pairs.join(_row, and_(question_pairs.c.recipe == RECIPE, question_pairs.c.chunk_id == _row.c.chunk_id))
)
_this_list = and_(list_entries.c.owner_id == int_param("owner_id"), list_entries.c.build == int_param("build"))
SELECT_PAIRS_IN_LIST = (
    select(question_pairs.c.chunk_id, question_pairs.c.question, question_pairs.c.answer)
    .select_from(question_pairs.join(list_entries, list_entries.c.chunk_id == question_pairs.c.chunk_id))
    .where(
        _this_list,
        question_pairs.c.recipe == RECIPE,
        question_pairs.c.chunk_id.in_(select(list_entries.c.chunk_id).where(_this_list)),
    )
    .order_by(list_entries.c.ordinal, question_pairs.c.place)
    .limit(LIMIT)
    .offset(int_param("offset"))
)
_row = batch(id=int)
SELECT_CHUNKS_OF_PAIRS = select(question_pairs.c.id, question_pairs.c.chunk_id).select_from(
    question_pairs.join(_row, and_(question_pairs.c.id == _row.c.id, question_pairs.c.recipe == RECIPE))
)
_row = batch(id=int)
DROP_CARDS = delete(cards).where(cards.c.pair_id.in_(select(_row.c.id)))
DROP_PAIRS = delete(question_pairs).where(question_pairs.c.id.in_(select(_row.c.id)))
# A mark stays while the chunk has a pair, so that a scan finds what is left.
_row = batch(chunk_id=int)
_has_pairs = (
    select(question_pairs.c.id)
    .where(question_pairs.c.recipe == question_chunks.c.recipe, question_pairs.c.chunk_id == question_chunks.c.chunk_id)
    .exists()
)
DELETE_WRITTEN_CHUNKS = delete(question_chunks).where(
    question_chunks.c.recipe == RECIPE, question_chunks.c.chunk_id.in_(select(_row.c.chunk_id)), ~_has_pairs
)
