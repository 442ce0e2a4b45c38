"""A library on a database of this process, as one caller sees it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.service.access import LocalKeys, LocalWebhooks
from holdfast.service.archives import LocalArchives
from holdfast.service.authorization import Authorization
from holdfast.service.bases import LocalBases
from holdfast.service.details import LocalDocumentDetails
from holdfast.service.documents import LocalDocuments
from holdfast.service.event_queries import LocalEvents
from holdfast.service.jobs import LocalJobs
from holdfast.service.overview import build_overview
from holdfast.service.search import LocalCards, LocalSearch
from holdfast.service.usage import LocalUsage
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from holdfast.auth import Caller
    from holdfast.service.schemas import Overview
    from holdfast.wiring import Library


class LocalService(ValidatedOperations):
    """All that can be done, in groups; a group is made when it is used, so that every request can have its own."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self.authorization = Authorization(library, caller)

    @cached_property
    def bases(self) -> LocalBases:
        """The bases."""
        return LocalBases(self.authorization)

    @cached_property
    def documents(self) -> LocalDocuments:
        """Documents: added, requested, listed and deleted."""
        return LocalDocuments(self.authorization)

    @cached_property
    def jobs(self) -> LocalJobs:
        """The queue."""
        return LocalJobs(self.authorization, self.documents)

    @cached_property
    def asking(self) -> LocalSearch:
        """Searches, answers and the graph."""
        return LocalSearch(self.authorization)

    @cached_property
    def cards(self) -> LocalCards:
        """Study cards."""
        return LocalCards(self.authorization)

    @cached_property
    def dossiers(self) -> LocalDocumentDetails:
        """Details of single documents."""
        return LocalDocumentDetails(self.authorization)

    @cached_property
    def accounts(self) -> LocalUsage:
        """Usage, duplicate requests and health."""
        return LocalUsage(self.authorization)

    @cached_property
    def archives(self) -> LocalArchives:
        """Bases as files."""
        return LocalArchives(self.authorization)

    @cached_property
    def events(self) -> LocalEvents:
        """The event log."""
        return LocalEvents(self.authorization)

    @cached_property
    def keys(self) -> LocalKeys:
        """API keys."""
        return LocalKeys(self.authorization)

    @cached_property
    def webhooks(self) -> LocalWebhooks:
        """Webhooks."""
        return LocalWebhooks(self.authorization)

    def overview(self, hours: int = 24) -> Overview:
        """Return all at a glance: documents, the queue within the last hours, who works, what was spent."""
        return build_overview(self.authorization, hours)
