"""How far running work is, for whoever looks on: the newest state of each document, and nothing that was before.

Nothing is queued here, so that whoever looks on slowly sees fewer states and costs no more memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.events.public_events import document_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.events.public_events import Filter

SPACING = timedelta(milliseconds=100)  # between two states of one document

Place = tuple[str, str]  # base and owner


class Running(NamedTuple):
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
class Progress:
    """How far the work on one document is, or on a part of a base; it is not kept, and so has no id."""

    base: str
    document: int | None
    owner: str
    parts: tuple[Running, ...]  # one for each kind that is worked on, the first asked for first

    @property
    def generation(self) -> int:
        """The newest request that is worked on."""
        return max(part.generation for part in self.parts)

    def shown(self) -> dict[str, Any]:
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


class Board:
    """What runs, each document with the number of its last change."""

    def __init__(self) -> None:
        self._changes = 0
        self._shown: dict[Place, tuple[int, Progress]] = {}  # those that changed last stand last

    def show(self, running: Iterable[Running], *, new: bool = True) -> bool:
        """Put up what runs now, in the place of what ran before; return whether anything is new.

        Without `new` only what has ended is taken down.
        """
        places: dict[Place, list[Running]] = {}
        for one in running:
            places.setdefault((one.base, one.owner), []).append(one)
        before = self._changes
        for place in list(self._shown):
            self._take_down(place, {(part.kind, part.generation) for part in places.get(place, ())})
        for place, parts in places.items() if new else ():
            self._put(place, parts)
        return self._changes > before

    def after(self, change: int, only: Filter) -> tuple[int, Progress] | None:
        """Return the next change that somebody has not seen, with its number."""
        for number, progress in self._shown.values():
            if number > change and only.concerns(progress.base, progress.document):
                return number, progress
        return None

    def _take_down(self, place: Place, running: set[tuple[str, int]]) -> None:
        number, progress = self._shown[place]
        left = tuple(part for part in progress.parts if (part.kind, part.generation) in running)
        if not left:
            del self._shown[place]
        elif left != progress.parts:
            self._shown[place] = (number, replace(progress, parts=left))

    def _put(self, place: Place, parts: list[Running]) -> None:
        known = self._shown.get(place)
        before = {part.kind: part for part in known[1].parts} if known else {}
        now = tuple(max(part, before.get(part.kind, part), key=_far) for part in parts)
        if known and known[1].parts == now:
            return
        self._changes += 1
        self._shown.pop(place, None)
        base, owner = place
        progress = Progress(base=base, owner=owner, document=document_of(base, owner), parts=now)
        self._shown[place] = (self._changes, progress)


def _far(part: Running) -> tuple[int, int, int]:
    """Return what never goes back: within a generation the step, within a step what is done of it."""
    return part.generation, part.step, part.done
