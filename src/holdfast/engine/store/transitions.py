"""Shared by all verbs of the store: lock and read owners, change slots, write the effects."""

from __future__ import annotations

import json
import logging
from collections import Counter
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.effects import Event, SlotChange, apply_changes, compute_settlements, derive_statuses, make_events
from holdfast.engine.states import SlotState, Status, Verb
from holdfast.engine.store import metric_statements
from holdfast.engine.store import statements as sql
from holdfast.engine.store.rows import slot_from_joined_row, slot_from_row
from holdfast.engine.totals import Total
from holdfast.engine.usage import UNKNOWN_USAGE, add_attempt
from holdfast.errors import StaleLease, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import OwnerId, Slot, SlotId, Ticket
    from holdfast.engine.usage import Usage

log = logging.getLogger("holdfast")

# Workers can claim slots in these states, or the reconciler must know when they are due.
WAKING_STATES = frozenset({SlotState.QUEUED, SlotState.WAITING, SlotState.DELETING})
TAKEN_OVER = "taken_over"
NO_USAGES: Mapping[SlotId, Usage] = MappingProxyType({})


class Snapshot:
    """The slots of some owners. If read under their locks, no other transaction can change them until the commit."""

    def __init__(self, tx: Transaction, owners: Collection[OwnerId]) -> None:
        rows = tx.run(sql.SELECT_SLOTS, [[owner] for owner in owners])
        self.slots: dict[SlotId, Slot] = {row[0]: slot_from_joined_row(row) for row in rows}
        self.statuses: dict[OwnerId, str] = {row[1]: row[-1] for row in rows}
        self.new_owners: set[OwnerId] = set()  # created in this transaction

    def slots_of(self, owner: OwnerId | None) -> list[Slot]:
        return self._by_owner.get(owner, [])

    @cached_property
    def _by_owner(self) -> dict[OwnerId | None, list[Slot]]:
        grouped: dict[OwnerId | None, list[Slot]] = {}
        for slot in self.slots.values():
            grouped.setdefault(slot.owner_id, []).append(slot)
        return grouped

    def add_usage(self, ticket: Ticket, attempt: Usage) -> str | None:
        """Return the usage of all attempts, with this one, as JSON members."""
        slot = self.slots.get(ticket.slot)
        return add_attempt(slot and slot.usage, attempt)

    @classmethod
    def load_locked(cls, tx: Transaction, owners: Collection[OwnerId]) -> Snapshot:
        """Lock these owners, then read their slots."""
        tx.lock_owners(owners)
        return cls(tx, owners)

    def changes_from_rows(
        self,
        rows: Iterable[Sequence[Any]],
        verb: Verb,
        usages: Mapping[SlotId, Usage] = NO_USAGES,
        **note: object,
    ) -> list[SlotChange]:
        """Return the changes of a statement that returns slots."""
        changes = []
        for row in rows:
            before = self.slots[row[0]]
            after = slot_from_row(row, before.base, before.owner)
            changes.append(SlotChange(verb, before, after, note, usages.get(row[0], UNKNOWN_USAGE)))
        return changes


class WriteResult(NamedTuple):
    """Slots and statuses after a write."""

    slots: list[Slot]
    statuses: dict[OwnerId, Status]


class StoreBase:
    """Holds the database and the rules. Subclasses add the verbs."""

    def __init__(self, database: Database, rules: Rules, wake: Callable[[], None] = lambda: None) -> None:
        self.database = database
        self.rules = rules
        self.wake = wake

    def _read(self, statement: Any, rows: Sequence[Sequence[Any]] | None = None, **params: Any) -> list[Any]:
        return self.database.read(statement, rows, **params)

    def find_traceparents(self, jobs: Collection[str]) -> dict[str, str]:
        try:
            return dict(self._read(sql.SELECT_TRACEPARENTS, [[job] for job in jobs])) if jobs else {}
        except StoreError:  # nothing may fail because of a trace
            return {}

    def _apply_effects(self, tx: Transaction, snapshot: Snapshot, changes: Sequence[SlotChange]) -> WriteResult:
        """Write the effects of changes: settled jobs, statuses, events."""
        after = apply_changes(snapshot.slots.values(), changes)
        settled = {settlement.job: settlement for settlement in compute_settlements(changes, after)}
        rows = [
            [settlement.job, settlement.settled, str(settlement.outcome), settlement.results]
            for settlement in settled.values()
        ]
        ended = [settled[job] for job, outcome in tx.run(sql.SETTLE_JOBS, rows) if outcome is not None]
        fresh = derive_statuses(snapshot.statuses, after)
        changed = {owner: status for owner, status in fresh.items() if status != snapshot.statuses[owner]}
        tx.run(sql.SET_STATUS, [[owner, str(status)] for owner, status in changed.items()])
        gone = [[owner] for owner in snapshot.statuses if owner not in fresh]
        tx.run(sql.REMOVE_OWNERS, gone)
        record_events(tx, make_events(changes, ended, dict.fromkeys(snapshot.new_owners, Status.QUEUED) | changed))
        return WriteResult(slots=after, statuses=fresh)

    def _record_stale(self, tx: Transaction, verb: Verb | str, stale: Sequence[Ticket]) -> None:
        """Count refused writes in the database, and log one line per reason.

        After a delete, a cancel or a newer request, refused writes are expected. After a takeover they are not.
        """
        if not stale:
            return
        tx.run(sql.INCREMENT_COUNTER, counter=f"stale_write_rejected.{verb}", amount=len(stale))
        slots = Snapshot(tx, {ticket.owner for ticket in stale}).slots
        refused: dict[str, list[Ticket]] = {}
        for ticket in stale:
            refused.setdefault(_superseded_by(ticket, slots.get(ticket.slot)), []).append(ticket)
        for reason, tickets in refused.items():
            level = logging.WARNING if reason == TAKEN_OVER else logging.INFO
            log.log(
                logging.DEBUG if verb is Verb.RELEASE else level,  # a slot that is lost needs no release
                "stale_write.rejected verb=%s reason=%s slots=%d first=%s job=%s generation=%d fence=%d",
                verb, reason, len(tickets), tickets[0].key, tickets[0].job, tickets[0].generation, tickets[0].fence,
            )  # fmt: skip

    def _announce_changes(self, changes: Sequence[SlotChange]) -> None:
        """Log changes after the commit, and wake workers and reconcilers if there is work now or at a known time."""
        for change in changes if log.isEnabledFor(logging.DEBUG) else ():
            slot = change.slot
            before = change.before
            log.debug(
                "slot.changed verb=%s key=%s job=%s generation=%d fence=%d holder=%s from=%s to=%s",
                change.verb, slot.key, slot.job, slot.wanted, slot.fence,
                slot.holder or (before.holder if before else None),
                before.state if before else None, change.after.state if change.after else None,
            )  # fmt: skip
        if any(change.after is not None and change.after.state in WAKING_STATES for change in changes):
            self.wake()


