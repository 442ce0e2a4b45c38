"""The verbs of the reconciler. `Store` documents them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, micros
from holdfast.engine.effects import make_long_running_event
from holdfast.engine.slot import Ring
from holdfast.engine.states import Verb
from holdfast.engine.store import statements as sql
from holdfast.engine.store.base import ReconcileBatch
from holdfast.engine.store.job_details import SWEEP_DETAILS
from holdfast.engine.store.leases import fail_dependents
from holdfast.engine.store.metrics import MetricStore
from holdfast.engine.store.rows import pauses_from_rows, slot_from_joined_row
from holdfast.engine.store.transitions import Snapshot, fault_cells, record_events

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import timedelta

    from holdfast.db import Transaction
    from holdfast.engine.effects import SlotChange
    from holdfast.engine.plan import Expire
    from holdfast.engine.slot import Slot


class MaintenanceStore(MetricStore):
    """Never claims and never writes a result. Each write checks that the slot did not change since it was read."""

    def find_due(self, kind: str, limit: int) -> ReconcileBatch:
        with self.database.reading() as tx:
            now = tx.run(sql.SELECT_NOW)[0][0]
            slots = [slot_from_joined_row(row) for row in tx.run(sql.SELECT_DUE_SLOTS, kind=kind, limit=limit)]
            pauses = pauses_from_rows(tx.run(sql.SELECT_PAUSES))
            return ReconcileBatch(
                now=now, slots=slots, next_due=tx.run(sql.SELECT_NEXT_DUE, kind=kind)[0][0], pauses=pauses
            )

    def find_unrung(self, kinds: Collection[str], limit: int) -> ReconcileBatch:
        if not kinds:
            return ReconcileBatch(now=Moment(0), slots=[])
        rows = self._read(sql.select_unrung(tuple(kinds), limit), ring_again=micros(self.rules.ring_again))
        now: Moment = rows[0][-1] if rows else Moment(0)
        return ReconcileBatch(now=now, slots=[slot_from_joined_row(row) for row in rows])

    def list_holders(self) -> list[str]:
        return [holder for (holder,) in self._read(sql.SELECT_HOLDERS)]

    def find_held_by(self, holders: Collection[str], limit: int) -> ReconcileBatch:
        with self.database.reading() as tx:
            now = tx.run(sql.SELECT_NOW)[0][0]
            rows = tx.run(sql.SELECT_SLOTS_HELD_BY, [[holder] for holder in holders], limit=limit)
            pauses = pauses_from_rows(tx.run(sql.SELECT_PAUSES))
            return ReconcileBatch(now=now, slots=[slot_from_joined_row(row) for row in rows[:limit]], pauses=pauses)

    def count_outstanding_rings(self, kind: str) -> int:
        count: int = self._read(sql.COUNT_RUNG_SLOTS, kind=kind, ring_again=micros(self.rules.ring_again))[0][0]
        return count

    def ring(self, slots: Sequence[Slot]) -> list[Ring]:
        rows = [[*_make_slot_cells(slot), slot.owner_id] for slot in slots]
        # If the database loses this, the worst result is a second ring.
        marked = self.database.write_single(
            sql.MARK_RUNG, rows, durable=False, ring_again=micros(self.rules.ring_again)
        )
        rung = {slot for (slot,) in marked}
        return [
            Ring(slot=slot.id, owner=slot.owner_id, key=slot.key, generation=slot.wanted)
            for slot in slots
            if slot.id in rung
        ]

    def expire(self, slots: Sequence[tuple[Slot, Expire]]) -> list[Slot]:
        reasons = {slot.id: action.reason for slot, action in slots}

        def work(tx: Transaction, snapshot: Snapshot) -> list[SlotChange]:
            rows = tx.run(sql.EXPIRE_LEASES, [_make_slot_cells(slot) for slot, _ in slots])
            changes = snapshot.changes_from_rows(rows, Verb.EXPIRE)
            return [change._replace(note={"reason": reasons[change.slot.id]}) for change in changes]

        return self._apply_guarded([slot for slot, _ in slots], work)

    def give_up(self, slots: Sequence[Slot]) -> list[Slot]:
        rows = []
        for slot in slots:
            last = slot.error.code if slot.error else "worker_lost"
            rows.append(
                [
                    *_make_slot_cells(slot),
                    *fault_cells("attempts_spent", {"attempts": str(slot.attempts), "last": last}),
                ]
            )

        def work(tx: Transaction, snapshot: Snapshot) -> list[SlotChange]:
            failed = snapshot.changes_from_rows(tx.run(sql.GIVE_UP_SLOTS, rows), Verb.GIVE_UP)
            return failed + fail_dependents(tx, snapshot, failed)

        return self._apply_guarded(slots, work)

    def report_long_running(self, slots: Sequence[Slot]) -> list[Slot]:
        rules = self.rules

        def work(tx: Transaction) -> list[Slot]:
            tx.lock_owners({slot.owner_id for slot in slots})
            rows = tx.run(
                sql.REPORT_LONG_RUNNING,
                [_make_slot_cells(slot) for slot in slots],
                stall=micros(rules.stall),
                deadline=micros(rules.deadline),
            )
            reported = {row[0] for row in rows}
            found = [slot for slot in slots if slot.id in reported]
            record_events(tx, [make_long_running_event(slot) for slot in found])
            return found

        return self.database.write(work, durable=True)

    def delete_old_history(self, keep: timedelta, limit: int) -> int:
        self.roll_up()

        def work(tx: Transaction) -> int:
            sweeps = (sql.SWEEP_EVENTS, sql.SWEEP_REFUSALS, sql.SWEEP_JOBS)
            events, *others = (tx.run(statement, keep=micros(keep), limit=limit) for statement in sweeps)
            if events:
                xid, id_ = max(events)
                tx.run(sql.MARK_SWEPT, xid=xid, id=id_)
            refusals, swept = others
            tx.run(SWEEP_DETAILS, swept)
            return len(events) + len(refusals) + len(swept)

        return self.database.write(work, durable=False)

    def _apply_guarded(
        self, slots: Sequence[Slot], work: Callable[[Transaction, Snapshot], list[SlotChange]]
    ) -> list[Slot]:
        def run(tx: Transaction) -> list[SlotChange]:
            snapshot = Snapshot.load_locked(tx, {slot.owner_id for slot in slots})
            changes = work(tx, snapshot)
            self._apply_effects(tx, snapshot, changes)
            return changes

        changes = self.database.write(run, durable=True)
        self._announce_changes(changes)
        return [change.slot for change in changes]


def _make_slot_cells(slot: Slot) -> list[Any]:
    """Return the columns that `unchanged_since_read` compares."""
    return [slot.id, slot.wanted, slot.fence, str(slot.state), slot.due_at, slot.until, slot.holder]
