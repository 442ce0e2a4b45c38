"""Statements of the garbage collector for chunks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, literal_column, select, update

from holdfast.catalog import BUILD_SERVED, BUILD_STALE, CHUNK_DOOMED, CHUNK_LIVE, builds, chunks, list_entries
from holdfast.db import LIMIT, batch, int_param
from holdfast.engine.store import owners, slots

Condition = ColumnElement[bool]

_in_build = and_(list_entries.c.owner_id == int_param("owner_id"), list_entries.c.build == int_param("build"))
_unsettled = builds.c.settled == literal_column("0")
_other = builds.alias("other")
_is_only_build = ~(
    select(_other.c.build).where(_other.c.owner_id == builds.c.owner_id, _other.c.build != builds.c.build).exists()
)

SELECT_STALE_BUILDS = select(builds.c.owner_id, builds.c.build).where(_unsettled, BUILD_STALE).limit(LIMIT)
_row = batch(owner_id=int, build=int)
SELECT_STILL_STALE = (
    select(builds.c.build)
    .select_from(builds.join(_row, and_(builds.c.owner_id == _row.c.owner_id, builds.c.build == _row.c.build)))
    .where(BUILD_STALE)
)
SELECT_SETTLED_BUILDS = (
    select(builds.c.owner_id, builds.c.build).where(_unsettled, BUILD_SERVED, _is_only_build).limit(LIMIT)
)
_row = batch(owner_id=int, build=int)
SETTLE_BUILDS = (
    update(builds)
    .values(settled=1)
    .where(
        builds.c.owner_id == _row.c.owner_id, builds.c.build == _row.c.build, _unsettled, BUILD_SERVED, _is_only_build
    )
    .returning(builds.c.owner_id)
)


def _some_listed(*conditions: Any) -> Any:
    return select(list_entries.c.chunk_id).where(*conditions).limit(LIMIT)


def _is_deleted(owner: Any) -> Condition:
    """Return the condition that every slot of an owner is being deleted."""
    return ~select(slots.c.id).where(slots.c.owner_id == owner, slots.c.state != literal_column("'deleting'")).exists()


DELETE_SOME_OF_LIST = (
    delete(list_entries)
    .where(_in_build, list_entries.c.chunk_id.in_(_some_listed(_in_build)))
    .returning(list_entries.c.chunk_id)
)
REMOVE_BUILD = delete(builds).where(builds.c.owner_id == int_param("owner_id"), builds.c.build == int_param("build"))
_row = batch(id=int)
DOOM_UNLISTED_CHUNKS = (
    update(chunks)
    .values(doomed=1)
    .where(
        chunks.c.id == _row.c.id,
        ~select(list_entries.c.build)
        .where(list_entries.c.owner_id == chunks.c.owner_id, list_entries.c.chunk_id == chunks.c.id)
        .exists(),
    )
)
_chunks_with_base = select(chunks.c.id, chunks.c.owner_id, owners.c.base).select_from(
    chunks.join(owners, owners.c.id == chunks.c.owner_id)
)
SELECT_DOOMED_CHUNKS = _chunks_with_base.where(CHUNK_DOOMED).limit(LIMIT)
_row = batch(id=int)
REMOVE_CHUNKS = delete(chunks).where(CHUNK_DOOMED, chunks.c.id.in_(select(_row.c.id)))

# Owners that are being deleted: the store rejects their builds, so nothing is listed again.
_row = batch(owner_id=int)
COUNT_LISTED_CHUNKS = (
    select(list_entries.c.owner_id, func.count())
    .select_from(list_entries.join(_row, list_entries.c.owner_id == _row.c.owner_id))
    .group_by(list_entries.c.owner_id)
)
_of_one = list_entries.c.owner_id == int_param("owner_id")
DELETE_SOME_LISTED = (
    delete(list_entries)
    .where(_of_one, list_entries.c.chunk_id.in_(_some_listed(_of_one)), _is_deleted(list_entries.c.owner_id))
    .returning(list_entries.c.chunk_id)
)
_row = batch(owner_id=int)
DELETE_ALL_LISTED = delete(list_entries).where(
    list_entries.c.owner_id.in_(select(_row.c.owner_id)), _is_deleted(list_entries.c.owner_id)
)
REMOVE_BUILDS = delete(builds).where(builds.c.owner_id.in_(select(_row.c.owner_id)), _is_deleted(builds.c.owner_id))
_row = batch(id=int)
REMOVE_OWN_CHUNKS = delete(chunks).where(chunks.c.id.in_(select(_row.c.id)), _is_deleted(chunks.c.owner_id))

_row = batch(id=int)
SELECT_ORPHAN_CHUNKS = select(chunks.c.id).where(
    CHUNK_DOOMED,
    chunks.c.id.in_(select(_row.c.id)),
    ~select(owners.c.id).where(owners.c.id == chunks.c.owner_id).exists(),
)
_row = batch(id=int)
SELECT_EXISTING_CHUNKS = select(chunks.c.id).where(chunks.c.id.in_(select(_row.c.id)))

# All chunks of some owners. Two statements, because each can use one of the two partial indexes by owner.
_row = batch(owner_id=int)
_own = select(chunks.c.id, chunks.c.owner_id, owners.c.base).select_from(
    _row.join(owners, owners.c.id == _row.c.owner_id).join(chunks, chunks.c.owner_id == owners.c.id)
)
SELECT_OWNER_CHUNKS = (_own.where(CHUNK_LIVE), _own.where(CHUNK_DOOMED))
