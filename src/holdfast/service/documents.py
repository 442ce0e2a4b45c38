"""Operations on documents: add, index, list, read, delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from holdfast.auth import Scope
from holdfast.blobs import BLOCK_BYTES
from holdfast.catalog import ItemKind, OnDuplicate
from holdfast.disk import reporting_full_disk
from holdfast.documents import (
    Action,
    AddOptions,
    DocumentChunk,
    DocumentFilter,
    DocumentStatus,
    Order,
    RequestOptions,
    Upload,
)
from holdfast.engine import DEFAULT_PRIORITY, BulkResult, Status, Verdict, format_reply
from holdfast.errors import BadRequest, Permanent, StoreFull
from holdfast.paging import Page
from holdfast.service.cursors import parse_pair_cursor
from holdfast.service.messages import BulkSummary, Reply, make_document_reply, merge_summaries, require_accepted
from holdfast.service.validation import ValidatedOperations, parse_choice
from holdfast.url_secrets import find_secret, mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from threading import Event

    from holdfast.catalog import Base
    from holdfast.documents import Document, DocumentText, OriginalFile, PassageInContext, SyncPreview
    from holdfast.service.authorization import Authorization

Replies = list[Reply]
Generations = Collection[int] | None
StatusList = list[DocumentStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to add: bytes, an open file, or a path. A path is opened when the file is read.

    Example:
        library.documents.add("handbook", [File(name="leave.md", content=b"# Leave", metadata={"team": "people"})])
    """

    name: str
    content: bytes | BinaryIO | Path
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent: int | None = None

    @classmethod
    def at(cls, path: Path | str) -> File:
        """Return a file of this machine with its own name."""
        where = Path(path)
        if not where.is_file():
            raise BadRequest("no_such_file", path=path)
        return cls(name=where.name, content=where)


