"""A library on a server, by the same calls as one on this machine."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import TypeAdapter

from holdfast.engine import DEFAULT_PRIORITY
from holdfast.errors import BadRequest, Conflict
from holdfast.service.access import ALL_EVENT_TYPES
from holdfast.service.documents import File, SingleDocumentOperations, open_for_writing
from holdfast.service.http_client import HttpClient, quote_path_segment
from holdfast.service.messages import make_conflict_reply
from holdfast.service.schemas import (
    Answer,
    ApiKey,
    Base,
    BaseUsage,
    BulkSummary,
    Card,
    CardSetStatus,
    Delivery,
    Document,
    DocumentChunk,
    DocumentCounts,
    DocumentEntity,
    DocumentStatus,
    DocumentText,
    DocumentUsage,
    Entity,
    EntityDetails,
    ErasureStatus,
    Event,
    ExportResult,
    Finding,
    GraphView,
    HistoryEntry,
    Hit,
    Hits,
    Job,
    KeyWithSecret,
    MissingChunk,
    Mode,
    Notice,
    Overview,
    Page,
    PassageInContext,
    ProviderTestResult,
    QueueStats,
    RefusalCount,
    RefusedRequest,
    Reply,
    RestoredBase,
    ServedPassage,
    SyncPreview,
    WaitingJob,
    Webhook,
    WebhookWithSecret,
)
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.documents import Order
    from holdfast.service.documents import Generations
    from holdfast.service.schemas import OnDuplicate

ONE_HOUR, ONE_DAY = timedelta(hours=1), timedelta(days=1)
NoContent = type(None)
BaseList = list[Base]
Replies = list[Reply]
StatusList = list[DocumentStatus]
KeyList = list[ApiKey]
ProbeResults = list[ProviderTestResult]
WebhookList = list[Webhook]


class RemoteService(ValidatedOperations):
    """All that can be done, at a server."""

    def __init__(self, address: str, key: str | None = None) -> None:
        wire = HttpClient(address, key)
        self.close = wire.close
        self.bases = RemoteBases(wire)
        self.documents = RemoteDocuments(wire)
        self.jobs = RemoteJobs(wire)
        self.asking = RemoteSearch(wire)
        self.cards = RemoteCards(wire)
        self.dossiers = RemoteDocumentDetails(wire)
        self.accounts = RemoteUsage(wire)
        self.archives = RemoteArchives(wire)
        self.events = RemoteEvents(wire)
        self.keys = RemoteKeys(wire)
        self.webhooks = RemoteWebhooks(wire)
        self._client = wire

    def overview(self, hours: int = 24) -> Overview:
        return self._client.get(Overview, "/overview", hours=hours)


class RemoteBases(ValidatedOperations):
    """As `LocalBases`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def create(self, name: str, **settings: Any) -> Base:
        return self._client.post(Base, "/bases", {"name": name, **settings})

    def list(self) -> BaseList:
        return self._client.get(BaseList, "/bases")

    def get(self, name: str) -> Base:
        return self._client.get(Base, _base_path(name))

    def counts(self, name: str) -> DocumentCounts:
        return self._client.get(DocumentCounts, f"{_base_path(name)}/counts")

    def change(self, name: str, *, to: str | None = None, **settings: Any) -> Base:
        return self._client.patch(Base, _base_path(name), settings if to is None else {"name": to, **settings})

    def rename(self, name: str, to: str) -> Base:
        return self._client.patch(Base, _base_path(name), {"name": to})

    def repair(self, name: str) -> Base:
        return self._client.post(Base, f"{_base_path(name)}:repair")

    def test_providers(self, name: str) -> ProbeResults:
        return self._client.post(ProbeResults, f"{_base_path(name)}/providers:test")

    def clear(self, name: str) -> None:
        self._client.post(NoContent, f"{_base_path(name)}:clear")

    def delete(self, name: str) -> None:
        self._client.delete(NoContent, _base_path(name))


