"""Work that runs for long is reported once for each claim, and listed by how long it has been running."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.clock import as_datetime, micros
from holdfast.engine.plan import Expire
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.rules import Rules
from holdfast.engine.slot import Fault, Progress, Ring
from holdfast.engine.states import Operation, SlotState
from holdfast.engine.store.base import Failure, JobFilter, LeaseRenewal, Release
from tests.support.scripted_workers import KINDS, Carrier
from tests.support.stores import ONE, open_test_store, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.effects import Event
    from holdfast.engine.slot import Slot, Ticket
    from holdfast.engine.store.base import ListedJob
    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

MINUTE = timedelta(minutes=1)
LIMIT = timedelta(minutes=30)


def claim(store: SqlStore, *owners: str, holder: str = "worker") -> Ticket:
    store.admit([request(owner, slots=ONE) for owner in owners or ("doc",)])
    (ticket,) = store.claim_next(KINDS, holder, 1)
    return ticket


def ring_of(store: SqlStore, owner: str) -> Ring:
    slot = cards(store, owner)
    return Ring(slot=slot.id, owner=slot.owner_id, key=slot.key, generation=slot.wanted)


def work(store: SqlStore, clock: FakeClock, ticket: Ticket, time: timedelta, stage: str = "embedding") -> None:
    """Let a worker make progress for a time, with a heartbeat and a pass of a reconciler every minute."""
    for minute in range(1, time // MINUTE + 1):
        clock.advance(MINUTE)
        progress = Progress(stage=stage, done=minute)
        store.extend([LeaseRenewal(ticket=ticket, progress=progress, progressed=True)])
        reconcile(store)


def reconcile(store: SqlStore) -> timedelta | None:
    return Reconciler(store, Carrier(), KINDS, store.rules, dead=lambda _: False).reconcile()


def cards(store: SqlStore, owner: str = "doc") -> Slot:
    return store.slot("shelf", owner, "cards")


def reports(store: SqlStore) -> list[Event]:
    return [line.event for line in store.events() if line.event.type == "job.long_running"]


def listed(found: Sequence[ListedJob]) -> list[str]:
    return [item.job.owner for item in found]


def test_work_that_runs_for_long_is_reported_once(store: SqlStore, clock: FakeClock) -> None:
    ticket = claim(store)
    since = as_datetime(clock.now()).isoformat(timespec="milliseconds")
    work(store, clock, ticket, LIMIT - MINUTE)
    assert reports(store) == []
    work(store, clock, ticket, 3 * LIMIT)
    (event,) = reports(store)
    assert (event.base, event.owner, event.kind, event.job) == ("shelf", "doc", "cards", ticket.job)
    assert (event.generation, event.fence) == (ticket.generation, ticket.fence)
    assert event.parsed_data == {"since": since, "stage": "embedding", "holder": "worker"}
    assert (cards(store).state, cards(store).fence) == (SlotState.RUNNING, ticket.fence)
    assert cards(store).due_at == cards(store).until  # the reconciler need not look before the lease ends


def test_the_next_claim_is_reported_again(store: SqlStore, clock: FakeClock) -> None:
    first = claim(store)
    work(store, clock, first, LIMIT)
    store.fail([Failure(ticket=first, fault=Fault("timeout"), delay=MINUTE)])
    clock.advance(timedelta(hours=2))
    reconcile(store)
    assert len(reports(store)) == 1
    (second,) = store.claim_next(KINDS, "other", 1)
    work(store, clock, second, LIMIT - MINUTE)
    assert len(reports(store)) == 1
    work(store, clock, second, MINUTE)
    assert [event.fence for event in reports(store)] == [first.fence, second.fence]


def test_a_new_request_is_not_reported_for_the_claim_of_the_old_one(store: SqlStore, clock: FakeClock) -> None:
    claim(store)
    clock.advance(MINUTE)
    store.admit([request(operation=Operation.CHANGE, slots=ONE, fingerprint="new")])
    reconcile(store)
    assert cards(store).holder == "worker"
    assert reports(store) == []


def test_a_second_report_of_the_same_claim_does_nothing(store: SqlStore) -> None:
    """Two reconcilers may have read the slot before either reported it."""
    claim(store)
    slot = cards(store)
    assert store.report_long_running([slot]) == [slot]
    assert cards(store).due_at == slot.due_at  # so nothing but the mark tells the second one
    assert store.report_long_running([slot]) == []
    assert len(reports(store)) == 1


def test_a_renewal_saves_late_work_from_a_reconciler_that_read_the_slot_before(
    store: SqlStore, clock: FakeClock
) -> None:
    """Seeds 307 and 633 of the simulation: the renewal leaves `due_at` alone, because the report is due earlier."""
    ticket = claim(store)
    clock.advance(store.rules.stall)
    store.extend([LeaseRenewal(ticket=ticket, progress=Progress(), progressed=False)])
    read = cards(store)
    clock.advance(timedelta(seconds=1))
    store.extend([LeaseRenewal(ticket=ticket, progress=Progress(done=1), progressed=True)])
    assert cards(store).due_at == read.due_at
    assert store.expire([(read, Expire("no_progress"))]) == []
    assert store.give_up([read]) == []
    assert cards(store).holder == "worker"


def test_a_long_clean_up_is_reported(store: SqlStore, clock: FakeClock) -> None:
    store.admit([request(slots=ONE)])
    store.admit([request(operation=Operation.DELETE)])
    (ticket,) = store.claim_next(KINDS, "worker", 1)
    work(store, clock, ticket, LIMIT, stage="removing")
    (event,) = reports(store)
    assert event.parsed_data["stage"] == "removing"


def test_the_reconciler_wakes_when_work_has_been_running_for_long(store: SqlStore, clock: FakeClock) -> None:
    ticket = claim(store)
    work(store, clock, ticket, LIMIT - MINUTE)
    assert reconcile(store) == MINUTE  # and not at the end of the lease, two minutes from now
    clock.advance(MINUTE)
    assert reconcile(store) == timedelta()  # the slot is reported
    assert reconcile(store) == MINUTE  # and the next pass finds when the lease ends
    assert len(reports(store)) == 1


@pytest.mark.parametrize("limit", [timedelta(), timedelta(hours=7)], ids=["off", "beyond the deadline"])
def test_work_within_its_limit_is_not_reported(database_url: str, clock: FakeClock, limit: timedelta) -> None:
    store = open_test_store(database_url, clock, Rules(long_running=limit))
    ticket = claim(store)
    work(store, clock, ticket, timedelta(hours=5))
    assert reports(store) == []
    assert cards(store).due_at == clock.now() + micros(store.rules.lease)
    clock.advance(MINUTE)
    store.close()


@pytest.fixture
def three(store: SqlStore, clock: FakeClock) -> SqlStore:
    """Three jobs that have been running for 30, 20 and 10 seconds; a returned, a queued and an ended one."""
    store.release([Release(ticket=claim(store, "returned"))])
    for owner in ("first", "second", "third"):
        store.admit([request(owner, slots=ONE)])
        assert store.claim([ring_of(store, owner)], owner)
        clock.advance(timedelta(seconds=10))
    store.admit([request("queued", slots=ONE), request("ended", slots=ONE)])
    store.admit([request("ended", Operation.CANCEL)])
    return store


def test_running_jobs_are_listed_by_how_long_they_run(three: SqlStore) -> None:
    found = three.list_jobs(JobFilter(longer_than=timedelta(seconds=20)))
    assert (listed(found.jobs), found.total, found.cursor) == (["first", "second"], 2, None)
    assert found.jobs[0].running_since == cards(three, "first").claimed_at
    assert listed(three.list_jobs(JobFilter(longer_than=timedelta())).jobs) == ["first", "second", "third"]
    assert listed(three.list_jobs(JobFilter(longer_than=timedelta(), base="other")).jobs) == []
    assert listed(three.list_jobs(JobFilter(longer_than=timedelta(), states=frozenset({"failed"}))).jobs) == []
    assert listed(three.list_jobs(JobFilter(longer_than=timedelta(), states=frozenset({"indexing"}))).jobs)


def test_pages_of_running_jobs_continue_after_a_cursor(three: SqlStore) -> None:
    filter_ = JobFilter(longer_than=timedelta())
    first = three.list_jobs(filter_, size=2)
    assert (listed(first.jobs), first.total) == (["first", "second"], 3)
    second = three.list_jobs(filter_, size=2, cursor=first.cursor)
    assert (listed(second.jobs), second.cursor) == (["third"], None)
    assert listed(three.list_jobs(filter_, size=2, page=2).jobs) == ["third"]


def test_an_active_job_shows_since_when_it_runs(three: SqlStore) -> None:
    since = {item.job.owner: item.running_since for item in three.list_jobs().jobs}
    assert since["first"] == cards(three, "first").claimed_at
    assert (since["queued"], since["ended"]) == (None, None)
