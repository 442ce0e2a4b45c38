"""One simulated run: a seed decides everything that happens, and the checker runs after every step."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import RetryPolicy, Rules
from holdfast.engine.states import Operation
from holdfast.engine.store.factory import open_store
from tests.simulation.broker import Broker
from tests.simulation.checker import Checker, Violation
from tests.simulation.indexers import TABLES, Content, Rows
from tests.simulation.process import Process, Tender, Worker
from tests.support.clock import FakeClock

if TYPE_CHECKING:
    from holdfast.engine.admission import AdmissionResult
    from holdfast.engine.slot import OwnerId, Ticket
    from holdfast.engine.store.sql_store import SqlStore

STEPS = 100
OWNERS = ("alpha", "beta", "gamma")
WISHES = (
    (SlotSpec("content"),),
    (SlotSpec("content"), SlotSpec("vector", "content")),
    (SlotSpec("content"), SlotSpec("vector", "content"), SlotSpec("cards", "vector")),
    (SlotSpec("content"), SlotSpec("vector", "content"), SlotSpec("cards", "content")),  # cards with another need
)
SECONDS = (0.5, 5, 20, 40, 130, 700, 3000)


class Stage:
    """The database in memory and its clock. Both are created once, and the database is emptied before every run."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.numbers = itertools.count(1)
        self.store: SqlStore = open_store(
            "sqlite://", rules=Rules(), clock=self.clock, ids=lambda: f"job-{next(self.numbers)}"
        )
        raw = self.store.database.engine.raw_connection().driver_connection
        assert raw is not None
        self.sql: Any = raw
        for table in TABLES:
            self.sql.execute(table)

    def clear(self) -> None:
        tables = (
            "sim_manifest", "sim_rows", "slots", "owners", "jobs", "events", "duplicates", "pauses", "sqlite_sequence",
        )  # fmt: skip
        self.sql.execute("BEGIN IMMEDIATE")
        for table in tables:
            self.sql.execute(f"DELETE FROM {table}")  # noqa: S608 - the names are the constants above
        self.sql.execute("UPDATE counters SET value = 0")
        self.sql.execute("COMMIT")


