"""Statements that remove what no list names any more."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, literal_column, select, update

from holdfast.catalog import DOOMED, SHOWN, STALE, STANDS, builds, chunks, lists
from holdfast.db import LIMIT, batch, number
from holdfast.engine.store import owners, slots

Condition = ColumnElement[bool]

_in_build = and_(lists.c.owner_id == number("owner_id"), lists.c.build == number("build"))
_unsettled = builds.c.settled == literal_column("0")
_other = builds.alias("other")
_alone = ~(
    select(_other.c.build).where(_other.c.owner_id == builds.c.owner_id, _other.c.build != builds.c.build).exists()
)

STALE_BUILDS = select(builds.c.owner_id, builds.c.build).where(_unsettled, STALE).limit(LIMIT)
_row = batch(owner_id=int, build=int)
STILL_STALE = (
    select(builds.c.build)
    .select_from(builds.join(_row, and_(builds.c.owner_id == _row.c.owner_id, builds.c.build == _row.c.build)))
    .where(STALE)
)
SETTLED_BUILDS = select(builds.c.owner_id, builds.c.build).where(_unsettled, SHOWN, _alone).limit(LIMIT)
_row = batch(owner_id=int, build=int)
SETTLE_BUILDS = (
    update(builds)
    .values(settled=1)
    .where(builds.c.owner_id == _row.c.owner_id, builds.c.build == _row.c.build, _unsettled, SHOWN, _alone)
    .returning(builds.c.owner_id)
)


def _some_listed(*conditions: Any) -> Any:
    return select(lists.c.chunk_id).where(*conditions).limit(LIMIT)


def _is_deleted(owner: Any) -> Condition:
    """Hold when every slot of an owner is being deleted."""
    return ~select(slots.c.id).where(slots.c.owner_id == owner, slots.c.state != literal_column("'deleting'")).exists()


UNLIST = delete(lists).where(_in_build, lists.c.chunk_id.in_(_some_listed(_in_build))).returning(lists.c.chunk_id)
REMOVE_BUILD = delete(builds).where(builds.c.owner_id == number("owner_id"), builds.c.build == number("build"))
_row = batch(id=int)
DOOM = (
    update(chunks)
    .values(doomed=1)
    .where(
        chunks.c.id == _row.c.id,
        ~select(lists.c.build).where(lists.c.owner_id == chunks.c.owner_id, lists.c.chunk_id == chunks.c.id).exists(),
    )
)
_doomed = select(chunks.c.id, chunks.c.owner_id, owners.c.base).select_from(
    chunks.join(owners, owners.c.id == chunks.c.owner_id)
)
DOOMED_CHUNKS = _doomed.where(DOOMED).limit(LIMIT)
_row = batch(id=int)
REMOVE_CHUNKS = delete(chunks).where(DOOMED, chunks.c.id.in_(select(_row.c.id)))

# What is left of owners that are being deleted; a build of theirs is refused, so nothing is listed again.
_row = batch(owner_id=int)
LIST_SIZES = (
    select(lists.c.owner_id, func.count())
    .select_from(lists.join(_row, lists.c.owner_id == _row.c.owner_id))
    .group_by(lists.c.owner_id)
)
_of_one = lists.c.owner_id == number("owner_id")
UNLIST_SOME = (
    delete(lists)
    .where(_of_one, lists.c.chunk_id.in_(_some_listed(_of_one)), _is_deleted(lists.c.owner_id))
    .returning(lists.c.chunk_id)
)
_row = batch(owner_id=int)
UNLIST_ALL = delete(lists).where(lists.c.owner_id.in_(select(_row.c.owner_id)), _is_deleted(lists.c.owner_id))
REMOVE_BUILDS = delete(builds).where(builds.c.owner_id.in_(select(_row.c.owner_id)), _is_deleted(builds.c.owner_id))
_row = batch(id=int)
REMOVE_OWN_CHUNKS = delete(chunks).where(chunks.c.id.in_(select(_row.c.id)), _is_deleted(chunks.c.owner_id))

_row = batch(id=int)
ORPHANED_CHUNKS = select(chunks.c.id).where(
    DOOMED, chunks.c.id.in_(select(_row.c.id)), ~select(owners.c.id).where(owners.c.id == chunks.c.owner_id).exists()
)
_row = batch(id=int)
EXISTING_CHUNKS = select(chunks.c.id).where(chunks.c.id.in_(select(_row.c.id)))

# All chunks of some owners, in two statements: each reads one of the two partial indexes that begin with the owner.
_row = batch(owner_id=int)
_own = select(chunks.c.id, chunks.c.owner_id, owners.c.base).select_from(
    _row.join(owners, owners.c.id == _row.c.owner_id).join(chunks, chunks.c.owner_id == owners.c.id)
)
OWN_CHUNKS = (_own.where(STANDS), _own.where(DOOMED))
