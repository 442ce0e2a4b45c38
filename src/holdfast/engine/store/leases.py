"""The verbs of workers. `Store` documents them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from holdfast.clock import micros
from holdfast.db import MAX_ID
from holdfast.db.migrate import find_head
from holdfast.engine.dependencies import find_blocked_dependents
from holdfast.engine.effects import SlotChange, compute_wait_ms
from holdfast.engine.slot import OwnerId, SlotId, Ticket
from holdfast.engine.states import SlotState, Verb
from holdfast.engine.store import queue_statements as queue
from holdfast.engine.store import statements as sql
from holdfast.engine.store.base import NO_USAGES
from holdfast.engine.store.transitions import (
    Snapshot,
    StoreBase,
    fault_cells,
    lock_and_check_held,
    make_storable,
    raise_stale,
    ticket_row,
)
from holdfast.engine.usage import UNKNOWN_USAGE
from holdfast.errors import BadRequest, StaleLease, StoreTooNew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.db import Transaction
    from holdfast.engine.slot import Ring, Slot
    from holdfast.engine.store.base import Completion, Failure, LeaseRenewal, Release, ResultWriter
    from holdfast.engine.usage import Usage


ClaimTarget = tuple[OwnerId, SlotId, int]  # with the generation to claim


class Candidate(NamedTuple):
    """A slot that was claimable when it was read."""

    slot: SlotId
    owner: OwnerId
    wanted: int
    attempts: int
    priority: int
    queued_at: int
    deleting: bool


class LeaseStore(StoreBase):
    """Every write contains a ticket. The guarded statement decides whether the ticket still holds the slot."""

    def claim(self, rings: Sequence[Ring], holder: str) -> list[Ticket]:
        wanted = [(ring.owner, ring.slot, ring.generation) for ring in rings if _possible(ring)]

        def lock(tx: Transaction) -> list[ClaimTarget]:
            tx.lock_owners({owner for owner, _, _ in wanted})
            return wanted

        return self._claim(lock, holder)

    def claim_next(self, kinds: Sequence[str], holder: str, limit: int) -> list[Ticket]:
        if not kinds:
            return []

        def lock(tx: Transaction) -> list[ClaimTarget]:
            rows = tx.run(sql.select_next(tuple(kinds), limit), attempts=self.rules.retry.max_attempts)
            candidates = [Candidate(*row) for row in rows]
            candidates.sort(key=lambda candidate: (candidate.priority, candidate.queued_at, candidate.slot))
            alone = candidates[:1] if candidates and candidates[0].attempts else []
            new = [candidate for candidate in candidates if not candidate.attempts]
            together = alone or [*new[:limit], *(candidate for candidate in new[limit:] if candidate.deleting)]
            return [(candidate.owner, candidate.slot, candidate.wanted) for candidate in together]

        return self._claim(lock, holder)

    def _claim(self, lock: Callable[[Transaction], list[ClaimTarget]], holder: str) -> list[Ticket]:
        """Claim the slots that `lock` returns. It locks their owners."""
        changes, siblings = self.database.write(lambda tx: self._claim_in(tx, lock(tx), holder), durable=False)
        self._announce_changes(changes)
        return make_tickets(changes, siblings)

    def _claim_in(
        self, tx: Transaction, chosen: Sequence[ClaimTarget], holder: str, *, anyway: bool = False
    ) -> tuple[list[SlotChange], list[Slot]]:
        """Claim in a transaction that locked the owners. Return the changes, and all slots of the owners after them.

        With `anyway`, a pause does not prevent the claim: adoption claims slots only to complete them.
        """
        if not chosen:
            return [], []
        rules = self.rules
        snapshot = Snapshot(tx, {owner for owner, _, _ in chosen})
        rows = tx.run(
            sql.CLAIM_SLOTS,
            [[slot, generation] for _, slot, generation in chosen if slot in snapshot.slots],
            holder=holder,
            attempts=rules.retry.max_attempts,
            anyway=int(anyway),
            schema=find_head(),
            lease=micros(rules.lease),
            look=micros(min(rules.lease, rules.stall, rules.report_after)),
        )
        if not rows:
            _check_schema(tx)
        position = {slot: number for number, (_, slot, _) in enumerate(chosen)}
        rows.sort(key=lambda row: position[row[0]])  # keep the order of the queue
        changes = snapshot.changes_from_rows(rows, Verb.CLAIM, holder=holder)
        return changes, self._apply_effects(tx, snapshot, changes).slots

    def extend(self, beats: Sequence[LeaseRenewal]) -> None:
        rows = [
            [
                *ticket_row(beat.ticket), int(beat.progressed), make_storable(beat.progress.stage), beat.progress.step,
                beat.progress.steps, beat.progress.done, beat.progress.total,
            ]
            for beat in beats
        ]  # fmt: skip
        rules = self.rules

        def work(tx: Transaction) -> list[Ticket]:
            tx.lock_owners([beat.ticket.owner for beat in beats])
            renewed = {
                slot
                for (slot,) in tx.run(
                    sql.EXTEND_LEASES,
                    rows,
                    lease=micros(rules.lease),
                    stall=micros(rules.stall),
                    report=micros(rules.report_after),
                    deadline=micros(rules.deadline),
                )
            }
            stale = [beat.ticket for beat in beats if beat.ticket.slot not in renewed]
            tx.needs_notification = any(beat.progressed for beat in beats)
            self._record_stale(tx, "extended", stale)
            return stale

        stale = self.database.write(work, durable=False)
        if stale:
            raise StaleLease("extended", stale)

    def find_recalled(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        recalled = {slot for (slot,) in self._read(sql.SELECT_RECALLED_SLOTS, [[ticket.slot] for ticket in tickets])}
        return [ticket for ticket in tickets if ticket.slot in recalled]

    def register_worker(self, holder: str) -> None:

        def work(tx: Transaction) -> None:
            tx.run(queue.UPSERT_WORKER, holder=holder)
            tx.run(queue.DELETE_SILENT_WORKERS, silence=micros(self.rules.lease) * 10)

        self.database.write(work, durable=False)

    def unregister_worker(self, holder: str) -> None:
        self.database.write(lambda tx: tx.run(queue.DELETE_WORKER, holder=holder), durable=False)

    def complete(self, completions: Sequence[Completion], write: ResultWriter | None = None) -> None:

        def work(tx: Transaction) -> tuple[list[SlotChange], list[Ticket]]:
            changes, stale = self._complete_in(tx, completions)
            if write is not None:
                write(tx.connection, [completion for completion in completions if completion.ticket not in stale])
            return changes, stale

        changes, stale = self.database.write(work, durable=True)
        self._announce_changes(changes)
        raise_stale(Verb.COMPLETE, stale)

    @contextmanager
    def publish_transaction(self, completion: Completion) -> Iterator[Connection]:
        with self.database.writing(durable=True) as tx:
            changes, stale = self._complete_in(tx, [completion])
            if not stale:
                yield tx.connection
        self._announce_changes(changes)
        raise_stale(Verb.COMPLETE, stale)

    def publish_in(self, connection: Connection, completion: Completion) -> None:
        with self.database.join_transaction(connection) as tx:
            _, stale = self._complete_in(tx, [completion])
        raise_stale(Verb.COMPLETE, stale)

    def _complete_in(self, tx: Transaction, completions: Sequence[Completion]) -> tuple[list[SlotChange], list[Ticket]]:
        """Publish builds within a transaction. Return the changes and the refused tickets."""
        usages = {completion.ticket.slot: completion.usage for completion in completions}

        def work(tx: Transaction, snapshot: Snapshot) -> list[SlotChange]:
            rows = [
                [
                    *ticket_row(completion.ticket), snapshot.add_usage(completion.ticket, completion.usage),
                    completion.built.missing, completion.built.recipe,
                ]
                for completion in completions
            ]  # fmt: skip
            changes = snapshot.changes_from_rows(tx.run(sql.COMPLETE_SLOTS, rows), Verb.COMPLETE, usages)
            ready = {(change.slot.owner_id, change.slot.kind) for change in changes}
            unblocked = [
                [slot.id]
                for slot in snapshot.slots.values()
                if slot.state is SlotState.BLOCKED and (slot.owner_id, slot.needs) in ready
            ]
            return changes + snapshot.changes_from_rows(tx.run(sql.UNBLOCK_SLOTS, unblocked), Verb.UNBLOCK)

        return self._settle_in(tx, Verb.COMPLETE, [completion.ticket for completion in completions], work)

    def fail(self, failures: Sequence[Failure]) -> None:
        if any(failure.ticket.removing and failure.delay is None for failure in failures):
            raise BadRequest("cleanup_without_delay")
        usages = {failure.ticket.slot: failure.usage for failure in failures}

        def work(tx: Transaction, snapshot: Snapshot) -> list[SlotChange]:
            retryable = [
                [
                    *ticket_row(failure.ticket), snapshot.add_usage(failure.ticket, failure.usage),
                    micros(failure.delay), int(failure.refund), *fault_cells(failure.fault.code, failure.fault.params),
                ]
                for failure in failures
                if failure.delay is not None
            ]  # fmt: skip
            final = [
                [
                    *ticket_row(failure.ticket), snapshot.add_usage(failure.ticket, failure.usage),
                    *fault_cells(failure.fault.code, failure.fault.params),
                ]
                for failure in failures
                if failure.delay is None
            ]  # fmt: skip
            postponed = snapshot.changes_from_rows(tx.run(sql.POSTPONE_SLOTS, retryable), Verb.POSTPONE, usages)
            failed = snapshot.changes_from_rows(tx.run(sql.FAIL_SLOTS, final), Verb.FAIL, usages)
            return postponed + failed + fail_dependents(tx, snapshot, failed)

        self._settle(Verb.FAIL, [failure.ticket for failure in failures], work)

    def release(self, releases: Sequence[Release]) -> None:
        usages = {release.ticket.slot: release.usage for release in releases}

        def work(tx: Transaction, snapshot: Snapshot) -> list[SlotChange]:
            rows = [
                [
                    release.ticket.slot, release.ticket.fence, int(release.refund),
                    snapshot.add_usage(release.ticket, release.usage),
                ]
                for release in releases
            ]  # fmt: skip
            return snapshot.changes_from_rows(tx.run(sql.RELEASE_SLOTS, rows), Verb.RELEASE, usages)

        self._settle(Verb.RELEASE, [release.ticket for release in releases], work)

    def forget(self, tickets: Sequence[Ticket], usages: Mapping[Ticket, Usage] = NO_USAGES) -> None:
        kept = next((ticket for ticket in tickets if not ticket.removing), None)
        if kept is not None:
            raise BadRequest("slot_not_deleting", slot=kept.key)
        rows = [ticket_row(ticket) for ticket in tickets]
        used = {ticket.slot: usage for ticket, usage in usages.items()}

        def work(tx: Transaction, snapshot: Snapshot) -> list[SlotChange]:
            return [
                SlotChange(Verb.FORGET, snapshot.slots[slot], None, usage=used.get(slot, UNKNOWN_USAGE))
                for (slot,) in tx.run(sql.FORGET_SLOTS, rows)
            ]

        self._settle(Verb.FORGET, tickets, work)

    @contextmanager
    def guarded(self, ticket: Ticket) -> Iterator[Connection]:
        with self.database.writing(durable=False) as tx:
            if lock_and_check_held(tx, ticket):
                yield tx.connection
                return
            self._record_stale(tx, "guarded", [ticket])
        raise StaleLease("guarded", [ticket])

    def _settle(
        self,
        verb: Verb,
        tickets: Sequence[Ticket],
        work: Callable[[Transaction, Snapshot], list[SlotChange]],
    ) -> None:
        """Run one verb over tickets in a transaction of its own."""
        changes, stale = self.database.write(lambda tx: self._settle_in(tx, verb, tickets, work), durable=True)
        self._announce_changes(changes)
        raise_stale(verb, stale)

    def _settle_in(
        self,
        tx: Transaction,
        verb: Verb,
        tickets: Sequence[Ticket],
        work: Callable[[Transaction, Snapshot], list[SlotChange]],
    ) -> tuple[list[SlotChange], list[Ticket]]:
        """Run one verb over tickets: lock, guarded write, effects, refused tickets."""
        snapshot = Snapshot.load_locked(tx, {ticket.owner for ticket in tickets})
        changes = work(tx, snapshot)
        self._apply_effects(tx, snapshot, changes)
        written = {change.slot.id for change in changes}
        stale = [ticket for ticket in tickets if ticket.slot not in written]
        self._record_stale(tx, verb, stale)
        return changes, stale


def fail_dependents(tx: Transaction, snapshot: Snapshot, failed: Sequence[SlotChange]) -> list[SlotChange]:
    """Fail all slots that wait, directly or indirectly, for slots that failed."""
    rows = [
        [slot.id, *fault_cells("needed_slot_failed", {"kind": change.slot.kind})]
        for change in failed
        for slot in find_blocked_dependents([change.slot.kind], snapshot.slots_of(change.slot.owner_id))
    ]
    return snapshot.changes_from_rows(tx.run(sql.FAIL_DEPENDENTS, rows), Verb.FAIL)


def _possible(ring: Ring) -> bool:
    """Return whether the numbers of a ring, which comes from outside, fit into the database."""
    return all(0 < number <= MAX_ID for number in (ring.owner, ring.slot, ring.generation))


def make_tickets(claimed: Sequence[SlotChange], siblings: Sequence[Slot]) -> list[Ticket]:
    """Return the tickets of claimed slots. Each contains the content build of the slot that it needs."""
    sources = {(slot.owner_id, slot.kind): slot.source for slot in siblings}
    return [
        Ticket.of(
            change.slot,
            source=sources.get((change.slot.owner_id, change.slot.needs or "")),
            waited_ms=compute_wait_ms(change),
        )
        for change in claimed
    ]


def _check_schema(tx: Transaction) -> None:
    """Raise `StoreTooNew` if a newer version has upgraded the database while this process runs."""
    ((version,),) = tx.run(sql.SELECT_SCHEMA_VERSION)
    if version != find_head():
        raise StoreTooNew("database_too_new", version=version, newest=find_head())
