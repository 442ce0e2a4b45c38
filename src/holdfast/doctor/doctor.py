"""The doctor: compares every store with what should be there, from the side of the store, and says why things wait.

It reads and repairs in bounded portions, each in a transaction of its own, and may run at any time beside any number of
workers: what is in motion is no finding. Nothing is repaired that nobody asked to repair.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import parse_item_id, read_items
from holdfast.doctor import statements as sql
from holdfast.doctor.check_erasure import ErasureChecks
from holdfast.doctor.check_items import FileChecks, ItemChecks
from holdfast.doctor.check_lists import ListChecks
from holdfast.doctor.check_rows import RowChecks
from holdfast.doctor.check_slots import SlotChecks
from holdfast.doctor.check_statuses import StatusChecks
from holdfast.doctor.report import Finding, FindingCounter
from holdfast.engine.store import ACTIVE_JOB_STATES, JobFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.catalog import Base, BlobStore, Catalog, Eraser, OrphanBlobCollector
    from holdfast.doctor.report import Check, Issue
    from holdfast.documents import DocumentAdder, DocumentOperations
    from holdfast.engine import WaitReason
    from holdfast.engine.store import ListedJob, SqlStore
    from holdfast.indexes import IndexRegistry

    ProgressCallback = Callable[[str, int], None]  # what is looked for, and how many rows or files were looked at

JOBS_PER_PAGE = 100  # jobs read at once

__all__ = ["Doctor", "DoctorDependencies", "ExplainedJob", "Finding"]


class ExplainedJob(NamedTuple):
    """A job that has not ended, what it is about, and why it has not."""

    listed: ListedJob
    item: int | None  # None: it is about the base itself
    name: str  # what people call the item
    reasons: Sequence[WaitReason]


class DoctorDependencies(NamedTuple):
    """What a doctor looks at."""

    store: SqlStore
    catalogue: Catalog
    blobs: BlobStore
    orphan_blobs: OrphanBlobCollector
    indexes: IndexRegistry
    adder: DocumentAdder
    operations: DocumentOperations
    erasure: Eraser


def _ignore_progress(code: str, looked: int) -> None:
    """Tell nobody."""


class Doctor:
    """Looks after one database, its files, and its indexes wherever they are."""

    def __init__(self, parts: DoctorDependencies) -> None:
        self._dependencies = parts

    def check(
        self, *, fix: bool = False, deep: bool = False, progress: ProgressCallback = _ignore_progress
    ) -> list[Finding]:
        """Look for all there is to find; with `fix`, repair what can be, and tell how much of it was.

        What has to be built again is only asked for: a worker builds it, and a check after that finds nothing. `deep`
        also reads every file and compares it with what was added.
        """
        return [finding for check in self._checks(deep=deep) for finding in _run_check(check, progress, fix=fix)]

    def waiting(self, base: Base) -> Iterator[ExplainedJob]:
        """Yield the jobs of a base that have not ended, those that are served first before the others, and why."""
        store, cursor = self._dependencies.store, None
        while True:
            page = store.list_jobs(
                JobFilter(base=base.key, states=ACTIVE_JOB_STATES), cursor=cursor, size=JOBS_PER_PAGE
            )
            ids = {listed.job.id: parse_item_id(listed.job.owner) for listed in page.jobs}
            with store.database.reading() as tx:
                names = {item.id: item.name for item in read_items(tx, {id_ for id_ in ids.values() if id_})}
            for listed in page.jobs:
                item = ids[listed.job.id]
                reasons = store.explain_job(listed.job.id)
                if reasons:  # else it has ended since the page was read
                    yield ExplainedJob(listed, item, names.get(item or 0, listed.job.owner), reasons)
            cursor = page.cursor
            if cursor is None:
                return

    def _checks(self, *, deep: bool) -> list[Check]:
        """Return what is looked for; what is repaired early is not found a second time by a later one."""
        store, catalogue, blobs, leftovers, indexes, adding, requesting, erasure = self._dependencies
        named = self._make_base_label()
        return [
            *ListChecks(store.database, indexes.garbage_collector()).checks(),
            *ItemChecks(store, catalogue, requesting, blobs, named).checks(),
            *RowChecks(store, catalogue, indexes, adding, named).checks(),
            *FileChecks(store, blobs, leftovers, named, deep=deep).checks(),
            *SlotChecks(store, named).checks(),
            *ErasureChecks(store, erasure).checks(),
            *StatusChecks(store, named).checks(),
        ]

    def _make_base_label(self) -> Callable[[str], str]:
        """Return how people call a base of a slot or a job."""
        with self._dependencies.store.database.reading() as tx:
            names = {str(id_): name for id_, name in tx.run(sql.SELECT_BASE_NAMES)}
        return lambda key: f"base {names[key]!r}" if key in names else f"base {key}"


def _run_check(check: Check, progress: ProgressCallback, *, fix: bool) -> list[Finding]:
    """Look through all portions of a check, and mend each before the next."""
    tally, looked = FindingCounter(check.code), 0
    for portion in check.scan():
        by_place: dict[str, list[Issue]] = defaultdict(list)
        for trouble in portion.issues:
            by_place[trouble.where].append(trouble)
        for where, troubles in by_place.items():
            tally.add(where, troubles, check.repair(troubles) if fix else 0)
        looked += portion.scanned
        progress(check.code, looked)
    return tally.findings
