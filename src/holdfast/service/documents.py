"""Documents: put in, asked for, looked at and taken out."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from holdfast.auth import Scope
from holdfast.disk import reporting_full_disk
from holdfast.documents import Action, Filter, Manner, Order, Terms, Upload
from holdfast.engine import DEFAULT_PRIORITY
from holdfast.errors import BadRequest, Permanent, StoreFull
from holdfast.service.cursors import places
from holdfast.service.messages import only, reply, summed
from holdfast.service.schemas import Chunk, Kind, OnDuplicate, Original, Page, Passage, Preview, Reply, Standing, Text
from holdfast.service.validation import Checked, one_of
from holdfast.sources.watch import USUALLY
from holdfast.url_secrets import masked, secret_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from threading import Event

    from holdfast.catalog import Base
    from holdfast.documents import Reply as ItemReply
    from holdfast.service.authorization import Authorization
    from holdfast.service.schemas import Document, Summary

Replies = list[Reply]
Generations = Collection[int] | None
Standings = list[Standing]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file on its way in."""

    name: str
    content: bytes | BinaryIO | Path
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent: int | None = None

    @classmethod
    def at(cls, path: Path | str) -> File:
        """Name a file of this machine."""
        where = Path(path)
        if not where.is_file():
            raise BadRequest(f"{str(path)!r} is not a file; add a folder with `sync`.")
        return cls(name=where.name, content=where)


