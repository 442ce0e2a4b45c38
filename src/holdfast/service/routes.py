"""The table of HTTP operations.

`api/forward.py` generates the handlers of the server from these rows, and `remote.py` generates the methods of the
client. To add an operation, write the method of the service and one row here. Rows with `by_hand` have a handler in
`api/`; only the client uses the row. Operations that stream, upload or convert their values have no row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.documents import Order
from holdfast.service import http_models as bodies
from holdfast.service import schemas as s
from holdfast.service.access import LocalKeys, LocalWebhooks
from holdfast.service.archives import LocalArchives
from holdfast.service.bases import LocalBases
from holdfast.service.details import LocalDocumentDetails
from holdfast.service.documents import LocalDocuments
from holdfast.service.event_queries import LocalEvents
from holdfast.service.jobs import LocalJobs
from holdfast.service.local import LocalService
from holdfast.service.schemas import Page
from holdfast.service.search import LocalCards, LocalSearch
from holdfast.service.usage import LocalUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import BaseModel

    from holdfast.service.validation import ValidatedOperations

REQUIRED: Any = ...
GROUPS: Mapping[str, type[ValidatedOperations]] = {
    "": LocalService,
    "bases": LocalBases,
    "documents": LocalDocuments,
    "jobs": LocalJobs,
    "asking": LocalSearch,
    "cards": LocalCards,
    "dossiers": LocalDocumentDetails,
    "accounts": LocalUsage,
    "archives": LocalArchives,
    "events": LocalEvents,
    "keys": LocalKeys,
    "webhooks": LocalWebhooks,
}
PATH_NAME = re.compile(r"{(\w+)(?::path)?}")


class Param(NamedTuple):
    """A parameter in the path or in the query; `limits` are arguments of `fastapi.Query`."""

    name: str
    type: Any
    default: Any
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One HTTP operation and the service method that it calls.

    The parameters of the path are the first arguments of the method. Query parameters and fields of the body are passed
    by name. `arguments` maps a name in HTTP to the name of the argument if they differ.

    Example:
        Route("revoke_key", "DELETE /keys/{key}", "keys.revoke", s.ApiKey, (_record_id("key"),))
    """

    name: str  # the operation id
    request: str  # verb and path
    call: str  # group and method, as a user of the library writes them
    returns: Any
    params: Sequence[Param] = ()  # of the query, and those of the path that are not in `PATH_PARAMS`
    body: type[BaseModel] | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    repeatable: bool = True  # the server stores the response to a POST under its Idempotency-Key
    timeout: bool = True  # False: the client waits without a limit, because the work may take minutes
    by_hand: bool = False

    @property
    def verb(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.request.partition(" ")[2]

    @property
    def path_names(self) -> list[str]:
        return PATH_NAME.findall(self.path)

    @property
    def group(self) -> str:
        return self.call.rpartition(".")[0]

    @property
    def method(self) -> Callable[..., Any]:
        """The method of the local service, which has the signature and the documentation of the operation."""
        found: Callable[..., Any] = getattr(GROUPS[self.group], self.call.rpartition(".")[2])
        return found


def _param(name: str, type_: Any, default: Any = REQUIRED, **limits: Any) -> Param:
    return Param(name, type_, default, limits)


def _cursor(max_length: int, **limits: Any) -> Param:
    return _param("cursor", str | None, None, max_length=max_length, **limits)


def _limit(default: int = 100, most: int = 500, **limits: Any) -> Param:
    return _param("limit", int, default, ge=1, le=most, **limits)


def _pages(most: int) -> tuple[Param, ...]:
    return (
        _cursor(500),
        _param("page", int, 1, ge=1, le=most),
        _param("page_size", int, 50, ge=1, le=500),
    )


def _record_id(name: str, **limits: Any) -> Param:
    return _param(name, int, ge=1, lt=2**63, **limits)


PATH_PARAMS = {
    "base": _param("base", str, description="Name of a base.", max_length=200),
    "document": _record_id("document", description="Id of a document."),
    "job": _param("job", str, description="Id of a job.", max_length=200),
    "chunk": _record_id("chunk", description="Id of a chunk, for example from a hit."),
    "webhook": _record_id("webhook", description="Id of a webhook."),
    "delivery": _record_id("delivery", description="Id of a delivery."),
}
HOURS = {"ge": 1, "le": 24 * 30}
BASE_FILTER = _param("base", str | None, None, max_length=200, description="Only of this base.")
TOPICS = "Event types (`job.success`), groups of them (`job`), or `progress`."
EVENT_FILTERS = (
    BASE_FILTER,
    _param("document", int | None, None, ge=1, lt=2**63, description="Only about this document."),
    _param("topic", list[str] | None, None, max_length=50, description=TOPICS),
)
PARENT_FILTER = "Only direct children of this container; 0: the top level."
ENTITY_KEY = {"min_length": 1, "max_length": 500, "description": "Key of an entity."}
DOCUMENT_PATH = "/bases/{base}/documents/{document}"

# By tag. The first route that matches a path is used, so a fixed path comes before a path with a parameter.
# fmt: off
ROUTES: Mapping[str, Sequence[Route]] = {
    "bases": (
        Route("list_bases", "GET /bases", "bases.list", list[s.Base]),
        Route("get_base", "GET /bases/{base}", "bases.get", s.Base),
        Route("delete_base", "DELETE /bases/{base}", "bases.delete", s.Reply, status=202),
        Route("clear_base", "POST /bases/{base}:clear", "bases.clear", s.BulkSummary, status=202),
        Route("repair_base", "POST /bases/{base}:repair", "bases.repair", s.Base, status=202),
        Route("count_documents", "GET /bases/{base}/counts", "bases.counts", s.DocumentCounts, (
            _param("exact", bool, False, description="Count all documents; this takes longer in a large base."),
        )),
        Route("read_usage", "GET /bases/{base}/usage", "accounts.usage", s.BaseUsage),
        Route("list_waiting", "GET /bases/{base}/waiting", "accounts.waiting", list[s.WaitingJob]),
        # A repeated test must show the current state.
        Route("test_providers", "POST /bases/{base}/providers:test", "bases.test_providers",
              list[s.ProviderTestResult], repeatable=False),
    ),
    "documents": (
        Route("preview_folder", "POST /bases/{base}/documents/sources:preview", "documents.preview", s.SyncPreview,
              body=bodies.PreviewFolderRequest, arguments={"path": "folder"}),
        Route("list_documents", "GET /bases/{base}/documents", "documents.list", Page[s.Document], (
            _param("parent", int | None, None, ge=0, lt=2**63, description=PARENT_FILTER),
            _param("status", list[s.Status] | None, None, max_length=10),
            _param("kind", list[s.ItemKind] | None, None, max_length=10),
            _param("text", str | None, None, max_length=200, description="Part of the name."),
            _param("deleting", bool, False, description="Only documents that are being deleted."),
            _param("order", Order, Order.ACTIVE),
            _param("reverse", bool, False, description="Reverse the order; `active` has no reverse."),
            *_pages(100_000),
        ), arguments={"status": "states", "kind": "kinds", "page_size": "size"}),
        Route("read_statuses", "POST /bases/{base}/documents/status", "documents.statuses", list[s.DocumentStatus],
              body=bodies.DocumentStatusesRequest),
        Route("get_document", f"GET {DOCUMENT_PATH}", "documents.get", s.Document, by_hand=True),
        Route("read_text", f"GET {DOCUMENT_PATH}/text", "documents.text", s.DocumentText, (
            _param("start", int, 0, ge=0, lt=2**31, description="Position of the first character."),
            _param("length", int, 100_000, ge=1, le=1_000_000, description="Maximum number of characters."),
        )),
        Route("list_chunks", f"GET {DOCUMENT_PATH}/chunks", "documents.chunks", Page[s.DocumentChunk],
              (_cursor(50), _limit())),
        Route("read_passage", f"GET {DOCUMENT_PATH}/passages/{{chunk}}", "documents.passage", s.PassageInContext),
        Route("list_document_entities", f"GET {DOCUMENT_PATH}/entities", "dossiers.entities", list[s.DocumentEntity]),
        Route("list_document_cards", f"GET {DOCUMENT_PATH}/cards", "dossiers.cards", Page[s.Card],
              (_cursor(50), _limit())),
        Route("list_document_missing", f"GET {DOCUMENT_PATH}/missing", "dossiers.missing", list[s.MissingChunk],
              (_limit(),)),
        Route("read_document_usage", f"GET {DOCUMENT_PATH}/usage", "dossiers.usage", s.DocumentUsage),
        Route("read_document_history", f"GET {DOCUMENT_PATH}/history", "dossiers.history", list[s.HistoryEntry],
              (_limit(),)),
    ),
    "search": (
        # The server stores no answers: they contain text of documents that may be deleted meanwhile.
        Route("ask", "POST /bases/{base}/answers", "asking.ask", s.Answer, body=bodies.AskRequest, repeatable=False),
        Route("list_entities", "GET /bases/{base}/graph/entities", "asking.entities", list[s.Entity], (
            _param("text", str, "", max_length=200, description="Beginning of their names."),
            _limit(50, 1000),
        )),
        Route("get_entity", "GET /bases/{base}/graph/entities/{key:path}", "asking.entity", s.EntityDetails,
              (_param("key", str, max_length=500, description="Key of an entity."), _limit(50))),
        Route("draw_graph", "GET /bases/{base}/graph", "asking.graph", s.GraphView, (
            _param("around", str | None, None, max_length=500, description="Only near the entity with this key."),
            _param("depth", int, 1, ge=1, le=3, description="Maximum distance from `around`, in edges."),
            _limit(300, 1000, description="Maximum number of entities."),
        )),
        Route("list_evidence", "GET /bases/{base}/graph/edges", "asking.evidence", list[s.ServedPassage],
              (_param("source", str, **ENTITY_KEY), _param("target", str, **ENTITY_KEY), _limit(50))),
    ),
    "cards": (
        Route("list_cards", "GET /bases/{base}/cards", "cards.list", Page[s.Card], (_cursor(30), _limit())),
        Route("read_cards", "GET /bases/{base}/cards/status", "cards.status", s.CardSetStatus),
        Route("generate_cards", "POST /bases/{base}/cards:generate", "cards.generate", s.Reply, status=202),
        Route("cancel_cards", "POST /bases/{base}/cards:cancel", "cards.cancel", s.Reply, status=202),
    ),
    "jobs": (
        Route("list_jobs", "GET /jobs", "jobs.list", Page[s.Job], (
            BASE_FILTER,
            _param("document", int | None, None, ge=1, lt=2**63, description="Only of this document; needs `base`."),
            _param("state", list[str] | None, None, description="`queued`, `indexing`, `deleting`, or an outcome."),
            _param("requester", str | None, None, max_length=200, description="Only of this requester."),
            _param("longer_than", int | None, None, ge=0, lt=2**31, description="Only jobs whose work has been running "
                   "for so many seconds, the longest first."),
            *_pages(10_000),
        ), arguments={"state": "states", "page_size": "size"}),
        Route("get_job", "GET /jobs/{job}", "jobs.get", s.Job, by_hand=True),
        Route("cancel_job", "POST /jobs/{job}:cancel", "jobs.cancel", s.Reply, status=202),
        Route("retry_job", "POST /jobs/{job}:retry", "jobs.retry", s.Reply, status=202),
        Route("prioritise_job", "POST /jobs/{job}:prioritise", "jobs.prioritise", s.Reply,
              body=bodies.PriorityRequest),
        Route("cancel_all_jobs", "POST /jobs:cancel", "jobs.cancel_all", s.BulkSummary, body=bodies.CancelJobsRequest,
              status=202),
        Route("retry_all_failed", "POST /jobs:retry", "jobs.retry_all", s.BulkSummary, body=bodies.RetryJobsRequest,
              status=202),
    ),
    "events": (
        Route("list_events", "GET /events", "events.list", Page[s.Event], (*EVENT_FILTERS, _cursor(50), _limit()),
              arguments={"topic": "topics"}),
        Route("list_events_after", "GET /events/after", "events.after", Page[s.Event],
              (_cursor(50, description="`next_cursor` of the previous page; default: now."), *EVENT_FILTERS, _limit()),
              arguments={"topic": "topics"}),
    ),
    "duplicates": (
        Route("list_duplicates", "GET /duplicates", "accounts.duplicates", Page[s.RefusedRequest],
              (BASE_FILTER, _cursor(30), _limit())),
        Route("count_duplicates", "GET /duplicates/counts", "accounts.duplicate_counts", list[s.RefusalCount],
              (BASE_FILTER,)),
    ),
    "keys": (
        Route("list_keys", "GET /keys", "keys.list", list[s.ApiKey]),
        Route("create_key", "POST /keys", "keys.create", s.KeyWithSecret, body=bodies.CreateKeyRequest, by_hand=True),
        Route("revoke_key", "DELETE /keys/{key}", "keys.revoke", s.ApiKey,
              (_record_id("key", description="Id of a key."),)),
    ),
    "webhooks": (
        Route("list_webhooks", "GET /webhooks", "webhooks.list", list[s.Webhook]),
        Route("get_webhook", "GET /webhooks/{webhook}", "webhooks.get", s.Webhook),
        Route("delete_webhook", "DELETE /webhooks/{webhook}", "webhooks.delete", None, status=204),
        Route("enable_webhook", "POST /webhooks/{webhook}:enable", "webhooks.enable", s.Webhook),
        Route("disable_webhook", "POST /webhooks/{webhook}:disable", "webhooks.disable", s.Webhook),
        Route("rotate_secret", "POST /webhooks/{webhook}:rotate", "webhooks.rotate", s.WebhookWithSecret, by_hand=True),
        Route("list_deliveries", "GET /webhooks/{webhook}/deliveries", "webhooks.deliveries", Page[s.Delivery],
              (_cursor(30), _limit(50))),
        Route("redeliver_event", "POST /deliveries/{delivery}:redeliver", "webhooks.redeliver", s.Delivery, status=202),
    ),
    "system": (
        Route("read_overview", "GET /overview", "overview", s.Overview,
              (_param("hours", int, 24, **HOURS, description="Window of the queue statistics, in hours."),)),
        Route("run_doctor", "POST /doctor", "accounts.doctor", list[s.Finding], (
            _param("fix", bool, False, description="Repair what can be repaired."),
            _param("deep", bool, False, description="Also read every file."),
        ), repeatable=False),
        Route("read_erasure", "GET /erasure", "accounts.erasure", s.ErasureStatus),
        Route("erase", "POST /erasure", "accounts.erase", s.ErasureStatus, repeatable=False, timeout=False),
    ),
}
# fmt: on
