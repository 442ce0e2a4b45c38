"""The slot `rollout` of a base: applies changed settings to its documents, in batches.

A rollout only makes requests. Each document is then built, or loses an index, on its own, while its old content stays
served. The slots of a document show its state, so a rollout that continues after a crash requests nothing twice.
Documents with active work are left for another round. A rollout requests each document at most once, regardless of the
result. It ends when all the documents that it requested have settled, so its progress is the progress of the change.
"""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from holdfast.bases import statements as sql
from holdfast.bases.slots import ROLLOUT
from holdfast.catalog import slots_of_documents
from holdfast.clock import Moment, micros
from holdfast.documents import lock_open_base, pause_for_quota
from holdfast.engine import ACTIVE_STATES, BuildResult, Operation, Request, SlotSpec, SlotState
from holdfast.engine.store import LOWEST_PRIORITY, require_held
from holdfast.errors import BaseFailed, Permanent, RetryLater, UnknownBase
from holdfast.indexes import CONTENT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from holdfast.catalog import Base, Catalog
    from holdfast.db import Transaction
    from holdfast.documents import DocumentAdder
    from holdfast.engine import JobId
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task
    from holdfast.indexes import IndexRegistry

ROLLING_OUT = "rolling out"  # the stage
DOCUMENTS_PER_TRANSACTION = 100
RETRY_AFTER = timedelta(seconds=30)  # when the documents of a large base are checked again
LOOK_AGAIN_AFTER = timedelta(seconds=5)  # when the documents of a small base are, or requested ones are only counted
MANY = 500  # documents of a large base; if so many requested ones are being built, they are only counted
GRACE = timedelta(minutes=1)  # work claimed this long after a change may still use the old settings


class DocumentSlot(NamedTuple):
    kind: str
    state: SlotState
    recipe: int | None
    claimed_at: Moment | None
    payload: str | None  # of its job; a rollout writes the id of its own job here


class RolloutTarget(NamedTuple):
    """The desired state of the documents of a base."""

    recipes: Mapping[str, int]  # by kind: the recipe that a document should serve
    kept_kinds: Collection[str]  # kinds that are not dropped, also if they cannot be built now
    retry_kinds: Collection[str]  # kinds that are built again where they failed
    job: JobId  # of the rollout
    since: Moment  # work claimed before may use the old settings


class DocumentPlan(NamedTuple):
    """The kinds to build and to drop for a document now, and whether to check it again later."""

    build: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    wait: bool = False


def plan_document(slots: Sequence[DocumentSlot], target: RolloutTarget) -> DocumentPlan:
    live = {one.kind: one for one in slots if one.state is not SlotState.DELETING}
    if not live:
        return DocumentPlan()
    dropping_kinds = {one.kind for one in slots} - live.keys()
    drop = tuple(
        kind for kind, one in live.items() if kind not in target.kept_kinds or _failed_and_unbuildable(one, target)
    )
    build = tuple(
        kind for kind in target.recipes if kind not in dropping_kinds and _outdated(kind, live.get(kind), target)
    )
    if CONTENT in live and live[CONTENT].state is SlotState.CANCELLED and CONTENT not in build:
        build = ()  # a user cancelled it before there was content to build from
    wait = bool(dropping_kinds & target.recipes.keys())
    if not any(one.state in ACTIVE_STATES for one in live.values()):
        return DocumentPlan(build, drop, wait)
    early = any(one.state is SlotState.RUNNING and (one.claimed_at or 0) < target.since for one in live.values())
    requested = any(one.payload == target.job and one.state in ACTIVE_STATES for one in live.values())
    return DocumentPlan(wait=wait or bool(build or drop) or early or requested)


def _failed_and_unbuildable(one: DocumentSlot, target: RolloutTarget) -> bool:
    """Return whether a slot failed, serves nothing, and cannot be built now. The document is not to blame."""
    return one.kind not in target.recipes and one.state is SlotState.FAILED and one.recipe is None


def _outdated(kind: str, one: DocumentSlot | None, target: RolloutTarget) -> bool:
    """Return whether a slot needs a request to reach the desired state."""
    if one is None:
        return True
    if one.payload == target.job or one.state in ACTIVE_STATES:
        return False
    return one.recipe != target.recipes[kind] if one.state is SlotState.READY else kind in target.retry_kinds


def request(base: Base, specs: Mapping[str, str], retry_kinds: Collection[str], requester: str = "") -> Request:
    """Return the request for a rollout, which replaces an active one; `retry_kinds` are retried where they failed."""
    return Request(
        base=base.key,
        owner=ROLLOUT,
        operation=Operation.CHANGE,
        slots=(SlotSpec(ROLLOUT),),
        fingerprint=f"{digest(specs, base)}:{uuid4()}",
        priority=LOWEST_PRIORITY,
        cause="settings",
        requester=requester,
        payload=json.dumps(sorted(retry_kinds)),
    )


def digest(specs: Mapping[str, str], base: Base) -> str:
    """Return a hash of the desired state."""
    return sha256(json.dumps([sorted(specs.items()), sorted(base.settings.indexes)]).encode()).hexdigest()


