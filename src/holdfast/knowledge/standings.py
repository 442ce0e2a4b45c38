"""How an item stands, told from its slots: what of it can be searched, what is wrong, how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.slot import Fault, Progress
from holdfast.core.states import SlotState, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.clock import Moment
    from holdfast.core.slot import JobId, Slot
    from holdfast.core.waiting import Reason
    from holdfast.indexes.base import NotEnabled
    from holdfast.library.catalogue import Item
    from holdfast.stores.base import Job

# Of several slots the first of these tells what is done with an item.
_TELLING = (SlotState.RUNNING, SlotState.WAITING, SlotState.QUEUED, SlotState.BLOCKED, SlotState.DELETING)
# And of several that are not as wanted the first of these tells why.
_TROUBLED = (SlotState.FAILED, SlotState.WAITING, SlotState.DELETING, SlotState.CANCELLED)

NOT_ASKED = Fault("not_asked", {"message": "Nobody has asked for it to be indexed."})
CANCELLED = Fault("cancelled", {"message": "It was cancelled before it was complete. Retry it to build the rest."})
NEWER_CANCELLED = Fault(
    "newer_cancelled",
    {
        "message": "The newest version was cancelled before it was built; the version before it stays searchable. "
        "Retry it to build the newest version."
    },
)
BELOW = Fault("below", {"message": "Something that stands below it is not as wanted."})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How an item stands."""

    item: int
    status: Status
    searchable: bool = False  # something of it is served now, whatever its status
    why: Fault | None = None  # it is not as wanted: its problem, or what its worst slot says
    retry_at: Moment | None = None  # when that is tried again by itself
    progress: Progress = field(default_factory=Progress)  # of the slot that tells most
    priority: int | None = None  # of what is active
    job: JobId | None = None  # that is active
    ahead: int | None = None  # active jobs that come before it, while it is queued; told where few are asked about
    wanted: int = 0  # the newest request
    built: int = 0  # the newest that is served

    @property
    def share(self) -> float | None:
        """How far it is, from 0 to 1; None where no total is known."""
        return share(self.progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An item and how it stands."""

    item: Item
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStanding:
    """How one slot of an item stands: its content, an index, or the look at its source."""

    kind: str
    state: SlotState
    wanted: int
    built: int  # the request that is served; 0: none
    source: int | None  # the list of chunks that is served
    attempts: int
    attempts_max: int
    error: Fault | None
    retry_at: Moment | None
    queued_at: Moment
    claimed_at: Moment | None
    missing: int  # chunks that it lacks
    chunks: int  # that it serves
    recipe: str | None  # how what is served was made, in words
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """All that the page of one item shows, of one snapshot."""

    row: Row
    indexes: Sequence[IndexStanding]
    not_enabled: Mapping[str, NotEnabled]  # indexes that the base wants and cannot have here, each with the reason
    chunks: int  # of the text that was read last
    jobs: Sequence[Job]  # newest first
    waits: Sequence[Reason] = ()  # why it is not at rest


def share(progress: Progress) -> float | None:
    """Tell how far work is, from 0 to 1; with steps, each is an equal part."""
    if not progress.total:
        return None
    part = min(1.0, progress.done / progress.total)
    if progress.step < 1 or progress.steps < progress.step:
        return part
    return (progress.step - 1 + part) / progress.steps


def standing_of(item: Item, status: Status, slots: Sequence[Slot], *, searchable: bool | None = None) -> Standing:
    """Tell how an item stands of this status, with all slots of its owners; of a container others know what is served.

    What is dropped does not count beside what stays, as in `core.status`.
    """
    live = _live(slots)
    indexes = _searched(item, live)
    active = sorted((slot for slot in live if not slot.resting), key=_telling)
    told = active[0] if active else None
    why, again = _why(item, status, live)
    return Standing(
        item=item.id,
        status=status,
        searchable=any(slot.served for slot in indexes) if searchable is None else searchable,
        why=why,
        retry_at=again,
        progress=told.progress if told else Progress(),
        priority=min(slot.priority for slot in active) if active else None,
        job=told.job if told else None,
        wanted=generation_of(slots),
        built=max((slot.built for slot in indexes), default=0),
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


def _telling(slot: Slot) -> tuple[int, int, int]:
    return _TELLING.index(slot.state), -(slot.claimed_at or 0), slot.id


def _why(item: Item, status: Status, slots: Sequence[Slot]) -> tuple[Fault | None, Moment | None]:
    """Tell what is wrong, and when it is tried again by itself."""
    if item.problem is not None:
        return item.problem, None
    if troubled := list(filter(_troubled, slots)):
        worst = min(troubled, key=lambda slot: (_TROUBLED.index(slot.state), slot.needs is not None, slot.id))
        again = worst.due_at if worst.state in (SlotState.WAITING, SlotState.DELETING) else None
        return (CANCELLED if worst.state is SlotState.CANCELLED else worst.error), again
    lacking = next((slot for slot in slots if slot.missing), None)
    if lacking is not None:
        return _lacks(lacking), None
    if any(slot.state is SlotState.CANCELLED for slot in slots if slot.owner == item.key):
        return NEWER_CANCELLED, None
    if item.container and status in (Status.FAILED, Status.DEGRADED):
        return BELOW, None
    return (NOT_ASKED if status is Status.NOT_INDEXED and not item.container else None), None


def _troubled(slot: Slot) -> bool:
    """Tell whether a slot is not as wanted; one that serves an older version while a newer was cancelled is."""
    if slot.state is SlotState.CANCELLED:
        return not slot.served
    return slot.state in _TROUBLED and slot.error is not None


def _lacks(slot: Slot) -> Fault:
    said = f"{slot.missing} of its chunks are missing in {slot.kind}; try again, and only these are asked for."
    return Fault("chunks_missing", {"kind": slot.kind, "missing": str(slot.missing), "message": said})


def index_of(slot: Slot, *, attempts_max: int, chunks: int, recipe: str | None) -> IndexStanding:
    """Tell how one slot stands; `chunks` are those of the list it serves."""
    again = slot.due_at if slot.state in (SlotState.WAITING, SlotState.DELETING) else None
    return IndexStanding(
        kind=slot.kind,
        state=slot.state,
        wanted=slot.wanted,
        built=slot.built,
        source=slot.source,
        attempts=slot.attempts,
        attempts_max=attempts_max,
        error=slot.error,
        retry_at=again,
        queued_at=slot.queued_at,
        claimed_at=slot.claimed_at,
        missing=slot.missing,
        chunks=max(0, chunks - slot.missing) if slot.served else 0,
        recipe=recipe,
        progress=slot.progress,
    )
