"""Simulated processes run production code on greenlets. They stop, and may be killed, at every named point."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from holdfast.engine.executor import Executor
from holdfast.engine.reconciler import Reconciler
from holdfast.errors import StaleLease, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.slot import Ticket
    from tests.simulation.broker import Message
    from tests.simulation.world import World

RING_BATCH = 4  # slots that a worker claims at once after a ring
WRITES = frozenset(
    {"claim", "claim_next", "extend", "complete", "fail", "release", "forget", "ring", "expire", "give_up"}
)


class ProcessDied(BaseException):
    """Simulates SIGKILL: no further code of this process runs."""


class ProcessStore:
    """The production store as one process sees it. It fails if the process is dead or a fault makes it unreachable.

    The checker verifies every write.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, verb: str) -> Any:
        def call(*args: Any, **kw: Any) -> Any:
            if not self._process.alive:
                raise ProcessDied
            if verb not in WRITES:
                return getattr(self._process.world.store, verb)(*args, **kw)
            return self._write(verb, args)

        return call

    @contextmanager
    def guarded(self, ticket: Ticket) -> Iterator[Any]:
        """Let the checker verify the guard around a worker's own rows, too."""
        world = self._process.world
        before, opened = world.checker.read(), False
        try:
            with world.store.guarded(ticket) as connection:
                opened = True
                yield connection
        finally:
            world.checker.wrote("guarded", before, [ticket], set() if opened else {ticket.slot})

    def _write(self, verb: str, args: tuple[Any, ...]) -> Any:
        world = self._process.world
        fault = world.store_fault(verb)
        if fault == "store_lost_before":
            raise StoreUnavailable("simulated: the statement never arrived")
        before = world.checker.read()
        answer: Any = None
        stale: StaleLease | None = None
        try:
            answer = getattr(world.store, verb)(*args)
        except StaleLease as error:
            stale = error
        shown, refused = _shown(verb, args, answer, stale)
        world.checker.wrote(verb, before, shown, refused)
        if verb in ("claim", "claim_next"):
            world.checker.claims.update((ticket.slot, ticket.generation) for ticket in answer)
        if fault == "store_lost_after":
            raise StoreUnavailable("simulated: the commit was kept, its answer lost")
        if stale is not None:
            raise stale
        return answer


def _shown(verb: str, args: tuple[Any, ...], answer: Any, stale: StaleLease | None) -> tuple[list[Any], set[int]]:
    """Return the tickets, rings or slots that a write was called with, and the ids of those that it refused."""
    refused: set[int] = {ticket.slot for ticket in stale.tickets} if stale else set()
    if verb == "claim":
        return list(args[0]), {ring.slot for ring in args[0]} - {ticket.slot for ticket in answer}
    if verb == "claim_next":
        return list(answer), set()
    if verb == "ring":
        return list(args[0]), {slot.id for slot in args[0]} - {ring.slot for ring in answer}
    if verb == "expire":
        return [slot for slot, _ in args[0]], {slot.id for slot, _ in args[0]} - {slot.id for slot in answer}
    if verb == "give_up":
        return list(args[0]), {slot.id for slot in args[0]} - {slot.id for slot in answer}
    return [getattr(one, "ticket", one) for one in args[0]], refused


class Process:
    """One process with one thread of work. The thread runs until its next named point."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.holder = name
        self.alive = True
        self.paused = 0
        self.message: Message | None = None
        self.store: Any = ProcessStore(self)
        self._main = getcurrent()
        self._thread: greenlet | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def reach(self, _point: str) -> None:
        """Stop here. The scheduler decides when, and whether, the process continues."""
        if getcurrent() is not self._main:
            self._main.switch()

    def start(self, work: Callable[[], None]) -> None:
        """Start a piece of work and run it to its first point."""
        self._thread = greenlet(work)
        self.step()

    def step(self) -> None:
        """Run to the next point."""
        assert self._thread is not None
        try:
            self._thread.switch()
        except StoreUnavailable:
            self._end()
            return
        if self._thread.dead:
            self._end()

    def kill(self) -> None:
        """Simulate SIGKILL at the current point."""
        self.alive = False
        if self._thread is not None:
            with suppress(ProcessDied):
                self._thread.throw(ProcessDied)
            assert self._thread.dead, "a killed process went on"
            self._thread = None

    def _end(self) -> None:
        self._thread = None


class Worker(Process):
    """A worker process with an executor. It runs delivered rings or claims work itself."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.executor = Executor(
            self.store,
            world.indexers,
            holder=name,
            clock=world.clock,
            rules=world.rules,
            chance=world.rng.random,
            reach=self.reach,
        )

    def answer(self, message: Message) -> None:
        """Run a delivered ring. The worker acknowledges it when the executor returns."""
        self.message = message

        def work() -> None:
            self.executor.answer(message.ring, (), RING_BATCH)
            self.world.check_acknowledgement(self)
            self.world.broker.acknowledge(message)

        self.start(work)

    def pull(self, limit: int) -> None:
        """Claim work in the database without a ring."""
        self.start(lambda: self._ignore(self.executor.run_next(limit)))

    def beat(self) -> None:
        """Run the heartbeat once."""
        self.executor.heartbeat.beat()

    def _end(self) -> None:
        super()._end()
        if self.message is not None:
            self.world.broker.returned(self.message)
            self.message = None

    def _ignore(self, _count: int) -> None:
        return


class Tender(Process):
    """A process that runs a reconciler."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.reconciler = Reconciler(
            self.store,
            world.broker,
            tuple(world.indexers),
            world.rules,
            clock=world.clock,
            dead=world.known_dead.__contains__,
            reach=self.reach,
        )

    def tend(self) -> None:
        """Start one pass of the reconciler."""

        def work() -> None:
            self.reconciler.reconcile()

        self.start(work)