class World:
    """The complete state of one run."""

    def __init__(self, seed: int, stage: Stage) -> None:
        stage.clear()
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.clock = stage.clock
        self.store = stage.store
        self.sql = stage.sql
        self.faulty = seed % 10 != 0  # every tenth run has no faults, and there each text is paid exactly once
        self.weather = rng.choice([1, 1, 4])  # a third of the runs have four times as many faults
        self.faults: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        self.rules = self.store.rules = Rules(
            lease=timedelta(seconds=120),
            heartbeat=timedelta(seconds=30),
            stall=timedelta(seconds=rng.choice([60, 300, 2700]) if self.faulty else 2700),
            overtaken_after=timedelta(seconds=rng.choice([3, 15, 600])),
            deadline=timedelta(seconds=rng.choice([600, 21600])),
            retry=RetryPolicy(max_attempts=rng.choice([1, 2, 4]) if self.faulty else 4),
        )
        self.texts: dict[tuple[OwnerId, int], list[str]] = {}
        self.known_dead: set[str] = set()
        self.offset = self.furthest = 0  # error of the wall clock in days, and its maximum so far
        self.broker = Broker(self)
        self.indexers: Any = {"content": Content(self), "vector": Rows(self), "cards": Rows(self)}
        self.names = itertools.count(1)
        self.processes: list[Process] = [Worker(self, self._name()) for _ in range(rng.choice([1, 2, 3]))]
        self.processes += [Tender(self, self._name()) for _ in range(rng.choice([1, 2]))]
        self.checker = Checker(self)

    def run(self) -> int:
        """Run the seed and return the number of steps. Raise `Violation` if a guarantee is violated."""
        try:
            for _ in range(STEPS):
                self._happen()
                self.checker.check()
            return STEPS + self._drain()
        finally:
            for process in self.processes:
                process.kill()

    def happens(self, fault: str, chance: float) -> bool:
        if not self.faulty or self.rng.random() >= chance * self.weather:
            return False
        self.faults[fault] += 1
        return True

    def store_fault(self, _verb: str) -> str | None:
        for fault in ("store_lost_before", "store_lost_after"):
            if self.happens(fault, 0.01):
                return fault
        return None

    def pay(self, ticket: Ticket, text: str) -> None:
        self.checker.paid(ticket, text)

    def manifest(self, owner: OwnerId, source: int | None) -> list[str]:
        return [
            row[0]
            for row in self.sql.execute(
                "SELECT text FROM sim_manifest JOIN slots ON slots.id = slot"
                " WHERE owner_id = ? AND kind = 'content' AND build = ? ORDER BY ordinal",
                (owner, source),
            )
        ]

    def check_acknowledgement(self, worker: Worker) -> None:
        self.checker.acknowledged(worker.holder)

    def _happen(self) -> None:
        calm = [(self._request, 10), (self._work, 60), (self._deliver, 14), (self._tend, 10), (self._pass_time, 8)]
        wild = [
            (self._crash, 2), (self._pause, 2), (self._flush, 1), (self._redeliver, 2), (self._jump, 0.5),
            (self._terminate, 1), (self._fewer_attempts, 0.3), (self._orphan, 1), (self._rewire, 0.5),
            (self._control, 2), (self._resume, 2),
        ]  # fmt: skip
        choices = calm + (wild if self.faulty else [])
        action = self.rng.choices([one for one, _ in choices], [weight for _, weight in choices])[0]
        action()

    def _request(self) -> None:
        rng = self.rng
        operation = rng.choices(list(Operation), [10, 2, 3, 3, 4, 8, 2, 4, 3])[0]
        slots = rng.choice((*WISHES, WISHES[-1], ()))
        if operation is Operation.RENEW:
            slots = slots or WISHES[0]
        if operation is Operation.DELETE:
            slots = ()  # with slots, a delete creates an unknown owner, as the deletion of a base does
        kinds = {
            Operation.RENEW: tuple(spec.kind for spec in slots[-1:]),
            Operation.DROP: rng.choice([("cards",), ("vector",), ("vector", "cards"), ("content",)]),
        }.get(operation, ())
        request = Request(
            base="shelf",
            owner=rng.choice(OWNERS),
            operation=operation,
            slots=slots,
            kinds=kinds,
            fingerprint=f"text-{rng.randrange(4)}" if operation is Operation.CHANGE else None,
            priority=rng.choice([1, 5]),
            cost=1.0,
        )
        self._ask(request, clicks=rng.choice([1, 1, 2, 3]))

    def _ask(self, request: Request, clicks: int = 1) -> None:
        before = self.checker.situation(request)
        answers = [self.store.admit([request])[0]] if clicks == 1 else self.store.admit([request] * clicks)
        self.checker.answered(request, before, answers)
        for answer in answers:
            self.rows[f"{answer.verdict}:{answer.reason}"] += 1
            self._remember(request, answer)

    def _remember(self, request: Request, answer: AdmissionResult) -> None:
        """Record the text of each generation of an owner."""
        if not answer.accepted or request.operation is Operation.CANCEL:
            return
        owner, fingerprint = self.sql.execute(
            "SELECT id, fingerprint FROM owners WHERE base = ? AND owner = ?", (request.base, request.owner)
        ).fetchone()
        assert answer.generation is not None
        name = fingerprint or "text-none"
        self.texts[owner, answer.generation] = [f"{name}/{number}" for number in range(len(name) % 2 + 2)]

    def _runnable(self, kind: type[Process]) -> list[Any]:
        return [one for one in self.processes if isinstance(one, kind) and not one.paused]

    def _work(self) -> None:
        busy = [one for one in self._runnable(Process) if one.busy]
        if busy:
            self.rng.choice(busy).step()
            return
        self._deliver()

    def _deliver(self) -> None:
        idle = [one for one in self._runnable(Worker) if not one.busy]
        if not idle:
            return
        worker = self.rng.choice(idle)
        if self.broker.queue and self.rng.random() < 0.7:
            worker.answer(self.broker.deliver())
        elif self.rng.random() < 0.5:
            worker.pull(self.rng.choice([1, 3]))

    def _tend(self) -> None:
        idle = [one for one in self._runnable(Tender) if not one.busy]
        if not idle:
            return
        tender = self.rng.choice(idle)
        undisturbed = self.rng.random() < 0.3
        faults = self.faults.total()
        tender.tend()
        while undisturbed and tender.busy:
            tender.step()
        if undisturbed and self.faults.total() == faults:
            self.checker.tended()

    def _pass_time(self) -> None:
        seconds = self.rng.choice(SECONDS if self.faulty else SECONDS[:4])
        beats = self.rng.random() < 0.85 or not self.faulty
        if not beats:
            self.faults["heartbeat_missed"] += 1
        while seconds > 0:
            step = min(seconds, 30)
            self.clock.advance(timedelta(seconds=step))
            seconds -= step
            if beats:
                for worker in self._runnable(Worker):
                    worker.beat()
        for process in self.processes:
            process.paused = max(0, process.paused - 1)

    def _crash(self) -> None:
        victim = self.rng.choice(self.processes)
        self.faults["crash"] += 1
        self._replace(victim)

    def _replace(self, victim: Process) -> None:
        victim.kill()
        if isinstance(victim, Worker) and victim.message is not None:
            if self.happens("message_lost", 0.3):
                self.broker.unacknowledged = [one for one in self.broker.unacknowledged if one is not victim.message]
            else:
                self.broker.returned(victim.message)
        if self.rng.random() < 0.5:
            self.faults["death_seen"] += 1
            self.known_dead.add(victim.holder)
        index = self.processes.index(victim)
        self.processes[index] = type(victim)(self, self._name())

    def _orphan(self) -> None:
        """Kill a worker that holds a slot whose content has just changed."""
        for row in self.checker.read().values():
            holder = next((one for one in self.processes if one.holder == row.holder), None)
            if row.state == "running" and row.needs and holder is not None:
                self._ask(self._for_owner(row.owner_id, Operation.CHANGE, fingerprint=f"text-{self.rng.randrange(4)}"))
                self._replace(holder)
                self.faults["orphan"] += 1
                return

    def _rewire(self) -> None:
        """Change the need of a kind while the slot that it needed is stuck."""
        for row in self.checker.read().values():
            if row.state == "running" and row.kind == "vector":
                self.clock.advance(self.rules.stall)
                self._ask(self._for_owner(row.owner_id, Operation.INDEX, slots=WISHES[-1]))
                self.faults["rewire"] += 1
                return

    def _for_owner(self, owner: int, operation: Operation, **more: Any) -> Request:
        base, name = self.sql.execute("SELECT base, owner FROM owners WHERE id = ?", (owner,)).fetchone()
        return Request(base=base, owner=name, operation=operation, **more)

    def _pause(self) -> None:
        busy = [one for one in self._runnable(Process) if one.busy]
        if busy:
            self.rng.choice(busy).paused = self.rng.choice([1, 2, 3])
            self.faults["pause"] += 1

    def _flush(self) -> None:
        self.broker.flush()
        self.faults["flush"] += 1

    def _redeliver(self) -> None:
        if self.broker.unacknowledged:
            self.broker.redeliver()
            self.faults["redelivery"] += 1

    def _jump(self) -> None:
        days = self.rng.choice([-1, 1])
        self.clock.jump(timedelta(days=days))
        self.offset += days
        self.furthest = max(self.furthest, self.offset)
        self.faults["clock_jump"] += 1

    def _terminate(self) -> None:
        """Simulate SIGTERM: the worker releases its slots and ends."""
        workers = [one for one in self._runnable(Worker) if one.busy]
        if workers:
            worker = self.rng.choice(workers)
            worker.executor.stop()
            self.faults["sigterm"] += 1
            _finish(worker)
            self._replace(worker)

    def _control(self) -> None:
        """Simulate a user who pauses the queue, cancels a job or changes its priority."""
        what = self.rng.choice(["queue_paused", "queue_stopped", "reprioritised", "job_cancelled"])
        jobs = [job for (job,) in self.sql.execute("SELECT id FROM jobs ORDER BY id")]
        if what.startswith("queue"):
            self.store.pause(self.rng.choice([None, "shelf"]), stop=what == "queue_stopped")
        elif not jobs:
            return
        elif what == "reprioritised":
            self.store.reprioritise([self.rng.choice(jobs)], self.rng.choice([1, 5]))
        else:
            self.checker.cancelled(self.rng.choice(jobs))
        self.faults[what] += 1

    def _resume(self) -> None:
        for pause in self.store.pauses():
            self.store.resume(pause.base or None)
            self.faults["queue_resumed"] += 1

    def _fewer_attempts(self) -> None:
        """Lower the maximum number of attempts while slots wait for their next attempt."""
        rules = self.rules
        if rules.retry.max_attempts > 1:
            self.faults["fewer_attempts"] += 1
            self.change_rules(
                Rules(
                    lease=rules.lease,
                    heartbeat=rules.heartbeat,
                    stall=rules.stall,
                    overtaken_after=rules.overtaken_after,
                    deadline=rules.deadline,
                    retry=RetryPolicy(max_attempts=rules.retry.max_attempts - 1),
                )
            )

    def change_rules(self, rules: Rules) -> None:
        self.rules = self.store.rules = rules
        for process in self.processes:
            if isinstance(process, Worker):
                process.executor._rules = process.executor.heartbeat._rules = rules
            elif isinstance(process, Tender):
                process.reconciler._rules = rules

    def _drain(self) -> int:
        """Stop all faults and check that all work comes to rest in bounded time."""
        self.faulty = False
        self._resume()
        self.clock.jump(timedelta(days=self.furthest - self.offset))  # undo every backward jump
        for process in self.processes:
            process.paused = 0
        retry = self.rules.retry
        bound = self.rules.lease + self.rules.ring_again + 3 * (retry.max_attempts + 1) * (retry.max_delay * 1.2)
        end = self.clock.monotonic() + bound.total_seconds()
        rounds = 0
        while self.clock.monotonic() <= end:
            self._calm_round()
            self.checker.check()
            if self.checker.at_rest():
                self.checker.final()
                return rounds
            self.clock.advance(timedelta(seconds=61))
            rounds += 1
        raise Violation("I21", "faults stopped, but work did not come to rest in time")

    def _calm_round(self) -> None:
        """Let every process finish, then run each reconciler, deliver all messages and let each worker claim once."""
        for process in self.processes:
            _finish(process)
        for tender in self._runnable(Tender):
            tender.tend()
            _finish(tender)
        for worker in self._runnable(Worker):
            while self.broker.queue:
                worker.answer(self.broker.deliver())
                _finish(worker)
            worker.pull(3)
            _finish(worker)

    def _name(self) -> str:
        return f"process-{next(self.names)}"


def _finish(process: Process) -> None:
    while process.busy:
        process.step()
