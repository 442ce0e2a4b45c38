"""The slot `bulk` of a base: applies a bulk operation to its items, batch by batch.

The transaction of each batch checks that the worker holds the slot, and stores the progress in the payload of the job.
So a cancel stops the job before the next batch, and a job that lost its worker continues after the last batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.documents.bulk import REQUESTING, BulkOperation
from holdfast.engine import BuildResult
from holdfast.errors import BaseFailed, Permanent, UnknownBase

if TYPE_CHECKING:
    from holdfast.catalog import Catalog
    from holdfast.documents.bulk import BulkOperations
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task


class BulkIndexer:
    """An `Indexer` that builds the slot `bulk`."""

    def __init__(self, store: SqlStore, catalog: Catalog, operations: BulkOperations) -> None:
        self._store = store
        self._catalog = catalog
        self._operations = operations

    def build(self, task: Task) -> BuildResult:
        base = self._catalog.base(int(task.ticket.key.base))
        if base is None:
            raise Permanent("base_not_usable", params={"base": task.ticket.key.base})
        operation = BulkOperation.from_json(self._store.job(task.ticket.job).payload or "")
        run = self._operations.run(base, operation, task.ticket)
        try:
            while not run.operation.finished:
                task.checkpoint(stage=REQUESTING, done=run.operation.done, total=run.operation.total)
                run.step()
        except (UnknownBase, BaseFailed) as error:
            raise Permanent("base_not_usable", params={"base": error.params["base"]}) from error
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Remove nothing: the slot has no rows of its own."""
        task.checkpoint(stage="removing")
