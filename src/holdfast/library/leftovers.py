"""Files that no row names: whoever wrote them was killed before the row, or before it could remove them.

How old a file is only says that it is worth a look: clocks jump, and an upload may be slow. The database decides. In
one transaction in which nobody adds anything, a blob that no row names is *condemned*: from then on no row can name it,
and only then the file goes. An upload that comes too late is refused, and has to be made again; it never names a file
that is not there. The names of condemned blobs are kept, since names are never used twice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.errors import StoreError
from holdfast.library import statements as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.clock import Clock
    from holdfast.library.blobs import Blobs
    from holdfast.stores.database import Database, Transaction

OLD = timedelta(days=1)  # what is younger may still get its row


class Leftovers:
    """Goes round the files of one database, some at a time."""

    def __init__(self, database: Database, blobs: Blobs, clock: Clock) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._after = ""

    def sweep(self, limit: int) -> int:
        """Look at the next files and remove those that no row names; return how many went."""
        before = self._clock.now() / 1_000_000 - OLD.total_seconds()
        unfinished = self._blobs.remove_unfinished(before) if not self._after else 0
        seen = self._blobs.names(self._after, limit)
        self._after = seen[-1] if len(seen) == limit else ""
        old = [name for name in seen if (self._blobs.written_at(name) or before) < before]
        with self._database.reading() as tx:
            left = _unnamed(tx, old)
        gone = self._database.write(lambda tx: _condemned(tx, left), durable=True) if left else []
        for name in gone:
            self._blobs.remove(name)
        return unfinished + len(gone)


def refuse_condemned(tx: Transaction, names: Sequence[str]) -> None:
    """Refuse to name blobs whose files are gone or about to go, within the transaction that would name them."""
    if tx.run(sql.CONDEMNED, [[name] for name in names]):
        raise StoreError(
            "The bytes were swept before anything named them: by the clock of this machine, more than a day has passed "
            "since they came in. Nothing was written; add them again."
        )


def _unnamed(tx: Transaction, names: Sequence[str]) -> list[str]:
    named = {name for (name,) in tx.run(sql.NAMED_BLOBS, [[name] for name in names])}
    return [name for name in names if name not in named]


def _condemned(tx: Transaction, names: Sequence[str]) -> list[str]:
    """Condemn those of the blobs that still have no row; whoever adds something waits, and then sees it."""
    tx.run(sql.HOLD_BASES)
    left = _unnamed(tx, names)
    tx.run(sql.CONDEMN, [[name] for name in left])
    return left
