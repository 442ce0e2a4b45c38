"""The store and a simple reference model agree after any sequence of operations."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.slot import BuildResult, Fault, Progress, Ring, Ticket
from holdfast.engine.states import Operation
from holdfast.engine.store.base import Completion, Failure, LeaseRenewal, Release
from holdfast.errors import StaleLease
from tests.support.clock import START, FakeClock
from tests.support.reference_model import LEASE, Model, ModelSlot
from tests.support.stores import open_test_store, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.store.sql_store import SqlStore

NAMES = ("a", "b")
KINDS: dict[str, str | None] = {"content": None, "vector": "content", "cards": "vector"}
WISHES = (("content",), ("content", "vector"), ("content", "vector", "cards"), ())


class Silent:
    """A scheduler without room for rings, so that only the writes of the reconciler itself take effect."""

    needs_rings = True

    def start(self, crew: object) -> None: ...

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002
        return 0

    def carry(self, rings: object) -> None: ...

    def stop(self) -> None: ...


class Machine(RuleBasedStateMachine):
    """Runs each operation on a store and on the model, and compares the two."""

    store: SqlStore
    clock: FakeClock
    tickets = Bundle("tickets")

    @initialize()
    def empty(self) -> None:
        with self.store.database.engine.begin() as connection:
            for table in ("slots", "owners", "jobs", "events", "duplicates", "pauses"):
                connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608 - names from the line above
        self.model = Model()
        self.began = self.clock.now()
        self.jobs: dict[int, str] = {}

    @rule(
        name=st.sampled_from(NAMES),
        operation=st.sampled_from(list(Operation)),
        kinds=st.sampled_from(WISHES),
        content=st.sampled_from(["x", "y"]),
    )
    def ask(self, name: str, operation: Operation, kinds: tuple[str, ...], content: str) -> None:
        if operation in (Operation.RENEW, Operation.DROP) and not kinds:
            return
        dropped = kinds[-1:] if content == "x" else kinds
        named = {Operation.RENEW: kinds[-1:], Operation.DROP: dropped}.get(operation, ())
        wishes = {kind: KINDS[kind] for kind in kinds} if operation is not Operation.DROP else {}
        fingerprint = content if operation is Operation.CHANGE else None
        specs = tuple(SlotSpec(kind, needs) for kind, needs in wishes.items())
        before = self.model.jobs
        expected = self.model.ask(name, operation, wishes, fingerprint, set(named))
        (answer,) = self.store.admit([request(name, operation, slots=specs, kinds=named, fingerprint=fingerprint)])
        assert answer.verdict == expected
        if self.model.jobs > before:
            assert answer.job is not None
            self.jobs[self.model.jobs] = answer.job if operation is not Operation.CANCEL else self.removing(name)

    def removing(self, name: str) -> str:
        """Return the job that continues a drop after the job that had taken it over was cancelled."""
        return next(slot.job for slot in self.store.owner("shelf", name).slots if slot.state == "deleting")

    @rule(name=st.sampled_from(NAMES), kinds=st.sampled_from(WISHES[:3]))
    def ask_to_index(self, name: str, kinds: tuple[str, ...]) -> None:
        self.ask(name, Operation.INDEX, kinds, "x")

    @rule(target=tickets, name=st.sampled_from(NAMES))
    def claim_what_can_be_claimed(self, name: str) -> Any:
        owner = self.model.owners.get(name)
        kinds = list(owner.slots) if owner else []
        found = [ticket for kind in kinds for ticket in self.claimed(name, kind, late=False)]
        return multiple(*found)

    @rule(target=tickets, ticket=tickets)
    def take_over(self, ticket: Ticket) -> Any:
        """Let the lease expire and claim the slot again. The old ticket is then stale."""
        if self.standing(ticket) is None:
            return multiple()
        self.pass_time(LEASE + 10)
        return multiple(*self.claimed(ticket.key.owner, ticket.key.kind, late=False))

    @rule(target=tickets, name=st.sampled_from(NAMES), kind=st.sampled_from(list(KINDS)), late=st.booleans())
    def claim(self, name: str, kind: str, late: bool) -> Any:
        return multiple(*self.claimed(name, kind, late=late))

    def claimed(self, name: str, kind: str, *, late: bool) -> list[Ticket]:
        slot = self.model_slot(name, kind)
        if slot is None:
            return []
        row = self.store.slot("shelf", name, kind)
        generation = slot.wanted - 1 if late else slot.wanted
        ring = Ring(slot=row.id, owner=row.owner_id, key=row.key, generation=generation)
        tickets = self.store.claim([ring], "worker")
        assert bool(tickets) == self.model.claim(slot, generation)
        return tickets

    @rule(ticket=tickets)
    def extend(self, ticket: Ticket) -> None:
        beat = LeaseRenewal(ticket=ticket, progress=Progress(), progressed=False)
        self.write(ticket, lambda: self.store.extend([beat]), self.model.extend)

    @rule(ticket=tickets, missing=st.sampled_from([0, 0, 1]))
    def complete(self, ticket: Ticket, missing: int) -> None:
        if ticket.removing:
            return
        done = Completion(ticket=ticket, built=BuildResult(missing=missing))
        owner = self.model.owners.get(ticket.key.owner)
        self.write(
            ticket,
            lambda: self.store.complete([done]),
            lambda slot: self.model.complete(owner, slot, missing),  # type: ignore[arg-type]
        )

    @rule(ticket=tickets, delay=st.sampled_from([None, 30, 300]))
    def fail(self, ticket: Ticket, delay: int | None) -> None:
        if ticket.removing and delay is None:
            return
        later = None if delay is None else timedelta(seconds=delay)
        failure = Failure(ticket=ticket, fault=Fault("test"), delay=later)
        owner = self.model.owners.get(ticket.key.owner)
        self.write(ticket, lambda: self.store.fail([failure]), lambda slot: self.model.fail(owner, slot, delay))  # type: ignore[arg-type]

    @rule(ticket=tickets)
    def forget(self, ticket: Ticket) -> None:
        if ticket.removing:
            key = ticket.key
            self.write(ticket, lambda: self.store.forget([ticket]), lambda _: self.model.forget(key.owner, key.kind))

    @rule(ticket=tickets, refund=st.booleans())
    def release(self, ticket: Ticket, refund: bool) -> None:
        slot = self.standing(ticket)
        frees = slot is not None and slot.fence == ticket.fence and slot.until is not None
        self.attempt(frees, lambda: self.store.release([Release(ticket=ticket, refund=refund)]))
        if frees:
            assert slot is not None
            self.model.release(slot, refund=refund)

    @rule(seconds=st.sampled_from([1, 60, 130, 700, 3000, 30000]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.model.now += seconds

    @rule(base=st.sampled_from([None, "shelf"]), stop=st.booleans())
    def pause(self, base: str | None, stop: bool) -> None:
        new = self.model.pause(base or "")
        assert self.store.pause(base, stop=stop) or not new
        assert {one.base for one in self.store.pauses()} == self.model.pauses

    @rule(base=st.sampled_from([None, "shelf"]))
    def resume(self, base: str | None) -> None:
        assert self.store.resume(base) == self.model.resume(base or "")

    @rule()
    def resume_all(self) -> None:
        for base in (None, "shelf"):
            self.resume(base)

    @rule(data=st.data())
    def cancel_job(self, data: st.DataObject) -> None:
        if self.jobs:
            number = data.draw(st.sampled_from(sorted(self.jobs)))
            owner, before = self.store.job(self.jobs[number]).owner, self.model.jobs
            (answer,) = self.store.cancel_jobs([self.jobs[number]])
            assert answer.verdict == self.model.cancel(number)
            if self.model.jobs > before:
                self.jobs[self.model.jobs] = self.removing(owner)

    @rule(data=st.data(), priority=st.sampled_from([1, 5]))
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        if self.jobs:
            number = data.draw(st.sampled_from(sorted(self.jobs)))
            (answer,) = self.store.reprioritise([self.jobs[number]], priority)
            assert answer.verdict == self.model.rank(number, priority)

    @rule()
    def tend(self) -> None:
        Reconciler(self.store, Silent(), tuple(KINDS), self.store.rules, clock=self.clock).reconcile()
        self.model.tend()

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        for name in NAMES:
            expected = self.model.owners.get(name)
            if expected is None:
                continue
            owner = self.store.owner("shelf", name)
            assert owner.status == expected.status
            told = {
                slot.key.kind: (
                    slot.state,
                    slot.wanted,
                    slot.built,
                    slot.fence,
                    slot.attempts,
                    slot.priority,
                    self.seconds(slot.until),
                )
                for slot in owner.slots
            }
            assert told == {
                slot.kind: (slot.state, slot.wanted, slot.built, slot.fence, slot.attempts, slot.priority, slot.until)
                for slot in expected.slots.values()
            }
        for number, outcome in self.model.outcomes.items():
            assert self.store.job(self.jobs[number]).outcome == outcome
        with self.store.database.reading() as tx:
            rows = tx.connection.execute(text("SELECT count(*) FROM owners")).scalar()
        assert rows == len(self.model.owners)

    def seconds(self, moment: int | None) -> int | None:
        return None if moment is None else (moment - self.began) // 1_000_000

    def model_slot(self, name: str, kind: str) -> ModelSlot | None:
        owner = self.model.owners.get(name)
        return owner.slots.get(kind) if owner else None

    def standing(self, ticket: Ticket) -> ModelSlot | None:
        """Return the model slot of a ticket, or None if the slot was deleted, or replaced by one of the same name."""
        slot = self.model_slot(ticket.key.owner, ticket.key.kind)
        if slot is None or self.store.slot("shelf", ticket.key.owner, ticket.key.kind).id != ticket.slot:
            return None
        return slot

    def write(self, ticket: Ticket, verb: Callable[[], None], follow: Callable[[ModelSlot], None]) -> None:
        slot = self.standing(ticket)
        holds = self.model.holds(slot, ticket.generation, ticket.fence, removing=ticket.removing)
        self.attempt(holds, verb)
        if holds:
            assert slot is not None
            follow(slot)

    def attempt(self, holds: bool, verb: Callable[[], None]) -> None:
        refused = sum(self.store.counters().values())
        if holds:
            verb()
        else:
            with pytest.raises(StaleLease):
                verb()
        assert sum(self.store.counters().values()) == refused + (not holds)


def drive(url: str, examples: int) -> None:
    clock = FakeClock()
    store = open_test_store(url, clock)
    machine = type("DrivenMachine", (Machine,), {"store": store, "clock": clock})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                derandomize=True,
                database=None,
            ),
        )
    finally:
        store.close()
    assert clock.now() > START, "the machine never ran"


@pytest.mark.parametrize("examples", [40, pytest.param(200, marks=pytest.mark.proof)])
def test_the_store_agrees_with_the_model_on_sqlite(examples: int) -> None:
    drive("sqlite://", examples)


@pytest.mark.postgres
@pytest.mark.parametrize("examples", [10, pytest.param(50, marks=pytest.mark.proof)])
def test_the_store_agrees_with_the_model_on_postgres(postgres_url: str, examples: int) -> None:
    drive(postgres_url, examples)
