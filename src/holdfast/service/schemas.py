"""What people are shown: plain values that look the same in the library, in HTTP, in the commands and in MCP."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.bases.archives import RestoredBase
from holdfast.bases.cards import CardSetStatus
from holdfast.bases.probe import ProviderTestResult
from holdfast.catalog import BaseSettings, BaseStatus, ItemKind, OnDuplicate, ServedPassage
from holdfast.doctor.report import Finding
from holdfast.documents import Document, DocumentChunk, DocumentCounts, DocumentStatus, IndexStatus, Progress
from holdfast.documents.details import Card, DocumentEntity, MissingChunk
from holdfast.documents.folders import SyncPreview
from holdfast.documents.text import DocumentText, OriginalFile, PassageInContext
from holdfast.engine import Operation, Outcome, Problem, SlotState, Status, Verdict
from holdfast.events import Event
from holdfast.indexes.graph import Entity, EntityDetails, Fact, Mention, Neighbour
from holdfast.indexes.graph.graph_view import Edge, GraphView, Node
from holdfast.llm import UsageTotal
from holdfast.paging import Page
from holdfast.search import AnswerOutcome, ChannelScore, Hit, Hits, Notice
from holdfast.search.answers import Answer, Citation, Mode
from holdfast.webhooks.delivery import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a request about one document."""

    verdict: Verdict
    reason: str
    message: str
    name: str = ""
    document: int | None = None
    job: str | None = None
    status: Status = Status.NOT_INDEXED
    generation: int | None = None

    @property
    def accepted(self) -> bool:
        """New work was written."""
        return self.verdict is Verdict.ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSummary:
    """What came of a request about many: how many there were, and the answers by verdict and reason."""

    found: int
    accepted: int
    answers: dict[str, int]  # by `verdict: reason`
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A collection of documents that are searched together."""

    id: int
    name: str
    status: BaseStatus
    problem: Problem | None
    settings: BaseSettings
    not_enabled: dict[str, Problem]  # indexes that it wants and cannot have here, each with the reason
    rollout: Progress | None = None  # of a settings change that documents still follow, queued or begun; None: no such


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """Something that happened to a document: a request, an attempt, or an end."""

    at: datetime
    # accepted, and how the job ended; of one index claimed, ready, failed, postponed, released, expired, cancelled,
    # removed; of the document itself added, changed
    what: str
    kind: str | None = None  # of the index; None: the whole document
    job: str | None = None
    generation: int | None = None
    attempt: int | None = None  # how often this index was claimed in this generation, this time included
    operation: Operation | None = None
    requester: str | None = None
    problem: Problem | None = None
    seconds: float | None = None  # since the claim, or of a job since it was accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request and what came of it."""

    id: str
    base: str
    document: int | None  # None: it is about the base itself
    name: str  # of the document; empty where there is none, or it is gone
    subject: str  # what it is about: content and indexes, a look at a source, cards …
    operation: Operation
    cause: str
    requester: str
    priority: int
    state: str  # queued, indexing, deleting, or the outcome
    outcome: Outcome | None
    generation: int
    created_at: datetime
    finished_at: datetime | None
    results: dict[str, Any]
    progress: Progress | None = None
    waiting_for: list[Problem] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Nothing more comes of it."""
        return self.outcome is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """How the queue does."""

    active: dict[str, int]  # jobs by state
    ended: dict[str, int]  # within the window, by outcome
    window_seconds: int
    per_hour: float
    failure_rate: float | None
    oldest_queued: datetime | None
    paused: bool
    paused_bases: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job that has not ended, and why."""

    job: str
    base: str
    document: int | None
    name: str
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key; its secret is told once, when it is made."""

    id: int
    name: str
    prefix: str  # how its secret begins
    scope: str  # read, write or admin
    bases: list[str] | None  # None: all, also later ones
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWithSecret:
    """A key that was made, with its secret."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told what happens."""

    id: int
    url: str
    types: list[str]
    bases: list[str] | None  # None: all, also later ones
    enabled: bool
    disabled_reason: str | None  # asked, gone (the receiver said so), failing (for days)
    failures: int  # attempts in a row that failed
    failing_since: datetime | None
    created_at: datetime
    state: str = "healthy"  # healthy, failing (one message at a time is sent as a probe) or disabled
    retry_at: datetime | None = None  # while it fails: when the next message is sent
    waiting: int = 0  # messages that are not sent yet


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookWithSecret:
    """A webhook with the secret that signs what it is sent."""

    webhook: Webhook
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """A base that was written into a file."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUsage:
    """What a base has paid, and what it was spared."""

    base: str
    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]
    budget_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentUsage:
    """What was paid for one document, and what it was spared."""

    document: int
    name: str
    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    """A request that made no new work: who asked, and what stood in its way."""

    id: int
    at: datetime
    base: str
    document: int | None
    subject: str
    operation: Operation
    verdict: str
    reason: str
    job: str | None
    requester: str
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """How often one requester was refused for one reason in one base, and what that would have cost."""

    base: str
    requester: str
    reason: str
    count: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStage:
    """How far one stage of erasing is, with what to do."""

    complete: bool
    documents: int  # deleted or changed documents that this stage has not completed
    since: datetime | None  # when the first of them was seen
    obstacle: str | None  # what prevented the last attempt
    blocked_since: datetime | None  # since when attempts are prevented
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStatus:
    """How much of the deleted data is removed from the disk."""

    overwrite: ErasureStage  # of deleted rows, in the database file and its log
    compact: ErasureStage  # of copies that the database has made of them


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBucket:
    """How the jobs ended that did so within one step of time."""

    at: datetime  # when the step begins
    success: int = 0
    degraded: int = 0
    failed: int = 0
    cancelled: int = 0
    other: int = 0  # replaced by a newer request, or deleted with what they were for


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All at a glance, of the bases that the caller sees."""

    bases: int
    documents: DocumentCounts
    queue: QueueStats
    workers: int  # that are there, at work or waiting for it, whatever base that is of
    working: int  # that hold work of these bases now, with a lease that has not run out
    tokens_spent: int  # as far back as the ledger goes, as all that follows
    tokens_saved: int
    price_spent: float | None
    price_saved: float | None
    duplicates: int  # requests that made no new work
    series: list[OutcomeBucket]  # oldest first; the last step is under way
