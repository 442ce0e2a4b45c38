"""Helpers of the contract tests: admit requests, claim and build slots, read and write raw rows, check consistency."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, delete, insert, select, update

from holdfast.engine.slot import BuildResult, Fault, Progress, Ring
from holdfast.engine.states import ACTIVE_STATES, Operation, Outcome, SlotState
from holdfast.engine.status import derive_status
from holdfast.engine.store import tables
from holdfast.engine.store.base import Completion, Failure, LeaseRenewal, Release
from tests.support.schema import metadata
from tests.support.stores import request

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from holdfast.engine.admission import AdmissionResult
    from holdfast.engine.slot import Slot, Ticket
    from holdfast.engine.store.sql_store import SqlStore

KINDS = ("content", "vector", "graph", "cards")


def ask(store: SqlStore, owner: str = "doc", operation: Operation = Operation.INDEX, **more: Any) -> AdmissionResult:
    """Admit one request and return the result."""
    (answer,) = store.admit([request(owner, operation, **more)])
    return answer


def ring_of(slot: Slot, /, **more: Any) -> Ring:
    """Return the ring that a reconciler would send for this slot."""
    return Ring(**{"slot": slot.id, "owner": slot.owner_id, "key": slot.key, "generation": slot.wanted, **more})


def take(store: SqlStore, kind: str, owner: str = "doc", holder: str = "worker") -> Ticket:
    (ticket,) = store.claim([ring_of(store.slot("shelf", owner, kind))], holder)
    return ticket


def finished(ticket: Ticket, missing: int = 0) -> Completion:
    return Completion(ticket=ticket, built=BuildResult(missing=missing))


def failed(ticket: Ticket, delay: timedelta | None = None, *, code: str = "timeout", refund: bool = False) -> Failure:
    return Failure(ticket=ticket, fault=Fault(code, {"why": "test"}), delay=delay, refund=refund)


def beat(ticket: Ticket, *, moved: bool = True, **progress: Any) -> LeaseRenewal:
    return LeaseRenewal(ticket=ticket, progress=Progress(**progress), progressed=moved)


def back(ticket: Ticket, *, refund: bool = False) -> Release:
    return Release(ticket=ticket, refund=refund)


def build(store: SqlStore, *kinds: str, owner: str = "doc", missing: int = 0) -> None:
    """Claim and complete these slots, one after the other."""
    for kind in kinds:
        store.complete([finished(take(store, kind, owner), missing)])


def remove(store: SqlStore, owner: str = "doc") -> None:
    """Delete an owner and clean up after it."""
    ask(store, owner, Operation.DELETE)
    store.forget([take(store, slot.key.kind, owner) for slot in store.owner("shelf", owner).slots])


def states(store: SqlStore, owner: str = "doc") -> dict[str, str]:
    """Return the state of each slot of an owner."""
    return {slot.key.kind: str(slot.state) for slot in store.owner("shelf", owner).slots}


def refused(store: SqlStore) -> dict[str, int]:
    """Return the counters of refused writes that are not zero."""
    return {
        name.removeprefix("stale_write_rejected."): count
        for name, count in store.counters().items()
        if count and name.startswith("stale_write_rejected.")
    }


def side_by_side(number: int, work: Callable[[int], Any]) -> list[Any]:
    """Run the same work in this many threads, which all start at once."""
    gate = threading.Barrier(number)

    def one(index: int) -> Any:
        gate.wait()
        return work(index)

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(one, range(number)))


OWNER_ROW: dict[str, Any] = {"base": "shelf", "generation": 9, "status": "queued", "created_at": 0}
SLOT_ROW: dict[str, Any] = {
    "kind": "cards",
    "job": "job",
    "wanted": 1,
    "state": SlotState.QUEUED,
    "priority": 5,
    "queued_at": 0,
}
JOB_ROW: dict[str, Any] = {
    "base": "shelf",
    "owner": "doc",
    "generation": 1,
    "operation": Operation.INDEX,
    "cause": "user",
    "requester": "",
    "priority": 5,
    "open": 1,
    "created_at": 0,
}


def rows(store: SqlStore, table: Table) -> list[dict[str, Any]]:
    """Return all rows of a table, in the order of its first column."""
    with store.database.reading() as tx:
        found = tx.connection.execute(select(table).order_by(table.c[0]))
        return [dict(row) for row in found.mappings()]


def everything(store: SqlStore) -> dict[str, list[dict[str, Any]]]:
    return {table.name: rows(store, table) for table in metadata.sorted_tables}


REFUSED = {"duplicates", "metric_increments"}  # tables that a refused request changes


def differences(before: dict[str, list[dict[str, Any]]], after: dict[str, list[dict[str, Any]]]) -> set[str]:
    """Return the tables whose rows differ."""
    return {name for name in after if after[name] != before[name]}


def put(store: SqlStore, table: Table, **columns: Any) -> int:
    """Insert a row without any check and return its id."""
    with store.database.engine.begin() as connection:
        key = connection.execute(insert(table).values(**columns)).inserted_primary_key
        assert key is not None
        number: int = key[0]
        return number


def put_owner(store: SqlStore, name: str = "doc", **columns: Any) -> int:
    return put(store, tables.owners, **OWNER_ROW | {"owner": name} | columns)


def put_slot(store: SqlStore, owner: int, **columns: Any) -> int:
    return put(store, tables.slots, **SLOT_ROW | {"owner_id": owner} | columns)


def put_job(store: SqlStore, owner: int, name: str = "job", **columns: Any) -> int:
    return put(store, tables.jobs, **JOB_ROW | {"id": name, "owner_id": owner} | columns)


def stand(store: SqlStore, *slots: dict[str, Any], name: str = "doc") -> list[int]:
    """Write an owner with these slots and one consistent job, without the store, and return the ids of the slots."""
    owner = put_owner(store, name)
    numbers = [
        put_slot(store, owner, **{"job": f"job of {name}", "kind": f"kind{n}"} | columns)
        for n, columns in enumerate(slots)
    ]
    active = len([one for one in slots if one.get("state", SlotState.QUEUED) in ACTIVE_STATES])
    ended = {} if active else {"outcome": Outcome.SUCCESS, "finished_at": 0}
    put_job(store, owner, f"job of {name}", open=active, **ended)
    cache_status(store, name)
    return numbers


def wipe(store: SqlStore) -> None:
    """Empty every table and reset the counters. Sequences keep their values, so that ids are not used again."""
    with store.database.engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(update(table).values(value=0) if table is tables.counters else delete(table))


def cache_status(store: SqlStore, name: str = "doc") -> None:
    """Write the status that is derived from the slots of an owner."""
    status = derive_status(store.owner("shelf", name).slots)
    with store.database.engine.begin() as connection:
        connection.execute(update(tables.owners).where(tables.owners.c.owner == name).values(status=status))


def alter(store: SqlStore, slot: int, **columns: Any) -> None:
    """Change columns of a slot without the store."""
    with store.database.engine.begin() as connection:
        changed = connection.execute(update(tables.slots).where(tables.slots.c.id == slot).values(**columns))
        assert changed.rowcount == 1


def audit(store: SqlStore) -> None:
    """Check the invariants that hold after every transaction."""
    slots = rows(store, tables.slots)
    for owner in rows(store, tables.owners):
        whole = store.owner(owner["base"], owner["owner"])
        assert whole.slots, "an owner without slots is gone"
        assert whole.status is derive_status(whole.slots), "the cached status is the derived one"
        assert all(slot.wanted <= whole.generation for slot in whole.slots)
    jobs = rows(store, tables.jobs)
    unsettled = Counter(slot["job"] for slot in slots if slot["state"] in ACTIVE_STATES)
    assert unsettled == {job["id"]: job["open"] for job in jobs if job["open"]}, "job.open counts unsettled slots"
    for job in jobs:
        assert (job["outcome"] is None) == (job["open"] > 0) == (job["finished_at"] is None)
        assert job["outcome"] is None or job["outcome"] in tuple(Outcome)
    numbers = [event["id"] for event in rows(store, tables.events)]
    assert len(set(numbers)) == len(numbers)
