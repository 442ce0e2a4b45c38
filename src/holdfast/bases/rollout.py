"""The slot `rollout` of a base: brings its documents to what the base wants now, some at a time.

It only asks: each document is then built, or loses an index, by itself, while what it had before is served. Whether a
document needs anything is read from its slots, so whoever goes on after a crash asks for nothing twice. A document that
is at work is left for another round. None is asked twice in one rollout, whatever came of the first time.
"""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from holdfast.bases import statements as sql
from holdfast.catalog import slots_of_documents
from holdfast.clock import Moment, micros
from holdfast.documents import lock_open_base, pause_for_quota
from holdfast.engine import ACTIVE_STATES, BuildResult, Operation, Request, SlotSpec, SlotState
from holdfast.engine.store import LOWEST_PRIORITY, require_held
from holdfast.errors import BaseFailed, Permanent, RetryLater, UnknownBase
from holdfast.indexes import CONTENT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.catalog import Base, Catalog
    from holdfast.db import Transaction
    from holdfast.documents import DocumentAdder
    from holdfast.engine import JobId
    from holdfast.engine.store import SqlStore
    from holdfast.engine.task import Task
    from holdfast.indexes import IndexRegistry

ROLLOUT = "rollout"  # the kind of the slot, and the name of its owner in the base
DOCUMENTS_PER_TRANSACTION = 100  # documents asked for in one transaction
RETRY_AFTER = timedelta(seconds=30)  # when documents are looked at again that were at work
GRACE = timedelta(minutes=1)  # a claim may be this much younger than a change, and not know of it yet


class DocumentSlot(NamedTuple):
    """How one slot of a document stands."""

    kind: str
    state: SlotState
    recipe: int | None
    claimed_at: Moment | None
    payload: str | None  # of its job: what was asked for by a rollout names the rollout's job


class RolloutTarget(NamedTuple):
    """What the documents of a base should have."""

    recipes: Mapping[str, int]  # by kind: what is served should be made by it
    kept_kinds: Collection[str]  # kinds that stay, also those that cannot be built for now
    retry_kinds: Collection[str]  # kinds that are tried again where they failed
    job: JobId  # of the rollout
    since: Moment  # what was claimed before may not know what is wanted


class DocumentPlan(NamedTuple):
    """What is to be asked for a document now, and whether it must be looked at once more."""

    build: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    wait: bool = False


def plan_document(slots: Sequence[DocumentSlot], target: RolloutTarget) -> DocumentPlan:
    """Tell what a document needs."""
    live = {one.kind: one for one in slots if one.state is not SlotState.DELETING}
    if not live:
        return DocumentPlan()
    going = {one.kind for one in slots} - live.keys()
    drop = tuple(
        kind for kind, one in live.items() if kind not in target.kept_kinds or _failed_and_unbuildable(one, target)
    )
    build = tuple(kind for kind in target.recipes if kind not in going and _outdated(kind, live.get(kind), target))
    if CONTENT in live and live[CONTENT].state is SlotState.CANCELLED and CONTENT not in build:
        build = ()  # a person stopped it before there was anything to build upon
    wait = bool(going & target.recipes.keys())
    if not any(one.state in ACTIVE_STATES for one in live.values()):
        return DocumentPlan(build, drop, wait)
    early = any(one.state is SlotState.RUNNING and (one.claimed_at or 0) < target.since for one in live.values())
    return DocumentPlan(wait=wait or bool(build or drop) or early)


def _failed_and_unbuildable(one: DocumentSlot, target: RolloutTarget) -> bool:
    """Tell whether a slot failed, serves nothing, and cannot be built for now: it is no fault of its document."""
    return one.kind not in target.recipes and one.state is SlotState.FAILED and one.recipe is None


def _outdated(kind: str, one: DocumentSlot | None, target: RolloutTarget) -> bool:
    """Tell whether a slot is not what is wanted and will not become it by itself."""
    if one is None:
        return True
    if one.payload == target.job or one.state in ACTIVE_STATES:
        return False
    return one.recipe != target.recipes[kind] if one.state is SlotState.READY else kind in target.retry_kinds


