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
from holdfast.service.access import ALL
from holdfast.service.documents import File, OneByOne, saving
from holdfast.service.http_client import Wire, part
from holdfast.service.schemas import (
    Answer,
    Balance,
    Base,
    Card,
    Cards,
    Chunk,
    Cost,
    Counts,
    Delivery,
    Document,
    Entity,
    Erasure,
    Event,
    Exported,
    Finding,
    GraphView,
    Happening,
    Hit,
    Hits,
    Job,
    Key,
    Mentioned,
    Missing,
    Mode,
    NewKey,
    NewWebhook,
    Notice,
    Overview,
    Page,
    Passage,
    Place,
    Portrait,
    Preview,
    Queue,
    Refusal,
    Refused,
    Reply,
    Restored,
    Standing,
    Status,
    Summary,
    Text,
    Trial,
    Verdict,
    Waiting,
    Webhook,
)
from holdfast.service.validation import Checked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.documents import Order
    from holdfast.service.documents import Generations
    from holdfast.service.schemas import OnDuplicate

AN_HOUR, A_DAY = timedelta(hours=1), timedelta(days=1)
Nothing = type(None)
Bases = list[Base]
Replies = list[Reply]
Standings = list[Standing]
Keys = list[Key]
Trials = list[Trial]
Hooks = list[Webhook]


class Remote(Checked):
    """All that can be done, at a server."""

    def __init__(self, address: str, key: str | None = None) -> None:
        wire = Wire(address, key)
        self.close = wire.close
        self.bases = RemoteBases(wire)
        self.documents = RemoteDocuments(wire)
        self.jobs = RemoteJobs(wire)
        self.asking = RemoteAsking(wire)
        self.cards = RemoteCards(wire)
        self.dossiers = RemoteDossiers(wire)
        self.accounts = RemoteAccounts(wire)
        self.archives = RemoteArchives(wire)
        self.events = RemoteEvents(wire)
        self.keys = RemoteKeys(wire)
        self.webhooks = RemoteWebhooks(wire)
        self._wire = wire

    def overview(self, hours: int = 24) -> Overview:
        return self._wire.get(Overview, "/overview", hours=hours)


