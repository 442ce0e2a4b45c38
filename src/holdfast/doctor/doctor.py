"""The doctor: compares each store with its expected contents, and explains why jobs wait.

It reads and repairs in bounded batches, each in its own transaction, and may run at any time beside any number of
workers: documents that are being indexed or deleted are not reported. It repairs only with `fix`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import parse_item_id, read_items
from holdfast.doctor import statements as sql
from holdfast.doctor.check_erasure import ErasureChecks
from holdfast.doctor.check_items import FILES, FileChecks, ItemChecks
from holdfast.doctor.check_lists import ListChecks
from holdfast.doctor.check_metrics import MetricChecks
from holdfast.doctor.check_rows import RowChecks
from holdfast.doctor.check_slots import SlotChecks
from holdfast.doctor.check_statuses import StatusChecks
from holdfast.doctor.report import Finding, FindingCounter, Issue, Place
from holdfast.engine.store import ACTIVE_JOB_STATES, JobFilter
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.blobs import BlobStore
    from holdfast.catalog import Base, Catalog, Eraser, OrphanBlobCollector
    from holdfast.doctor.report import Check, Locator
    from holdfast.documents import DocumentAdder, DocumentOperations
    from holdfast.engine import WaitReason
    from holdfast.engine.store import ListedJob, SqlStore
    from holdfast.indexes import IndexRegistry

JOBS_PER_PAGE = 100  # jobs per query

__all__ = ["Doctor", "DoctorDependencies", "ExplainedJob", "Finding"]


class ExplainedJob(NamedTuple):
    """A job that has not ended, with its document and the reasons."""

    listed: ListedJob
    item: int | None  # None: the job is about the base itself
    name: str  # of the item, or else of the owner
    reasons: Sequence[WaitReason]


class DoctorDependencies(NamedTuple):
    store: SqlStore
    catalogue: Catalog
    blobs: BlobStore
    orphan_blobs: OrphanBlobCollector
    indexes: IndexRegistry
    adder: DocumentAdder
    operations: DocumentOperations
    erasure: Eraser


class Doctor:
    """Checks one database, its files and all its indexes.

    Example:
        for finding in library.doctor.check(fix=True):
            print(finding.sentence, finding.fixed)
    """

    def __init__(self, parts: DoctorDependencies) -> None:
        self._dependencies = parts

    def check(self, *, fix: bool = False, deep: bool = False) -> list[Finding]:
        """Run all checks. `fix` repairs what can be repaired; `deep` also reads each file and compares its digest.

        An index that lacks rows is not built here: `fix` requests it, and a worker builds it. If the file store does
        not answer, the doctor runs all other checks, and reports the error as a finding.
        """
        findings: list[Finding] = []
        away = FindingCounter("files_away")
        error: StoreError | None = None
        for check in self._checks(deep=deep):
            if error is None:
                try:
                    findings += _run_check(check, fix=fix)
                    continue
                except StoreError as raised:
                    if not (check.reads_files or check.removes_files):
                        raise
                    error = raised
            if check.reads_files or (fix and check.removes_files):
                away.add(FILES, [Issue(FILES, str(error), None)], 0)
            if not check.reads_files:
                findings += _run_check(check, fix=fix and not check.removes_files)
        return findings + away.findings

    def waiting(self, base: Base) -> Iterator[ExplainedJob]:
        """Yield the active jobs of a base in the order in which they are served, with the reasons why they wait."""
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
                if reasons:  # else the job has ended since the page was read
                    yield ExplainedJob(listed, item, names.get(item or 0, listed.job.owner), reasons)
            cursor = page.cursor
            if cursor is None:
                return

    def _checks(self, *, deep: bool) -> list[Check]:
        """Return all checks. Their order matters: an early repair removes what a later check would report, too."""
        store, catalogue, blobs, orphan_blobs, indexes, adder, operations, erasure = self._dependencies
        locate = self._make_locator()
        return [
            *ListChecks(store.database, indexes.garbage_collector()).checks(),
            *ItemChecks(store, catalogue, operations, blobs, locate).checks(),
            *RowChecks(store, catalogue, indexes, adder, locate).checks(),
            *FileChecks(store, blobs, orphan_blobs, locate, deep=deep).checks(),
            *SlotChecks(store, locate).checks(),
            *ErasureChecks(store, erasure).checks(),
            *StatusChecks(store, locate).checks(),
            *MetricChecks(store).checks(),
        ]

    def _make_locator(self) -> Locator:
        with self._dependencies.store.database.reading() as tx:
            names = {str(id_): name for id_, name in tx.run(sql.SELECT_BASE_NAMES)}

        def locate(base: str, kind: str = "") -> Place:
            label = f"base {names[base]!r}" if base in names else f"base {base}"  # guarded work has no base
            return Place(f"{kind} of {label}" if kind else label, names.get(base, base), kind)

        return locate


def _run_check(check: Check, *, fix: bool) -> list[Finding]:
    """Run a check batch by batch; repair each batch before the next is read."""
    counter = FindingCounter(check.code)
    for issues in check.scan():
        by_place: dict[Place, list[Issue]] = defaultdict(list)
        for issue in issues:
            by_place[issue.where].append(issue)
        for where, some in by_place.items():
            counter.add(where, some, check.repair(some) if fix else 0)
    return counter.findings