class RemoteDocuments(ValidatedOperations, SingleDocumentOperations):
    """As `LocalDocuments`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def add(
        self,
        base: str,
        files: Iterable[File | Path | str],
        *,
        on_duplicate: OnDuplicate | str | None = None,
        index: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Replies:
        return [
            reply
            for one in files
            for reply in self._upload_one(
                base,
                one if isinstance(one, File) else File.at(one),
                on_duplicate=on_duplicate,
                index=index,
                priority=priority,
            )
        ]

    def note(
        self,
        base: str,
        name: str,
        text: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        on_duplicate: OnDuplicate | str | None = None,
        parent: int | None = None,
    ) -> Reply:
        body = {"name": name, "text": text, "metadata": dict(metadata or {}), "parent": parent}
        return self._post_one(base, "notes", body | {"on_duplicate": on_duplicate})

    def url(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        return self._post_one(base, "sources", {"kind": "url", "source": address, "name": name, "every": every})

    def sitemap(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        return self._post_one(base, "sources", {"kind": "sitemap", "source": address, "name": name, "every": every})

    def sync(self, base: str, folder: Path | str, *, priority: int = DEFAULT_PRIORITY) -> Reply:
        return self._post_one(base, "sources", {"kind": "directory", "source": str(folder), "priority": priority})

    def preview(self, base: str, folder: Path | str) -> SyncPreview:
        return self._client.post(SyncPreview, f"{_base_path(base)}/documents/sources:preview", {"path": str(folder)})

    def many(
        self,
        base: str,
        action: str,
        documents: Sequence[int],
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> Replies:
        if unless_changed is not None and len(documents) == 1:
            return [self._act_if_unchanged(base, action, documents[0], priority, unless_changed)]
        if unless_changed is not None:
            raise BadRequest("Whether it changed can be asked of one document at a time.")
        body = {"documents": list(documents), "priority": priority}
        return self._client.post(
            _RepliesResponse, f"{_base_path(base)}/documents:{quote_path_segment(action)}", body
        ).replies

    def matching(
        self,
        base: str,
        action: str,
        *,
        parent: int | None = None,
        states: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        text: str | None = None,
        deleting: bool = False,
        priority: int = DEFAULT_PRIORITY,
        dry_run: bool = False,
    ) -> BulkSummary:
        filter_ = {
            "parent": parent,
            "status": None if states is None else [*states],
            "kind": None if kinds is None else [*kinds],
            "text": text,
            "deleting": deleting,
        }
        body = {"filter": filter_, "priority": priority, "dry_run": dry_run}
        return self._client.post(BulkSummary, f"{_base_path(base)}/documents:{quote_path_segment(action)}", body)

    def list(
        self,
        base: str,
        *,
        parent: int | None = None,
        states: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        text: str | None = None,
        deleting: bool = False,
        order: Order | str = "active",
        reverse: bool = False,
        cursor: str | None = None,
        page: int = 1,
        size: int = 50,
    ) -> Page[Document]:
        return self._client.get(
            Page[Document],
            f"{_base_path(base)}/documents",
            parent=parent,
            status=None if states is None else [*states],
            kind=None if kinds is None else [*kinds],
            text=text,
            deleting=deleting,
            order=str(order),
            reverse=reverse,
            cursor=cursor,
            page=page,
            page_size=size,
        )

    def statuses(self, base: str, documents: Iterable[int]) -> StatusList:
        return self._client.post(StatusList, f"{_base_path(base)}/documents/status", {"documents": [*documents]})

    def get(self, base: str, document: int) -> Document:
        return self._client.get(Document, _document_path(base, document))

    def text(self, base: str, document: int, *, start: int = 0, length: int = 50_000) -> DocumentText:
        return self._client.get(DocumentText, f"{_document_path(base, document)}/text", start=start, length=length)

    def passage(self, base: str, document: int, chunk: int) -> PassageInContext:
        return self._client.get(PassageInContext, f"{_document_path(base, document)}/passages/{chunk}")

    def chunks(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[DocumentChunk]:
        return self._client.get(
            Page[DocumentChunk], f"{_document_path(base, document)}/chunks", cursor=cursor, limit=limit
        )

    def download(self, base: str, document: int, to: Path | BinaryIO) -> int:
        with open_for_writing(to) as file:
            return self._client.download(f"{_document_path(base, document)}/original", file)

    def _upload_one(self, base: str, file: File, **how: Any) -> Replies:
        """Send one file; a conflict is an answer here, as it is for many."""
        with ExitStack() as held:
            content = held.enter_context(file.content.open("rb")) if isinstance(file.content, Path) else file.content
            data = {"metadata": json.dumps(dict(file.metadata))} if file.metadata else {}
            try:
                return self._client.upload_files(
                    _RepliesResponse,
                    f"{_base_path(base)}/documents",
                    [("file", (file.name, content))],
                    data,
                    parent=file.parent,
                    **how,
                ).replies
            except Conflict as conflict:
                return [make_conflict_reply(conflict, file.name)]

    def _act_if_unchanged(
        self, base: str, action: str, document: int, priority: int, generations: Collection[int]
    ) -> Reply:
        """Ask about one document, if it is as it was; a conflict is an answer here, as it is for many."""
        path = f"{_document_path(base, document)}:{quote_path_segment(action)}"
        try:
            return self._client.post_if_match(Reply, path, [f'"g{one}"' for one in generations], priority=priority)
        except Conflict as conflict:
            return make_conflict_reply(conflict)

    def _post_one(self, base: str, what: str, body: dict[str, Any]) -> Reply:
        given = {name: value for name, value in body.items() if value is not None}
        try:
            return self._client.post(_RepliesResponse, f"{_base_path(base)}/documents/{what}", given).replies[0]
        except Conflict as conflict:
            return make_conflict_reply(conflict, str(body.get("name") or body.get("source")))


class RemoteJobs(ValidatedOperations):
    """As `LocalJobs`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def list(
        self,
        base: str | None = None,
        *,
        document: int | None = None,
        states: Collection[str] | None = None,
        requester: str | None = None,
        cursor: str | None = None,
        page: int = 1,
        size: int = 50,
    ) -> Page[Job]:
        return self._client.get(
            Page[Job],
            "/jobs",
            base=base,
            document=document,
            state=None if states is None else [*states],
            requester=requester,
            cursor=cursor,
            page=page,
            page_size=size,
        )

    def get(self, job: str) -> Job:
        return self._client.get(Job, f"/jobs/{quote_path_segment(job)}")

    def cancel(self, job: str) -> Reply:
        return self._client.post(Reply, f"/jobs/{quote_path_segment(job)}:cancel")

    def retry(self, job: str) -> Reply:
        return self._client.post(Reply, f"/jobs/{quote_path_segment(job)}:retry")

    def prioritise(self, job: str, priority: int) -> Reply:
        return self._client.post(Reply, f"/jobs/{quote_path_segment(job)}:prioritise", {"priority": priority})

    def cancel_all(self, base: str | None = None, *, dry_run: bool = False) -> BulkSummary:
        return self._client.post(BulkSummary, "/jobs:cancel", {"base": base, "dry_run": dry_run})

    def retry_all(self, base: str | None = None, *, degraded: bool = False, dry_run: bool = False) -> BulkSummary:
        return self._client.post(BulkSummary, "/jobs:retry", {"base": base, "degraded": degraded, "dry_run": dry_run})

    def pause(self, base: str | None = None, *, stop: bool = False) -> bool:
        return bool(self._client.post(dict[str, bool], "/jobs:pause", {"base": base, "stop": stop})["changed"])

    def resume(self, base: str | None = None) -> bool:
        return bool(self._client.post(dict[str, bool], "/jobs:resume", {"base": base})["changed"])

    def overview(self, base: str | None = None, window: timedelta = ONE_DAY) -> QueueStats:
        return self._client.get(QueueStats, "/jobs/overview", base=base, hours=max(1, round(window / ONE_HOUR)))


