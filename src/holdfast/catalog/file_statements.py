"""Statements about files that no item references."""

from __future__ import annotations

from sqlalchemy import delete, func, insert, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog.tables import bases, condemned, files, items
from holdfast.db import NOW, batch, int_param, text_literal, text_param

LOCK_ALL_BASES = select(bases.c.id).order_by(bases.c.id).with_for_update(key_share=True)
_row = batch(name=str)
SELECT_NAMED_BLOBS = select(items.c.blob).where(items.c.blob.in_(select(_row.c.name)))
_row = batch(name=str)
CONDEMN_BLOBS = (
    upsert(condemned)
    .from_select(["at", "name"], select(NOW, _row.c.name).where(literal_column("true")))
    .on_conflict_do_nothing()
)
_row = batch(name=str)
SELECT_CONDEMNED_BLOBS = select(condemned.c.name).where(condemned.c.name.in_(select(_row.c.name)))

_row = batch(id=str)
RECORD_FILES = insert(files).from_select(
    ["holder", "due_at", "id"], select(text_param("holder"), NOW + int_param("lease"), _row.c.id)
)
_being_written_to = files.c.name.is_(None)
_row = batch(id=str)
RENEW_FILES = (
    update(files)
    .values(due_at=NOW + int_param("lease"))
    .where(files.c.id.in_(select(_row.c.id)), _being_written_to)
    .returning(files.c.id)
)
# A hold (see `file_holds`) is found by the start of its id.
HOLD_PREFIX = "hold-"
_is_hold = func.substr(files.c.id, 1, len(HOLD_PREFIX)) == text_literal(HOLD_PREFIX)
SELECT_HOLDS = select(files.c.holder, files.c.due_at <= NOW).where(_is_hold, _being_written_to)
_row = batch(id=str)
RENEW_HOLDS = (
    update(files)
    .values(due_at=NOW + int_param("lease"))
    .where(files.c.id.in_(select(_row.c.id)), _being_written_to, files.c.due_at > NOW)
    .returning(files.c.id)
)
_row = batch(id=str)
RELEASE_FILE_RECORDS = delete(files).where(files.c.id.in_(select(_row.c.id)), _being_written_to).returning(files.c.id)
_row = batch(id=str, name=str)
REMOVE_FILES_LATER = insert(files).from_select(
    ["holder", "due_at", *_row.c.keys()], select(text_param("holder"), NOW + int_param("lease"), *_row.c)
)
READ_FILE_RECORDS = select(files.c.id, files.c.name, files.c.holder, files.c.due_at <= NOW).order_by(files.c.id)
_row = batch(id=str, holder=str)
GIVE_UP_FILES = (
    update(files)
    .values(name=literal_column("''"))
    .where(files.c.id == _row.c.id, files.c.holder == _row.c.holder, _being_written_to)
    .where(or_(files.c.due_at <= NOW, int_param("dead") == literal_column("1")))
    .returning(files.c.id)
)
_row = batch(id=str)
FORGET_FILES = delete(files).where(files.c.id.in_(select(_row.c.id)))
