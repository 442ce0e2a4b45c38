"""The reconciler's verbs: find what needs work by index, and move it only if nothing changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.clock import micros
from holdfast.engine.effects import Change
from holdfast.engine.slot import Ring
from holdfast.engine.states import Verb
from holdfast.engine.store import statements as sql
from holdfast.engine.store.base import Work
from holdfast.engine.store.leases import sink
from holdfast.engine.store.rows import named_slot_of, pauses_of
from holdfast.engine.store.transitions import Desk, Snapshot, fault_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import timedelta

    from holdfast.db import Transaction
    from holdfast.engine.plan import Expire
    from holdfast.engine.slot import Slot


class Tending(Desk):
    """Never claims, never writes a result; each write is guarded by all that was read."""

    def overdue(self, kind: str, limit: int) -> Work:
        """Read slots of this kind whose time has come, and when the next one will."""
        with self.database.reading() as tx:
            now = tx.run(sql.TIME)[0][0]
            found = [named_slot_of(row) for row in tx.run(sql.DUE, kind=kind, limit=limit)]
            paused = pauses_of(tx.run(sql.READ_PAUSES))
            return Work(now=now, slots=found, next_due=tx.run(sql.NEXT_DUE, kind=kind)[0][0], paused=paused)

    def to_ring(self, kind: str, limit: int) -> Work:
        """Read queued slots that nobody was told of lately, in the order they are served."""
        with self.database.reading() as tx:
            now = tx.run(sql.TIME)[0][0]
            rows = tx.run(sql.TO_RING, kind=kind, limit=limit, ring_again=micros(self.rules.ring_again))
            return Work(now=now, slots=[named_slot_of(row) for row in rows])

    def holders(self) -> list[str]:
        """Name everybody who holds a lease."""
        with self.database.reading() as tx:
            return [holder for (holder,) in tx.run(sql.HOLDERS)]

    def held_by(self, holders: Collection[str], limit: int) -> Work:
        """Read the slots of these holders."""
        with self.database.reading() as tx:
            now = tx.run(sql.TIME)[0][0]
            rows = tx.run(sql.HELD_BY, [[holder] for holder in holders], limit=limit)
            paused = pauses_of(tx.run(sql.READ_PAUSES))
            return Work(now=now, slots=[named_slot_of(row) for row in rows[:limit]], paused=paused)

    def outstanding(self, kind: str) -> int:
        """Count the rings of this kind that were sent lately and not answered."""
        with self.database.reading() as tx:
            count: int = tx.run(sql.RUNG, kind=kind, ring_again=micros(self.rules.ring_again))[0][0]
            return count

    def ring(self, slots: Sequence[Slot]) -> list[Ring]:
        """Note that these are rung; return those to ring, the others were rung or moved meanwhile."""
        rows = [_read(slot) for slot in slots]

        def work(tx: Transaction) -> set[int]:
            tx.lock([slot.owner_id for slot in slots])
            rung = tx.run(sql.RING, rows, ring_again=micros(self.rules.ring_again))
            return {slot for (slot,) in rung}

        rung = self.database.write(work, durable=False)
        return [
            Ring(slot=slot.id, owner=slot.owner_id, kind=slot.kind, generation=slot.wanted)
            for slot in slots
            if slot.id in rung
        ]

    def expire(self, slots: Sequence[tuple[Slot, Expire]]) -> list[Slot]:
        """Take slots from their holders, if nothing moved since they were read."""
        reasons = {slot.id: action.reason for slot, action in slots}

        def work(tx: Transaction, snapshot: Snapshot) -> list[Change]:
            return [
                Change(verb=one.verb, before=one.before, after=one.after, note={"reason": reasons[one.slot.id]})
                for one in snapshot.moved(tx.run(sql.EXPIRE, [_read(slot) for slot, _ in slots]), Verb.EXPIRE)
            ]

        return self._tend([slot for slot, _ in slots], work)

    def give_up(self, slots: Sequence[Slot]) -> list[Slot]:
        """Fail slots whose attempts are spent, and what waited for them, if nothing moved since they were read."""
        rows = []
        for slot in slots:
            last = slot.error.code if slot.error else "worker_lost"
            rows.append([*_read(slot), *fault_cells("attempts_spent", {"attempts": str(slot.attempts), "last": last})])

        def work(tx: Transaction, snapshot: Snapshot) -> list[Change]:
            failed = snapshot.moved(tx.run(sql.GIVE_UP, rows), Verb.GIVE_UP)
            return failed + sink(tx, snapshot, failed)

        return self._tend(slots, work)

    def sweep(self, keep: timedelta, limit: int) -> int:
        """Remove history past its retention, at most `limit` rows of each table; return how many."""

        def work(tx: Transaction) -> int:
            sweeps = (sql.SWEEP_EVENTS, sql.SWEEP_DUPLICATES, sql.SWEEP_JOBS)
            events, *others = (tx.run(one, keep=micros(keep), limit=limit) for one in sweeps)
            if events:
                xid, id_ = max(events)
                tx.run(sql.MARK_SWEPT, xid=xid, id=id_)
            return len(events) + sum(map(len, others))

        return self.database.write(work, durable=False)

    def _tend(self, slots: Sequence[Slot], work: Callable[[Transaction, Snapshot], list[Change]]) -> list[Slot]:
        def run(tx: Transaction) -> list[Change]:
            snapshot = Snapshot.locked(tx, {slot.owner_id for slot in slots})
            changes = work(tx, snapshot)
            self._follow(tx, snapshot, changes)
            return changes

        changes = self.database.write(run, durable=True)
        self._report(changes)
        return [change.slot for change in changes]


def _read(slot: Slot) -> list[Any]:
    """Show a slot as it was read to a guarded statement."""
    return [slot.id, slot.wanted, slot.fence, str(slot.state), slot.due_at, slot.holder]
