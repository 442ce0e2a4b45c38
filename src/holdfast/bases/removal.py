"""The slot `base` of a deleted base: removes everything in the base, then the base itself.

The slot exists only while its base is being deleted, in the state `deleting`. So its job cannot be cancelled, and it
has no limit of attempts. Every step reads what is left, so a removal that continues after a crash repeats nothing. The
documents are cleaned up by their own slots; until they are gone, the removal waits and looks again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.bases.slots import BASE
from holdfast.blobs import waiting_for_blobs
from holdfast.engine import Operation, Request, SlotSpec
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import RetryLater

if TYPE_CHECKING:
    from holdfast.bases.lifecycle import Bases
    from holdfast.catalog import Base, Catalog
    from holdfast.documents import DocumentRemover
    from holdfast.engine import BuildResult
    from holdfast.engine.store import Job, SqlStore
    from holdfast.engine.task import Task

LOOK_AGAIN_AFTER = timedelta(seconds=2)  # while documents are being cleaned up
REMOVING = "removing"  # the stage
FIRST = 0  # priority: it ends the other work of the base


def request_removal(base: Base, items: int, requester: str) -> Request:
    """Return the request for the removal of a base."""
    return Request(
        base=base.key,
        owner=BASE,
        operation=Operation.DELETE,
        slots=(SlotSpec(BASE),),
        creates_owner=True,
        priority=FIRST,
        requester=requester,
        payload=str(items),
    )


def parse_removal(job: Job) -> int | None:
    """Return the number of items that the removal of a base has to remove; None for other jobs.

    The job outlives the base, so it does not contain the name of the base.
    """
    return int(job.payload) if job.owner == BASE and job.payload else None


class RemovalIndexer:
    """An `Indexer` that removes the slot `base`."""

    def __init__(self, store: SqlStore, catalog: Catalog, bases: Bases, remover: DocumentRemover) -> None:
        self._store = store
        self._catalog = catalog
        self._bases = bases
        self._remover = remover

    def build(self, task: Task) -> BuildResult | None:  # noqa: ARG002 - the slot is only ever removed
        """Build nothing."""
        return None

    def remove(self, task: Task) -> None:
        """Remove what is left of the base; raise `RetryLater` while slots of its documents still remove their rows."""
        base = self._catalog.base(int(task.ticket.key.base))
        if base is not None:
            self._remove_contents(task, base, parse_removal(self._store.job(task.ticket.job)) or 0)

    def _remove_contents(self, task: Task, base: Base, total: int) -> None:
        while True:
            left = self._bases.count_items(base.key)
            task.checkpoint(stage=REMOVING, done=max(0, total - left), total=total)
            hidden = self._bases.hide_and_request_clean_up(base, LARGEST_BATCH)
            with waiting_for_blobs():
                if not hidden and not self._remover.continue_deletes(LARGEST_BATCH):
                    break
        if left or not self._bases.remove_empty(base, LARGEST_BATCH):
            raise RetryLater("base_not_empty", params={"documents": str(left)}, retry_after=LOOK_AGAIN_AFTER)
