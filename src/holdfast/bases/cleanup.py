"""The periodic clean-up: which garbage collectors run, and in which order.

The order matters. Lists, index rows and paid answers go before the bases and documents they belong to; a document goes
before its file; and the disk is overwritten once, after everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.indexes.graph import request_due_merges

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bases.archives import Archives
    from holdfast.bases.lifecycle import Bases
    from holdfast.catalog import Eraser, OrphanBlobCollector
    from holdfast.documents import DocumentOperations, DocumentRemover
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import IndexRegistry, IndexRowCounter
    from holdfast.search import Calibrator


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Runs all garbage collectors."""

    store: SqlStore
    indexes: IndexRegistry
    row_counter: IndexRowCounter
    bases: Bases
    archives: Archives
    remover: DocumentRemover
    operations: DocumentOperations
    orphan_blobs: OrphanBlobCollector
    eraser: Eraser
    calibrator: Calibrator

    def run(self, limit: int) -> int:
        """Run every collector once; return the most that one of them removed. If that is `limit`, there is more.

        A collector that fails, such as for an index whose store is down, does not stop the others. The first error is
        raised at the end.
        """
        self.indexes.maintain(limit)
        self.row_counter.step()
        self.calibrator.refresh_due()
        removed, failed = 0, []
        collectors: list[Callable[[int], int]] = [
            self.indexes.garbage_collector().collect,
            lambda _: request_due_merges(self.store),
            self.bases.continue_background_work,
            self.archives.clean_up_restores,
            self.remover.continue_deletes,
            self.operations.refresh_due,
            self.orphan_blobs.sweep,
        ]
        for collect in collectors:
            try:
                removed = max(removed, collect(limit))
            except HoldfastError as error:
                failed.append(error)
        if removed < limit:  # otherwise the next run removes more, and erases it together with this
            self.eraser.run_due()
        if failed:
            raise failed[0]
        return removed
