"""The operations of a library that this process has opened, with the rights of one caller."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.service.authorization import Authorization
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from holdfast.auth import Caller
    from holdfast.service.access import LocalKeys, LocalWebhooks
    from holdfast.service.archives import LocalArchives
    from holdfast.service.bases import LocalBases
    from holdfast.service.details import LocalDocumentDetails
    from holdfast.service.documents import LocalDocuments
    from holdfast.service.event_queries import LocalEvents
    from holdfast.service.jobs import LocalJobs
    from holdfast.service.overview import Overview
    from holdfast.service.search import LocalCards, LocalSearch
    from holdfast.service.usage import LocalUsage
    from holdfast.wiring import Library


class LocalService(ValidatedOperations):
    """All operations, in groups.

    A group is imported when it is first used: a command uses few groups, and each HTTP request has its own service.
    """

    def __init__(self, library: Library, caller: Caller) -> None:
        self.authorization = Authorization(library, caller)

    @cached_property
    def bases(self) -> LocalBases:
        from holdfast.service.bases import LocalBases

        return LocalBases(self.authorization)

    @cached_property
    def documents(self) -> LocalDocuments:
        from holdfast.service.documents import LocalDocuments

        return LocalDocuments(self.authorization)

    @cached_property
    def jobs(self) -> LocalJobs:
        from holdfast.service.jobs import LocalJobs

        return LocalJobs(self.authorization, self.documents)

    @cached_property
    def asking(self) -> LocalSearch:
        from holdfast.service.search import LocalSearch

        return LocalSearch(self.authorization)

    @cached_property
    def cards(self) -> LocalCards:
        from holdfast.service.search import LocalCards

        return LocalCards(self.authorization)

    @cached_property
    def dossiers(self) -> LocalDocumentDetails:
        from holdfast.service.details import LocalDocumentDetails

        return LocalDocumentDetails(self.authorization)

    @cached_property
    def accounts(self) -> LocalUsage:
        from holdfast.service.usage import LocalUsage

        return LocalUsage(self.authorization)

    @cached_property
    def archives(self) -> LocalArchives:
        from holdfast.service.archives import LocalArchives

        return LocalArchives(self.authorization)

    @cached_property
    def events(self) -> LocalEvents:
        from holdfast.service.event_queries import LocalEvents

        return LocalEvents(self.authorization)

    @cached_property
    def keys(self) -> LocalKeys:
        from holdfast.service.access import LocalKeys

        return LocalKeys(self.authorization)

    @cached_property
    def webhooks(self) -> LocalWebhooks:
        from holdfast.service.access import LocalWebhooks

        return LocalWebhooks(self.authorization)

    def overview(self, hours: int = 24) -> Overview:
        """Return document counts, the queue of the last hours, workers, costs and recent outcomes of jobs."""
        from holdfast.service.overview import build_overview

        return build_overview(self.authorization, hours)
