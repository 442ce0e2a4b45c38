"""Statements about builds: lists of chunks."""

from __future__ import annotations

from sqlalchemy import and_, func, insert, literal_column, or_, select, update

from holdfast.catalog.conditions import CHUNK_LIVE
from holdfast.catalog.tables import builds, chunks, list_entries, missing_chunks
from holdfast.db import LIMIT, batch, int_param, text_param
from holdfast.engine.store import owners, slots

_row = batch(owner_id=int, digest=str)
SELECT_KNOWN_CHUNKS = select(chunks.c.owner_id, chunks.c.digest, chunks.c.id).select_from(
    chunks.join(_row, and_(chunks.c.owner_id == _row.c.owner_id, chunks.c.digest == _row.c.digest, CHUNK_LIVE))
)
_served_build = (
    select(slots.c.source)
    .where(slots.c.owner_id == chunks.c.owner_id, slots.c.kind == literal_column("'content'"))
    .correlate(chunks)
    .scalar_subquery()
)
_is_served = (
    select(list_entries.c.ordinal)
    .where(
        list_entries.c.owner_id == chunks.c.owner_id,
        list_entries.c.chunk_id == chunks.c.id,
        list_entries.c.build == _served_build,
    )
    .exists()
)
SELECT_KNOWN_AND_SERVED = SELECT_KNOWN_CHUNKS.add_columns(_is_served)
COUNT_SERVED = (
    select(func.count())
    .select_from(
        slots.join(
            list_entries, and_(list_entries.c.owner_id == slots.c.owner_id, list_entries.c.build == slots.c.source)
        )
    )
    .where(slots.c.owner_id == int_param("owner_id"), slots.c.kind == literal_column("'content'"))
)

_row = batch(slot=int, build=int, recipe=int)
_next = list_entries.alias("next")
_in_next_build = (
    select(_next.c.ordinal)
    .where(
        _next.c.owner_id == slots.c.owner_id, _next.c.chunk_id == list_entries.c.chunk_id, _next.c.build == _row.c.build
    )
    .exists()
)
_has_no_row = (
    select(missing_chunks.c.slot_id)
    .where(missing_chunks.c.slot_id == slots.c.id, missing_chunks.c.chunk_id == list_entries.c.chunk_id)
    .exists()
)
COUNT_REPLACED = (
    select(slots.c.id, func.count())
    .select_from(
        slots.join(_row, slots.c.id == _row.c.slot).join(
            list_entries, and_(list_entries.c.owner_id == slots.c.owner_id, list_entries.c.build == slots.c.source)
        )
    )
    .where(or_(slots.c.recipe != _row.c.recipe, ~_in_next_build), ~_has_no_row)
    .group_by(slots.c.id)
)
_row = batch(owner_id=int, digest=str, headings=str, text=str, opening=int)
CREATE_CHUNKS = (
    insert(chunks)
    .from_select([*_row.c.keys()], select(*_row.c))
    .returning(chunks.c.owner_id, chunks.c.digest, chunks.c.id)
)
_row = batch(owner_id=int, chunk_id=int, build=int, ordinal=int, start=int, body=int, stop=int)
INSERT_LIST_ENTRIES = insert(list_entries).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(owner_id=int, build=int, title=str, pages=str, facts=str, length=int)
INSERT_BUILDS = insert(builds).from_select([*_row.c.keys()], select(*_row.c))

_row = batch(owner_id=int)
UNSETTLE_BUILDS = update(builds).values(settled=0).where(builds.c.owner_id.in_(select(_row.c.owner_id)))

_in_build = and_(list_entries.c.owner_id == int_param("owner_id"), list_entries.c.build == int_param("build"))
_row = batch(owner_id=int, build=int)
READ_LISTS = select(list_entries.c.owner_id, list_entries.c.chunk_id, list_entries.c.ordinal).select_from(
    list_entries.join(_row, and_(list_entries.c.owner_id == _row.c.owner_id, list_entries.c.build == _row.c.build))
)
READ_LISTED_CHUNKS = (
    select(
        chunks.c.id,
        list_entries.c.ordinal,
        list_entries.c.start,
        list_entries.c.body,
        list_entries.c.stop,
        chunks.c.headings,
        chunks.c.text,
    )
    .select_from(list_entries.join(chunks, chunks.c.id == list_entries.c.chunk_id))
    .where(_in_build, list_entries.c.ordinal >= int_param("first"))
    .order_by(list_entries.c.ordinal)
    .limit(LIMIT)
)
_row = batch(id=int)
READ_CHUNKS = select(chunks.c.id, chunks.c.headings, chunks.c.text, chunks.c.opening).select_from(
    chunks.join(_row, chunks.c.id == _row.c.id)
)

_of_base = chunks.join(owners, owners.c.id == chunks.c.owner_id)
READ_CHUNKS_OF_BASE = (
    select(chunks.c.id, chunks.c.owner_id)
    .select_from(_of_base)
    .where(owners.c.base == text_param("base"), CHUNK_LIVE)
    .order_by(chunks.c.id)
)
_row = batch(id=int)
READ_CHUNK_OWNERS = select(chunks.c.id, chunks.c.owner_id).select_from(chunks.join(_row, chunks.c.id == _row.c.id))