def request(base: Base, specs: Mapping[str, str], again: Collection[str], requester: str = "") -> Request:
    """Ask for a rollout, in the place of one that is under way; `again` are the kinds that are tried again."""
    return Request(
        base=base.key,
        owner=ROLLOUT,
        operation=Operation.CHANGE,
        slots=(SlotSpec(ROLLOUT),),
        fingerprint=f"{digest(specs, base)}:{uuid4()}",
        priority=LOWEST_PRIORITY,
        cause="settings",
        requester=requester,
        payload=json.dumps(sorted(again)),
    )


def digest(specs: Mapping[str, str], base: Base) -> str:
    """Name what a rollout leads to."""
    return sha256(json.dumps([sorted(specs.items()), sorted(base.settings.indexes)]).encode()).hexdigest()


class RolloutIndexer:
    """An `Indexer`: builds the slot `rollout` of a base."""

    def __init__(self, store: SqlStore, catalogue: Catalog, indexes: IndexRegistry, adding: DocumentAdder) -> None:
        self._store = store
        self._catalog = catalogue
        self._indexes = indexes
        self._adder = adding

    def build(self, task: Task) -> BuildResult:
        """Go through the documents and ask for what each needs; wait if some of them are at work."""
        try:
            left = self._walk(task)
        except (UnknownBase, BaseFailed) as error:
            raise Permanent("base_not_usable", str(error)) from error
        if left:
            raise RetryLater(
                "documents_at_work",
                f"{left} documents are still being indexed, so they do not have the new settings yet.",
                params={"documents": str(left)},
                retry_after=RETRY_AFTER,
            )
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Nothing is kept here."""
        task.checkpoint(stage="removing")

    def _walk(self, task: Task) -> int:
        """Ask for what the documents need; return how many must be looked at again."""
        base = self._catalog.base(int(task.ticket.key.base))
        if base is None:
            raise UnknownBase(task.ticket.key.base)
        target = self._target(base, task.ticket.job)
        with self._store.database.reading() as tx:
            ((total,),) = tx.run(sql.COUNT_DOCUMENTS, base_id=base.id)
        after = done = left = 0
        while True:
            task.checkpoint(stage="rolling out", done=done, total=max(total, done))
            self._request_batch(task, base, target, after, dropping=True)
            page = self._request_batch(task, base, target, after, dropping=False)
            if not page.documents:
                return left
            pause_for_quota(held=page.quota_exhausted)
            after, done, left = page.documents[-1], done + len(page.documents), left + page.left

    def _target(self, base: Base, job: JobId) -> RolloutTarget:
        asked = self._store.job(job)
        specs = self._indexes.specs(base)
        return RolloutTarget(
            recipes={
                kind: self._catalog.get_or_create_recipe(base, kind, json.loads(spec)).id
                for kind, spec in specs.items()
            },
            kept_kinds={CONTENT, *base.settings.indexes},
            retry_kinds=json.loads(asked.payload or "[]"),
            job=job,
            since=Moment(asked.created_at + micros(GRACE)),
        )

    def _request_batch(
        self, task: Task, base: Base, target: RolloutTarget, after: int, *, dropping: bool
    ) -> RolloutBatch:
        """Ask for the next documents, in one transaction: what they lose, or what they get."""
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
            page = RolloutBatch(documents, sum(one.wait for one in needs.values()))  # as it stands if this is run again
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
                for document, one in needs.items()
                if (kinds := one.drop if dropping else one.build)
            ]

        answers = self._store.admit_with(write)
        refused = sum(not answer.accepted for answer in answers)
        held = any(answer.retry_at is not None for answer in answers)
        return page._replace(left=page.left + refused, quota_exhausted=held)


class RolloutBatch(NamedTuple):
    """The documents of one transaction, and how many of them must be looked at again."""

    documents: list[int]
    left: int = 0
    quota_exhausted: bool = False  # by the quota of the base


def _read_document_slots(tx: Transaction, documents: Sequence[int]) -> dict[int, list[DocumentSlot]]:
    found: dict[int, list[DocumentSlot]] = {document: [] for document in documents}
    for document, kind, state, *more in slots_of_documents(tx, documents):
        found[document].append(DocumentSlot(kind, SlotState(state), *more))
    return found
