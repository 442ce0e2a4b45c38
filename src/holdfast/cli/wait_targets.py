"""The targets of a command that waits: documents, a base, or a job."""

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
MAX_SHOWN = 8  # active documents of a base that the progress shows


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveWork:
    name: str
    status: str
    progress: Progress | None = None
    reason: str = ""

    @property
    def stage(self) -> str:
        """The stage of the work, with step and counts."""
        found = self.progress
        if found is None:
            return self.reason or self.status
        step = f" {found.step}/{found.steps}" if found.steps > 1 else ""
        count = f", {found.done:,} of {found.total:,}" if found.total > 1 else f", {found.done:,}" if found.done else ""
        return f"{found.stage}{step}{count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    done: int
    total: int
    share: float  # of all work that is done, from 0 to 1
    active: Sequence[ActiveWork] = ()
    ended: Sequence[DocumentStatus] = ()  # since the last poll
    waiting: int = 0  # queued


class Target(Protocol):
    """The work that a command waits for."""

    def poll(self) -> PollResult: ...

    def waiting_reason(self) -> str:
        """Return the reason for no progress; empty if unknown."""
        ...


@dataclass(slots=True)
class DocumentsTarget:
    """Documents; done when none is queued or being indexed."""

    library: Holdfast
    base: str
    names: Mapping[int, str]
    statuses: dict[int, DocumentStatus] = field(default_factory=dict)
    _pending: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._pending = list(self.names)

    def poll(self) -> PollResult:
        """Read the status of the documents that are not done."""
        found: list[DocumentStatus] = []
        for first in range(0, len(self._pending), STATUSES_PER_CALL):
            found += self.library.documents.statuses(self.base, self._pending[first : first + STATUSES_PER_CALL])
        self.statuses |= {document.id: document for document in found}
        self._pending = [document.id for document in found if document.status in ACTIVE_STATUSES]
        begun = [document for document in found if document.status == "indexing"]
        done = len(self.names) - len(self._pending)
        part = sum(document.progress.share or 0.0 for document in begun if document.progress is not None)
        return PollResult(
            done=done,
            total=len(self.names),
            share=(done + part) / len(self.names) if self.names else 1.0,
            active=[_to_active_work(self.names[document.id], document) for document in begun],
            ended=[document for document in found if document.status not in ACTIVE_STATUSES],
            waiting=len(self._pending) - len(begun),
        )

    def waiting_reason(self) -> str:
        return _join_waiting_reasons(self.library, self.base, self._pending[:1])


@dataclass(slots=True)
class BaseTarget:
    """All documents of a base; with `folder`, done when that folder and everything in it is."""

    library: Holdfast
    base: str
    folder: int | None = None
    folder_status: DocumentStatus | None = None
    _max_pending: int = 0

    def poll(self) -> PollResult:
        counts = self.library.bases.counts(self.base, exact=True).by_status
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
            active=[_to_active_work(document.name, document) for document in busy if document.progress is not None],
            waiting=max(0, left - len(busy)),
        )

    def waiting_reason(self) -> str:
        first = self.library.documents.list(self.base, states=["queued"], size=1).items
        return _join_waiting_reasons(self.library, self.base, [document.id for document in first])


@dataclass(slots=True)
class JobTarget:
    """A job without a document, such as the generation of cards."""

    library: Holdfast
    job: str
    name: str
    state: str = "queued"

    def poll(self) -> PollResult:
        found = self.library.jobs.get(self.job)
        self.state = str(found.state)
        if found.ended:
            return PollResult(done=1, total=1, share=1.0)
        share = (found.progress.share or 0.0) if found.progress else 0.0
        active = ActiveWork(name=self.name, status=self.state, progress=found.progress)
        return PollResult(done=0, total=1, share=share, active=[active])

    def waiting_reason(self) -> str:
        return " ".join(one.message for one in self.library.jobs.get(self.job).waiting_for)


def _to_active_work(name: str, document: DocumentStatus) -> ActiveWork:
    return ActiveWork(
        name=name,
        status=format_value(document.status),
        progress=document.progress,
        reason=document.why.message if document.why else "",
    )


def _join_waiting_reasons(library: Holdfast, base: str, documents: Sequence[int]) -> str:
    reasons = [why.message for one in documents for why in library.documents.get(base, one).waiting_for]
    return " ".join(dict.fromkeys(reasons))