class OneByOne(ABC):
    """Calls about one document, on either side: each raises a conflict where it makes no new work."""

    @abstractmethod
    def many(
        self,
        base: str,
        action: str,
        documents: Sequence[int],
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> Replies:
        """Do the same to many documents; `unless_changed` has the generations that a single one may have."""

    def index(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Index what is not indexed; a conflict names the job that does it already."""
        return self._act(base, "index", document, priority, unless_changed)

    def reindex(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Build a document again, or all that stands below it; only from rest."""
        return self._act(base, "reindex", document, priority, unless_changed)

    def refresh(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Look again where a page, sitemap or folder comes from; what did not change costs nothing."""
        return self._act(base, "refresh", document, priority, unless_changed)

    def retry(
        self, base: str, document: int, *, priority: int = DEFAULT_PRIORITY, unless_changed: Generations = None
    ) -> Reply:
        """Build what failed or is lacking, and nothing else; of what is being deleted, try the clean-up again now."""
        return self._act(base, "retry", document, priority, unless_changed)

    def cancel(self, base: str, document: int, *, unless_changed: Generations = None) -> Reply:
        """Stop what is active; what was served stays served."""
        return self._act(base, "cancel", document, DEFAULT_PRIORITY, unless_changed)

    def delete(self, base: str, document: int, *, unless_changed: Generations = None) -> Reply:
        """Delete a document with all below it: from now on it is found nowhere."""
        return self._act(base, "delete", document, DEFAULT_PRIORITY, unless_changed)

    def _act(self, base: str, action: str, document: int, priority: int, unless_changed: Generations) -> Reply:
        return only(self.many(base, action, [document], priority=priority, unless_changed=unless_changed))


class LocalDocuments(Checked, OneByOne):
    """The documents of a database."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._library = authorization.library

    # ------------------------------------------------------------ putting in

    def add(
        self,
        base: str,
        files: Iterable[File | Path | str],
        *,
        on_duplicate: OnDuplicate | str | None = None,
        index: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Replies:
        """Add files; each has its own answer, in order.

        `on_duplicate` is `reject`, `replace` or `rename`; None: as the base has it.
        """
        given = [one if isinstance(one, File) else File.at(one) for one in files]
        uploads = [Upload(one.name, _content(one.content), one.metadata, parent=one.parent or 0) for one in given]
        return self._add(base, uploads, on_duplicate=on_duplicate, index=index, priority=priority)

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
        """Add a text that was written here."""
        upload = Upload(name, text.encode(), metadata or {}, Kind.NOTE, parent=parent or 0)
        return self._add(base, [upload], on_duplicate=on_duplicate)[0]

    def url(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        """Add a page of the web; `every` so many seconds it is looked at again."""
        return self._add(base, [_source(Kind.URL, address, name, every)])[0]

    def sitemap(self, base: str, address: str, *, name: str | None = None, every: int | None = None) -> Reply:
        """Add all pages that a sitemap lists."""
        return self._add(base, [_source(Kind.SITEMAP, address, name, every)])[0]

    def sync(self, base: str, folder: Path | str, *, priority: int = DEFAULT_PRIORITY) -> Reply:
        """Bring a folder of the machine that holds the library up to date; the first time it becomes an item."""
        shelf, local = self._for_folders(base)
        return reply(self._library.syncing.sync(shelf, Path(folder), self._manner(priority), local=local))

    def preview(self, base: str, folder: Path | str) -> Preview:
        """Tell what syncing a folder would add, change and remove; nothing is written."""
        shelf, local = self._for_folders(base)
        return self._library.syncing.preview(shelf, Path(folder), local=local)

    def watch(self, base: str, folder: Path | str, *, stop: Event, every: timedelta = USUALLY) -> Iterator[Reply]:
        """Sync a folder now, whenever something in it may have changed, and every so often, until `stop` is set."""
        shelf, local = self._for_folders(base)
        return map(reply, self._library.syncing.watch(shelf, Path(folder), stop=stop, every=every, local=local))

    # ------------------------------------------------------------ asking

    def many(
        self,
        base: str,
        action: str,
        documents: Sequence[int],
        *,
        priority: int = DEFAULT_PRIORITY,
        unless_changed: Generations = None,
    ) -> Replies:
        """Do the same to many documents: index, reindex, refresh, retry, force, cancel or delete.

        `unless_changed` has the generations that a single document may have; else nothing is done.
        """
        shelf = self._at.open(base, Scope.WRITE)
        wanted = _action(action)
        if unless_changed is not None and len(documents) != 1:
            raise BadRequest("Whether it changed can be asked of one document at a time.")
        manner = self._manner(priority)._replace(unless_changed=unless_changed)
        return [reply(one) for one in self._done(shelf, wanted, documents, manner)]

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
        """Do the same to all documents that a list with these filters shows, however many; a dry run counts them.

        What stands below a folder that is met is not asked a second time. Where a status is named, reindex, force and
        delete leave folders and sitemaps alone, unless their kind is named: below them stands what has another one.
        """
        shelf = self._at.open(base, Scope.WRITE)
        filter_ = Filter(parent=parent, states=states, kinds=kinds, text=text, deleting=deleting)
        found = self._library.matching.ask(shelf, _action(action), filter_, self._manner(priority), dry_run=dry_run)
        return summed(found, dry_run=dry_run)

    def _done(self, shelf: Base, action: Action, documents: Sequence[int], manner: Manner) -> Iterable[ItemReply]:
        if action is Action.DELETE:
            return self._library.removing.delete(
                shelf, documents, requester=manner.requester, unless_changed=manner.unless_changed
            )
        return self._library.requesting.request(shelf, documents, action, manner)

    # ------------------------------------------------------------ looking

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
        """Return documents of a base; with `parent`, what stands directly in a container, 0 for the base itself.

        By default the active ones first, then the failed, then the newest. `text` is part of a name. `deleting` lists
        what is being deleted, and nothing else.
        """
        return self._library.shelves.list(
            self._at.open(base),
            parent=parent,
            states=states,
            text=text,
            kinds=kinds,
            deleting=deleting,
            order=one_of(Order, "order", order),
            reverse=reverse,
            cursor=cursor,
            page=page,
            size=size,
        )

    def statuses(self, base: str, documents: Iterable[int]) -> Standings:
        """Tell how documents stand, up to 1,000 at once; those that are not there are left out."""
        return list(self._library.shelves.statuses(self._at.open(base), documents))

    def get(self, base: str, document: int) -> Document:
        """Return a document with its indexes, why it waits, and what went wrong."""
        return self._library.shelves.detail(self._at.open(base), document)

    def text(self, base: str, document: int, *, start: int = 0, length: int = 50_000) -> Text:
        """Return the text of a document as it was read and is served, or a part of it."""
        return self._library.shelves.text(self._at.open(base), document, start=start, limit=length)

    def passage(self, base: str, document: int, chunk: int) -> Passage:
        """Return a chunk with what stands around it: what a hit or a citation opens."""
        return self._library.shelves.passage(self._at.open(base), document, chunk)

    def original(self, base: str, document: int) -> Original:
        """Tell where the bytes of a document are, as they came in."""
        return self._library.shelves.original(self._at.open(base), document)

    def chunks(self, base: str, document: int, *, cursor: str | None = None, limit: int = 100) -> Page[Chunk]:
        """Return the chunks of a document, or of all below a container, as they are served."""
        shelf = self._at.open(base)
        items = self._library.items.chunks(shelf, document, after=places(cursor) or (0, -1), limit=limit)
        more = f"{items[-1].document}.{items[-1].ordinal}" if len(items) == limit else None
        return Page(items=items, next_cursor=more)

    def download(self, base: str, document: int, to: Path | BinaryIO) -> int:
        """Write the bytes of a document as they came in; return how many."""
        found = self.original(base, document)
        with found.path.open("rb") as file, saving(to) as target:
            shutil.copyfileobj(file, target)
        return found.size

    def _add(
        self,
        base: str,
        uploads: Iterable[Upload],
        *,
        on_duplicate: OnDuplicate | str | None = None,
        index: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Replies:
        shelf = self._at.open(base, Scope.WRITE)
        chosen = None if on_duplicate is None else one_of(OnDuplicate, "on_duplicate", on_duplicate)
        terms = Terms(on_duplicate=chosen, index=index, requester=self._at.requester, priority=priority)
        return [reply(one) for one in self._library.adding.add(shelf, uploads, terms)]

    def _for_folders(self, base: str) -> tuple[Base, bool]:
        """Open a base for a folder of this machine, and tell whether the local user asks.

        Files of the server belong to no base, so a key that is limited to some bases may not name them. Without keys
        everybody who reaches the server is the local user.
        """
        shelf = self._at.open(base, Scope.ADMIN)
        local = self._at.caller.key_id is None
        if not local:
            self._at.everywhere(Scope.ADMIN)
        return shelf, local

    def _manner(self, priority: int) -> Manner:
        return Manner(requester=self._at.requester, priority=priority)


@contextmanager
def saving(to: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Open what something is written to; a file that is there already is not overwritten."""
    if not isinstance(to, Path):
        yield to
        return
    try:
        file = to.open("xb")
    except FileExistsError as error:
        raise BadRequest(f"{str(to)!r} is there already; name another file, or remove it first.") from error
    except OSError as error:
        raise BadRequest(f"{str(to)!r} cannot be written: {error.strerror}.") from error
    try:
        with reporting_full_disk(f"for {str(to)!r}"), file:
            yield file
    except StoreFull:
        to.unlink(missing_ok=True)  # a part of a file is worse than none
        raise


def _source(kind: Kind, address: str, name: str | None, every: int | None) -> Upload:
    """Name a page or sitemap; an address that holds a secret or cannot be fetched is refused, and not repeated."""
    part = secret_in(address)
    if part == "user":
        raise BadRequest(
            "The address holds a user name or a password, which would be stored and shown. Nothing was stored; write "
            "it without them. Holdfast fetches only pages that need no sign-in.",
            "user_in_address",
        )
    if part is not None:
        raise BadRequest(
            f"The address holds a secret in its parameter {part!r}, which would be stored and shown. Nothing was "
            "stored; write it without the parameter.",
            "secret_in_address",
            parameter=part,
        )
    from holdfast.sources.urls import Url  # noqa: PLC0415 - it needs a package that a client of a server has not

    try:
        Url.parse(address)
    except Permanent as refusal:
        raise BadRequest(f"{refusal} Nothing was stored.", refusal.code, **refusal.params) from None
    return Upload(name or masked(address), kind=kind, source=address, every=every)


def _action(name: str) -> Action:
    """Return the action of this name."""
    try:
        return Action(name)
    except ValueError:
        raise BadRequest(f"Nothing is called {name!r} here; choose one of {', '.join(sorted(Action))}.") from None


def _content(content: bytes | BinaryIO | Path) -> Any:
    return (lambda: content.open("rb")) if isinstance(content, Path) else content