class SingleDocumentOperations(ABC):
    """Operations on one document, in a local library or on a server.

    Each raises `Conflict` if it starts no new work, and `PreconditionFailed` if `unless_changed` is given and does not
    contain the generation of the document.
    """

    @abstractmethod
    def many(
        self,
        base: str,
        action: str,
        documents: Sequence[int],
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> Replies | BulkSummary:
        """Request the same action for many documents; `unless_changed` is only allowed with one document."""

    def run(
        self,
        base: str,
        action: str,
        document: int,
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> Reply:
        """Request an action for one document. The methods below do this for each action by its name."""
        replies = self.many(base, action, [document], priority=priority, unless_changed=unless_changed)
        (reply,) = cast("Replies", replies)  # one document always gets a reply
        return require_accepted(reply)

    def index(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Index a document. Raise `Conflict` if it is already indexed, or if a job is indexing it."""
        return self.run(base, "index", document, priority=priority, unless_changed=unless_changed)

    def reindex(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Index a document again, or all documents of a container. Raise `Conflict` while one of them is active."""
        return self.run(base, "reindex", document, priority=priority, unless_changed=unless_changed)

    def refresh(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Read a page, sitemap or folder again. Unchanged content costs nothing."""
        return self.run(base, "refresh", document, priority=priority, unless_changed=unless_changed)

    def retry(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Build only what failed or is missing. For a document that is being deleted, retry its clean-up now."""
        return self.run(base, "retry", document, priority=priority, unless_changed=unless_changed)

    def cancel(self, base: str, document: int, *, unless_changed: Generations = None) -> Reply:
        """Stop active work. Search keeps using the index that was built before."""
        return self.run(base, "cancel", document, unless_changed=unless_changed)

    def delete(self, base: str, document: int, *, unless_changed: Generations = None) -> Reply:
        """Delete a document, or a container with everything in it. It disappears from search and lists immediately."""
        return self.run(base, "delete", document, unless_changed=unless_changed)


class LocalDocuments(ValidatedOperations, SingleDocumentOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._library = authorization.library

    def add(
        self,
        base: str,
        files: Iterable[File | Path | str],
        *,
        on_duplicate: OnDuplicate | str | None = None,
        index: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Replies:
        """Add files and return one reply for each, in order.

        `on_duplicate` is `reject`, `replace` or `rename`; None uses the setting of the base.
        """
        given = [file if isinstance(file, File) else File.at(file) for file in files]
        uploads = [
            Upload(file.name, _lazy_content(file.content), file.metadata, parent=file.parent or 0) for file in given
        ]
        return self._add_uploads(base, uploads, on_duplicate=on_duplicate, index=index, priority=priority)

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
        """Add a text as a document."""
        upload = Upload(name, text.encode(), metadata or {}, ItemKind.NOTE, parent=parent or 0)
        return self._add_uploads(base, [upload], on_duplicate=on_duplicate)[0]

    def url(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        """Add a web page. With `every`, Holdfast fetches it again after so many seconds."""
        return self._add_uploads(base, [_make_url_upload(ItemKind.URL, address, name, every)])[0]

    def sitemap(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        """Add all pages that a sitemap lists."""
        return self._add_uploads(base, [_make_url_upload(ItemKind.SITEMAP, address, name, every)])[0]

    def sync(self, base: str, folder: Path | str, *, priority: int = DEFAULT_PRIORITY) -> Reply:
        """Add, update and remove documents so that they match a folder on the machine of the library."""
        target, local = self._find_base_for_folders(base)
        return make_document_reply(
            self._library.folder_sync.sync(target, Path(folder), self._request_options(priority), local=local)
        )

    def preview(self, base: str, folder: Path | str) -> SyncPreview:
        """Return what syncing a folder of the server would add, change and remove, without writing anything."""
        target, local = self._find_base_for_folders(base)
        return self._library.folder_sync.preview(target, Path(folder), local=local)

    def watch(self, base: str, folder: Path | str, *, stop: Event, every: timedelta | None = None) -> Iterator[Reply]:
        """Sync a folder now, after each change, and at the interval `every` (5 minutes), until `stop` is set."""
        target, local = self._find_base_for_folders(base)
        return map(
            make_document_reply,
            self._library.folder_sync.watch(target, Path(folder), stop=stop, every=every, local=local),
        )

    def many(
        self,
        base: str,
        action: str,
        documents: Sequence[int],
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> Replies | BulkSummary:
        """Request the same action for many documents: index, reindex, refresh, retry, force, cancel or delete.

        Up to 250 documents are processed at once, and each gets a reply. More documents become a job, which the summary
        names; items below a folder count, too. If one document is such a folder, its reply names the job.

        With `unless_changed`, which is only allowed with one document, the request is accepted only if the document has
        one of these generations.
        """
        target = self._authorization.find_base(base, Scope.WRITE)
        wanted = parse_choice(Action, "action", action)
        if unless_changed is not None and len(documents) != 1:
            raise BadRequest("unless_changed_for_many", documents=len(documents))
        options = self._request_options(priority)._replace(unless_changed=unless_changed)
        result = self._library.bulk_operations.request_ids(target, wanted, documents, options)
        if isinstance(result, list):
            return [make_document_reply(reply) for reply in result]
        summary = merge_summaries(result, dry_run=False)
        return summary if len(documents) > 1 else [self._make_job_reply(documents[0], summary)]

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
        """Request the same action for all documents that a list with these filters shows; `dry_run` only counts them.

        Up to 250 documents are processed at once. More documents become a job, which the summary names.

        A request for a container covers everything below it, so items below it get no request of their own. If `states`
        is given, reindex, force and delete skip folders and sitemaps unless `kinds` names them, because documents below
        them can have other states.
        """
        target = self._authorization.find_base(base, Scope.WRITE)
        filter_ = DocumentFilter(parent=parent, states=states, kinds=kinds, text=text, deleting=deleting)
        wanted, bulk = parse_choice(Action, "action", action), self._library.bulk_operations
        if dry_run:
            return merge_summaries(BulkResult(found=bulk.count(target, wanted, filter_)), dry_run=True)
        result = bulk.request_matching(target, wanted, filter_, self._request_options(priority))
        return merge_summaries(result, dry_run=False)

    def _make_job_reply(self, document: int, summary: BulkSummary) -> Reply:
        """Return the reply for a container whose items a job processes."""
        return Reply(
            verdict=Verdict.ACCEPTED,
            reason="bulk_started",
            message=format_reply("bulk_started", Status.QUEUED, accepted=True),
            name=self._library.document_queries.names([document]).get(document, ""),
            document=document,
            job=summary.jobs[0],
            status=Status.QUEUED,
        )

    def list(
        self,
        base: str,
        *,
        parent: int | None = None,
        states: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        text: str | None = None,
        deleting: bool = False,
        order: Order | str = Order.ACTIVE,
        reverse: bool = False,
        cursor: str | None = None,
        page: int = 1,
        size: int = 50,
    ) -> Page[Document]:
        """Return documents of a base. By default, active documents come first, then failed ones, then the newest.

        `parent` limits the list to the direct children of a container, 0 to the top level. `text` is part of a name.
        `deleting` lists only documents that are being deleted.
        """
        return self._library.document_queries.list(
            self._authorization.find_base(base),
            DocumentFilter(parent=parent, states=states, kinds=kinds, text=text, deleting=deleting),
            order=parse_choice(Order, "order", order),
            reverse=reverse,
            cursor=cursor,
            page=page,
            size=size,
        )

    def statuses(self, base: str, documents: Iterable[int]) -> StatusList:
        """Return the status of up to 1,000 documents, without unknown ids."""
        return list(self._library.document_queries.statuses(self._authorization.find_base(base), documents))

    def get(self, base: str, document: int) -> Document:
        """Return a document with the state of each index, why it waits, and what failed."""
        return self._library.document_queries.read_document(self._authorization.find_base(base), document)

    def text(self, base: str, document: int, *, start: int = 0, length: int = 50_000) -> DocumentText:
        """Return the text of a document, or a part of it, as search uses it."""
        return self._library.document_queries.text(
            self._authorization.find_base(base), document, start=start, limit=length
        )

    def passage(self, base: str, document: int, chunk: int) -> PassageInContext:
        """Return a chunk with the text around it, for example for a hit or a citation."""
        return self._library.document_queries.passage(self._authorization.find_base(base), document, chunk)

    def original(self, base: str, document: int) -> OriginalFile:
        """Return the original file of a document: its name, size and type, and a way to read it."""
        return self._library.document_queries.original(self._authorization.find_base(base), document)

    def chunks(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[DocumentChunk]:
        """Return the chunks of a document, or of all documents below a container, as search uses them."""
        target = self._authorization.find_base(base)
        items = self._library.items.chunks(target, document, after=parse_pair_cursor(cursor) or (0, -1), limit=limit)
        more = f"{items[-1].document}.{items[-1].ordinal}" if len(items) == limit else None
        return Page(items=items, next_cursor=more)

    def download(self, base: str, document: int, to: Path | BinaryIO) -> int:
        """Write the original bytes of a document to a file; return their number."""
        original = self.original(base, document)
        with original.open() as file, open_for_writing(to) as target:
            while block := file.read(BLOCK_BYTES):
                target.write(block)
        return original.size

    def _add_uploads(
        self,
        base: str,
        uploads: Iterable[Upload],
        *,
        on_duplicate: OnDuplicate | str | None = None,
        index: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Replies:
        target = self._authorization.find_base(base, Scope.WRITE)
        chosen = None if on_duplicate is None else parse_choice(OnDuplicate, "on_duplicate", on_duplicate)
        options = AddOptions(
            on_duplicate=chosen, index=index, requester=self._authorization.requester, priority=priority
        )
        return [make_document_reply(reply) for reply in self._library.adder.add(target, uploads, options)]

    def _find_base_for_folders(self, base: str) -> tuple[Base, bool]:
        """Return a base, and whether the caller is the local user. Raise unless the caller may name folders.

        This needs the scope `admin`. Folders of the server belong to no base, so the key must not be limited to some
        bases. On a server without keys, every caller is the local user.
        """
        target = self._authorization.find_base(base, Scope.ADMIN)
        local = self._authorization.caller.key_id is None
        if not local:
            self._authorization.require_all_bases(Scope.ADMIN)
        return target, local

    def _request_options(self, priority: int) -> RequestOptions:
        return RequestOptions(requester=self._authorization.requester, priority=priority)


@contextmanager
def open_for_writing(to: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Open a file for writing. Raise `BadRequest` if it exists, so that nothing is overwritten."""
    if not isinstance(to, Path):
        yield to
        return
    try:
        file = to.open("xb")
    except FileExistsError as error:
        raise BadRequest("file_exists", path=to) from error
    except OSError as error:
        raise BadRequest("file_not_writable", path=to, detail=error.strerror) from error
    try:
        with reporting_full_disk(str(to)), file:
            yield file
    except StoreFull:
        to.unlink(missing_ok=True)  # a truncated file must not look complete
        raise


def _make_url_upload(kind: ItemKind, address: str, name: str | None, every: int | None) -> Upload:
    """Return a page or sitemap to add. Reject an address with a secret, and do not repeat it in the error."""
    part = find_secret(address)
    if part == "user":
        raise BadRequest("user_in_address")
    if part is not None:
        raise BadRequest("secret_in_address", parameter=part)
    from holdfast.sources import Url  # noqa: PLC0415 - it needs a package of the extra `documents`

    try:
        Url.parse(address)
    except Permanent as refusal:
        raise BadRequest(refusal.code, **refusal.params) from None
    return Upload(name or mask_secrets(address), kind=kind, source=address, every=every)


def _lazy_content(content: bytes | BinaryIO | Path) -> Any:
    return (lambda: content.open("rb")) if isinstance(content, Path) else content
