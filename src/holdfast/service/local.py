"""A library on a database of this process, as one caller sees it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.service.access import LocalKeys, LocalWebhooks
from holdfast.service.archives import LocalArchives
from holdfast.service.authorization import Authorization
from holdfast.service.bases import LocalBases
from holdfast.service.details import LocalDossiers
from holdfast.service.documents import LocalDocuments
from holdfast.service.event_queries import LocalEvents
from holdfast.service.jobs import LocalJobs
from holdfast.service.overview import overview
from holdfast.service.search import LocalAsking, LocalCards
from holdfast.service.usage import LocalAccounts
from holdfast.service.validation import Checked

if TYPE_CHECKING:
    from holdfast.auth import Caller
    from holdfast.service.schemas import Overview
    from holdfast.wiring import Library


class Local(Checked):
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
    def asking(self) -> LocalAsking:
        """Searches, answers and the graph."""
        return LocalAsking(self.authorization)

    @cached_property
    def cards(self) -> LocalCards:
        """Study cards."""
        return LocalCards(self.authorization)

    @cached_property
    def dossiers(self) -> LocalDossiers:
        """Details of single documents."""
        return LocalDossiers(self.authorization)

    @cached_property
    def accounts(self) -> LocalAccounts:
        """Usage, duplicate requests and health."""
        return LocalAccounts(self.authorization)

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
        return overview(self.authorization, hours)
