"""Totals of the metrics contain every event exactly once, in whatever process, and their slots equal the slots."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

from holdfast.db.migrations.versions import v0020_metrics
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.states import Operation
from holdfast.engine.store.metric_statements import ADD_TOTALS
from holdfast.engine.totals import Total
from tests.contract.steps import ask, back, build, failed, finished, remove, take
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

OLD = timedelta(days=31)


def totals(store: SqlStore, name: str) -> dict[tuple[str, str], float]:
    """Return the totals of one name that are not zero, by kind and detail."""
    found = store.read_metrics().totals
    return {(total.kind, total.detail): value for total, value in found.items() if total.name == name and value}


def roll_up_all(store: SqlStore, limit: int = 3) -> None:
    while store.roll_up(limit):
        pass


def upgrade_again(store: SqlStore) -> None:
    """Return to the schema before the metrics, and run their migration."""
    with store.database.engine.begin() as connection:
        connection.execute(text("DROP TABLE metric_totals"))
        connection.execute(text("DROP TABLE metric_increments"))
        connection.execute(text("DELETE FROM event_marks WHERE name = 'metrics'"))
    with (
        store.database.engine.begin() as connection,
        Operations.context(MigrationContext.configure(connection)),
    ):
        v0020_metrics.upgrade()


def test_a_read_shows_events_before_and_after_the_roll_up(store: SqlStore) -> None:
    ask(store)
    build(store, "content", "vector")
    before = store.read_metrics().totals
    assert before[Total("commits", "content")] == before[Total("claims", "vector")] == 1.0
    roll_up_all(store)
    build(store, "graph")
    after = store.read_metrics().totals
    assert after[Total("commits", "graph")] == after[Total("commits", "content")] == 1.0
    assert totals(store, "slots") == {(kind, "ready"): 1.0 for kind in ("content", "vector", "graph")}


def test_nothing_is_added_twice_when_there_is_nothing_new(store: SqlStore) -> None:
    ask(store)
    build(store, "content")
    roll_up_all(store)
    assert store.roll_up() == 0
    assert totals(store, "claims") == {("content", ""): 1.0}


def test_a_refused_request_is_counted_by_its_reason(store: SqlStore) -> None:
    ask(store)
    answer = ask(store)
    counted = {("", str(answer.reason)): 1.0}
    assert totals(store, "duplicates") == counted
    roll_up_all(store)
    assert totals(store, "duplicates") == counted
    assert totals(store, "duplicates") == counted


def test_many_processes_that_roll_up_at_once_add_every_event_once(
    store: SqlStore, database_url: str, clock: FakeClock
) -> None:
    others = [open_test_store(database_url, clock) for _ in range(2)]
    stopped = threading.Event()

    def keep_rolling(one: SqlStore) -> None:
        while not stopped.is_set() or one.roll_up(5):
            one.roll_up(5)

    threads = [threading.Thread(target=keep_rolling, args=(one,)) for one in (store, *others)]
    for thread in threads:
        thread.start()
    for number in range(20):
        ask(store, f"doc-{number}")
        ask(store, f"doc-{number}")
        build(store, "content", "vector", owner=f"doc-{number}")
    stopped.set()
    for thread in threads:
        thread.join()
    roll_up_all(store)
    assert totals(store, "claims") == totals(store, "commits") == {("content", ""): 20.0, ("vector", ""): 20.0}
    assert sum(totals(store, "duplicates").values()) == 20.0
    assert store.find_wrong_slot_totals() == {}
    for one in others:
        one.close()


def test_the_totals_of_slots_equal_the_slots_after_any_history(store: SqlStore, clock: FakeClock) -> None:
    chance = random.Random(7)

    def step(owner: str) -> None:
        ready = [slot.kind for slot in store.owner("shelf", owner).slots if slot.state == "queued"]
        if not ready:
            return
        ticket = take(store, chance.choice(ready), owner)
        acts: list[Callable[[], None]] = [
            lambda: store.complete([finished(ticket)]),
            lambda: store.fail([failed(ticket)]),
            lambda: store.fail([failed(ticket, timedelta(seconds=1))]),
            lambda: store.release([back(ticket)]),
            lambda: clock.advance(timedelta(hours=1)),
        ]
        chance.choice(acts)()

    for round_ in range(60):
        owner = f"doc-{chance.randrange(6)}"
        ask(store, owner, chance.choice([Operation.INDEX, Operation.FORCE]))
        step(owner)
        if chance.random() < 0.2:
            ask(store, owner, Operation.CANCEL)
        if chance.random() < 0.2:
            store.expire([])
        if round_ % 7 == 0:
            store.roll_up(11)
        assert store.find_wrong_slot_totals() == {}
    ask(store, "gone")
    remove(store, "gone")
    roll_up_all(store)
    assert store.find_wrong_slot_totals() == {}


def test_wrong_totals_of_slots_are_found_and_corrected(store: SqlStore) -> None:
    ask(store)
    build(store, "content")
    store.roll_up(2)  # a part of the events is not in the totals
    store.database.write(lambda tx: tx.run(ADD_TOTALS, [["slots", "content", "ready", 5.0]]), durable=True)
    assert store.find_wrong_slot_totals() == {Total("slots", "content", "ready"): (-5.0, 1)}
    assert store.correct_slot_totals() == 1
    assert store.find_wrong_slot_totals() == {}
    roll_up_all(store)
    assert store.find_wrong_slot_totals() == {}


def test_retention_removes_no_event_before_it_is_counted(store: SqlStore, clock: FakeClock) -> None:
    for number in range(4):
        ask(store, f"doc-{number}")
        build(store, "content", owner=f"doc-{number}")
    clock.advance(OLD)
    while store.delete_old_history(timedelta(days=30), 7):
        pass
    assert store.events() == []
    assert totals(store, "claims") == {("content", ""): 4.0}
    assert store.find_wrong_slot_totals() == {}


def test_an_old_event_that_is_not_counted_stays(
    store: SqlStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(store)
    clock.advance(OLD)
    written = store.events()
    monkeypatch.setattr(store, "roll_up", lambda: 0)
    store.delete_old_history(timedelta(days=30), 100)
    assert store.events() == written


def test_ages_of_queued_and_running_slots_are_by_kind(store: SqlStore, clock: FakeClock) -> None:
    ask(store, "old", priority=9)
    clock.advance(timedelta(seconds=30))
    ask(store, "new", priority=1)
    clock.advance(timedelta(seconds=10))
    read = store.read_metrics()
    assert read.oldest_queued == {"content": 40.0}
    assert read.longest_running == {}
    take(store, "content", "old")
    clock.advance(timedelta(seconds=5))
    read = store.read_metrics()
    assert read.oldest_queued == {"content": 15.0}
    assert read.longest_running == {"content": 5.0}


def test_more_kinds_than_one_statement_can_read_are_read(store: SqlStore) -> None:
    for number in range(90):
        ask(store, f"doc-{number}", slots=(SlotSpec(f"kind_{number}"),))
    assert len(store.read_metrics().oldest_queued) == 90


def test_an_upgrade_counts_the_slots_that_exist(store: SqlStore) -> None:
    ask(store)
    build(store, "content", "vector")
    before = totals(store, "slots")
    upgrade_again(store)
    assert totals(store, "slots") == before
    build(store, "graph")
    roll_up_all(store)
    assert store.find_wrong_slot_totals() == {}
    assert totals(store, "claims") == {("graph", ""): 1.0}


def test_an_upgrade_counts_an_event_once_that_an_open_transaction_keeps_from_being_final(
    postgres_url: str, clock: FakeClock
) -> None:
    store = open_test_store(postgres_url, clock)
    with store.database.engine.connect() as older:
        older.execute(text("SELECT pg_current_xact_id()"))
        ask(store)
        build(store, "content")
        upgrade_again(store)
        assert store.find_wrong_slot_totals() == {}
    roll_up_all(store)
    assert totals(store, "slots") == {("content", "ready"): 1.0, ("vector", "queued"): 1.0, ("graph", "queued"): 1.0}
    store.close()
