"""`Holdfast`, the entry point of the library."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.errors import HoldfastError
from holdfast.extras import importing_extra
from holdfast.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from holdfast.service.access import LocalKeys, LocalWebhooks
    from holdfast.service.archives import LocalArchives
    from holdfast.service.bases import LocalBases
    from holdfast.service.details import LocalDocumentDetails
    from holdfast.service.documents import LocalDocuments
    from holdfast.service.event_queries import LocalEvents
    from holdfast.service.jobs import LocalJobs
    from holdfast.service.local import LocalService
    from holdfast.service.opening import BackgroundWorker
    from holdfast.service.remote import RemoteService
    from holdfast.service.schemas import Answer, DocumentStatus, Hits, Job, Overview
    from holdfast.service.search import LocalCards, LocalSearch
    from holdfast.service.usage import LocalUsage
    from holdfast.wiring import Library

T = TypeVar("T")

POLL_SECONDS = 0.1
BUSY_STATUSES = ("queued", "indexing")


class Holdfast:
    """A library: a folder on this machine, a database, or a server.

    `Holdfast("notes")` opens or creates a folder, `Holdfast("postgresql+psycopg://…")` opens a shared database, and
    `Holdfast("http://…", key="hf_…")` connects to a server. All have the same methods. Close it, or use `with`.

    `work` decides whether this process indexes documents. By default it does so only in a folder without a running
    server.
    """

    def __init__(self, where: str | Path | None = None, *, key: str | None = None, work: bool | None = None) -> None:
        self._worker: BackgroundWorker | None = None
        self.local: Library | None = None  # None for a server
        if str(where or "").startswith(("http://", "https://")):
            with importing_extra("client"):
                from holdfast.service.remote import RemoteService  # noqa: PLC0415

            remote = RemoteService(str(where), key or Settings.from_environment().key or None)
            service: LocalService | RemoteService = remote
            self._close: Callable[[], None] = remote.close
        else:
            with importing_extra("documents"):
                from holdfast.service.local import LocalService  # noqa: PLC0415
                from holdfast.service.opening import (  # noqa: PLC0415
                    BackgroundWorker,
                    find_server,
                    local_caller,
                    open_library,
                    settings_for,
                )

            settings = settings_for(where)
            library = self.local = open_library(settings)
            service = LocalService(library, local_caller())
            self._close = library.store.close
            shared = "://" in str(where or "")
            if work or (work is None and not shared and find_server(settings) is None):
                self._worker = BackgroundWorker(settings)
        self._service = service

    @property
    def bases(self) -> LocalBases:
        """Create, list, change and delete bases."""
        return self._service.bases

    @property
    def documents(self) -> LocalDocuments:
        """Add, list, change and delete documents."""
        return self._service.documents

    @property
    def jobs(self) -> LocalJobs:
        """List, cancel, retry and prioritise jobs; pause the queue."""
        return self._service.jobs

    @property
    def asking(self) -> LocalSearch:
        """Search bases, answer questions, and read the knowledge graph."""
        return self._service.asking

    @property
    def cards(self) -> LocalCards:
        """Generate, list and export study cards."""
        return self._service.cards

    @property
    def dossiers(self) -> LocalDocumentDetails:
        """Read the details of one document: history, costs, missing chunks, entities, cards."""
        return self._service.dossiers

    @property
    def accounts(self) -> LocalUsage:
        """Read costs and refused requests, check the stores, and erase deleted data."""
        return self._service.accounts

    @property
    def archives(self) -> LocalArchives:
        """Export bases to files and restore them."""
        return self._service.archives

    @property
    def events(self) -> LocalEvents:
        """Read the event log."""
        return self._service.events

    @property
    def keys(self) -> LocalKeys:
        """Create, list and revoke the API keys of a server."""
        return self._service.keys

    @property
    def webhooks(self) -> LocalWebhooks:
        """Manage the addresses that receive events."""
        return self._service.webhooks

    def overview(self, hours: int = 24) -> Overview:
        """Return document counts, the queue of the last hours, workers, costs and recent outcomes of jobs."""
        return self._service.overview(hours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the worker of this process, so that other workers can claim its work, and close the library.

        What the worker has changed is measured for later searches, whose processes may have no worker.
        """
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
            if self.local is not None:
                with suppress(HoldfastError):
                    self.local.calibrator.refresh_due()
        self._close()

    @property
    def works(self) -> bool:
        """Whether this process indexes documents."""
        return self._worker is not None

    def search(self, base: str, query: str, **options: Any) -> Hits:
        """Return the best passages of a base; see `asking.search`."""
        return self.asking.search(base, query, **options)

    def ask(self, base: str, question: str, **options: Any) -> Answer:
        """Answer a question from a base; see `asking.ask`."""
        return self.asking.ask(base, question, **options)

    def wait(
        self,
        base: str,
        documents: Sequence[int | None],
        *,
        timeout: float | None = None,
        progress: Callable[[list[DocumentStatus]], None] | None = None,
    ) -> list[DocumentStatus]:
        """Wait until documents are no longer queued or indexing, and return their statuses without deleted ones.

        Calls `progress` with the statuses a few times a second. Raises `TimeoutError` after `timeout` seconds.

        Example:
            reply = library.documents.note("handbook", "leave", "Parental leave is twelve weeks.")
            library.wait("handbook", [reply.document], timeout=60)
        """
        wanted = [document for document in documents if document is not None]
        return _wait_until(
            lambda: self.documents.statuses(base, wanted),
            lambda statuses: all(document.status not in BUSY_STATUSES for document in statuses),
            lambda statuses: (
                f"{sum(one.status in BUSY_STATUSES for one in statuses)} documents are still queued or indexing."
            ),
            timeout,
            progress,
        )

    def wait_for(self, job: str, *, timeout: float | None = None, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait until a job has ended, and return it; raise `TimeoutError` after `timeout` seconds."""
        return _wait_until(
            lambda: self.jobs.get(job),
            lambda found: found.ended,
            lambda found: f"Job '{job}' has not ended yet; its state is '{found.state}'.",
            timeout,
            progress,
        )


def _wait_until(
    read: Callable[[], T],
    finished: Callable[[T], bool],
    too_late: Callable[[T], str],
    timeout: float | None,
    progress: Callable[[T], None] | None,
) -> T:
    """Poll until a value is final; raise `TimeoutError` after `timeout` seconds."""
    ends = None if timeout is None else time.monotonic() + timeout
    while True:
        value = read()
        if progress is not None:
            progress(value)
        if finished(value):
            return value
        if ends is not None and time.monotonic() >= ends:
            raise TimeoutError(too_late(value))
        time.sleep(POLL_SECONDS)
