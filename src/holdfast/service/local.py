"""A library on a database of this process, with the rights of one caller."""

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
    from collections.abc import Mapping

    from holdfast.auth import Caller
    from holdfast.service.schemas import Overview
    from holdfast.wiring import Library


class LocalService(ValidatedOperations):
    """All operations, in groups. A group is made when it is first used, because each request has its own service."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self.authorization = Authorization(library, caller)

    bases = cached_property(lambda self: LocalBases(self.authorization))
    documents = cached_property(lambda self: LocalDocuments(self.authorization))
    jobs = cached_property(lambda self: LocalJobs(self.authorization, self.documents))
    asking = cached_property(lambda self: LocalSearch(self.authorization))
    cards = cached_property(lambda self: LocalCards(self.authorization))
    dossiers = cached_property(lambda self: LocalDocumentDetails(self.authorization))
    accounts = cached_property(lambda self: LocalUsage(self.authorization))
    archives = cached_property(lambda self: LocalArchives(self.authorization))
    events = cached_property(lambda self: LocalEvents(self.authorization))
    keys = cached_property(lambda self: LocalKeys(self.authorization))
    webhooks = cached_property(lambda self: LocalWebhooks(self.authorization))

    def overview(self, hours: int = 24) -> Overview:
        """Return document counts, the queue of the last hours, workers, costs and recent outcomes of jobs."""
        return build_overview(self.authorization, hours)


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
