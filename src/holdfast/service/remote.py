"""The operations of a library on a server, with the same methods as a local library.

Most methods are generated from the rows of `routes.py`. This module defines the others: uploads, downloads, streams,
and methods whose arguments have another form in HTTP.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import wraps
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from pydantic import TypeAdapter

from holdfast.engine import DEFAULT_PRIORITY
from holdfast.errors import BadRequest, Conflict
from holdfast.service.access import ALL_EVENT_TYPES
from holdfast.service.documents import File, SingleDocumentOperations, open_for_writing
from holdfast.service.http_client import HttpClient, quote_path_segment
from holdfast.service.http_models import PauseResponse, Replies, SearchResponse
from holdfast.service.messages import make_conflict_reply
from holdfast.service.routes import PATH_NAME, ROUTES
from holdfast.service.schemas import (
    Answer,
    Base,
    BulkSummary,
    ExportResult,
    Hits,
    Mode,
    QueueStats,
    Reply,
    RestoredBase,
    WebhookWithSecret,
)
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from holdfast.service.access import LocalKeys, LocalWebhooks
    from holdfast.service.archives import LocalArchives
    from holdfast.service.bases import LocalBases
    from holdfast.service.details import LocalDocumentDetails
    from holdfast.service.documents import Generations, LocalDocuments
    from holdfast.service.event_queries import LocalEvents
    from holdfast.service.jobs import LocalJobs
    from holdfast.service.routes import Route
    from holdfast.service.schemas import OnDuplicate, Overview
    from holdfast.service.search import LocalCards, LocalSearch
    from holdfast.service.usage import LocalUsage

RepliesOrSummary: Any = Replies | BulkSummary
ONE_HOUR, ONE_DAY = timedelta(hours=1), timedelta(days=1)


class HttpOperations(ValidatedOperations):
    """A group of operations. A subclass gets a generated method for each route of its group without one."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def __init_subclass__(cls, *, group: str) -> None:
        for route in (route for routes in ROUTES.values() for route in routes if route.group == group):
            if route.method.__name__ not in vars(cls):
                setattr(cls, route.method.__name__, _make_method(route))
        super().__init_subclass__()


