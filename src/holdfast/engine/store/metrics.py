"""Keeps the totals of the metrics in the database, and reads them.

Totals are sums over the event log up to a mark, and over rows in `metric_increments`. One transaction moves the mark
and adds the sums, so every event and every increment is added exactly once, in whatever process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.clock import micros
from holdfast.engine.store import metric_statements as sql
from holdfast.engine.store import queue_statements as queue
from holdfast.engine.store import statements
from holdfast.engine.store.base import LARGEST_BATCH, MAX_UNCOUNTED
from holdfast.engine.store.transitions import StoreBase
from holdfast.engine.totals import SLOTS, SlotEvent, Total, add_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.db import Transaction

MAX_KINDS = 40  # of one statement, because SQLite limits the number of its queries

Position = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMetrics:
    """The state of one moment, from one snapshot."""

    totals: Mapping[Total, float]
    stale_writes: Mapping[str, int]  # by verb
    oldest_queued: Mapping[str, float]  # seconds, by kind
    longest_running: Mapping[str, float]
    workers: int


class MetricStore(StoreBase):
    def roll_up(self, limit: int = MAX_UNCOUNTED) -> int:
        """Add new events and increments to the totals, at most `limit` of each. Return the larger number."""
        with self.database.reading() as tx:
            mark = _read_mark(tx)
            events = self._read_uncounted(tx, mark, limit)
            if not events and not tx.run(sql.SELECT_INCREMENTS, limit=1):
                return 0
        end, added = _position_after(events, mark), add_up(map(_to_slot_event, events))

        def work(tx: Transaction) -> int:
            if not tx.run(sql.MOVE_MARK, xid=end[0], id=end[1], old_xid=mark[0], old_id=mark[1]):
                return 0  # another process has added these events
            increments = tx.run(sql.TAKE_INCREMENTS, limit=limit)
            tx.run(sql.ADD_TOTALS, _make_rows(added, increments))
            return max(len(events), len(increments))

        return self.database.write(work, durable=False)

    def read_metrics(self) -> SlotMetrics:
        """Read totals and gauges. Events and increments that are not in the totals yet are added, up to a limit."""
        with self.database.reading() as tx:
            totals = _merge(
                {Total(*key): value for *key, value in tx.run(sql.SELECT_TOTALS)},
                add_up(map(_to_slot_event, self._read_uncounted(tx, _read_mark(tx), MAX_UNCOUNTED))),
                *({Total(*key): value} for *key, value in tx.run(sql.SELECT_INCREMENTS, limit=MAX_UNCOUNTED)),
            )
            return SlotMetrics(
                totals=totals,
                stale_writes=_by_verb(tx.run(statements.SELECT_COUNTERS)),
                oldest_queued=_read_oldest_queued(tx, totals),
                longest_running=_largest(tx.run(sql.SELECT_LONGEST_RUNNING)),
                workers=tx.run(queue.COUNT_WORKERS, silence=micros(self.rules.lease))[0][0],
            )

    def read_totals(self, name: str) -> dict[Total, float]:
        """Read the totals of one name, without what is not rolled up yet."""
        return {Total(*key): value for *key, value in self._read(sql.SELECT_TOTALS_OF, name=name)}

    def replace_totals(self, name: str, totals: Mapping[Total, float]) -> None:
        """Write totals that were counted, in place of the stored ones of this name."""
        if self.read_totals(name) == totals:
            return

        def work(tx: Transaction) -> None:
            tx.run(sql.DELETE_TOTALS_OF, name=name)
            tx.run(sql.ADD_TOTALS, _make_rows(totals, ()))

        self.database.write(work, durable=False)

    def find_wrong_slot_totals(self, batch: int = LARGEST_BATCH) -> dict[Total, tuple[float, int]]:
        """Return the totals of slots that differ from the slots: the number that is missing, and the true number.

        Both are of one snapshot. At most `batch` events are read at a time.
        """
        with self.database.reading() as tx:
            return _compare_slots(tx, self._read_all_uncounted(tx, _read_mark(tx), batch))

    def correct_slot_totals(self) -> int:
        """Correct the totals of slots. Return how many were wrong, or 0 if a roll-up came in between."""
        with self.database.reading() as tx:
            xid, id_ = mark = _read_mark(tx)
            wrong = _compare_slots(tx, self._read_all_uncounted(tx, mark, LARGEST_BATCH))

        def work(tx: Transaction) -> int:
            if not wrong or not tx.run(sql.MOVE_MARK, xid=xid, id=id_, old_xid=xid, old_id=id_):
                return 0
            tx.run(sql.ADD_TOTALS, [[*total, missing] for total, (missing, _) in sorted(wrong.items())])
            return len(wrong)

        return self.database.write(work, durable=True)

    def _read_uncounted(self, tx: Transaction, mark: Position, limit: int) -> Sequence[Any]:
        statement = sql.SELECT_UNCOUNTED_POSTGRES if self._is_postgres else sql.SELECT_UNCOUNTED_SQLITE
        return tx.run(statement, xid=mark[0], id=mark[1], limit=limit)

    def _read_all_uncounted(self, tx: Transaction, mark: Position, batch: int) -> Iterable[Any]:
        """Yield every event after the mark, also those that an open transaction keeps from being final."""
        statement = sql.SELECT_ALL_UNCOUNTED_POSTGRES if self._is_postgres else sql.SELECT_UNCOUNTED_SQLITE
        while rows := tx.run(statement, xid=mark[0], id=mark[1], limit=batch):
            yield from rows
            mark = _position_after(rows, mark)

    @property
    def _is_postgres(self) -> bool:
        return self.database.engine.dialect.name == "postgresql"


def _read_mark(tx: Transaction) -> Position:
    ((xid, id_),) = tx.run(sql.SELECT_MARK)
    return xid, id_


def _position_after(rows: Sequence[Any], mark: Position) -> Position:
    return (rows[-1][0], rows[-1][1]) if rows else mark


def _to_slot_event(row: Sequence[Any]) -> SlotEvent:
    return SlotEvent(*row[2:])


def _make_rows(added: Mapping[Total, float], increments: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return the rows to add, in the order in which every process locks them."""
    merged = _merge(added, *({Total(*key): value} for *key, value in increments))
    return [[*total, value] for total, value in sorted(merged.items())]


