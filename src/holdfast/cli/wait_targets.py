"""What a command waits for: some documents, a base with all documents in it, or a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from holdfast.cli.format import worded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Progress, Standing

ACTIVE = frozenset({"queued", "indexing"})
STATUSES_PER_CALL = 1_000
SHOWN = 8  # documents of a base that are shown at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A document or job that is being worked on."""

    name: str
    status: str
    progress: Progress | None = None
    why: str = ""

    @property
    def stage(self) -> str:
        """Where the work is, with counts where there are any."""
        found = self.progress
        if found is None:
            return self.why or self.status
        step = f" {found.step}/{found.steps}" if found.steps > 1 else ""
        count = f", {found.done:,} of {found.total:,}" if found.total > 1 else f", {found.done:,}" if found.done else ""
        return f"{found.stage}{step}{count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The result of one poll."""

    done: int
    total: int
    share: float  # of the whole, from 0 to 1
    active: Sequence[Active] = ()
    ended: Sequence[Standing] = ()  # since the last poll
    waiting: int = 0  # not begun


class Target(Protocol):
    """What a command waits for."""

    def poll(self) -> Snapshot:
        """Return how far it is."""
        ...

    def why(self) -> str:
        """Return why nothing moves; empty if that is not known."""
        ...


@dataclass(slots=True)
class SomeDocuments:
    """Documents, until each has come to rest or is gone."""

    library: Holdfast
    base: str
    names: Mapping[int, str]
    standings: dict[int, Standing] = field(default_factory=dict)
    _left: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._left = list(self.names)

    def poll(self) -> Snapshot:
        """Return how far they are; documents that ended are not requested again."""
        found: list[Standing] = []
        for first in range(0, len(self._left), STATUSES_PER_CALL):
            found += self.library.documents.statuses(self.base, self._left[first : first + STATUSES_PER_CALL])
        self.standings |= {one.id: one for one in found}
        self._left = [one.id for one in found if one.status in ACTIVE]
        begun = [one for one in found if one.status == "indexing"]
        done = len(self.names) - len(self._left)
        part = sum(one.progress.share or 0.0 for one in begun if one.progress is not None)
        return Snapshot(
            done=done,
            total=len(self.names),
            share=(done + part) / len(self.names) if self.names else 1.0,
            active=[_active(self.names[one.id], one) for one in begun],
            ended=[one for one in found if one.status not in ACTIVE],
            waiting=len(self._left) - len(begun),
        )

    def why(self) -> str:
        """Return why the first of them waits."""
        return _why_waiting(self.library, self.base, self._left[:1])


@dataclass(slots=True)
class WholeBase:
    """Everything that is indexed in a base or, with `folder`, until that folder has come to rest."""

    library: Holdfast
    base: str
    folder: int | None = None
    standing: Standing | None = None  # of the folder
    _most: int = 0

    def poll(self) -> Snapshot:
        """Return how far the base is."""
        counts = self.library.bases.counts(self.base).by_status
        left = sum(number for status, number in counts.items() if status in ACTIVE)
        if self.folder is not None:
            found = self.library.documents.statuses(self.base, [self.folder])
            self.standing = found[0] if found else None
            left = max(left, 1) if self.standing is not None and self.standing.status in ACTIVE else 0
        self._most = max(self._most, left)
        busy = self.library.documents.list(self.base, states=["indexing"], size=SHOWN).items if left else []
        return Snapshot(
            done=self._most - left,
            total=self._most,
            share=(self._most - left) / self._most if self._most else 1.0,
            active=[_active(one.name, one) for one in busy if one.progress is not None],
            waiting=max(0, left - len(busy)),
        )

    def why(self) -> str:
        """Return why the first queued document waits."""
        first = self.library.documents.list(self.base, states=["queued"], size=1).items
        return _why_waiting(self.library, self.base, [one.id for one in first])


@dataclass(slots=True)
class OneJob:
    """A job without a document, such as a set of cards."""

    library: Holdfast
    job: str
    name: str
    state: str = "queued"

    def poll(self) -> Snapshot:
        """Return how far the job is."""
        found = self.library.jobs.get(self.job)
        self.state = str(found.state)
        if found.ended:
            return Snapshot(done=1, total=1, share=1.0)
        share = (found.progress.share or 0.0) if found.progress else 0.0
        active = Active(name=self.name, status=self.state, progress=found.progress)
        return Snapshot(done=0, total=1, share=share, active=[active])

    def why(self) -> str:
        """Return why the job waits."""
        return " ".join(one.message for one in self.library.jobs.get(self.job).waiting_for)


def _active(name: str, one: Standing) -> Active:
    return Active(name=name, status=worded(one.status), progress=one.progress, why=one.why.message if one.why else "")


def _why_waiting(library: Holdfast, base: str, documents: Sequence[int]) -> str:
    reasons = [why.message for one in documents for why in library.documents.get(base, one).waiting_for]
    return " ".join(dict.fromkeys(reasons))
