"""Statements about builds: lists of chunks."""

from __future__ import annotations

from sqlalchemy import and_, insert, select, update

from holdfast.catalog.conditions import STANDS
from holdfast.catalog.tables import builds, chunks, lists
from holdfast.db import LIMIT, batch, number, word
from holdfast.engine.store import owners

_row = batch(owner_id=int, digest=str)
KNOWN_CHUNKS = select(chunks.c.owner_id, chunks.c.digest, chunks.c.id).select_from(
    chunks.join(_row, and_(chunks.c.owner_id == _row.c.owner_id, chunks.c.digest == _row.c.digest, STANDS))
)
_row = batch(owner_id=int, digest=str, headings=str, text=str, opening=int)
CREATE_CHUNKS = (
    insert(chunks)
    .from_select([*_row.c.keys()], select(*_row.c))
    .returning(chunks.c.owner_id, chunks.c.digest, chunks.c.id)
)
_row = batch(owner_id=int, chunk_id=int, build=int, ordinal=int, start=int, body=int, stop=int)
LIST_CHUNKS = insert(lists).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(owner_id=int, build=int, title=str, pages=str, facts=str, length=int)
BEGIN_BUILD = insert(builds).from_select([*_row.c.keys()], select(*_row.c))

_row = batch(owner_id=int)
UNSETTLE_BUILDS = update(builds).values(settled=0).where(builds.c.owner_id.in_(select(_row.c.owner_id)))

_in_build = and_(lists.c.owner_id == number("owner_id"), lists.c.build == number("build"))
_row = batch(owner_id=int, build=int)
READ_LISTS = select(lists.c.owner_id, lists.c.chunk_id, lists.c.ordinal).select_from(
    lists.join(_row, and_(lists.c.owner_id == _row.c.owner_id, lists.c.build == _row.c.build))
)
READ_BUILD = select(builds).where(builds.c.owner_id == number("owner_id"), builds.c.build == number("build"))
PASSAGES = (
    select(chunks.c.id, lists.c.ordinal, lists.c.start, lists.c.body, lists.c.stop, chunks.c.headings, chunks.c.text)
    .select_from(lists.join(chunks, chunks.c.id == lists.c.chunk_id))
    .where(_in_build, lists.c.ordinal >= number("first"))
    .order_by(lists.c.ordinal)
    .limit(LIMIT)
)
_row = batch(id=int)
READ_CHUNKS = select(chunks.c.id, chunks.c.headings, chunks.c.text, chunks.c.opening).select_from(
    chunks.join(_row, chunks.c.id == _row.c.id)
)

_of_base = chunks.join(owners, owners.c.id == chunks.c.owner_id)
CHUNKS_OF_BASE = (
    select(chunks.c.id, chunks.c.owner_id)
    .select_from(_of_base)
    .where(owners.c.base == word("base"), STANDS)
    .order_by(chunks.c.id)
)
_row = batch(id=int)
OWNERS_OF = select(chunks.c.id, chunks.c.owner_id).select_from(chunks.join(_row, chunks.c.id == _row.c.id))
