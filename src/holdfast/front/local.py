"""A library on a database of this process, as one caller sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.front.access import LocalKeys, LocalWebhooks
from holdfast.front.accounts import LocalAccounts
from holdfast.front.archives import LocalArchives
from holdfast.front.asking import LocalAsking, LocalCards
from holdfast.front.bases import LocalBases
from holdfast.front.checking import Checked
from holdfast.front.documents import LocalDocuments
from holdfast.front.dossiers import LocalDossiers
from holdfast.front.history import LocalEvents
from holdfast.front.jobs import LocalJobs
from holdfast.front.overview import overview
from holdfast.front.reception import Reception

if TYPE_CHECKING:
    from holdfast.access.callers import Caller
    from holdfast.front.values import Overview
    from holdfast.wiring import Library


class Local(Checked):
    """All that can be done, in groups; cheap enough to be made for every request."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self.reception = reception = Reception(library, caller)
        self.bases = LocalBases(reception)
        self.documents = LocalDocuments(reception)
        self.jobs = LocalJobs(reception, self.documents)
        self.asking = LocalAsking(reception)
        self.cards = LocalCards(reception)
        self.dossiers = LocalDossiers(reception)
        self.accounts = LocalAccounts(reception)
        self.archives = LocalArchives(reception)
        self.events = LocalEvents(reception)
        self.keys = LocalKeys(reception)
        self.webhooks = LocalWebhooks(reception)

    def overview(self, hours: int = 24) -> Overview:
        """Return all at a glance: documents, the queue within the last hours, who works, what was spent."""
        return overview(self.reception, hours)
