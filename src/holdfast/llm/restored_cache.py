"""Paid answers of a restored base, held for its documents until their chunks exist.

A cached answer lives as long as a chunk uses it, and a document that was just restored has no chunks yet. So each
answer is *held* for the chunks that used it when the archive was written. When such a chunk exists, the hold becomes a
normal use. A hold is removed if the document has been read and has no such chunk, got other content, or is deleted.
Lookups ignore holds: they find the answer itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.llm import statements as sql
from holdfast.llm.paid_cache import remove_released_answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base
    from holdfast.db import Database, Transaction


class RestoredAnswer(NamedTuple):
    """A paid answer of an archive, and the chunks of one item that use it."""

    item: int  # its id in the archive, later in this database
    chunks: Sequence[str]  # their digests
    key: str
    value: bytes | None  # None if an earlier line of the archive has it
    joint: bool
    tokens_in: int
    tokens_out: int


def store_restored_answers(database: Database, base: Base, answers: Sequence[RestoredAnswer]) -> None:
    """Store answers and hold them for documents of a base. An answer that is already stored is kept."""

    def work(tx: Transaction) -> None:
        new = {answer.key: answer for answer in answers if answer.value is not None}
        rows = [[key, a.value, int(a.joint), a.tokens_in, a.tokens_out] for key, a in new.items()]
        tx.run(sql.INSERT_MEMOS, rows, tenant=base.settings.tenant)
        keys = [[key] for key in {answer.key for answer in answers}]
        ids = dict(tx.run(sql.SELECT_MEMO_IDS, keys, tenant=base.settings.tenant))
        holds = {
            (answer.item, chunk, ids[answer.key]) for answer in answers if answer.key in ids for chunk in answer.chunks
        }
        tx.run(sql.INSERT_HOLDS, sorted(holds))

    database.write(work, durable=True)


def resolve_holds(database: Database, limit: int) -> int:
    """Turn holds into uses, then remove stale holds; return how many were handled."""
    with database.reading() as tx:
        usable = tx.run(sql.SELECT_USABLE_HOLDS, limit=limit)
        stale = [] if usable else tx.run(sql.SELECT_STALE_HOLDS, limit=limit)
    if usable:
        database.write(lambda tx: _convert_to_uses(tx, usable), durable=False)
    if stale:
        database.write(lambda tx: _remove_holds(tx, stale), durable=False)
    return len(usable) + len(stale)


def release_holds(tx: Transaction, items: Sequence[int]) -> None:
    """Remove the holds of documents that get other content."""
    remove_released_answers(tx, {memo for (memo,) in tx.run(sql.DELETE_HOLDS_OF_ITEMS, [[item] for item in items])})


def _convert_to_uses(tx: Transaction, holds: Sequence[Sequence[int]]) -> None:
    """Record uses by the chunks that still exist; the next call handles the other holds."""
    tx.lock_owners({owner for *_, owner in holds})
    live = {chunk for (chunk,) in tx.run(sql.SELECT_LIVE_CHUNKS, [[chunk] for *_, chunk, _ in holds])}
    tx.run(sql.INSERT_MEMO_USES, [[memo, chunk] for _, _, memo, chunk, _ in holds if chunk in live])
    tx.run(sql.DELETE_HOLDS, [[item, digest, memo] for item, digest, memo, chunk, _ in holds if chunk in live])


def _remove_holds(tx: Transaction, holds: Sequence[Sequence[int]]) -> None:
    remove_released_answers(tx, {memo for (memo,) in tx.run(sql.DELETE_HOLDS, holds)})
