"""Every statement about names and relations, each with a name; the same on both databases."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, Integer, and_, bindparam, delete, func, insert, literal_column, select
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.library.tables import graph_chunks, names, relations
from holdfast.stores.batch import batch


def _number(name: str) -> ColumnElement[int]:
    return bindparam(name, type_=BigInteger())


LIMIT = bindparam("limit", type_=Integer())
RECIPE = _number("recipe")

_row = batch(chunk_id=int)
KNOWN = select(graph_chunks.c.chunk_id).select_from(
    graph_chunks.join(_row, and_(graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id == _row.c.chunk_id))
)
_row = batch(recipe=int, chunk_id=int)
MARK_KNOWN = (
    upsert(graph_chunks)
    .from_select([*_row.c.keys()], select(*_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
)
_row = batch(recipe=int, chunk_id=int, key=str, role=str, label=str)
PUT_NAMES = insert(names).from_select([*_row.c.keys()], select(*_row.c))

_row = batch(chunk_id=int)
DROP_NAMES = delete(names).where(names.c.recipe == RECIPE, names.c.chunk_id.in_(select(_row.c.chunk_id)))
DROP_RELATIONS = delete(relations).where(
    relations.c.recipe == RECIPE, relations.c.chunk_id.in_(select(_row.c.chunk_id))
)
DROP_KNOWN = delete(graph_chunks).where(
    graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id.in_(select(_row.c.chunk_id))
)
SCAN = (
    select(graph_chunks.c.chunk_id)
    .where(graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id > _number("after"))
    .order_by(graph_chunks.c.chunk_id)
    .limit(LIMIT)
)

_row = batch(chunk_id=int)
OF_CHUNKS = select(names.c.chunk_id, names.c.key, names.c.role).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.chunk_id == _row.c.chunk_id))
)
_row = batch(key=str)
BY_KEY = select(names.c.key, names.c.chunk_id, names.c.role).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.key == _row.c.key))
)
_defines = names.c.role != literal_column("'named'")
DEFINITIONS = (
    select(names.c.id, names.c.chunk_id, names.c.key, names.c.role)
    .where(names.c.recipe == RECIPE, names.c.id > _number("after"), _defines)
    .order_by(names.c.id)
    .limit(LIMIT)
)
COUNT_DEFINITIONS = select(func.count()).where(names.c.recipe == RECIPE, names.c.id <= _number("until"), _defines)
