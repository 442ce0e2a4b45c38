"""Adoption: records results of an existing pipeline as done, so that no worker builds them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.slot import BuildResult
from holdfast.engine.store import statements as sql
from holdfast.engine.store.admission import AdmissionStore, check_request, split_requests
from holdfast.engine.store.base import Completion
from holdfast.engine.store.leases import LeaseStore, make_tickets
from holdfast.engine.store.rows import OwnerRow
from holdfast.engine.store.transitions import find_existing_owners

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.admission import Request
    from holdfast.engine.effects import SlotChange

ADOPTED_HOLDER = "adopted"


class AdoptionStore(AdmissionStore, LeaseStore):
    """Admits, claims and completes in one transaction, so that no worker can claim the slots in between."""

    def find_unknown_owners(self, base: str, owners: Sequence[str]) -> list[str]:
        """Return the owners that do not exist."""
        with self.database.reading() as tx:
            known = set(find_existing_owners(tx, base, owners))
        return [owner for owner in owners if owner not in known]

    def adopt(self, requests: Sequence[Request]) -> int:
        """Create these owners as complete, and skip those that exist. Return how many were created."""
        for request in requests:
            check_request(request)
        return sum(self._adopt_batch(portion) for portion in split_requests(requests))

    def _adopt_batch(self, requests: Mapping[int, Request]) -> int:
        def work(tx: Transaction) -> list[SlotChange]:
            names = [[request.base, request.owner] for request in requests.values()]
            known = {(row.base, row.owner) for row in map(OwnerRow._make, tx.run(sql.LOCK_OWNERS_BY_NAME, names))}
            new = {index: given for index, given in requests.items() if (given.base, given.owner) not in known}
            _, _, admitted = self._admit(new, tx, counted=False)
            chosen = [(change.slot.owner_id, change.slot.id, change.slot.wanted) for change in admitted]
            claimed, siblings = self._claim_in(tx, chosen, ADOPTED_HOLDER, anyway=True)
            done = [Completion(ticket=ticket, built=BuildResult()) for ticket in make_tickets(claimed, siblings)]
            completed, _ = self._complete_in(tx, done)
            return [*admitted, *claimed, *completed]

        changes = self.database.write(work, durable=True)
        self._announce_changes(changes)
        return len({change.slot.owner_id for change in changes})
