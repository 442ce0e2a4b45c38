"""Taking over what somebody else has built: it counts as done, and nobody is sent to do it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.slot import Built
from holdfast.engine.store import statements as sql
from holdfast.engine.store.admission import Admitting, check, portions
from holdfast.engine.store.base import Completion
from holdfast.engine.store.leases import Working, tickets
from holdfast.engine.store.rows import owner_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.admission import Request
    from holdfast.engine.effects import Change

HOLDER = "adopted"


class Adopting(Admitting, Working):
    """Admits, claims and completes in one transaction, so that no worker can meet the work in between."""

    def unknown(self, base: str, owners: Sequence[str]) -> list[str]:
        """Return those of these owners that the store has never heard of."""
        with self.database.reading() as tx:
            known = {owner_of(row).owner for row in tx.run(sql.NAMED_OWNERS, [[base, owner] for owner in owners])}
        return [owner for owner in owners if owner not in known]

    def adopt(self, requests: Sequence[Request]) -> int:
        """Write that the work of these new owners is done; return how many were new. Who is known is left alone."""
        for request in requests:
            check(request)
        return sum(self._adopt(portion) for portion in portions(requests))

    def _adopt(self, portion: Mapping[int, Request]) -> int:
        def work(tx: Transaction) -> list[Change]:
            names = [[request.base, request.owner] for request in portion.values()]
            known = {(row.base, row.owner) for row in map(owner_of, tx.run(sql.FIND_OWNERS, names))}
            new = {index: one for index, one in portion.items() if (one.base, one.owner) not in known}
            _, _, admitted = self._admit(new, tx, counted=False)
            chosen = [(change.slot.owner_id, change.slot.id, change.slot.wanted) for change in admitted]
            claimed, neighbours = self._claimed(tx, chosen, HOLDER, anyway=True)
            done = [Completion(ticket=ticket, built=Built()) for ticket in tickets(claimed, neighbours)]
            completed, _ = self._completed(tx, done)
            return [*admitted, *claimed, *completed]

        changes = self.database.write(work, durable=True)
        self._report(changes)
        return len({change.slot.owner_id for change in changes})
