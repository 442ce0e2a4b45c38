"""A slot and the messages about it: rings, tickets, build results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NewType

from holdfast.engine.lease import Lease
from holdfast.engine.states import RESTING_STATES, SlotState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from holdfast.clock import Moment

SlotId = NewType("SlotId", int)  # never reused, so an old ticket cannot match a new slot
OwnerId = NewType("OwnerId", int)
JobId = NewType("JobId", str)


class SlotKey(NamedTuple):
    """The readable name of a slot."""

    base: str
    owner: str
    kind: str

    def __str__(self) -> str:
        return f"{self.base}/{self.owner}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A stored error: a code, and parameters for its message."""

    code: str
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a build. `step` only rises within a generation, and `done` within a step."""

    stage: str = ""
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0


class Slot(NamedTuple):
    """One row of the table `slots` with the base and name of its owner.

    A tuple for speed: the engine reads several hundred thousand per minute. Properties derive the rest on demand.
    """

    id: SlotId
    owner_id: OwnerId
    kind: str
    needs: str | None  # kind of the slot that must be ready first
    job: JobId
    wanted: int
    built: int
    source: int | None  # fence of the content build that is served
    missing: int
    state: SlotState
    priority: int  # 0 first, 9 last
    fence: int
    holder: str | None
    until: Moment | None
    due_at: Moment | None  # when the reconciler must check the slot again
    queued_at: Moment
    claimed_at: Moment | None
    progress_at: Moment | None
    rung_at: Moment | None
    attempts: int
    error_code: str | None
    error_params: str | None
    stage: str
    step: int
    steps: int
    done: int
    total: int
    recipe: int | None  # recipe of the served result; None if the kind has no recipes
    usage: str | None  # of all attempts in this generation, as JSON members
    reported_at: Moment | None  # when the present claim was reported as long-running
    base: str
    owner: str

    @property
    def key(self) -> SlotKey:
        return SlotKey(self.base, self.owner, self.kind)

    @property
    def error(self) -> Fault | None:
        """The error of the last attempt, until the next success or request."""
        return Fault(self.error_code, json.loads(self.error_params or "{}")) if self.error_code else None

    @property
    def progress(self) -> Progress:
        """Progress of the current build.

        Empty at rest, where the columns still have the values of the last heartbeat.
        """
        if self.resting:
            return Progress()
        return Progress(stage=self.stage, step=self.step, steps=self.steps, done=self.done, total=self.total)

    @property
    def resting(self) -> bool:
        """Whether only a new generation can change the slot."""
        return self.state in RESTING_STATES

    @property
    def lease(self) -> Lease | None:
        """The lease, alive or expired."""
        if self.holder is None or self.until is None:
            return None
        return Lease(holder=self.holder, until=self.until)

    @property
    def served(self) -> bool:
        """Whether some generation of it is searchable."""
        return self.built > 0 and self.state is not SlotState.DELETING

    @property
    def complete(self) -> bool:
        """Whether it is ready without missing chunks."""
        return self.state is SlotState.READY and not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The message that wakes a worker: a slot and a generation. It has no content and no fence."""

    slot: SlotId
    owner: OwnerId
    key: SlotKey
    generation: int

    @property
    def kind(self) -> str:
        return self.key.kind


class Ticket(NamedTuple):
    """The result of a claim. Every write of the worker contains it."""

    slot: SlotId
    owner: OwnerId
    key: SlotKey
    job: JobId
    generation: int
    fence: int
    attempt: int  # including this one
    removing: bool  # the slot is being deleted: call `remove`, not `build`
    source: int | None  # fence of the content build to read, from the slot it needs
    built: int  # the generation that is served now
    waited_ms: int = 0  # in the queue, since it could be claimed

    @classmethod
    def of(cls, slot: Slot, *, source: int | None = None, waited_ms: int = 0) -> Ticket:
        """Return the ticket of the present claim of a slot."""
        return cls(
            slot=slot.id,
            owner=slot.owner_id,
            key=slot.key,
            job=slot.job,
            generation=slot.wanted,
            fence=slot.fence,
            attempt=slot.attempts,
            removing=slot.state is SlotState.DELETING,
            source=source,
            built=slot.built,
            waited_ms=waited_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of an indexer: how many chunks it lacks, and the recipe it used."""

    missing: int = 0
    recipe: int | None = None
    rows: Sized | None = field(default=None, compare=False)  # `Publisher.publish` writes them