def _superseded_by(ticket: Ticket, slot: Slot | None) -> str:
    """Return what happened between a claim and its write: a request, or a takeover by another worker."""
    if not ticket.removing and (slot is None or slot.state is SlotState.DELETING):
        return "deleted"
    if slot is not None and slot.state is SlotState.CANCELLED:
        return "cancelled"
    return "superseded" if slot is not None and slot.wanted > ticket.generation else TAKEN_OVER


def record_events(tx: Transaction, events: Sequence[Event]) -> None:
    """Append to the event log. Listeners are notified after the commit."""
    if events:
        tx.transaction_id = tx.run(sql.INSERT_EVENTS, events)[0][0]
        tx.needs_notification = True


def add_increments(tx: Transaction, added: Mapping[Total, float]) -> None:
    """Add to totals of the metrics that are not derived from events. The next roll-up adds them up."""
    tx.run(metric_statements.INSERT_INCREMENTS, [[*total, value] for total, value in added.items() if value])


def make_storable(text: str) -> str:
    """Replace NUL characters and lone surrogates, which the databases cannot store."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def fault_cells(code: str, params: Mapping[str, str]) -> list[Any]:
    """Return the columns of an error."""
    return [
        make_storable(code),
        json.dumps({make_storable(name): make_storable(text) for name, text in params.items()}),
    ]


def raise_stale(verb: Verb, stale: Sequence[Ticket]) -> None:
    if stale:
        raise StaleLease(verb, stale)


def ticket_row(ticket: Ticket) -> list[Any]:
    """Return the columns that `held` compares."""
    state = SlotState.DELETING if ticket.removing else SlotState.RUNNING
    return [ticket.slot, ticket.generation, ticket.fence, str(state)]


def record_refusals(tx: Transaction, rows: Sequence[Sequence[Any]]) -> None:
    """Record refused requests: base, owner, operation, verdict, reason, preventing job, requester, estimated cost."""
    tx.run(sql.INSERT_REFUSALS, rows)
    reasons = Counter(str(reason) for _, _, _, _, reason, *_ in rows)
    add_increments(tx, {Total("duplicates", detail=reason): float(number) for reason, number in reasons.items()})


def find_existing_owners(tx: Transaction, base: str, owners: Iterable[str]) -> list[str]:
    """Return the owners that exist."""
    return [row[2] for row in tx.run(sql.SELECT_OWNERS_BY_NAME, [[base, owner] for owner in owners])]


def lock_and_load_owners(tx: Transaction, base: str, owners: Iterable[str]) -> Snapshot:
    """Lock owners by name, if they exist, and read their slots."""
    return Snapshot(tx, [row[0] for row in tx.run(sql.LOCK_OWNERS_BY_NAME, [[base, owner] for owner in owners])])


def require_held(tx: Transaction, ticket: Ticket) -> None:
    """Lock the owner, and raise `StaleLease` if the ticket no longer holds its slot."""
    if not lock_and_check_held(tx, ticket):
        raise StaleLease("written", [ticket])


def write_payload(tx: Transaction, ticket: Ticket, payload: str) -> None:
    """Replace the payload of the job of a ticket. The caller has checked in this transaction that the slot is held."""
    tx.run(sql.WRITE_PAYLOAD, job=ticket.job, payload=payload)


def lock_and_check_held(tx: Transaction, ticket: Ticket) -> bool:
    """Lock the owner, and return whether the ticket still holds its slot."""
    tx.lock_owners([ticket.owner])
    return bool(tx.run(sql.SELECT_HELD_SLOTS, [ticket_row(ticket)]))
