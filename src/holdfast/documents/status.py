"""How an item stands, told from its slots: what of it can be searched, what is wrong, how far it is."""

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

# Of several slots the first of these tells what is done with an item.
_ACTIVITY_ORDER = (SlotState.RUNNING, SlotState.WAITING, SlotState.QUEUED, SlotState.BLOCKED, SlotState.DELETING)
# And of several that are not as wanted the first of these tells why.
_PROBLEM_ORDER = (SlotState.FAILED, SlotState.WAITING, SlotState.DELETING, SlotState.CANCELLED)

NOT_REQUESTED = Fault("not_asked", {"message": "Nobody has asked for it to be indexed."})
CANCELLED = Fault("cancelled", {"message": "It was cancelled before it was complete. Retry it to build the rest."})
NEWER_CANCELLED = Fault(
    "newer_cancelled",
    {
        "message": "The newest version was cancelled before it was built; the version before it stays searchable. "
        "Retry it to build the newest version."
    },
)
CHILD_PROBLEM = Fault("below", {"message": "Something that stands below it is not as wanted."})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far work is; `share` only where a total is known."""

    stage: str
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """How one index of a document stands."""

    kind: str
    state: SlotState
    wanted: int  # the newest request
    built: int  # the request that is served; 0: none
    attempts: int
    attempts_max: int
    chunks: int  # that it serves
    missing: int  # chunks that it lacks
    made_by: str | None  # how what is served was made
    error: Problem | None = None
    retry_at: datetime | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentStatus:
    """How a document stands."""

    id: int
    name: str
    kind: ItemKind
    status: Status
    searchable: bool  # something of it is found now, whatever its status
    generation: int  # of the newest request
    built: int  # of what is served; 0: nothing
    why: Problem | None = None  # it is not as wanted
    retry_at: datetime | None = None  # when that is tried again by itself
    progress: Progress | None = None  # of what runs
    priority: int | None = None  # of what is active
    job: str | None = None  # that is active
    queue_position: int | None = None  # jobs that come before it, while it is queued; not told in lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(DocumentStatus):
    """One item of a base: a file, note or page that is indexed, or a folder or sitemap that holds others."""

    base: str
    parent: int | None
    size: int
    sha256: str | None
    source: str | None
    every: int | None  # seconds after which its source is looked at again
    metadata: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    # What follows is told where one document is asked for.
    waiting_for: list[Problem] = field(default_factory=list)
    chunks: int | None = None
    indexes: list[IndexStatus] = field(default_factory=list)
    not_enabled: dict[str, Problem] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)  # the newest first


def share(progress: SlotProgress) -> float | None:
    """Tell how far work is, from 0 to 1; with steps, each is an equal part."""
    if not progress.total:
        return None
    part = min(1.0, progress.done / progress.total)
    if progress.step < 1 or progress.steps < progress.step:
        return part
    return (progress.step - 1 + part) / progress.steps


def progress_of(one: SlotProgress) -> Progress | None:
    """Return how far work is; None where it has not begun."""
    if not one.stage:
        return None
    return Progress(stage=one.stage, step=one.step, steps=one.steps, done=one.done, total=one.total, share=share(one))


def damage_of(item: Item) -> StateConflict | None:
    """Return why a document cannot be shown as it was stored; None where it can."""
    if item.damage is None:
        return None
    return StateConflict(
        "document_damaged",
        f"Document {item.id} cannot be shown: the stored value of {item.damage!r} is not readable, or is nested too "
        "deeply. It was written by an older version or another program. Delete the document and add it again.",
    )


def document_of(item: Item, standing: DocumentStatus, base: str, **detail: Any) -> Document:
    """Return an item of a base with how it stands, and with details where one document is asked for."""
    return Document(
        **{one.name: getattr(standing, one.name) for one in fields(DocumentStatus)},
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
    """Tell how an item stands of this status, with all slots of its owners; of a container others know what is served.

    What is dropped does not count beside what stays, as in `engine.status`.
    """
    live = _live(slots)
    indexes = _searched(item, live)
    active = sorted((slot for slot in live if not slot.resting), key=_activity_rank)
    told = active[0] if active else None
    why, again = _find_problem(item, status, live)
    damaged = damage_of(item)
    return DocumentStatus(
        id=item.id,
        name=item.name,
        kind=item.kind,
        status=status,
        searchable=any(slot.served for slot in indexes) if searchable is None else searchable,
        generation=generation_of(slots),
        built=max((slot.built for slot in indexes), default=0),
        why=describe_fault(why) if damaged is None else Problem(code=damaged.reason, message=str(damaged)),
        retry_at=as_datetime(again),
        progress=progress_of(told.progress) if told else None,
        priority=min(slot.priority for slot in active) if active else None,
        job=told.job if told else None,
    )


def generation_of(slots: Sequence[Slot]) -> int:
    """Return the number of the newest request about an item with these slots; 0 where there was none."""
    return max((slot.wanted for slot in _live(slots)), default=0)


def _live(slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots that count: what is dropped does not, beside what stays."""
    return [slot for slot in slots if slot.state is not SlotState.DELETING] or list(slots)


def _searched(item: Item, slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots that are searched: those of the document that no other is built from."""
    own = [slot for slot in slots if slot.owner == item.key]
    needed = {slot.needs for slot in own}
    return [slot for slot in own if slot.kind not in needed]


def _activity_rank(slot: Slot) -> tuple[int, int, int]:
    return _ACTIVITY_ORDER.index(slot.state), -(slot.claimed_at or 0), slot.id


def _find_problem(item: Item, status: Status, slots: Sequence[Slot]) -> tuple[Fault | None, Moment | None]:
    """Tell what is wrong, and when it is tried again by itself."""
    if item.problem is not None:
        return item.problem, None
    if troubled := list(filter(_has_problem, slots)):
        worst = min(troubled, key=lambda slot: (_PROBLEM_ORDER.index(slot.state), slot.needs is not None, slot.id))
        again = worst.due_at if worst.state in (SlotState.WAITING, SlotState.DELETING) else None
        return (CANCELLED if worst.state is SlotState.CANCELLED else worst.error), again
    lacking = next((slot for slot in slots if slot.missing), None)
    if lacking is not None:
        return _missing_chunks_fault(lacking), None
    if any(slot.state is SlotState.CANCELLED for slot in slots if slot.owner == item.key):
        return NEWER_CANCELLED, None
    if item.is_container and status in (Status.FAILED, Status.DEGRADED):
        return CHILD_PROBLEM, None
    return (NOT_REQUESTED if status is Status.NOT_INDEXED and not item.is_container else None), None


def _has_problem(slot: Slot) -> bool:
    """Tell whether a slot is not as wanted; one that serves an older version while a newer was cancelled is."""
    if slot.state is SlotState.CANCELLED:
        return not slot.served
    return slot.state in _PROBLEM_ORDER and slot.error is not None


def _missing_chunks_fault(slot: Slot) -> Fault:
    said = f"{slot.missing} of its chunks are missing in {slot.kind}; try again, and only these are asked for."
    return Fault("chunks_missing", {"kind": slot.kind, "missing": str(slot.missing), "message": said})


def index_of(slot: Slot, *, attempts_max: int, chunks: int, recipe: str | None) -> IndexStatus:
    """Tell how one slot stands; `chunks` are those of the list it serves."""
    again = slot.due_at if slot.state in (SlotState.WAITING, SlotState.DELETING) else None
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
        retry_at=as_datetime(again),
        queued_at=as_datetime(slot.queued_at),
        claimed_at=as_datetime(slot.claimed_at),
        progress=progress_of(slot.progress),
    )