class RolloutIndexer:
    """An `Indexer` that builds the slot `rollout` of a base."""

    def __init__(self, store: SqlStore, catalog: Catalog, indexes: IndexRegistry, adder: DocumentAdder) -> None:
        self._store = store
        self._catalog = catalog
        self._indexes = indexes
        self._adder = adder

    def build(self, task: Task) -> BuildResult:
        """Request what each document needs; raise `RetryLater` while some have active work."""
        try:
            left, total = self._walk(task)
        except (UnknownBase, BaseFailed) as error:
            raise Permanent("base_not_usable", params={"base": error.params["base"]}) from error
        if left:
            wait = LOOK_AGAIN_AFTER if total <= MANY else RETRY_AFTER
            raise RetryLater("documents_at_work", params={"documents": str(left)}, retry_after=wait)
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Remove nothing: the slot has no rows of its own."""
        task.checkpoint(stage="removing")

    def _walk(self, task: Task) -> tuple[int, int]:
        """Request what the documents need; return how many are not done, and the number of all."""
        base = self._catalog.base(int(task.ticket.key.base))
        if base is None:
            raise UnknownBase(task.ticket.key.base)
        target = self._target(base, task.ticket.job)
        with self._store.database.reading() as tx:
            ((total,),) = tx.run(sql.COUNT_DOCUMENTS, base_id=base.id)
            ((building,),) = tx.run(sql.COUNT_REQUESTED, base=base.key, job=target.job)
        if building >= MANY:
            self._report(task, total - building, total)
            raise RetryLater("documents_at_work", params={"documents": str(building)}, retry_after=LOOK_AGAIN_AFTER)
        after = done = left = 0
        while True:
            task.checkpoint(stage=ROLLING_OUT, done=done - left, total=max(total, done))
            drops = self._request_batch(task, base, target, after, dropping=True)
            page = self._request_batch(task, base, target, after, dropping=False)
            if not page.documents:
                self._report(task, done - left, max(total, done))
                return left, done
            pause_for_quota(base, held=page.quota_exhausted)
            after, done = page.documents[-1], done + len(page.documents)
            left += len(drops.not_done | page.not_done)

    def _report(self, task: Task, done: int, total: int) -> None:
        """Write the progress now: a slot that waits has no heartbeat."""
        task.checkpoint(stage=ROLLING_OUT, done=max(0, done), total=total)
        task.renew()

    def _target(self, base: Base, job: JobId) -> RolloutTarget:
        rollout_job = self._store.job(job)
        specs = self._indexes.specs(base)
        return RolloutTarget(
            recipes={
                kind: self._catalog.get_or_create_recipe(base, kind, json.loads(spec)).id
                for kind, spec in specs.items()
            },
            kept_kinds={CONTENT, *base.settings.indexes},
            retry_kinds=json.loads(rollout_job.payload or "[]"),
            job=job,
            since=Moment(rollout_job.created_at + micros(GRACE)),
        )

    def _request_batch(
        self, task: Task, base: Base, target: RolloutTarget, after: int, *, dropping: bool
    ) -> RolloutBatch:
        """Request the drops, or the builds, of the next documents in one transaction."""
        page = RolloutBatch([])

        def write(tx: Transaction) -> list[Request]:
            nonlocal page
            now = lock_open_base(tx, base, building=True)
            require_held(tx, task.ticket)
            documents = [
                id_
                for (id_,) in tx.run(
                    sql.READ_DOCUMENT_IDS, base_id=base.id, after=after, limit=DOCUMENTS_PER_TRANSACTION
                )
            ]
            needs = {
                document: plan_document(slots, target)
                for document, slots in _read_document_slots(tx, documents).items()
            }
            chosen = {document: one.drop if dropping else one.build for document, one in needs.items()}
            page = RolloutBatch(documents, {one for one, plan in needs.items() if plan.wait or chosen[one]})
            specs = () if dropping else self._adder.slot_specs(now)
            return [
                Request(
                    base=base.key,
                    owner=str(document),
                    operation=Operation.DROP if dropping else Operation.RENEW,
                    slots=specs,
                    kinds=kinds,
                    priority=LOWEST_PRIORITY,
                    cause=ROLLOUT,
                    payload=target.job,
                )
                for document, kinds in chosen.items()
                if kinds
            ]

        answers = self._store.admit_with(write)
        return page._replace(quota_exhausted=any(answer.retry_at is not None for answer in answers))


class RolloutBatch(NamedTuple):
    """The documents of one transaction, and those of them that are not done."""

    documents: list[int]
    not_done: AbstractSet[int] = frozenset()
    quota_exhausted: bool = False  # the quota of the base refused some


def _read_document_slots(tx: Transaction, documents: Sequence[int]) -> dict[int, list[DocumentSlot]]:
    found: dict[int, list[DocumentSlot]] = {document: [] for document in documents}
    for document, kind, state, *more in slots_of_documents(tx, documents):
        found[document].append(DocumentSlot(kind, SlotState(state), *more))
    return found
