"""Paid answers that came with a restored base, held for its documents until their chunks are there to use them.

A memo lives as long as a chunk uses it, and a document that has just been restored has no chunks yet. So each memo is
*held* for the chunks that used it where the archive was made. When such a chunk is there, what was held becomes a use
like any other. What was held in vain is let go of: the document was read and has no such chunk, or got other content,
or is gone. Nobody asks for a hold: whoever wants an answer finds the memo, or does not.
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
    """A paid answer on its way in, and the chunks of one document that will use it; the answer only the first time."""

    item: int
    chunks: Sequence[str]
    key: str
    value: bytes | None
    joint: bool
    tokens_in: int
    tokens_out: int


class RestoredAnswers:
    """Holds memos in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def store(self, base: Base, memos: Sequence[RestoredAnswer]) -> None:
        """Keep answers for documents of a base; whoever stored one first is believed, as always."""

        def work(tx: Transaction) -> None:
            new = {one.key: one for one in memos if one.value is not None}
            rows = [[key, one.value, int(one.joint), one.tokens_in, one.tokens_out] for key, one in new.items()]
            tx.run(sql.INSERT_MEMOS, rows, tenant=base.settings.tenant)
            keys = [[key] for key in {one.key for one in memos}]
            ids = dict(tx.run(sql.SELECT_MEMO_IDS, keys, tenant=base.settings.tenant))
            wanted = {(one.item, chunk, ids[one.key]) for one in memos if one.key in ids for chunk in one.chunks}
            tx.run(sql.INSERT_HOLDS, sorted(wanted))

        self._database.write(work, durable=True)

    def resolve_holds(self, limit: int) -> int:
        """Turn what is held into uses, and let go of what is held in vain; return how much it was."""
        with self._database.reading() as tx:
            found = tx.run(sql.SELECT_USABLE_HOLDS, limit=limit)
            left = [] if found else tx.run(sql.SELECT_STALE_HOLDS, limit=limit)
        if found:
            self._database.write(lambda tx: _convert_to_uses(tx, found), durable=False)
        if left:
            self._database.write(lambda tx: _remove_holds(tx, left), durable=False)
        return len(found) + len(left)


def release_holds(tx: Transaction, items: Sequence[int]) -> None:
    """Hold nothing any more for documents that get other content."""
    remove_released_answers(tx, {memo for (memo,) in tx.run(sql.DELETE_HOLDS_OF_ITEMS, [[item] for item in items])})


def _convert_to_uses(tx: Transaction, found: Sequence[Sequence[int]]) -> None:
    """Note uses by chunks that are still there; what was held for the others is seen to in the next round."""
    tx.lock_owners({owner for *_, owner in found})
    living = {chunk for (chunk,) in tx.run(sql.SELECT_LIVE_CHUNKS, [[chunk] for *_, chunk, _ in found])}
    tx.run(sql.INSERT_MEMO_USES, [[memo, chunk] for _, _, memo, chunk, _ in found if chunk in living])
    tx.run(sql.DELETE_HOLDS, [[item, digest, memo] for item, digest, memo, chunk, _ in found if chunk in living])


def _remove_holds(tx: Transaction, left: Sequence[Sequence[int]]) -> None:
    remove_released_answers(tx, {memo for (memo,) in tx.run(sql.DELETE_HOLDS, left)})
