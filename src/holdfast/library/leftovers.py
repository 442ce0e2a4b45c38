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
        unfinished = self._blobs.remove_unfinished(self._before()) if not self._after else 0
        left, self._after = self.look(self._after, limit)
        return unfinished + len(self.remove(left))

    def look(self, after: str, limit: int) -> tuple[list[str], str]:
        """Name the old files that no row names, among the next from behind `after` on, and where to go on.

        That is nowhere when all were seen.
        """
        before = self._before()
        seen = self._blobs.names(after, limit)
        old = [name for name in seen if (self._blobs.written_at(name) or before) < before]
        with self._database.reading() as tx:
            return _unnamed(tx, old), seen[-1] if len(seen) == limit else ""

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove files that no row names and none will; return those that went."""
        gone = self._database.write(lambda tx: _condemned(tx, names), durable=True) if names else []
        for name in gone:
            self._blobs.remove(name)
        return gone

    def unfinished(self) -> list[str]:
        """Name the files whose writing was given up long ago."""
        return self._blobs.unfinished(self._before())

    def remove_unfinished(self) -> int:
        """Remove them; return how many."""
        return self._blobs.remove_unfinished(self._before())

    def _before(self) -> float:
        return self._clock.now() / 1_000_000 - OLD.total_seconds()


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
