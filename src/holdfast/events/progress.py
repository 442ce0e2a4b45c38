"""How far running work is, for whoever looks on: the newest state of each document, and nothing that was before.

Nothing is queued here, so that whoever looks on slowly sees fewer states and costs no more memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.events.public_events import document_of_owner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.events.public_events import EventFilter

PROGRESS_INTERVAL = timedelta(milliseconds=100)  # between two states of one document

OwnerKey = tuple[str, str]  # base and owner


class RunningSlot(NamedTuple):
    """One slot that is worked on."""

    base: str
    owner: str
    kind: str
    job: str
    generation: int
    stage: str
    step: int
    steps: int
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMessage:
    """How far the work on one document is, or on a part of a base; it is not kept, and so has no id."""

    base: str
    document: int | None
    owner: str
    parts: tuple[RunningSlot, ...]  # one for each kind that is worked on, the first asked for first

    @property
    def generation(self) -> int:
        """The newest request that is worked on."""
        return max(part.generation for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return it as it is written in JSON."""
        return {
            "base": self.base,
            "document": self.document,
            "owner": self.owner,
            "generation": self.generation,
            "parts": [
                {
                    "kind": part.kind,
                    "job": part.job,
                    "generation": part.generation,
                    "stage": part.stage,
                    "step": part.step,
                    "steps": part.steps,
                    "done": part.done,
                    "total": part.total,
                }
                for part in self.parts
            ],
        }


class LatestProgress:
    """What runs, each document with the number of its last change."""

    def __init__(self) -> None:
        self._changes = 0
        self._entries: dict[OwnerKey, tuple[int, ProgressMessage]] = {}  # those that changed last stand last

    def update(self, running: Iterable[RunningSlot], *, new: bool = True) -> bool:
        """Put up what runs now, in the place of what ran before; return whether anything is new.

        Without `new` only what has ended is taken down.
        """
        places: dict[OwnerKey, list[RunningSlot]] = {}
        for one in running:
            places.setdefault((one.base, one.owner), []).append(one)
        before = self._changes
        for place in list(self._entries):
            self._remove_ended(place, {(part.kind, part.generation) for part in places.get(place, ())})
        for place, parts in places.items() if new else ():
            self._set_parts(place, parts)
        return self._changes > before

    def next_change(self, change: int, only: EventFilter) -> tuple[int, ProgressMessage] | None:
        """Return the next change that somebody has not seen, with its number."""
        for number, progress in self._entries.values():
            if number > change and only.matches_document(progress.base, progress.document):
                return number, progress
        return None

    def _remove_ended(self, place: OwnerKey, running: set[tuple[str, int]]) -> None:
        number, progress = self._entries[place]
        left = tuple(part for part in progress.parts if (part.kind, part.generation) in running)
        if not left:
            del self._entries[place]
        elif left != progress.parts:
            self._entries[place] = (number, replace(progress, parts=left))

    def _set_parts(self, place: OwnerKey, parts: list[RunningSlot]) -> None:
        known = self._entries.get(place)
        before = {part.kind: part for part in known[1].parts} if known else {}
        now = tuple(max(part, before.get(part.kind, part), key=_progress_order) for part in parts)
        if known and known[1].parts == now:
            return
        self._changes += 1
        self._entries.pop(place, None)
        base, owner = place
        progress = ProgressMessage(base=base, owner=owner, document=document_of_owner(base, owner), parts=now)
        self._entries[place] = (self._changes, progress)


def _progress_order(part: RunningSlot) -> tuple[int, int, int]:
    """Return what never goes back: within a generation the step, within a step what is done of it."""
    return part.generation, part.step, part.done
