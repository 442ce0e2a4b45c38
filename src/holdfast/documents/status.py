"""Derives the status of an item from its slots: whether search finds it, its problem, and its progress."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime  # noqa: TC003 - schemas are made from the annotations
from typing import TYPE_CHECKING, Any

from holdfast.catalog import ItemKind  # noqa: TC001 - as above
from holdfast.clock import as_datetime
from holdfast.engine import Fault, Problem, SlotState, Status, describe_fault
from holdfast.errors import StateConflict
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Item
    from holdfast.clock import Moment
    from holdfast.engine import Progress as SlotProgress
    from holdfast.engine import Slot

# The slot whose state comes first here is shown as the activity of an item.
_ACTIVITY_ORDER = (SlotState.RUNNING, SlotState.WAITING, SlotState.QUEUED, SlotState.BLOCKED, SlotState.DELETING)
# Among the slots with a problem, the one whose state comes first here gives the reason.
_PROBLEM_ORDER = (SlotState.FAILED, SlotState.WAITING, SlotState.DELETING, SlotState.CANCELLED)

NOT_REQUESTED = Fault("not_asked")
CANCELLED = Fault("cancelled")
NEWER_CANCELLED = Fault("newer_cancelled")
CHILD_PROBLEM = Fault("below")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of work; `share` only if the total is known."""

    stage: str
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """The status of one index of a document."""

    kind: str
    state: SlotState
    wanted: int  # generation of the newest request
    built: int  # generation that is served; 0: none
    attempts: int
    attempts_max: int
    chunks: int  # number of chunks that it serves
    missing: int  # number of chunks that it lacks
    made_by: str | None  # the recipe of what it serves
    error: Problem | None = None
    retry_at: datetime | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentStatus:
    """The status of a document."""

    id: int
    name: str
    kind: ItemKind
    status: Status
    searchable: bool  # a search can find it now, regardless of its status
    generation: int  # of the newest request
    built: int  # generation that is served; 0: none
    why: Problem | None = None
    retry_at: datetime | None = None  # when it is retried automatically
    progress: Progress | None = None  # of the running work
    priority: int | None = None  # of the active work
    job: str | None = None  # the active job
    queue_position: int | None = None  # jobs before it, while it is queued, counted up to 10,000; not in lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(DocumentStatus):
    """One item of a base: a file, note or page that is indexed, or a folder or sitemap that holds others."""

    base: str
    parent: int | None
    size: int
    sha256: str | None
    source: str | None
    every: int | None  # seconds between two reads of the source
    metadata: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    # Only for a single document, not in lists:
    waiting_for: list[Problem] = field(default_factory=list)
    chunks: int | None = None
    indexes: list[IndexStatus] = field(default_factory=list)
    not_enabled: dict[str, Problem] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)  # newest first


def share(progress: SlotProgress) -> float | None:
    """Return the progress from 0 to 1; each step counts equally."""
    if not progress.total:
        return None
    part = min(1.0, progress.done / progress.total)
    if progress.step < 1 or progress.steps < progress.step:
        return part
    return (progress.step - 1 + part) / progress.steps


def progress_of(progress: SlotProgress) -> Progress | None:
    """Return the progress of a slot; None if its work has not started."""
    if not progress.stage:
        return None
    return Progress(
        stage=progress.stage,
        step=progress.step,
        steps=progress.steps,
        done=progress.done,
        total=progress.total,
        share=share(progress),
    )


def damage_of(item: Item) -> StateConflict | None:
    """Return the error for a document whose row is damaged; None if it is not."""
    if item.damage is None:
        return None
    return StateConflict("document_damaged", document=item.id, column=item.damage)


def document_of(item: Item, status: DocumentStatus, base: str, **detail: Any) -> Document:
    """Return a document from its item and its status; `detail` has the fields that lists leave out."""
    return Document(
        **{field_.name: getattr(status, field_.name) for field_ in fields(DocumentStatus)},
        base=base,
        parent=item.parent or None,
        size=item.size,
        sha256=item.digest,
        source=None if item.source is None else mask_secrets(item.source),
        every=item.every,
        metadata=dict(item.metadata),
        created_at=as_datetime(item.created_at),
        changed_at=as_datetime(item.changed_at),
        **detail,
    )


