"""A slot: the place where one result stands. And what travels: rings, tickets, beats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NewType

from holdfast.engine.lease import Lease
from holdfast.engine.states import RESTING_STATES, SlotState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from holdfast.clock import Moment

SlotId = NewType("SlotId", int)  # never used twice, so that a ticket outlives its slot without harm
OwnerId = NewType("OwnerId", int)
JobId = NewType("JobId", str)


class SlotKey(NamedTuple):
    """The name of a slot for people: base, owner, kind."""

    base: str
    owner: str
    kind: str

    def __str__(self) -> str:
        return f"{self.base}/{self.owner}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as stored: a code to branch on, parameters to build a sentence from."""

    code: str
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a build is; `step` only rises within a generation, and `done` within a step."""

    stage: str = ""
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0


class Slot(NamedTuple):
    """One row of the slots table with the names of its owner, as read in one transaction.

    A tuple, because it is made from a tuple some hundred thousand times a minute; what people want of it is derived
    when they ask.
    """

    id: SlotId
    owner_id: OwnerId
    kind: str
    needs: str | None  # kind of the slot of the same owner that must be ready first
    job: JobId
    wanted: int
    built: int
    source: int | None  # fence of the content build that is served
    missing: int
    state: SlotState
    priority: int  # 0 is served first, 9 last
    fence: int
    holder: str | None
    until: Moment | None
    due_at: Moment | None  # when the reconciler must look again
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
    recipe: int | None  # how what is served was made; None where only one way exists
    base: str
    owner: str

    @property
    def key(self) -> SlotKey:
        """Its name for people."""
        return SlotKey(self.base, self.owner, self.kind)

    @property
    def error(self) -> Fault | None:
        """The last failure, until it is built or asked for anew."""
        return Fault(self.error_code, json.loads(self.error_params or "{}")) if self.error_code else None

    @property
    def progress(self) -> Progress:
        """How far its build is; nothing once it rests, where the numbers are those of the last heartbeat."""
        if self.resting:
            return Progress()
        return Progress(stage=self.stage, step=self.step, steps=self.steps, done=self.done, total=self.total)

    @property
    def resting(self) -> bool:
        """Only a new generation moves it."""
        return self.state in RESTING_STATES

    @property
    def lease(self) -> Lease | None:
        """The lease, alive or expired."""
        if self.holder is None or self.until is None:
            return None
        return Lease(holder=self.holder, until=self.until)

    @property
    def served(self) -> bool:
        """Some generation of it can be searched."""
        return self.built > 0 and self.state is not SlotState.DELETING

    @property
    def complete(self) -> bool:
        """Ready, and nothing is missing."""
        return self.state is SlotState.READY and not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The doorbell message: which slot and which generation. Never content, never a fence."""

    slot: SlotId
    owner: OwnerId
    kind: str
    generation: int


class Ticket(NamedTuple):
    """What a claim returns and every write of a worker shows."""

    slot: SlotId
    owner: OwnerId
    key: SlotKey
    job: JobId
    generation: int
    fence: int
    attempt: int  # this one included
    removing: bool  # the slot is being deleted: remove, do not build
    source: int | None  # fence of the content build to read, of the slot it needs
    built: int  # the generation served so far

    def __str__(self) -> str:
        return f"{self.key} generation {self.generation} fence {self.fence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What an indexer answers: it built something, how many chunks it lacks, and by which recipe it was made."""

    missing: int = 0
    recipe: int | None = None
    rows: Sized | None = field(default=None, compare=False)  # still to be written, in the transaction that publishes
