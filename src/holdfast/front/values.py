"""What people are shown: plain values that look the same in the library, in HTTP, in the commands and in MCP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.core.admission import Verdict
from holdfast.core.states import Operation, Outcome, SlotState, Status
from holdfast.indexes.drawing import Edge, Node
from holdfast.indexes.portrait import Entity, Fact, Mention, Neighbour
from holdfast.library.catalogue import BaseSettings, BaseStatus, Kind, OnDuplicate
from holdfast.model.answering import Outcome as AnswerOutcome
from holdfast.search.asking import Mode

__all__ = [
    "Answer",
    "AnswerOutcome",
    "Balance",
    "Base",
    "BaseSettings",
    "BaseStatus",
    "Bucket",
    "Card",
    "Cards",
    "Chunk",
    "Citation",
    "Cost",
    "Counts",
    "Delivery",
    "Document",
    "Edge",
    "Entity",
    "Event",
    "Exported",
    "Fact",
    "Finding",
    "GraphView",
    "Happening",
    "Hit",
    "Hits",
    "Index",
    "Job",
    "Key",
    "Kind",
    "Mention",
    "Mentioned",
    "Missing",
    "Mode",
    "Neighbour",
    "NewKey",
    "NewWebhook",
    "Node",
    "Notice",
    "OnDuplicate",
    "Operation",
    "Original",
    "Outcome",
    "Overview",
    "Page",
    "Passage",
    "Place",
    "Portrait",
    "Preview",
    "Problem",
    "Progress",
    "Queue",
    "Refusal",
    "Refused",
    "Reply",
    "Restored",
    "Scored",
    "SlotState",
    "Spent",
    "Standing",
    "Status",
    "Summary",
    "Text",
    "Trial",
    "Verdict",
    "Waiting",
    "Webhook",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why something is not as it should be: a code to branch on, and a sentence for people."""

    code: str
    message: str
    params: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far work is; `share` only where a total is known."""

    stage: str
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of a list; `next_cursor` leads to those behind, and `total` counts all, where that was asked for."""

    items: list[T]
    next_cursor: str | None = None
    total: int | None = None


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
class Summary:
    """What came of a request about many: how many there were, and the answers by verdict and reason."""

    found: int
    accepted: int
    answers: dict[str, int]  # by `verdict: reason`
    dry_run: bool = False


# ---------------------------------------------------------------- bases


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
class Trial:
    """What came of asking a provider of a base something harmless."""

    role: str  # embedding or chat
    provider: str  # the host that was asked; offline: this machine; none: there is no language model
    model: str | None
    ok: bool
    took_ms: float
    message: str  # what is wrong, and what to do
    code: str | None  # of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many documents there are, by their status."""

    documents: int
    by_status: dict[Status, int]
    containers: int
    bytes: int


# ---------------------------------------------------------------- documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """How one index of a document stands."""

    kind: str
    state: SlotState
    wanted: int  # the newest request
    built: int  # the request that is served; 0: none
    attempts: int
    attempts_max: int
    chunks: int  # that it serves
    missing: int  # chunks that it lacks
    made_by: str | None  # how what is served was made
    error: Problem | None = None
    retry_at: datetime | None = None
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a document stands."""

    id: int
    name: str
    kind: Kind
    status: Status
    searchable: bool  # something of it is found now, whatever its status
    generation: int  # of the newest request
    built: int  # of what is served; 0: nothing
    why: Problem | None = None  # it is not as wanted
    retry_at: datetime | None = None  # when that is tried again by itself
    progress: Progress | None = None  # of what runs
    priority: int | None = None  # of what is active
    job: str | None = None  # that is active
    queue_position: int | None = None  # jobs that come before it, while it is queued; not told in lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Standing):
    """One item of a base: a file, note or page that is indexed, or a folder or sitemap that holds others."""

    base: str
    parent: int | None
    size: int
    sha256: str | None
    source: str | None
    every: int | None  # seconds after which its source is looked at again
    metadata: dict[str, Any]
    created_at: datetime
    changed_at: datetime
    # What follows is told where one document is asked for.
    waiting_for: list[Problem] = field(default_factory=list)
    chunks: int | None = None
    indexes: list[Index] = field(default_factory=list)
    not_enabled: dict[str, Problem] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)  # the newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Mentioned:
    """An entity that a document names."""

    key: str
    name: str
    kind: str  # empty where only rules have seen it
    mentions: int  # chunks of the document that name it


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A chunk that an index of a document lacks: searches by this index do not find it."""

    index: str
    chunk: int
    ordinal: int
    start: int
    end: int
    text: str  # how it begins, behind what it repeats of the chunk before
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
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
class Chunk:
    """A part of a document as it is served."""

    document: int
    chunk: int
    generation: int
    ordinal: int
    start: int
    end: int
    tokens: int
    headings: list[str]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A chunk with what stands around it."""

    document: int
    name: str
    generation: int
    chunk: int
    start: int
    end: int
    page: int | None
    headings: list[str]
    before: str
    text: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of a document as it was read, or a part of it."""

    document: int
    generation: int
    title: str | None
    start: int
    length: int  # of the whole
    text: str
    following: int | None  # where the next part begins; None after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The bytes of a document as they came in, in a file of the library."""

    path: Path
    name: str
    size: int
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What syncing a folder would do, by the paths of files below it."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: int
    skipped: dict[str, int]


