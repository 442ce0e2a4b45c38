"""What a command waits for: some documents, a base with all documents in it, or a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from holdfast.cli.format import format_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import DocumentStatus, Progress

ACTIVE_STATUSES = frozenset({"queued", "indexing"})
STATUSES_PER_CALL = 1_000
MAX_SHOWN = 8  # documents of a base that are shown at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveWork:
    """A document or job that is being worked on."""

    name: str
    status: str
    progress: Progress | None = None
    reason: str = ""

    @property
    def stage(self) -> str:
        """Where the work is, with counts where there are any."""
        found = self.progress
        if found is None:
            return self.reason or self.status
        step = f" {found.step}/{found.steps}" if found.steps > 1 else ""
        count = f", {found.done:,} of {found.total:,}" if found.total > 1 else f", {found.done:,}" if found.done else ""
        return f"{found.stage}{step}{count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """The result of one poll."""

    done: int
    total: int
    share: float  # of the whole, from 0 to 1
    active: Sequence[ActiveWork] = ()
    ended: Sequence[DocumentStatus] = ()  # since the last poll
    waiting: int = 0  # not begun


class Target(Protocol):
    """What a command waits for."""

    def poll(self) -> PollResult:
        """Return how far it is."""
        ...

    def waiting_reason(self) -> str:
        """Return why nothing moves; empty if that is not known."""
        ...


@dataclass(slots=True)
class DocumentsTarget:
    """Documents, until each has come to rest or is gone."""

    library: Holdfast
    base: str
    names: Mapping[int, str]
    statuses: dict[int, DocumentStatus] = field(default_factory=dict)
    _pending: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._pending = list(self.names)

    def poll(self) -> PollResult:
        """Return how far they are; documents that ended are not requested again."""
        found: list[DocumentStatus] = []
        for first in range(0, len(self._pending), STATUSES_PER_CALL):
            found += self.library.documents.statuses(self.base, self._pending[first : first + STATUSES_PER_CALL])
        self.statuses |= {one.id: one for one in found}
        self._pending = [one.id for one in found if one.status in ACTIVE_STATUSES]
        begun = [one for one in found if one.status == "indexing"]
        done = len(self.names) - len(self._pending)
        part = sum(one.progress.share or 0.0 for one in begun if one.progress is not None)
        return PollResult(
            done=done,
            total=len(self.names),
            share=(done + part) / len(self.names) if self.names else 1.0,
            active=[_to_active_work(self.names[one.id], one) for one in begun],
            ended=[one for one in found if one.status not in ACTIVE_STATUSES],
            waiting=len(self._pending) - len(begun),
        )

    def waiting_reason(self) -> str:
        """Return why the first of them waits."""
        return _join_waiting_reasons(self.library, self.base, self._pending[:1])


@dataclass(slots=True)
class BaseTarget:
    """Everything that is indexed in a base or, with `folder`, until that folder has come to rest."""

    library: Holdfast
    base: str
    folder: int | None = None
    folder_status: DocumentStatus | None = None  # of the folder
    _max_pending: int = 0

    def poll(self) -> PollResult:
        """Return how far the base is."""
        counts = self.library.bases.counts(self.base).by_status
        left = sum(number for status, number in counts.items() if status in ACTIVE_STATUSES)
        if self.folder is not None:
            found = self.library.documents.statuses(self.base, [self.folder])
            self.folder_status = found[0] if found else None
            left = (
                max(left, 1) if self.folder_status is not None and self.folder_status.status in ACTIVE_STATUSES else 0
            )
        self._max_pending = max(self._max_pending, left)
        busy = self.library.documents.list(self.base, states=["indexing"], size=MAX_SHOWN).items if left else []
        return PollResult(
            done=self._max_pending - left,
            total=self._max_pending,
            share=(self._max_pending - left) / self._max_pending if self._max_pending else 1.0,
            active=[_to_active_work(one.name, one) for one in busy if one.progress is not None],
            waiting=max(0, left - len(busy)),
        )

    def waiting_reason(self) -> str:
        """Return why the first queued document waits."""
        first = self.library.documents.list(self.base, states=["queued"], size=1).items
        return _join_waiting_reasons(self.library, self.base, [one.id for one in first])


@dataclass(slots=True)
class JobTarget:
    """A job without a document, such as a set of cards."""

    library: Holdfast
    job: str
    name: str
    state: str = "queued"

    def poll(self) -> PollResult:
        """Return how far the job is."""
        found = self.library.jobs.get(self.job)
        self.state = str(found.state)
        if found.ended:
            return PollResult(done=1, total=1, share=1.0)
        share = (found.progress.share or 0.0) if found.progress else 0.0
        active = ActiveWork(name=self.name, status=self.state, progress=found.progress)
        return PollResult(done=0, total=1, share=share, active=[active])

    def waiting_reason(self) -> str:
        """Return why the job waits."""
        return " ".join(one.message for one in self.library.jobs.get(self.job).waiting_for)


def _to_active_work(name: str, one: DocumentStatus) -> ActiveWork:
    return ActiveWork(
        name=name, status=format_value(one.status), progress=one.progress, reason=one.why.message if one.why else ""
    )


def _join_waiting_reasons(library: Holdfast, base: str, documents: Sequence[int]) -> str:
    reasons = [why.message for one in documents for why in library.documents.get(base, one).waiting_for]
    return " ".join(dict.fromkeys(reasons))
