"""Every statement about questions and cards, each with a name; the same on both databases."""

from __future__ import annotations

from sqlalchemy import (
    and_,
    delete,
    func,
    insert,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.indexes.questions_tables import cards, pairs, question_chunks
from holdfast.library.statements import serves
from holdfast.library.tables import lists
from holdfast.stores.batch import LIMIT, batch, number, word
from holdfast.stores.tables import owners, slots

RECIPE = number("recipe")

# ---------------------------------------------------------------- pairs of chunks

_row = batch(chunk_id=int)
KNOWN = select(question_chunks.c.chunk_id).select_from(
    question_chunks.join(_row, and_(question_chunks.c.recipe == RECIPE, question_chunks.c.chunk_id == _row.c.chunk_id))
)
# Returns the chunks that nobody has marked before: whoever marks a chunk writes its pairs.
_row = batch(recipe=int, chunk_id=int)
MARK = (
    upsert(question_chunks)
    .from_select([*_row.c.keys()], select(*_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
    .returning(question_chunks.c.chunk_id)
)
_row = batch(recipe=int, chunk_id=int, place=int, question=str, answer=str)
PUT_PAIRS = (
    insert(pairs).from_select([*_row.c.keys()], select(*_row.c)).returning(pairs.c.id, pairs.c.chunk_id, pairs.c.place)
)
_row = batch(chunk_id=int)
OF_CHUNKS = select(pairs.c.id, pairs.c.chunk_id, pairs.c.place, pairs.c.question, pairs.c.answer).select_from(
    pairs.join(_row, and_(pairs.c.recipe == RECIPE, pairs.c.chunk_id == _row.c.chunk_id))
)
_this_list = and_(lists.c.owner_id == number("owner_id"), lists.c.build == number("build"))
ASKED_IN = (
    select(pairs.c.chunk_id, pairs.c.question, pairs.c.answer)
    .select_from(pairs.join(lists, lists.c.chunk_id == pairs.c.chunk_id))
    .where(_this_list, pairs.c.recipe == RECIPE, pairs.c.chunk_id.in_(select(lists.c.chunk_id).where(_this_list)))
    .order_by(lists.c.ordinal, pairs.c.place)
    .limit(LIMIT)
    .offset(number("offset"))
)
_row = batch(id=int)
CHUNKS_OF = select(pairs.c.id, pairs.c.chunk_id).select_from(
    pairs.join(_row, and_(pairs.c.id == _row.c.id, pairs.c.recipe == RECIPE))
)
SCAN = (
    select(question_chunks.c.chunk_id)
    .where(question_chunks.c.recipe == RECIPE, question_chunks.c.chunk_id > number("after"))
    .order_by(question_chunks.c.chunk_id)
    .limit(LIMIT)
)

_row = batch(id=int)
DROP_CARDS = delete(cards).where(cards.c.pair_id.in_(select(_row.c.id)))
DROP_PAIRS = delete(pairs).where(pairs.c.id.in_(select(_row.c.id)))
# A mark stays while the chunk has a pair, so that whatever is left is found by a scan.
_row = batch(chunk_id=int)
_has_pairs = (
    select(pairs.c.id)
    .where(pairs.c.recipe == question_chunks.c.recipe, pairs.c.chunk_id == question_chunks.c.chunk_id)
    .exists()
)
UNMARK = delete(question_chunks).where(
    question_chunks.c.recipe == RECIPE, question_chunks.c.chunk_id.in_(select(_row.c.chunk_id)), ~_has_pairs
)

# ---------------------------------------------------------------- cards of a base

_of_base = owners.c.base == word("base")
_owned = slots.join(owners, owners.c.id == slots.c.owner_id)
SOURCES = (
    select(slots.c.owner_id, slots.c.source, slots.c.recipe)
    .select_from(_owned)
    .where(_of_base, slots.c.kind == literal_column("'questions'"), slots.c.recipe.is_not(None), serves(slots))
    .order_by(slots.c.owner_id)
)
SERVED_SET = (
    select(slots.c.owner_id, slots.c.source)
    .select_from(_owned)
    .where(
        _of_base,
        owners.c.owner == literal_column("'cards'"),
        slots.c.kind == literal_column("'cards'"),
        serves(slots),
    )
)
# A pair that went since it was chosen is left out.
_row = batch(owner_id=int, build=int, place=int, pair_id=int)
PUT_CARDS = insert(cards).from_select(
    [*_row.c.keys()], select(*_row.c).select_from(_row.join(pairs, pairs.c.id == _row.c.pair_id))
)
_in_set = and_(cards.c.owner_id == number("owner_id"), cards.c.build == number("build"))
_chosen = cards.join(pairs, pairs.c.id == cards.c.pair_id)
READ_CARDS = (
    select(cards.c.place, pairs.c.recipe, pairs.c.chunk_id, pairs.c.question, pairs.c.answer)
    .select_from(_chosen)
    .where(_in_set, cards.c.place > number("after"))
    .order_by(cards.c.place)
    .limit(LIMIT)
)
COUNT_CARDS = select(func.count()).select_from(_chosen).where(_in_set)
_key = tuple_(cards.c.owner_id, cards.c.build, cards.c.place)
_other = and_(cards.c.owner_id == number("owner_id"), cards.c.build != number("build"))
CLEAR_OTHERS = (
    delete(cards)
    .where(_key.in_(select(cards.c.owner_id, cards.c.build, cards.c.place).where(_other).limit(LIMIT)))
    .returning(cards.c.place)
)