class RemoteBases(Checked):
    """As `LocalBases`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def create(self, name: str, **settings: Any) -> Base:
        return self._wire.post(Base, "/bases", {"name": name, **settings})

    def list(self) -> Bases:
        return self._wire.get(Bases, "/bases")

    def get(self, name: str) -> Base:
        return self._wire.get(Base, _base(name))

    def counts(self, name: str) -> Counts:
        return self._wire.get(Counts, f"{_base(name)}/counts")

    def change(self, name: str, *, to: str | None = None, **settings: Any) -> Base:
        return self._wire.patch(Base, _base(name), settings if to is None else {"name": to, **settings})

    def rename(self, name: str, to: str) -> Base:
        return self._wire.patch(Base, _base(name), {"name": to})

    def repair(self, name: str) -> Base:
        return self._wire.post(Base, f"{_base(name)}:repair")

    def test_providers(self, name: str) -> Trials:
        return self._wire.post(Trials, f"{_base(name)}/providers:test")

    def clear(self, name: str) -> None:
        self._wire.post(Nothing, f"{_base(name)}:clear")

    def delete(self, name: str) -> None:
        self._wire.delete(Nothing, _base(name))


class RemoteDocuments(Checked, OneByOne):
    """As `LocalDocuments`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

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
            for reply in self._add(
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
        return self._one(base, "notes", body | {"on_duplicate": on_duplicate})

    def url(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        return self._one(base, "sources", {"kind": "url", "source": address, "name": name, "every": every})

    def sitemap(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        return self._one(base, "sources", {"kind": "sitemap", "source": address, "name": name, "every": every})

    def sync(self, base: str, folder: Path | str, *, priority: int = DEFAULT_PRIORITY) -> Reply:
        return self._one(base, "sources", {"kind": "directory", "source": str(folder), "priority": priority})

    def preview(self, base: str, folder: Path | str) -> Preview:
        return self._wire.post(Preview, f"{_base(base)}/documents/sources:preview", {"path": str(folder)})

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
            return [self._unless_changed(base, action, documents[0], priority, unless_changed)]
        if unless_changed is not None:
            raise BadRequest("Whether it changed can be asked of one document at a time.")
        body = {"documents": list(documents), "priority": priority}
        return self._wire.post(_Replies, f"{_base(base)}/documents:{part(action)}", body).replies

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
    ) -> Summary:
        filter_ = {
            "parent": parent,
            "status": None if states is None else [*states],
            "kind": None if kinds is None else [*kinds],
            "text": text,
            "deleting": deleting,
        }
        body = {"filter": filter_, "priority": priority, "dry_run": dry_run}
        return self._wire.post(Summary, f"{_base(base)}/documents:{part(action)}", body)

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
        return self._wire.get(
            Page[Document],
            f"{_base(base)}/documents",
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

    def statuses(self, base: str, documents: Iterable[int]) -> Standings:
        return self._wire.post(Standings, f"{_base(base)}/documents/status", {"documents": [*documents]})

    def get(self, base: str, document: int) -> Document:
        return self._wire.get(Document, _document(base, document))

    def text(self, base: str, document: int, *, start: int = 0, length: int = 50_000) -> Text:
        return self._wire.get(Text, f"{_document(base, document)}/text", start=start, length=length)

    def passage(self, base: str, document: int, chunk: int) -> Passage:
        return self._wire.get(Passage, f"{_document(base, document)}/passages/{chunk}")

    def chunks(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Chunk]:
        return self._wire.get(Page[Chunk], f"{_document(base, document)}/chunks", cursor=cursor, limit=limit)

    def download(self, base: str, document: int, to: Path | BinaryIO) -> int:
        with saving(to) as file:
            return self._wire.save(f"{_document(base, document)}/original", file)

    def _add(self, base: str, file: File, **how: Any) -> Replies:
        """Send one file; a conflict is an answer here, as it is for many."""
        with ExitStack() as held:
            content = held.enter_context(file.content.open("rb")) if isinstance(file.content, Path) else file.content
            data = {"metadata": json.dumps(dict(file.metadata))} if file.metadata else {}
            try:
                return self._wire.upload(
                    _Replies,
                    f"{_base(base)}/documents",
                    [("file", (file.name, content))],
                    data,
                    parent=file.parent,
                    **how,
                ).replies
            except Conflict as conflict:
                return [_reply(conflict, file.name)]

    def _unless_changed(
        self, base: str, action: str, document: int, priority: int, generations: Collection[int]
    ) -> Reply:
        """Ask about one document, if it is as it was; a conflict is an answer here, as it is for many."""
        path = f"{_document(base, document)}:{part(action)}"
        try:
            return self._wire.post_if(Reply, path, [f'"g{one}"' for one in generations], priority=priority)
        except Conflict as conflict:
            return _reply(conflict, "")

    def _one(self, base: str, what: str, body: dict[str, Any]) -> Reply:
        given = {name: value for name, value in body.items() if value is not None}
        try:
            return self._wire.post(_Replies, f"{_base(base)}/documents/{what}", given).replies[0]
        except Conflict as conflict:
            return _reply(conflict, str(body.get("name") or body.get("source")))


class RemoteJobs(Checked):
    """As `LocalJobs`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

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
        return self._wire.get(
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
        return self._wire.get(Job, f"/jobs/{part(job)}")

    def cancel(self, job: str) -> Reply:
        return self._wire.post(Reply, f"/jobs/{part(job)}:cancel")

    def retry(self, job: str) -> Reply:
        return self._wire.post(Reply, f"/jobs/{part(job)}:retry")

    def prioritise(self, job: str, priority: int) -> Reply:
        return self._wire.post(Reply, f"/jobs/{part(job)}:prioritise", {"priority": priority})

    def cancel_all(self, base: str | None = None, *, dry_run: bool = False) -> Summary:
        return self._wire.post(Summary, "/jobs:cancel", {"base": base, "dry_run": dry_run})

    def retry_all(self, base: str | None = None, *, degraded: bool = False, dry_run: bool = False) -> Summary:
        return self._wire.post(Summary, "/jobs:retry", {"base": base, "degraded": degraded, "dry_run": dry_run})

    def pause(self, base: str | None = None, *, stop: bool = False) -> bool:
        return bool(self._wire.post(dict[str, bool], "/jobs:pause", {"base": base, "stop": stop})["changed"])

    def resume(self, base: str | None = None) -> bool:
        return bool(self._wire.post(dict[str, bool], "/jobs:resume", {"base": base})["changed"])

    def overview(self, base: str | None = None, window: timedelta = A_DAY) -> Queue:
        return self._wire.get(Queue, "/jobs/overview", base=base, hours=max(1, round(window / AN_HOUR)))


class RemoteAsking(Checked):
    """As `LocalAsking`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

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
        found = self._wire.post(_Found, f"{_base(base)}/search", asked)
        return Hits(found.hits, found.notices)

    def ask(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Answer:
        return self._wire.post(Answer, f"{_base(base)}/answers", {"question": question, "mode": mode})

    def stream(self, base: str, question: str, *, mode: Mode | str = Mode.MIX) -> Iterator[str | Answer]:
        asked = {"question": question, "mode": mode}
        for name, data in self._wire.events(f"{_base(base)}/answers:stream", asked):
            yield data if name == "text" else TypeAdapter(Answer).validate_python(data)

    def entities(self, base: str, *, text: str = "", limit: int = 50) -> list[Entity]:
        return self._wire.get(list[Entity], f"{_base(base)}/graph/entities", text=text, limit=limit)

    def entity(self, base: str, key: str, *, limit: int = 50) -> Portrait:
        return self._wire.get(Portrait, f"{_base(base)}/graph/entities/{part(key)}", limit=limit)

    def graph(self, base: str, *, around: str | None = None, depth: int = 1, limit: int = 300) -> GraphView:
        return self._wire.get(GraphView, f"{_base(base)}/graph", around=around, depth=depth, limit=limit)

    def evidence(self, base: str, source: str, target: str, *, limit: int = 50) -> list[Place]:
        asked = {"source": source, "target": target, "limit": limit}
        return self._wire.get(list[Place], f"{_base(base)}/graph/edges", **asked)


class RemoteCards(Checked):
    """As `LocalCards`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def generate(self, base: str) -> Reply:
        return self._wire.post(Reply, f"{_base(base)}/cards:generate")

    def cancel(self, base: str) -> Reply:
        return self._wire.post(Reply, f"{_base(base)}/cards:cancel")

    def status(self, base: str) -> Cards:
        return self._wire.get(Cards, f"{_base(base)}/cards/status")

    def list(self, base: str, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        return self._wire.get(Page[Card], f"{_base(base)}/cards", cursor=cursor, limit=limit)

    def export(self, base: str, form: str) -> str:
        return self._wire.text(f"{_base(base)}/cards/export", form=form)


class RemoteDossiers(Checked):
    """As `LocalDossiers`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def entities(self, base: str, document: int) -> list[Mentioned]:
        return self._wire.get(list[Mentioned], f"{_document(base, document)}/entities")

    def cards(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Card]:
        return self._wire.get(Page[Card], f"{_document(base, document)}/cards", cursor=cursor, limit=limit)

    def missing(self, base: str, document: int, *, limit: int = 100) -> list[Missing]:
        return self._wire.get(list[Missing], f"{_document(base, document)}/missing", limit=limit)

    def usage(self, base: str, document: int) -> Cost:
        return self._wire.get(Cost, f"{_document(base, document)}/usage")

    def history(self, base: str, document: int, *, limit: int = 100) -> list[Happening]:
        return self._wire.get(list[Happening], f"{_document(base, document)}/history", limit=limit)


class RemoteAccounts(Checked):
    """As `LocalAccounts`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def usage(self, base: str) -> Balance:
        return self._wire.get(Balance, f"{_base(base)}/usage")

    def duplicates(self, base: str | None = None, *, cursor: str | None = None, limit: int = 100) -> Page[Refusal]:
        return self._wire.get(Page[Refusal], "/duplicates", base=base, cursor=cursor, limit=limit)

    def duplicate_counts(self, base: str | None = None) -> list[Refused]:
        return self._wire.get(list[Refused], "/duplicates/counts", base=base)

    def doctor(self, *, fix: bool = False, deep: bool = False) -> list[Finding]:
        return self._wire.post(list[Finding], "/doctor", fix=fix, deep=deep)

    def erasure(self) -> Erasure:
        return self._wire.get(Erasure, "/erasure")

    def erase(self) -> Erasure:
        return self._wire.post_patiently(Erasure, "/erasure")

    def waiting(self, base: str) -> list[Waiting]:
        return self._wire.get(list[Waiting], f"{_base(base)}/waiting")


class RemoteArchives(Checked):
    """As `LocalArchives`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def export(self, base: str, to: Path | BinaryIO, *, memos: bool = True) -> Exported:
        with saving(to) as file:
            return Exported(bytes=self._wire.save(f"{_base(base)}/archive", file, memos=memos))

    def restore(self, archive: Path | BinaryIO, *, name: str | None = None) -> Restored:
        with ExitStack() as held:
            file = held.enter_context(archive.open("rb")) if isinstance(archive, Path) else archive
            return self._wire.put_in(Restored, "/archives", file, name=name)


class RemoteEvents(Checked):
    """As `LocalEvents`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def list(
        self,
        base: str | None = None,
        *,
        document: int | None = None,
        topics: Collection[str] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Event]:
        return self._wire.get(
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
        return self._wire.get(
            Page[Event],
            "/events/after",
            cursor=cursor,
            base=base,
            document=document,
            topic=None if topics is None else [*topics],
            limit=limit,
        )


class RemoteKeys(Checked):
    """As `LocalKeys`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def create(
        self, name: str, scope: str | None = None, *, bases: Sequence[str] | None = None, days: int | None = None
    ) -> NewKey:
        asked = {
            "name": name,
            "scope": None if scope is None else str(scope),
            "bases": None if bases is None else [*bases],
            "days": days,
        }
        return self._wire.post(NewKey, "/keys", asked)

    def list(self) -> Keys:
        return self._wire.get(Keys, "/keys")

    def revoke(self, key: int) -> Key:
        return self._wire.delete(Key, f"/keys/{key}")


class RemoteWebhooks(Checked):
    """As `LocalWebhooks`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def create(self, url: str, types: Sequence[str] = ALL, *, bases: Sequence[str] | None = None) -> NewWebhook:
        asked = {"url": url, "types": [*types] or [*ALL], "bases": None if bases is None else [*bases]}
        return self._wire.post(NewWebhook, "/webhooks", asked)

    def list(self) -> Hooks:
        return self._wire.get(Hooks, "/webhooks")

    def get(self, webhook: int) -> Webhook:
        return self._wire.get(Webhook, f"/webhooks/{webhook}")

    def enable(self, webhook: int) -> Webhook:
        return self._wire.post(Webhook, f"/webhooks/{webhook}:enable")

    def disable(self, webhook: int) -> Webhook:
        return self._wire.post(Webhook, f"/webhooks/{webhook}:disable")

    def rotate(self, webhook: int) -> NewWebhook:
        return self._wire.post(NewWebhook, f"/webhooks/{webhook}:rotate")

    def delete(self, webhook: int) -> None:
        self._wire.delete(Nothing, f"/webhooks/{webhook}")

    def deliveries(self, webhook: int, *, cursor: str | None = None, limit: int = 50) -> Page[Delivery]:
        return self._wire.get(Page[Delivery], f"/webhooks/{webhook}/deliveries", cursor=cursor, limit=limit)

    def redeliver(self, delivery: int) -> Delivery:
        return self._wire.post(Delivery, f"/deliveries/{delivery}:redeliver")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replies:
    replies: list[Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    hits: list[Hit]
    notices: list[Notice] = field(default_factory=list)


def _base(name: str) -> str:
    return f"/bases/{part(name)}"


def _document(base: str, document: int) -> str:
    return f"{_base(base)}/documents/{document}"


def _reply(conflict: Conflict, name: str) -> Reply:
    """Return a conflict as the answer about one of many."""
    return Reply(
        verdict=Verdict(conflict.verdict),
        reason=conflict.reason,
        message=str(conflict),
        name=name,
        document=conflict.document,
        job=conflict.job,
        status=Status(conflict.status),
    )