def derive_document_status(
    item: Item, status: Status, slots: Sequence[Slot], *, searchable: bool | None = None
) -> DocumentStatus:
    """Return the full status of an item from its status and all slots of its owners.

    A caller passes `searchable` for a container, because a container's own slots serve nothing. Slots that are being
    dropped do not count beside others, as in `engine.status`.
    """
    live = _live(slots)
    indexes = _searched(item, live)
    active = sorted((slot for slot in live if not slot.resting), key=_activity_rank)
    shown = active[0] if active else None
    problem, retry_at = _find_problem(item, status, live)
    damaged = damage_of(item)
    return DocumentStatus(
        id=item.id,
        name=item.name,
        kind=item.kind,
        status=status,
        searchable=any(slot.served for slot in indexes) if searchable is None else searchable,
        generation=generation_of(slots),
        built=max((slot.built for slot in indexes), default=0),
        why=describe_fault(problem if damaged is None else Fault(damaged.code, damaged.params)),
        retry_at=as_datetime(retry_at),
        progress=progress_of(shown.progress) if shown else None,
        priority=min(slot.priority for slot in active) if active else None,
        job=shown.job if shown else None,
    )


def generation_of(slots: Sequence[Slot]) -> int:
    """Return the newest generation of an item with these slots; 0 if there is none."""
    return max((slot.wanted for slot in _live(slots)), default=0)


def _live(slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots that are not being dropped, or all slots if all are."""
    return [slot for slot in slots if slot.state is not SlotState.DELETING] or list(slots)


def _searched(item: Item, slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots of indexes: those of the document that no other slot is built from."""
    own = [slot for slot in slots if slot.owner == item.key]
    needed = {slot.needs for slot in own}
    return [slot for slot in own if slot.kind not in needed]


def _activity_rank(slot: Slot) -> tuple[int, int, int]:
    return _ACTIVITY_ORDER.index(slot.state), -(slot.claimed_at or 0), slot.id


def _find_problem(item: Item, status: Status, slots: Sequence[Slot]) -> tuple[Fault | None, Moment | None]:
    """Return the problem of an item, and when its work is retried automatically."""
    if item.problem is not None:
        return item.problem, None
    if troubled := list(filter(_has_problem, slots)):
        worst = min(troubled, key=lambda slot: (_PROBLEM_ORDER.index(slot.state), slot.needs is not None, slot.id))
        retry_at = worst.due_at if worst.state in (SlotState.WAITING, SlotState.DELETING) else None
        return (CANCELLED if worst.state is SlotState.CANCELLED else worst.error), retry_at
    lacking = next((slot for slot in slots if slot.missing), None)
    if lacking is not None:
        return _missing_chunks_fault(lacking), None
    if any(slot.state is SlotState.CANCELLED for slot in slots if slot.owner == item.key):
        return NEWER_CANCELLED, None
    if item.is_container and status in (Status.FAILED, Status.DEGRADED):
        return CHILD_PROBLEM, None
    return (NOT_REQUESTED if status is Status.NOT_INDEXED and not item.is_container else None), None


def _has_problem(slot: Slot) -> bool:
    """Return whether a slot has a problem. A cancelled slot that serves an older version has none."""
    if slot.state is SlotState.CANCELLED:
        return not slot.served
    return slot.state in _PROBLEM_ORDER and slot.error is not None


def _missing_chunks_fault(slot: Slot) -> Fault:
    return Fault("chunks_missing", {"kind": slot.kind, "missing": str(slot.missing)})


def index_of(slot: Slot, *, attempts_max: int, chunks: int, recipe: str | None) -> IndexStatus:
    """Return the status of an index from its slot; `chunks` is the number of chunks in the list that it serves."""
    retry_at = slot.due_at if slot.state in (SlotState.WAITING, SlotState.DELETING) else None
    return IndexStatus(
        kind=slot.kind,
        state=slot.state,
        wanted=slot.wanted,
        built=slot.built,
        attempts=slot.attempts,
        attempts_max=attempts_max,
        chunks=max(0, chunks - slot.missing) if slot.served else 0,
        missing=slot.missing,
        made_by=recipe,
        error=describe_fault(slot.error),
        retry_at=as_datetime(retry_at),
        queued_at=as_datetime(slot.queued_at),
        claimed_at=as_datetime(slot.claimed_at),
        progress=progress_of(slot.progress),
    )
