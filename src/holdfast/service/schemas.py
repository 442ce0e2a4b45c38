"""The values that operations return, the same in the library, HTTP, the commands and MCP.

Types of other packages are exported from here, so that an interface needs no other import.
"""

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
from holdfast.search import AnswerOutcome, ChannelScore, Citation, Hit, Hits, Notice
from holdfast.search.answers import Answer, Mode
from holdfast.webhooks.delivery import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of a request about one document."""

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
        """Whether the request started new work."""
        return self.verdict is Verdict.ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSummary:
    """The result of a request about many documents: counts by verdict and reason."""

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
    not_enabled: dict[str, Problem]  # requested indexes that cannot run here, each with the reason
    rollout: Progress | None = None  # of a settings change that documents still follow; None: none


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """An entry in the history of a document: a request, an attempt, or an outcome."""

    at: datetime
    # Of a job: accepted, or its outcome. Of an index: claimed, ready, failed, postponed, released, expired, cancelled,
    # removed. Of the document: added, changed.
    what: str
    kind: str | None = None  # the index; None: the whole document
    job: str | None = None
    generation: int | None = None
    attempt: int | None = None  # number of claims of this index in this generation, including this one
    operation: Operation | None = None
    requester: str | None = None
    problem: Problem | None = None
    seconds: float | None = None  # since the claim; for a job, since it was accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request and its outcome."""

    id: str
    base: str
    document: int | None  # None: the job is about the base itself
    name: str  # of the document; empty if there is none or it is deleted
    subject: str  # document, source, cards …
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
        return self.outcome is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Numbers about the queue."""

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
    """A job that has not ended, and the reasons."""

    job: str
    base: str
    document: int | None
    name: str
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key without its secret."""

    id: int
    name: str
    prefix: str  # the beginning of the secret
    scope: str  # read, write or admin
    bases: list[str] | None  # None: all, also later ones
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWithSecret:
    """A new key with its secret."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that receives events."""

    id: int
    url: str
    types: list[str]
    bases: list[str] | None  # None: all, also later ones
    enabled: bool
    disabled_reason: str | None  # asked, gone (HTTP 410), failing (for days)
    failures: int  # consecutive failed attempts
    failing_since: datetime | None
    created_at: datetime
    state: str = "healthy"  # healthy, failing (one message at a time is sent as a probe) or disabled
    retry_at: datetime | None = None  # while failing: time of the next attempt
    waiting: int = 0  # unsent messages


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookWithSecret:
    """A webhook with the secret that signs its messages."""

    webhook: Webhook
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The size of an exported archive."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUsage:
    """What a base has paid, and what stored answers saved."""

    base: str
    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]
    budget_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentUsage:
    """What was paid for one document, and what stored answers saved."""

    document: int
    name: str
    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    """A request that started no new work: who sent it, and why."""

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
    """How many requests of one requester started no work for one reason in one base, and their cost."""

    base: str
    requester: str
    reason: str
    count: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStage:
    """The progress of one stage of erasure."""

    complete: bool
    documents: int  # deleted or changed documents that this stage has not finished
    since: datetime | None  # time of the first of them
    obstacle: str | None  # why the last attempt failed
    blocked_since: datetime | None  # time since which attempts fail
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStatus:
    """How much of the deleted data is removed from the disk."""

    overwrite: ErasureStage  # of deleted rows, in the database file and its log
    compact: ErasureStage  # of copies that the database has made of them


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBucket:
    """Outcomes of the jobs that ended within one period."""

    at: datetime  # start of the period
    success: int = 0
    degraded: int = 0
    failed: int = 0
    cancelled: int = 0
    other: int = 0  # superseded or deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Numbers about the bases that the caller sees."""

    bases: int
    documents: DocumentCounts
    queue: QueueStats
    workers: int  # running workers of the whole library
    working: int  # workers with a live lease on work of these bases
    tokens_spent: int  # this and the following since the start of the ledger
    tokens_saved: int
    price_spent: float | None
    price_saved: float | None
    duplicates: int  # requests that started no new work
    series: list[OutcomeBucket]  # oldest first; the last period has not ended
