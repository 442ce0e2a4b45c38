"""Progress of running work: only the latest state of each document.

Nothing is queued, so a slow subscriber sees fewer states and needs no more memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.events.public_events import document_of_owner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.events.public_events import EventFilter

PROGRESS_INTERVAL = timedelta(milliseconds=100)  # between two states of a document

OwnerKey = tuple[str, str]  # base and owner


class RunningSlot(NamedTuple):
    """A slot that a worker builds now. The fields from `kind` on are the JSON of a part."""

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
    """Progress of one document or one part of a base. It is not stored, so it has no id."""

    base: str
    document: int | None
    owner: str
    parts: tuple[RunningSlot, ...]  # one for each running slot, in order of their ids

    @property
    def generation(self) -> int:
        """The newest generation that is being built."""
        return max(part.generation for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "document": self.document,
            "owner": self.owner,
            "generation": self.generation,
            "parts": [dict(zip(RunningSlot._fields[2:], part[2:], strict=True)) for part in self.parts],
        }


class LatestProgress:
    """The running work of all documents, each with the number of its last change."""

    def __init__(self) -> None:
        self._changes = 0
        self._entries: dict[OwnerKey, tuple[int, ProgressMessage]] = {}  # in order of change

    def update(self, running: Iterable[RunningSlot], *, new: bool = True) -> bool:
        """Replace the running work; return whether anything changed. Without `new`, only remove ended work."""
        by_owner: dict[OwnerKey, list[RunningSlot]] = {}
        for slot in running:
            by_owner.setdefault((slot.base, slot.owner), []).append(slot)
        before = self._changes
        for owner in list(self._entries):
            self._remove_ended(owner, {(part.kind, part.generation) for part in by_owner.get(owner, ())})
        for owner, parts in by_owner.items() if new else ():
            self._set_parts(owner, parts)
        return self._changes > before

    def next_change(self, seen: int, filter_: EventFilter) -> tuple[int, ProgressMessage] | None:
        """Return the first matching change after number `seen`, with its number."""
        for number, progress in self._entries.values():
            if number > seen and filter_.matches_document(progress.base, progress.document):
                return number, progress
        return None

    def _remove_ended(self, key: OwnerKey, running: set[tuple[str, int]]) -> None:
        number, progress = self._entries[key]
        left = tuple(part for part in progress.parts if (part.kind, part.generation) in running)
        if not left:
            del self._entries[key]
        elif left != progress.parts:
            self._entries[key] = (number, replace(progress, parts=left))

    def _set_parts(self, key: OwnerKey, parts: list[RunningSlot]) -> None:
        known = self._entries.get(key)
        before = {part.kind: part for part in known[1].parts} if known else {}
        now = tuple(max(part, before.get(part.kind, part), key=_progress_order) for part in parts)
        if known and known[1].parts == now:
            return
        self._changes += 1
        self._entries.pop(key, None)
        base, owner = key
        progress = ProgressMessage(base=base, owner=owner, document=document_of_owner(base, owner), parts=now)
        self._entries[key] = (self._changes, progress)


def _progress_order(part: RunningSlot) -> tuple[int, int, int]:
    """Return a sort key that never decreases while a slot is built, so that progress never goes back."""
    return part.generation, part.step, part.done
