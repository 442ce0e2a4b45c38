"""Each condition of each guarded statement, tested alone: a row that differs in one condition must not change.

The tests write the rows without the store, so that only the guard under test can refuse. If any one condition is
removed from `statements.py`, at least one of these tests fails.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from holdfast.clock import Moment, micros
from holdfast.engine.plan import Expire
from holdfast.engine.slot import Ring, SlotId, Ticket
from holdfast.engine.states import ACTIVE_STATES, Operation, SlotState
from holdfast.engine.store import statements, tables
from holdfast.errors import StaleLease
from tests.contract.steps import (
    alter,
    ask,
    back,
    beat,
    cache_status,
    everything,
    failed,
    finished,
    put_job,
    rows,
    stand,
    wipe,
)
from tests.support.clock import START, FakeClock
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.slot import Slot
    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.servers import Postgres

S = SlotState
Columns = dict[str, Any]
NOW = START


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    """Open one store on each database for the whole module: there are many tests, and the clock does not move."""
    if request.param == "sqlite":
        store = open_test_store(f"sqlite:///{tmp_path_factory.mktemp('guards') / 'holdfast.db'}", FakeClock())
    else:
        server: Postgres = request.getfixturevalue("postgres")
        store = open_test_store(server.create_database(f"guards_{uuid.uuid4().hex[:12]}"), FakeClock())
    yield store
    store.close()


@pytest.fixture
def store(shared: SqlStore) -> SqlStore:
    wipe(shared)
    return shared


def at(**duration: float) -> Moment:
    return Moment(NOW + micros(timedelta(**duration)))


SOON, JUST_AHEAD = at(seconds=60), at(microseconds=1)
LEASE: Columns = {"holder": "ann", "until": SOON}
FREE: Columns = {"holder": None, "until": None}
CLAIMED: Columns = {"claimed_at": at(seconds=-60), "progress_at": at(seconds=-60), "attempts": 1}

# A slot in each state, with generation 5 and fence 7. The lease is the same wherever the schema allows one.
STANDING: dict[SlotState, Columns] = {
    S.BLOCKED: {"state": S.BLOCKED, **FREE, "due_at": None},
    S.QUEUED: {"state": S.QUEUED, **FREE, "due_at": None},
    S.RUNNING: {"state": S.RUNNING, **LEASE, **CLAIMED, "due_at": SOON},
    S.WAITING: {"state": S.WAITING, **FREE, **CLAIMED, "due_at": NOW},
    S.READY: {"state": S.READY, **FREE, "due_at": None, "built": 5},
    S.FAILED: {"state": S.FAILED, **FREE, "due_at": None},
    S.CANCELLED: {"state": S.CANCELLED, **FREE, "due_at": None},
    S.DELETING: {"state": S.DELETING, **LEASE, **CLAIMED, "due_at": SOON},
}


def fit(state: SlotState, **more: Any) -> Columns:
    return {"wanted": 5, "built": 2, "fence": 7} | STANDING[state] | more


def only(store: SqlStore, number: int) -> Slot:
    return next(slot for slot in store.owner("shelf", "doc").slots if slot.id == number)


def ticket_for(slot: Slot, *, removing: bool) -> Ticket:
    """Return the ticket with which a worker holds a slot of generation 5 under fence 7."""
    return Ticket(
        slot=slot.id,
        owner=slot.owner_id,
        key=slot.key,
        job=slot.job,
        generation=5,
        fence=7,
        attempt=1,
        removing=removing,
        source=None,
        built=2,
    )


def enter(store: SqlStore, ticket: Ticket) -> None:
    with store.guarded(ticket) as connection:
        connection.execute(update(tables.slots).where(tables.slots.c.id == ticket.slot).values(stage="entered"))


WRITES: dict[str, Callable[[SqlStore, Ticket], None]] = {
    "extended": lambda store, ticket: store.extend([beat(ticket, done=3)]),
    "completed": lambda store, ticket: store.complete([finished(ticket)]),
    "postponed": lambda store, ticket: store.fail([failed(ticket, timedelta(seconds=9))]),
    "failed": lambda store, ticket: store.fail([failed(ticket)]),
    "forgotten": lambda store, ticket: store.forget([ticket]),
    "guarded": enter,
}
COUNTED = {"postponed": "failed"}
HELD = [
    *[("building", verb) for verb in ("extended", "completed", "postponed", "failed", "guarded")],
    *[("removing", verb) for verb in ("extended", "postponed", "forgotten", "guarded")],
]


def misfits(state: SlotState) -> dict[str, Columns]:
    """Return changes to a slot, each of which makes one condition of a ticket for this state false."""
    return {
        "a newer generation": {"wanted": 6},
        "an older generation": {"wanted": 4},
        "a higher fence": {"fence": 8},
        "a lower fence": {"fence": 6},
        **{f"the state {other}": fit(other) for other in S if other is not state},
        "the state queued, still leased": fit(S.QUEUED, **LEASE),
    }


HELD_CASES = [
    pytest.param(work, verb, wrong, id=f"{work}-{verb}-{name}")
    for work, verb in HELD
    for name, wrong in misfits(S.DELETING if work == "removing" else S.RUNNING).items()
]


@pytest.mark.parametrize(("work", "verb", "wrong"), HELD_CASES)
def test_a_write_is_refused_when_one_condition_of_its_guard_is_false(
    store: SqlStore, work: str, verb: str, wrong: Columns
) -> None:
    removing = work == "removing"
    (number,) = stand(store, fit(S.DELETING if removing else S.RUNNING) | wrong)
    ticket = ticket_for(only(store, number), removing=removing)
    before = everything(store)
    with pytest.raises(StaleLease) as stale:
        WRITES[verb](store, ticket)
    assert stale.value.tickets == (ticket,)
    after = everything(store)
    counters = {row["name"]: row["value"] for row in after.pop("counters")}
    assert {name for name, count in counters.items() if count} == {f"stale_write_rejected.{COUNTED.get(verb, verb)}"}
    assert after == {name: table for name, table in before.items() if name != "counters"}


@pytest.mark.parametrize(("work", "verb"), HELD)
def test_a_stale_ticket_is_refused_even_if_another_slot_of_the_owner_matches(
    store: SqlStore, work: str, verb: str
) -> None:
    removing = work == "removing"
    row = fit(S.DELETING if removing else S.RUNNING)
    _, number = stand(store, row, row | {"fence": 8})
    before = rows(store, tables.slots)
    with pytest.raises(StaleLease):
        WRITES[verb](store, ticket_for(only(store, number), removing=removing))
    assert rows(store, tables.slots) == before


@pytest.mark.parametrize(("work", "verb"), HELD)
def test_a_write_with_a_valid_ticket_changes_only_its_own_slot(store: SqlStore, work: str, verb: str) -> None:
    removing = work == "removing"
    row = fit(S.DELETING if removing else S.RUNNING)
    twin, number, _ = stand(store, row, row, row)
    strange, _ = stand(store, row, row, name="other")
    before = {one["id"]: one for one in rows(store, tables.slots)}
    WRITES[verb](store, ticket_for(only(store, number), removing=removing))
    after = {one["id"]: one for one in rows(store, tables.slots)}
    assert {key for key in before if after.get(key) != before[key]} == {number}
    assert after[twin] == before[twin]
    assert after[strange] == before[strange]
    if verb == "forgotten":
        assert number not in after
        return
    expected = {"completed": "ready", "failed": "failed", "postponed": "waiting"}.get(verb, "running")
    assert after[number]["state"] == ("deleting" if removing else expected)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"fence": 8}, id="a higher fence"),
        pytest.param({"fence": 6}, id="a lower fence"),
        *[
            pytest.param(fit(state, **FREE), id=f"no holder, {state}")
            for state in sorted(S)
            if state is not S.RUNNING  # a running slot always has a holder
        ],
    ],
)
def test_a_release_is_refused_when_the_fence_does_not_hold_the_slot(store: SqlStore, wrong: Columns) -> None:
    (number,) = stand(store, fit(S.RUNNING) | wrong)
    before = everything(store)
    with pytest.raises(StaleLease):
        store.release([back(ticket_for(only(store, number), removing=False), refund=True)])
    after = everything(store)
    assert [name for name in after if after[name] != before[name]] == ["counters"]


@pytest.mark.parametrize("wanted", [5, 6])
@pytest.mark.parametrize("state", [S.RUNNING, S.QUEUED, S.BLOCKED, S.DELETING])
def test_a_release_with_the_right_fence_succeeds_in_any_generation(
    store: SqlStore, state: SlotState, wanted: int
) -> None:
    row = fit(state, **LEASE, wanted=wanted)
    twin, number = stand(store, row, row)
    before = {one["id"]: one for one in rows(store, tables.slots)}
    store.release([back(ticket_for(only(store, number), removing=False))])
    after = {one["id"]: one for one in rows(store, tables.slots)}
    assert (after[number]["holder"], after[number]["until"]) == (None, None)
    assert after[number]["state"] == ("queued" if state is S.RUNNING else state)
    assert after[twin] == before[twin]


def ring_for(slot: Slot, generation: int = 5) -> Ring:
    return Ring(slot=slot.id, owner=slot.owner_id, key=slot.key, generation=generation)


@pytest.mark.parametrize(
    ("row", "generation"),
    [
        pytest.param(fit(S.QUEUED), 4, id="an older generation"),
        pytest.param(fit(S.QUEUED), 6, id="a newer generation"),
        *[pytest.param(fit(state), 5, id=str(state)) for state in (S.BLOCKED, S.READY, S.FAILED, S.CANCELLED)],
        pytest.param(fit(S.WAITING, due_at=JUST_AHEAD), 5, id="waiting and not yet due"),
        pytest.param(fit(S.QUEUED, due_at=JUST_AHEAD), 5, id="queued and not yet due"),
        pytest.param(fit(S.DELETING, **FREE, due_at=JUST_AHEAD), 5, id="deleting and not yet due"),
        pytest.param(fit(S.QUEUED, holder="ann", until=JUST_AHEAD), 5, id="queued under a live lease"),
        pytest.param(fit(S.RUNNING, until=JUST_AHEAD, due_at=NOW), 5, id="running under a live lease"),
        pytest.param(fit(S.DELETING, until=JUST_AHEAD, due_at=NOW), 5, id="deleting under a live lease"),
        pytest.param(fit(S.QUEUED, attempts=4), 5, id="no attempt left, queued"),
        pytest.param(fit(S.WAITING, attempts=4), 5, id="no attempt left, waiting"),
        pytest.param(fit(S.RUNNING, until=NOW, due_at=NOW, attempts=4), 5, id="no attempt left, expired"),
    ],
)
def test_a_slot_that_may_not_be_claimed_is_not_claimed(store: SqlStore, row: Columns, generation: int) -> None:
    (number,) = stand(store, row)
    before = everything(store)
    assert store.claim([ring_for(only(store, number), generation)], "bob") == []
    if generation == 5:  # claim_next always uses the current generation
        assert store.claim_next(["kind0"], "bob", 10) == []
    assert everything(store) == before


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(fit(S.QUEUED), id="queued"),
        pytest.param(fit(S.QUEUED, due_at=NOW), id="queued and due at this moment"),
        pytest.param(fit(S.QUEUED, holder="ann", until=NOW), id="queued, the lease ends at this moment"),
        pytest.param(fit(S.QUEUED, attempts=3), id="queued, one attempt left"),
        pytest.param(fit(S.WAITING, due_at=NOW), id="waiting and due at this moment"),
        pytest.param(fit(S.RUNNING, until=NOW, due_at=NOW), id="running, the lease ends at this moment"),
        pytest.param(fit(S.DELETING, **FREE, due_at=NOW), id="deleting and due at this moment"),
        pytest.param(fit(S.DELETING, until=NOW, due_at=NOW), id="deleting, the lease ends at this moment"),
        pytest.param(fit(S.DELETING, **FREE, due_at=NOW, attempts=99), id="deleting, however often"),
    ],
)
@pytest.mark.parametrize("by", ["ring", "search"])
def test_a_claim_takes_a_claimable_slot_and_no_other(store: SqlStore, row: Columns, by: str) -> None:
    twin, number = stand(store, row, row)
    before = {one["id"]: one for one in rows(store, tables.slots)}
    slot = only(store, number)
    tickets = store.claim([ring_for(slot)], "bob") if by == "ring" else store.claim_next([slot.key.kind], "bob", 10)
    assert [(ticket.slot, ticket.fence, ticket.generation) for ticket in tickets] == [(number, 8, 5)]
    after = {one["id"]: one for one in rows(store, tables.slots)}
    assert (after[number]["holder"], after[number]["fence"]) == ("bob", 8)
    assert after[number]["attempts"] == before[number]["attempts"] + 1
    assert after[twin] == before[twin]


TENDS: dict[str, Callable[[SqlStore, Slot], list[Any]]] = {
    "rung": lambda store, slot: store.ring([slot]),
    "expired": lambda store, slot: store.expire([(slot, Expire("no_progress"))]),
    "given up": lambda store, slot: store.give_up([slot]),
    "reported": lambda store, slot: store.report_long_running([slot]),
}
READ: list[tuple[str, str, Columns]] = [
    ("rung", "queued", fit(S.QUEUED)),
    ("rung", "waiting", fit(S.WAITING)),
    ("rung", "expired", fit(S.RUNNING, until=NOW, due_at=NOW)),
    ("rung", "deleting", fit(S.DELETING, **FREE, due_at=NOW)),
    ("expired", "running", fit(S.RUNNING)),
    ("expired", "superseded", fit(S.QUEUED, **LEASE)),
    ("expired", "blocked", fit(S.BLOCKED, **LEASE)),
    ("expired", "deleting", fit(S.DELETING)),
    ("given up", "queued", fit(S.QUEUED)),
    ("given up", "waiting", fit(S.WAITING)),
    ("given up", "running", fit(S.RUNNING)),
    ("reported", "running", fit(S.RUNNING)),
    ("reported", "deleting", fit(S.DELETING, **LEASE, **CLAIMED)),
]


def moves(row: Columns) -> dict[str, Columns]:
    """Return changes that may happen to a slot after it was read, one column or state at a time."""
    due, lease = {"due_at": row["due_at"]}, {"holder": row["holder"], "until": row["until"]}
    elsewhere = {
        # Every other state that the schema allows with the same due time.
        f"the state {state}": fit(state) | due | (lease if state in ACTIVE_STATES and state is not S.WAITING else FREE)
        for state in S
        if state is not row["state"]
        and not (state is S.RUNNING and (row["holder"] is None or row["due_at"] is None))
        and not (state is S.WAITING and row["due_at"] is None)
    }
    told: dict[str, Columns] = {
        "a newer generation": {"wanted": 6},
        "an older generation": {"wanted": 4},
        "a higher fence": {"fence": 8},
        "a lower fence": {"fence": 6},
        **elsewhere,
    }
    if row["until"] is not None:
        told["a renewed lease"] = {"until": row["until"] + 1}
    if row["due_at"] is None:
        return told | {"due at a time": {"due_at": NOW}}
    told["due a little later"] = {"due_at": row["due_at"] + 1}
    if row["state"] is S.DELETING:  # the schema allows a deleting slot without a due time
        told["due at no time"] = {"due_at": None}
    return told


@pytest.mark.parametrize(
    ("verb", "row", "moved"),
    [
        pytest.param(verb, row, moved, id=f"{verb}-{name}-{what}")
        for verb, name, row in READ
        for what, moved in moves(row).items()
    ],
)
def test_the_reconciler_leaves_a_slot_alone_that_changed_after_it_was_read(
    store: SqlStore, verb: str, row: Columns, moved: Columns
) -> None:
    (number,) = stand(store, row)
    read = only(store, number)
    alter(store, number, **moved)
    cache_status(store)
    before = everything(store)
    assert TENDS[verb](store, read) == []
    assert everything(store) == before


@pytest.mark.parametrize(("verb", "name", "row"), READ)
def test_the_reconciler_changes_only_the_slot_that_it_read(store: SqlStore, verb: str, name: str, row: Columns) -> None:
    twin, number = stand(store, row, row)
    before = {one["id"]: one for one in rows(store, tables.slots)}
    assert len(TENDS[verb](store, only(store, number))) == 1
    after = {one["id"]: one for one in rows(store, tables.slots)}
    assert after[twin] == before[twin]
    if verb == "rung":
        assert after[number] == before[number] | {"rung_at": NOW}
        return
    if verb == "reported":
        assert after[number] == before[number] | {"reported_at": NOW, "due_at": row["until"]}
        return
    assert (after[number]["fence"], after[number]["holder"]) == (8, None)
    kept = "queued" if row["state"] is S.RUNNING else row["state"]
    assert after[number]["state"] == ("failed" if verb == "given up" else kept)


@pytest.mark.parametrize(
    ("rung_at", "rings"),
    [(None, 1), (at(seconds=-60), 1), (at(seconds=-61), 1), (at(seconds=-60, microseconds=1), 0), (NOW, 0)],
)
def test_a_slot_is_not_rung_again_within_a_minute(store: SqlStore, rung_at: Moment | None, rings: int) -> None:
    (number,) = stand(store, fit(S.QUEUED, rung_at=rung_at))
    assert len(store.ring([only(store, number)])) == rings
    assert rows(store, tables.slots)[0]["rung_at"] == (NOW if rings else rung_at)


def stop(store: SqlStore, owner: int) -> set[int]:
    """Run only the statement of a cancel, because admission would refuse some of these states first."""
    return {row[0] for row in store.database.write(lambda tx: tx.run(statements.CANCEL_SLOTS, [[owner]]), durable=True)}


@pytest.mark.parametrize("state", S)
def test_a_cancel_stops_active_slots_and_no_others(store: SqlStore, state: SlotState) -> None:
    (number,) = stand(store, fit(state))
    (before,) = rows(store, tables.slots)
    stopped = stop(store, only(store, number).owner_id)
    (after,) = rows(store, tables.slots)
    if state in (S.BLOCKED, S.QUEUED, S.RUNNING, S.WAITING):
        assert stopped == {number}
        assert (after["state"], after["fence"], after["holder"]) == ("cancelled", 8, None)
    else:
        assert stopped == set()
        assert after == before


def test_a_cancel_stops_the_slots_of_its_owner_only(store: SqlStore) -> None:
    mine = stand(store, fit(S.QUEUED), fit(S.RUNNING))
    others = stand(store, fit(S.QUEUED), fit(S.RUNNING), name="other")
    assert stop(store, store.owner("shelf", "doc").id) == set(mine)
    assert [row["state"] for row in rows(store, tables.slots) if row["id"] in others] == ["queued", "running"]


@pytest.mark.parametrize("operation", [Operation.CHANGE, Operation.CANCEL, Operation.DELETE])
def test_only_the_active_job_of_this_owner_is_ended(store: SqlStore, operation: Operation) -> None:
    stand(store, fit(S.QUEUED))
    stand(store, fit(S.QUEUED), name="other")
    owner = store.owner("shelf", "doc").id
    for generation, outcome in enumerate(("success", "failed", "superseded", "cancelled", "deleted", "degraded"), 2):
        columns = {"outcome": outcome, "open": 0, "finished_at": 77, "generation": generation, "results": "{}"}
        put_job(store, owner, f"old {outcome}", **columns)
    before = {job["id"]: job for job in rows(store, tables.jobs)}
    assert ask(store, operation=operation, slots=()).accepted
    after = {job["id"]: job for job in rows(store, tables.jobs)}
    assert {name for name in before if after[name] != before[name]} == {"job of doc"}
    ended = {Operation.CHANGE: "superseded", Operation.CANCEL: "cancelled", Operation.DELETE: "deleted"}[operation]
    assert (after["job of doc"]["outcome"], after["job of doc"]["finished_at"]) == (ended, NOW)


OLD = at(minutes=-10)
YOUNGER: Columns = {"kind": "kind0", "queued_at": OLD + 1, **fit(S.RUNNING)}


@pytest.mark.parametrize(
    ("rival", "overtaken"),
    [
        pytest.param(YOUNGER, True, id="claimed, younger, of the same kind and priority"),
        pytest.param(YOUNGER | STANDING[S.READY] | CLAIMED, True, id="built meanwhile"),
        pytest.param(YOUNGER | {"kind": "kind1"}, False, id="of another kind"),
        pytest.param(YOUNGER | {"priority": 4}, False, id="more urgent"),
        pytest.param(YOUNGER | {"priority": 6}, False, id="less urgent"),
        pytest.param(YOUNGER | {"queued_at": OLD}, False, id="of the same age"),
        pytest.param(YOUNGER | {"queued_at": OLD - 1}, False, id="older"),
        pytest.param(YOUNGER | {"claimed_at": None}, False, id="not claimed in this generation"),
    ],
)
def test_a_queued_slot_is_overtaken_only_by_younger_work_of_its_kind_and_priority(
    store: SqlStore, rival: Columns, overtaken: bool
) -> None:
    stand(store, fit(S.QUEUED, kind="kind0", queued_at=OLD))
    stand(store, rival, name="rival")
    assert ask(store, slots=()).reason == ("stuck" if overtaken else "already_in_progress")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(fit(S.QUEUED, queued_at=OLD + 1), id="queued for less than ten minutes"),
        pytest.param(fit(S.BLOCKED, queued_at=OLD), id="blocked"),
        pytest.param(fit(S.WAITING, queued_at=OLD), id="waiting"),
    ],
)
def test_a_slot_counts_as_overtaken_only_after_ten_minutes_in_the_queue(store: SqlStore, row: Columns) -> None:
    stand(store, row)
    stand(store, YOUNGER | {"queued_at": NOW}, name="rival")
    assert ask(store, slots=()).reason == "already_in_progress"


def test_an_index_covers_the_content_of_its_own_owner_and_of_the_kind_it_needs(store: SqlStore) -> None:
    def ready(kind: str, source: int) -> Columns:
        return fit(S.READY, kind=kind, source=source)

    # Slots that must not match have lower and higher ids and names: a subquery that matches too many rows fails here.
    stand(store, ready("content", 11), name="before")
    _, _, number, _ = stand(
        store,
        ready("abstract", 22),
        ready("content", 33),
        fit(S.RUNNING, kind="vector", needs="content"),
        ready("tables", 44),
    )
    stand(store, ready("content", 55), name="after")
    store.complete([finished(ticket_for(only(store, number), removing=False))])
    assert only(store, number).source == 33


def test_a_slot_without_dependencies_is_its_own_source(store: SqlStore) -> None:
    _, number = stand(store, fit(S.READY, kind="other", source=22), fit(S.RUNNING, kind="content"))
    store.complete([finished(ticket_for(only(store, number), removing=False))])
    assert only(store, number).source == 7, "its fence names the build"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        pytest.param(fit(S.QUEUED), True, id="queued"),
        pytest.param(fit(S.QUEUED, kind="another"), False, id="another kind"),
        *[pytest.param(fit(state), False, id=str(state)) for state in S if state is not S.QUEUED],
        pytest.param(fit(S.QUEUED, holder="ann", until=NOW), True, id="the lease ends at this moment"),
        pytest.param(fit(S.QUEUED, holder="ann", until=JUST_AHEAD), False, id="under a live lease"),
        pytest.param(fit(S.QUEUED, rung_at=at(seconds=-60)), True, id="rung a minute ago"),
        pytest.param(fit(S.QUEUED, rung_at=at(seconds=-60, microseconds=1)), False, id="rung less than a minute ago"),
    ],
)
def test_find_unrung_returns_queued_slots_that_were_not_rung_within_a_minute(
    store: SqlStore, row: Columns, found: bool
) -> None:
    stand(store, row)
    assert len(store.find_unrung(["kind0"], 10).slots) == found


@pytest.mark.parametrize(
    ("row", "count"),
    [
        pytest.param(fit(S.QUEUED), 0, id="never rung"),
        pytest.param(fit(S.QUEUED, rung_at=at(seconds=-60)), 0, id="rung a minute ago"),
        pytest.param(fit(S.QUEUED, rung_at=at(seconds=-60, microseconds=1)), 1, id="rung less than a minute ago"),
        pytest.param(fit(S.QUEUED, rung_at=NOW, kind="another"), 0, id="another kind"),
    ],
)
def test_outstanding_rings_are_those_of_the_last_minute(store: SqlStore, row: Columns, count: int) -> None:
    stand(store, row)
    assert store.count_outstanding_rings("kind0") == count


def test_a_ring_of_a_missing_slot_claims_nothing(store: SqlStore) -> None:
    (number,) = stand(store, fit(S.QUEUED))
    ring = ring_for(only(store, number))
    before = everything(store)
    assert store.claim([replace(ring, slot=SlotId(number + 1))], "bob") == []
    assert everything(store) == before


def test_a_ring_that_names_the_wrong_owner_claims_nothing(store: SqlStore) -> None:
    (number,) = stand(store, fit(S.QUEUED))
    (strange,) = stand(store, fit(S.QUEUED), name="other")
    before = everything(store)
    assert store.claim([replace(ring_for(only(store, number)), slot=SlotId(strange))], "bob") == []
    assert everything(store) == before
