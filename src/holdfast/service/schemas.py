"""Exports every type that operations take or return, for the interfaces: HTTP, the page, commands and MCP.

The operations import each type from the module that defines it, so that a command loads only the modules it uses.
"""

from holdfast.bases import CardSetStatus, ProviderTestResult, RestoredBase
from holdfast.catalog import BaseSettings, BaseStatus, ItemKind, OnDuplicate, ServedPassage
from holdfast.doctor import Finding
from holdfast.documents import (
    Card,
    Document,
    DocumentChunk,
    DocumentCounts,
    DocumentEntity,
    DocumentStatus,
    DocumentText,
    IndexStatus,
    MissingChunk,
    OriginalFile,
    PassageInContext,
    Progress,
    SyncPreview,
)
from holdfast.engine import Operation, Outcome, Problem, SlotState, Status, Verdict
from holdfast.events import Event
from holdfast.indexes.graph import Edge, Entity, EntityDetails, Fact, GraphView, Mention, Neighbour, Node
from holdfast.llm import LedgerSummary, UsageTotal
from holdfast.paging import Page
from holdfast.search import Answer, AnswerOutcome, ChannelScore, Citation, Hit, Hits, Mode, Notice
from holdfast.service.access import ApiKey, KeyWithSecret, Webhook, WebhookWithSecret
from holdfast.service.archives import ExportResult
from holdfast.service.bases import Base
from holdfast.service.details import DocumentUsage
from holdfast.service.jobs import BulkProgress, Job, QueueStats
from holdfast.service.messages import BulkSummary, Reply
from holdfast.service.overview import OutcomeBucket, Overview
from holdfast.service.timeline import HistoryEntry
from holdfast.service.usage import BaseUsage, ErasureStage, ErasureStatus, RefusalCount, RefusedRequest, WaitingJob
from holdfast.webhooks import Delivery

__all__ = [
    "Answer",
    "AnswerOutcome",
    "ApiKey",
    "Base",
    "BaseSettings",
    "BaseStatus",
    "BaseUsage",
    "BulkProgress",
    "BulkSummary",
    "Card",
    "CardSetStatus",
    "ChannelScore",
    "Citation",
    "Delivery",
    "Document",
    "DocumentChunk",
    "DocumentCounts",
    "DocumentEntity",
    "DocumentStatus",
    "DocumentText",
    "DocumentUsage",
    "Edge",
    "Entity",
    "EntityDetails",
    "ErasureStage",
    "ErasureStatus",
    "Event",
    "ExportResult",
    "Fact",
    "Finding",
    "GraphView",
    "HistoryEntry",
    "Hit",
    "Hits",
    "IndexStatus",
    "ItemKind",
    "Job",
    "KeyWithSecret",
    "LedgerSummary",
    "Mention",
    "MissingChunk",
    "Mode",
    "Neighbour",
    "Node",
    "Notice",
    "OnDuplicate",
    "Operation",
    "OriginalFile",
    "Outcome",
    "OutcomeBucket",
    "Overview",
    "Page",
    "PassageInContext",
    "Problem",
    "Progress",
    "ProviderTestResult",
    "QueueStats",
    "RefusalCount",
    "RefusedRequest",
    "Reply",
    "RestoredBase",
    "ServedPassage",
    "SlotState",
    "Status",
    "SyncPreview",
    "UsageTotal",
    "Verdict",
    "WaitingJob",
    "Webhook",
    "WebhookWithSecret",
]