def _make_method(route: Route) -> Callable[..., Any]:
    """Return a method with the signature of the local one that sends a request and returns its result."""
    local = inspect.unwrap(route.method)
    signature = inspect.signature(local)
    wire_names = {argument: name for name, argument in route.arguments.items()}
    part = "params" if route.body is None else "json"

    @wraps(local)
    def send(self: HttpOperations, *args: Any, **named: Any) -> Any:
        bound = signature.bind(self, *args, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        segments = iter([quote_path_segment(str(value)) for _, value in arguments])
        path = PATH_NAME.sub(lambda _: next(segments), route.path)
        sent = {
            wire_names.get(name, name): _to_json(value)
            for name, value in arguments[len(route.path_names) :]
            if value is not None
        }
        options = {} if route.timeout else {"timeout": None}
        return self._client.request(route.returns, route.verb, path, **{part: sent}, **options)

    return send


def _to_json(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    return value


class RemoteBases(HttpOperations, group="bases"):
    def create(self, name: str, **settings: Any) -> Base:
        return self._client.request(Base, "POST", "/bases", json={"name": name, **settings})

    def change(self, name: str, *, to: str | None = None, **settings: Any) -> Base:
        body = settings if to is None else {"name": to, **settings}
        return self._client.request(Base, "PATCH", _base_path(name), json=body)

    def rename(self, name: str, to: str) -> Base:
        return self._client.request(Base, "PATCH", _base_path(name), json={"name": to})


class RemoteDocuments(HttpOperations, SingleDocumentOperations, group="documents"):
    def add(
        self,
        base: str,
        files: Iterable[File | Path | str],
        *,
        on_duplicate: OnDuplicate | str | None = None,
        index: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> list[Reply]:
        options = {"on_duplicate": on_duplicate, "index": index, "priority": priority}
        given = (file if isinstance(file, File) else File.at(file) for file in files)
        return [reply for file in given for reply in self._upload_one(base, file, options)]

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

    def many(
        self,
        base: str,
        action: str,
        documents: Sequence[int],
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> list[Reply] | BulkSummary:
        if unless_changed is not None and len(documents) == 1:
            return [self._act_if_unchanged(base, action, documents[0], priority, unless_changed)]
        if unless_changed is not None:
            raise BadRequest("unless_changed_for_many", documents=len(documents))
        body = {"documents": list(documents), "priority": priority}
        result = self._client.request(RepliesOrSummary, "POST", _action_path(base, action), json=body)
        return result.replies if isinstance(result, Replies) else result

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
        return self._client.request(BulkSummary, "POST", _action_path(base, action), json=body)

    def download(self, base: str, document: int, to: Path | BinaryIO) -> int:
        with open_for_writing(to) as file:
            return self._client.download(f"{_base_path(base)}/documents/{document}/original", file)

    def _upload_one(self, base: str, file: File, options: Mapping[str, Any]) -> list[Reply]:
        """Send one file. A conflict becomes a reply, because the caller gets one reply for each file."""
        with ExitStack() as stack:
            content = stack.enter_context(file.content.open("rb")) if isinstance(file.content, Path) else file.content
            try:
                return self._client.request(
                    Replies,
                    "POST",
                    f"{_base_path(base)}/documents",
                    files=[("file", (file.name, content))],
                    data={"metadata": json.dumps(dict(file.metadata))} if file.metadata else {},
                    params={"parent": file.parent, **options},
                    timeout=None,
                ).replies
            except Conflict as conflict:
                return [make_conflict_reply(conflict, file.name)]

    def _act_if_unchanged(
        self, base: str, action: str, document: int, priority: int, generations: Collection[int]
    ) -> Reply:
        """Act on one document if it has one of these generations. A conflict becomes a reply."""
        path = f"{_base_path(base)}/documents/{document}:{quote_path_segment(action)}"
        headers = {"If-Match": ", ".join(f'"g{generation}"' for generation in generations)}
        try:
            return self._client.request(Reply, "POST", path, params={"priority": priority}, headers=headers)
        except Conflict as conflict:
            return make_conflict_reply(conflict)

    def _post_one(self, base: str, what: str, body: Mapping[str, Any]) -> Reply:
        given = {name: value for name, value in body.items() if value is not None}
        path = f"{_base_path(base)}/documents/{what}"
        try:
            return self._client.request(Replies, "POST", path, json=given).replies[0]
        except Conflict as conflict:
            return make_conflict_reply(conflict, str(body.get("name") or body.get("source")))


class RemoteJobs(HttpOperations, group="jobs"):
    def pause(self, base: str | None = None, *, stop: bool = False) -> bool:
        return self._client.request(PauseResponse, "POST", "/jobs:pause", json={"base": base, "stop": stop}).changed

    def resume(self, base: str | None = None) -> bool:
        return self._client.request(PauseResponse, "POST", "/jobs:resume", json={"base": base}).changed

    def overview(self, base: str | None = None, window: timedelta = ONE_DAY) -> QueueStats:
        params = {"base": base, "hours": max(1, round(window / ONE_HOUR))}
        return self._client.request(QueueStats, "GET", "/jobs/overview", params=params)


class RemoteSearch(HttpOperations, group="asking"):
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
        body = {
            "query": query,
            "limit": limit,
            "channels": None if channels is None else [*channels],
            "documents": None if documents is None else [*documents],
            "below": [*below],
            "metadata": None if metadata is None else dict(metadata),
        }
        found = self._client.request(SearchResponse, "POST", f"{_base_path(base)}/search", json=body)
        return Hits(found.hits, found.notices)

    def stream(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Iterator[str | Answer]:
        body = {"question": question, "mode": mode}
        for name, data in self._client.stream_events(f"{_base_path(base)}/answers:stream", body):
            yield data if name == "text" else TypeAdapter(Answer).validate_python(data)


class RemoteCards(HttpOperations, group="cards"):
    def export(self, base: str, form: str) -> str:
        return self._client.get_text(f"{_base_path(base)}/cards/export", form=form)


class RemoteDocumentDetails(HttpOperations, group="dossiers"):
    pass


class RemoteUsage(HttpOperations, group="accounts"):
    pass


class RemoteArchives(HttpOperations, group="archives"):
    def export(self, base: str, to: Path | BinaryIO, *, memos: bool = True) -> ExportResult:
        with open_for_writing(to) as file:
            return ExportResult(bytes=self._client.download(f"{_base_path(base)}/archive", file, memos=memos))

    def restore(self, archive: Path | BinaryIO, *, name: str | None = None) -> RestoredBase:
        with ExitStack() as stack:
            file = stack.enter_context(archive.open("rb")) if isinstance(archive, Path) else archive
            return self._client.request(
                RestoredBase, "POST", "/archives", content=file, params={"name": name}, timeout=None
            )


class RemoteEvents(HttpOperations, group="events"):
    pass


class RemoteKeys(HttpOperations, group="keys"):
    pass


class RemoteWebhooks(HttpOperations, group="webhooks"):
    def create(
        self, url: str, types: Sequence[str] = ALL_EVENT_TYPES, *, bases: Sequence[str] | None = None
    ) -> WebhookWithSecret:
        body = {"url": url, "types": [*types] or [*ALL_EVENT_TYPES], "bases": None if bases is None else [*bases]}
        return self._client.request(WebhookWithSecret, "POST", "/webhooks", json=body)


class RemoteService(HttpOperations, group=""):
    """All operations on a server. The groups are typed as the local groups, because they have the same methods."""

    overview: Callable[..., Overview]

    def __init__(self, address: str, key: str | None = None) -> None:
        client = HttpClient(address, key)
        super().__init__(client)
        self.close = client.close
        self.bases = cast("LocalBases", RemoteBases(client))
        self.documents = cast("LocalDocuments", RemoteDocuments(client))
        self.jobs = cast("LocalJobs", RemoteJobs(client))
        self.asking = cast("LocalSearch", RemoteSearch(client))
        self.cards = cast("LocalCards", RemoteCards(client))
        self.dossiers = cast("LocalDocumentDetails", RemoteDocumentDetails(client))
        self.accounts = cast("LocalUsage", RemoteUsage(client))
        self.archives = cast("LocalArchives", RemoteArchives(client))
        self.events = cast("LocalEvents", RemoteEvents(client))
        self.keys = cast("LocalKeys", RemoteKeys(client))
        self.webhooks = cast("LocalWebhooks", RemoteWebhooks(client))


def _base_path(name: str) -> str:
    return f"/bases/{quote_path_segment(name)}"


def _action_path(base: str, action: str) -> str:
    return f"{_base_path(base)}/documents:{quote_path_segment(action)}"