# ---------------------------------------------------------------- the queue


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
class Queue:
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
class Waiting:
    """A job that has not ended, and why."""

    job: str
    base: str
    document: int | None
    name: str
    reasons: list[str]


# ---------------------------------------------------------------- searching


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Where one channel has a hit; rank 0 if it scored it without having found it."""

    score: float
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A passage of a document, as it is served."""

    document: int
    name: str
    chunk: int
    generation: int
    start: int
    end: int
    headings: list[str]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Place):
    """A passage that was found."""

    rank: int
    score: float
    title: str | None  # of the document
    channels: dict[str, Scored]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A channel that could not be searched, or not in full, and why; the others were."""

    channel: str
    code: str
    message: str
    params: dict[str, str] = field(default_factory=dict)


class Hits(list[Hit]):
    """What a search found, the best first; `notices` names the channels that could not be searched."""

    def __init__(self, hits: Iterable[Hit] = (), notices: Iterable[Notice] = ()) -> None:
        super().__init__(hits)
        self.notices = list(notices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What a marker in an answer stands for: `quote` is what stands in the document from `start` to `end`."""

    number: int
    document: int
    name: str
    chunk: int
    generation: int
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer with the passages it rests on, and the context it was made from."""

    outcome: AnswerOutcome
    message: str  # what the outcome means
    mode: Mode
    text: str
    citations: list[Citation]
    context: list[Place]
    facts: list[str]
    cut: bool = False
    notices: list[Notice] = field(default_factory=list)  # channels that could not be searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """All that is known of one entity."""

    entity: Entity
    description: str
    merged: bool
    relations: list[Fact]
    mentions: list[Mention]
    neighbours: list[Neighbour]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """Some of the graph of a base, to be drawn."""

    nodes: list[Node]  # those that most documents speak of first
    edges: list[Edge]  # between these, the strongest first
    cut: bool  # there are more nodes or edges


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """How the study cards of a base stand."""

    status: Status
    generation: int
    cards: int
    job: str | None
    progress: Progress | None
    error: Problem | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A question, its answer, and the passage both come from."""

    place: int
    question: str
    answer: str
    document: int
    name: str
    chunk: int
    headings: list[str]
    passage: str


# ---------------------------------------------------------------- who may ask, and who is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
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
class NewKey:
    """A key that was made, with its secret."""

    key: Key
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
class NewWebhook:
    """A webhook with the secret that signs what it is sent."""

    webhook: Webhook
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook."""

    id: int
    webhook: int
    event: str
    message: str  # the header webhook-id
    type: str
    state: str
    attempts: int
    status: int | None  # what the last attempt was answered
    reason: str | None  # why it failed
    created_at: datetime
    tried_at: datetime | None
    next_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    id: str
    type: str
    at: datetime
    base: int | None  # None: it concerns the whole queue
    document: int | None
    owner: str
    kind: str | None
    job: str | None
    generation: int | None
    data: dict[str, Any]


# ---------------------------------------------------------------- archives


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A base that was written into a file."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A base that was made from a file."""

    base: str
    documents: int
    memos: int  # answers that were paid for before
    skipped: int  # documents that the quota of the base keeps from being indexed today


# ---------------------------------------------------------------- accounts and health


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A sum of paid calls, or of those that were spared."""

    kind: str
    texts: int
    tokens_in: int
    tokens_out: int
    price: float | None
    unpriced: int
    estimated: int = 0  # tokens among these that no provider reported: of requests under way, or that broke off


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What a base has paid, and what it was spared."""

    base: str
    spent: Spent
    saved: Spent
    kinds_spent: list[Spent]
    kinds_saved: list[Spent]
    budget_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was paid for one document, and what it was spared."""

    document: int
    name: str
    spent: Spent
    saved: Spent
    kinds_spent: list[Spent]
    kinds_saved: list[Spent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
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
class Refused:
    """How often one requester was refused for one reason in one base, and what that would have cost."""

    base: str
    requester: str
    reason: str
    count: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of trouble in one place, with what to do."""

    code: str
    where: str
    count: int
    sentence: str
    examples: list[str]
    fixable: bool
    fixed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
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
    documents: Counts
    queue: Queue
    workers: int  # that are there, at work or waiting for it, whatever base that is of
    working: int  # that hold work of these bases now, with a lease that has not run out
    tokens_spent: int  # as far back as the ledger goes, as all that follows
    tokens_saved: int
    price_spent: float | None
    price_saved: float | None
    duplicates: int  # requests that made no new work
    series: list[Bucket]  # oldest first; the last step is under way