class RemoteSearch(ValidatedOperations):
    """As `LocalAsking`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def search(
        self,
        base: str,
        query: str,
        *,
        limit: int = 10,
        channels: Collection[str] | None = None,
        documents: Collection[int] | None = None,
        below: Sequence[int] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Hits:
        asked = {
            "query": query,
            "limit": limit,
            "channels": None if channels is None else [*channels],
            "documents": None if documents is None else [*documents],
            "below": [*below],
            "metadata": None if metadata is None else dict(metadata),
        }
        found = self._client.post(_SearchResponse, f"{_base_path(base)}/search", asked)
        return Hits(found.hits, found.notices)

    def ask(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Answer:
        return self._client.post(Answer, f"{_base_path(base)}/answers", {"question": question, "mode": mode})

    def stream(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Iterator[str | Answer]:
        asked = {"question": question, "mode": mode}
        for name, data in self._client.stream_events(f"{_base_path(base)}/answers:stream", asked):
            yield data if name == "text" else TypeAdapter(Answer).validate_python(data)

    def entities(self, base: str, *, text: str = "", limit: int = 50) -> list[Entity]:
        return self._client.get(list[Entity], f"{_base_path(base)}/graph/entities", text=text, limit=limit)

    def entity(self, base: str, key: str, *, limit: int = 50) -> EntityDetails:
        return self._client.get(
            EntityDetails, f"{_base_path(base)}/graph/entities/{quote_path_segment(key)}", limit=limit
        )

    def graph(self, base: str, *, around: str | None = None, depth: int = 1, limit: int = 300) -> GraphView:
        return self._client.get(GraphView, f"{_base_path(base)}/graph", around=around, depth=depth, limit=limit)

    def evidence(self, base: str, source: str, target: str, *, limit: int = 50) -> list[ServedPassage]:
        asked = {"source": source, "target": target, "limit": limit}
        return self._client.get(list[ServedPassage], f"{_base_path(base)}/graph/edges", **asked)


class RemoteCards(ValidatedOperations):
    """As `LocalCards`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def generate(self, base: str) -> Reply:
        return self._client.post(Reply, f"{_base_path(base)}/cards:generate")

    def cancel(self, base: str) -> Reply:
        return self._client.post(Reply, f"{_base_path(base)}/cards:cancel")

    def status(self, base: str) -> CardSetStatus:
        return self._client.get(CardSetStatus, f"{_base_path(base)}/cards/status")

    def list(self, base: str, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        return self._client.get(Page[Card], f"{_base_path(base)}/cards", cursor=cursor, limit=limit)

    def export(self, base: str, form: str) -> str:
        return self._client.get_text(f"{_base_path(base)}/cards/export", form=form)


class RemoteDocumentDetails(ValidatedOperations):
    """As `LocalDossiers`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def entities(self, base: str, document: int) -> list[DocumentEntity]:
        return self._client.get(list[DocumentEntity], f"{_document_path(base, document)}/entities")

    def cards(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        return self._client.get(Page[Card], f"{_document_path(base, document)}/cards", cursor=cursor, limit=limit)

    def missing(self, base: str, document: int, *, limit: int = 100) -> list[MissingChunk]:
        return self._client.get(list[MissingChunk], f"{_document_path(base, document)}/missing", limit=limit)

    def usage(self, base: str, document: int) -> DocumentUsage:
        return self._client.get(DocumentUsage, f"{_document_path(base, document)}/usage")

    def history(self, base: str, document: int, *, limit: int = 100) -> list[HistoryEntry]:
        return self._client.get(list[HistoryEntry], f"{_document_path(base, document)}/history", limit=limit)


class RemoteUsage(ValidatedOperations):
    """As `LocalAccounts`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def usage(self, base: str) -> BaseUsage:
        return self._client.get(BaseUsage, f"{_base_path(base)}/usage")

    def duplicates(
        self, base: str | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Page[RefusedRequest]:
        return self._client.get(Page[RefusedRequest], "/duplicates", base=base, cursor=cursor, limit=limit)

    def duplicate_counts(self, base: str | None = None) -> list[RefusalCount]:
        return self._client.get(list[RefusalCount], "/duplicates/counts", base=base)

    def doctor(self, *, fix: bool = False, deep: bool = False) -> list[Finding]:
        return self._client.post(list[Finding], "/doctor", fix=fix, deep=deep)

    def erasure(self) -> ErasureStatus:
        return self._client.get(ErasureStatus, "/erasure")

    def erase(self) -> ErasureStatus:
        return self._client.post_without_timeout(ErasureStatus, "/erasure")

    def waiting(self, base: str) -> list[WaitingJob]:
        return self._client.get(list[WaitingJob], f"{_base_path(base)}/waiting")


class RemoteArchives(ValidatedOperations):
    """As `LocalArchives`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def export(self, base: str, to: Path | BinaryIO, *, memos: bool = True) -> ExportResult:
        with open_for_writing(to) as file:
            return ExportResult(bytes=self._client.download(f"{_base_path(base)}/archive", file, memos=memos))

    def restore(self, archive: Path | BinaryIO, *, name: str | None = None) -> RestoredBase:
        with ExitStack() as held:
            file = held.enter_context(archive.open("rb")) if isinstance(archive, Path) else archive
            return self._client.upload_bytes(RestoredBase, "/archives", file, name=name)


class RemoteEvents(ValidatedOperations):
    """As `LocalEvents`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def list(
        self,
        base: str | None = None,
        *,
        document: int | None = None,
        topics: Collection[str] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Event]:
        return self._client.get(
            Page[Event],
            "/events",
            base=base,
            document=document,
            topic=None if topics is None else [*topics],
            cursor=cursor,
            limit=limit,
        )

    def after(
        self,
        cursor: str | None,
        base: str | None = None,
        *,
        document: int | None = None,
        topics: Collection[str] | None = None,
        limit: int = 100,
    ) -> Page[Event]:
        return self._client.get(
            Page[Event],
            "/events/after",
            cursor=cursor,
            base=base,
            document=document,
            topic=None if topics is None else [*topics],
            limit=limit,
        )


class RemoteKeys(ValidatedOperations):
    """As `LocalKeys`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def create(
        self, name: str, scope: str | None = None, *, bases: Sequence[str] | None = None, days: int | None = None
    ) -> KeyWithSecret:
        asked = {
            "name": name,
            "scope": None if scope is None else str(scope),
            "bases": None if bases is None else [*bases],
            "days": days,
        }
        return self._client.post(KeyWithSecret, "/keys", asked)

    def list(self) -> KeyList:
        return self._client.get(KeyList, "/keys")

    def revoke(self, key: int) -> ApiKey:
        return self._client.delete(ApiKey, f"/keys/{key}")


class RemoteWebhooks(ValidatedOperations):
    """As `LocalWebhooks`."""

    def __init__(self, wire: HttpClient) -> None:
        self._client = wire

    def create(
        self, url: str, types: Sequence[str] = ALL_EVENT_TYPES, *, bases: Sequence[str] | None = None
    ) -> WebhookWithSecret:
        asked = {"url": url, "types": [*types] or [*ALL_EVENT_TYPES], "bases": None if bases is None else [*bases]}
        return self._client.post(WebhookWithSecret, "/webhooks", asked)

    def list(self) -> WebhookList:
        return self._client.get(WebhookList, "/webhooks")

    def get(self, webhook: int) -> Webhook:
        return self._client.get(Webhook, f"/webhooks/{webhook}")

    def enable(self, webhook: int) -> Webhook:
        return self._client.post(Webhook, f"/webhooks/{webhook}:enable")

    def disable(self, webhook: int) -> Webhook:
        return self._client.post(Webhook, f"/webhooks/{webhook}:disable")

    def rotate(self, webhook: int) -> WebhookWithSecret:
        return self._client.post(WebhookWithSecret, f"/webhooks/{webhook}:rotate")

    def delete(self, webhook: int) -> None:
        self._client.delete(NoContent, f"/webhooks/{webhook}")

    def deliveries(self, webhook: int, *, cursor: str | None = None, limit: int = 50) -> Page[Delivery]:
        return self._client.get(Page[Delivery], f"/webhooks/{webhook}/deliveries", cursor=cursor, limit=limit)

    def redeliver(self, delivery: int) -> Delivery:
        return self._client.post(Delivery, f"/deliveries/{delivery}:redeliver")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RepliesResponse:
    replies: list[Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchResponse:
    hits: list[Hit]
    notices: list[Notice] = field(default_factory=list)


def _base_path(name: str) -> str:
    return f"/bases/{quote_path_segment(name)}"


def _document_path(base: str, document: int) -> str:
    return f"{_base_path(base)}/documents/{document}"