def _merge(*many: Mapping[Total, float]) -> dict[Total, float]:
    merged: dict[Total, float] = {}
    for added in many:
        for total, value in added.items():
            merged[total] = merged.get(total, 0.0) + value
    return merged


def _compare_slots(tx: Transaction, uncounted: Iterable[Any]) -> dict[Total, tuple[float, int]]:
    true = {Total(SLOTS, kind, state): number for kind, state, number in tx.run(sql.COUNT_SLOTS)}
    stored = {Total(*key): value for *key, value in tx.run(sql.SELECT_SLOT_TOTALS)}
    moved = {total: value for total, value in add_up(map(_to_slot_event, uncounted)).items() if total.name == SLOTS}
    known = _merge(stored, moved)
    missing = {total: true.get(total, 0) - known.get(total, 0.0) for total in (*known, *true)}
    return {total: (number, true.get(total, 0)) for total, number in missing.items() if number}


def _by_verb(counters: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {name.partition(".")[2]: value for name, value in counters if name.startswith("stale_write_rejected.")}


def _read_oldest_queued(tx: Transaction, totals: Mapping[Total, float]) -> dict[str, float]:
    kinds = tuple(sorted({total.kind for total in totals if total.name == SLOTS}))
    parts = [kinds[first : first + MAX_KINDS] for first in range(0, len(kinds), MAX_KINDS)]
    return _largest(row for part in parts for row in tx.run(sql.select_oldest_queued(part)))


def _largest(rows: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the largest duration of each kind, in seconds."""
    found: dict[str, float] = {}
    for kind, waited in rows:
        found[kind] = max(found.get(kind, 0.0), waited / 1_000_000)
    return found
