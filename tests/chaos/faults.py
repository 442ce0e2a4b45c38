"""The kinds of faults, and the thread that lets them occur as the schedule says.

Each fault says whether it really happened: a fault that never fired proves nothing. It also repairs what it broke.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from tests.chaos.clocks import find_library
from tests.chaos.disks import can_mount
from tests.chaos.older_version import start_older_worker
from tests.chaos.processes import Role, ended, send
from tests.chaos.server_faults import SERVER_FAULTS, alone_at
from tests.chaos.system import LEASE_SECONDS
from tests.chaos.waiting import PATIENCE, await_fact
from tests.support import paid_provider as provider
from tests.support.processes import process_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.deployments import OneMachine
    from tests.chaos.disks import Disk
    from tests.chaos.schedule import PlannedFault
    from tests.chaos.system import System

Inject = Callable[["System", random.Random], bool]  # returns whether the fault happened
BUSY_SECONDS = 90.0  # how long a fault waits for a process that another fault is using
PAUSE = LEASE_SECONDS * 1.5
SHORT_OUTAGE = (0.5, 2.5)
CALLS_SPOILT = 3
TRIES = 3

FAULTS: dict[str, Inject] = {}


def fault(kind: str) -> Callable[[Inject], Inject]:
    def register(inject: Inject) -> Inject:
        FAULTS[kind] = inject
        return inject

    return register


@contextmanager
def taken(roles: Sequence[Role], chance: random.Random) -> Iterator[Role | None]:
    """Choose a process that runs and that no other fault is using, and hold it. None: there is none in time."""
    deadline = time.monotonic() + BUSY_SECONDS
    order = chance.sample(list(roles), len(roles))
    while time.monotonic() < deadline:
        for role in order:
            if role.lock.acquire(blocking=False):
                try:
                    if role.alive:
                        yield role
                        return
                    role.kill()  # it ended by itself, and is started again as a service manager does
                    role.start()
                finally:
                    role.lock.release()
        time.sleep(0.1)
    yield None


def _restarted(how: Callable[[Role], object], *kinds: str) -> Inject:
    def inject(system: System, chance: random.Random) -> bool:
        with taken(system.of_kind(*kinds), chance) as role:
            if role is None:
                return False
            pid = role.pid
            how(role)
            fired = ended(pid)
            time.sleep(chance.uniform(0, 1))
            role.start()
            role.await_ready()
            return fired

    return inject


def _paused(*kinds: str) -> Inject:
    """Stop a process past its lease and let it continue."""

    def inject(system: System, chance: random.Random) -> bool:
        with taken(system.of_kind(*kinds), chance) as role:
            if role is None:
                return False
            pid = role.pid
            send(pid, signal.SIGSTOP)
            time.sleep(PAUSE)
            fired = process_state(pid) == "T"
            return send(pid, signal.SIGCONT) and fired

    return inject


def _child(how: Callable[[int], bool], *kinds: str) -> Inject:
    """Do something to one child of a process: a worker of a server, or a process of a pool."""

    def inject(system: System, chance: random.Random) -> bool:
        with taken(system.of_kind(*kinds), chance) as role:
            for _ in range(TRIES):  # a child may end by itself meanwhile
                if role is None or not await_fact(lambda: bool(role.workers())):
                    return False
                if how(chance.choice(role.workers())):
                    return True
            return False

    return inject


def _kill_pid(pid: int) -> bool:
    return send(pid, signal.SIGKILL) and ended(pid)


def _terminate_pid(pid: int) -> bool:
    # A worker ends at its next checkpoint, after a request to a bucket that does not answer.
    return send(pid, signal.SIGTERM) and ended(pid, 3 * PATIENCE)


def _pause_pid(pid: int) -> bool:
    if not send(pid, signal.SIGSTOP):
        return False
    time.sleep(PAUSE)
    fired = process_state(pid) == "T"
    return send(pid, signal.SIGCONT) and fired


FAULTS |= SERVER_FAULTS
FAULTS["older_version"] = lambda system, chance: await_fact(lambda: start_older_worker(system, chance), 2 * PATIENCE)
FAULTS |= {
    "kill_web": _restarted(Role.kill, "web", "serve"),
    "kill_worker": _restarted(Role.kill, "worker"),
    "kill_reconciler": _restarted(Role.kill, "reconcile"),
    "kill_with_children": _restarted(Role.kill_all, "serve", "worker"),
    "kill_child": _child(_kill_pid, "serve", "worker"),
    "terminate_web": _restarted(Role.terminate, "web", "serve"),
    "terminate_worker": _restarted(Role.terminate, "worker"),
    "terminate_reconciler": _restarted(Role.terminate, "reconcile"),
    "terminate_child": _child(_terminate_pid, "serve", "worker"),
    "pause_web": _paused("web", "serve"),
    "pause_worker": _paused("worker"),
    "pause_reconciler": _paused("reconcile"),
    "pause_child": _child(_pause_pid, "serve", "worker"),
}


def _spoilt(*kinds: provider.Fault) -> Inject:
    """Let the next calls of the provider fail, and wait until one did."""

    def inject(system: System, chance: random.Random) -> bool:
        before = system.provider.failed
        system.provider.next(*[chance.choice(kinds) for _ in range(CALLS_SPOILT)])
        fired = await_fact(lambda: system.provider.failed > before)
        system.provider.forget()
        return fired

    return inject


@fault("provider_down")
def provider_down(system: System, chance: random.Random) -> bool:
    before = system.provider.failed
    system.provider.always(provider.DOWN)
    await_fact(lambda: system.provider.failed > before)
    time.sleep(chance.uniform(*SHORT_OUTAGE))
    system.provider.always(None)
    return system.provider.failed > before


@fault("provider_slow")
def provider_slow(system: System, chance: random.Random) -> bool:
    calls = system.provider.bill.calls
    system.provider.stall(chance.uniform(1, LEASE_SECONDS * 1.5))
    fired = await_fact(lambda: system.provider.bill.calls > calls)
    time.sleep(LEASE_SECONDS)
    system.provider.release()
    return fired


RATE_LIMITED = provider.Fault(status=429, code="rate_limit_exceeded", type="requests", retry_after="1")
FAULTS |= {
    "provider_429": _spoilt(RATE_LIMITED),
    "provider_500": _spoilt(provider.BROKEN),
    "provider_garbage": _spoilt(provider.MALFORMED, provider.NOT_JSON, provider.NOT_A_NUMBER, provider.DROPPED),
    "provider_short": _spoilt(provider.SHORT, provider.RAGGED),
    "provider_dimension": _spoilt(provider.WRONG_DIMENSION),
}


@fault("webhook_dead")
@alone_at("receiver")
def webhook_dead(system: System, chance: random.Random) -> bool:
    """Close the receiver of webhooks for a moment, then open it on the same port."""
    system.receiver.__exit__()
    time.sleep(chance.uniform(*SHORT_OUTAGE))
    system.receiver.__enter__()
    return True


@fault("webhook_refuses")
@alone_at("receiver")
def webhook_refuses(system: System, chance: random.Random) -> bool:
    before = len(system.receiver.got)
    system.receiver.answers.extend([(500, {}, b"")] * CALLS_SPOILT)
    fired = await_fact(lambda: len(system.receiver.got) > before)
    system.receiver.answers.clear()
    return fired


@fault("database_disk_full")
@alone_at("database")
def database_disk_full(system: System, chance: random.Random) -> bool:
    fired = system.disk.fill()
    time.sleep(chance.uniform(*SHORT_OUTAGE))
    system.disk.free()
    return fired


@fault("kill_program")
def kill_program(system: System, chance: random.Random) -> bool:
    """Kill a program of a user that uses the library."""
    return await_fact(lambda: bool(system.library_pid) and _kill_pid(system.library_pid))


@fault("clock_jump")
def clock_jump(system: System, chance: random.Random) -> bool:
    """Set the clock of a process forward or back, and right again after a moment."""
    system.clock.jump(chance.choice((-1, 1)) * system.largest_jump)
    fired = await_fact(lambda: abs(system.clock_error()) > system.largest_jump / 2)
    time.sleep(chance.uniform(*SHORT_OUTAGE))
    system.clock.jump(0)
    return fired


def _files_disk(system: System) -> Disk:
    return cast("OneMachine", system).files_disk


@fault("files_disk_full")
@alone_at("files")
def files_disk_full(system: System, chance: random.Random) -> bool:
    fired = _files_disk(system).fill()
    time.sleep(chance.uniform(*SHORT_OUTAGE))
    _files_disk(system).free()
    return fired


@fault("files_read_only")
@alone_at("files")
def files_read_only(system: System, chance: random.Random) -> bool:
    """Remount the disk with the files of documents. That fails while an upload writes a file, so try again."""
    fired = await_fact(_files_disk(system).make_read_only)
    time.sleep(chance.uniform(*SHORT_OUTAGE))
    _files_disk(system).make_writable()
    return fired


ANYWHERE = (
    "kill_web", "kill_with_children", "kill_child", "terminate_web", "terminate_child", "pause_web", "pause_child",
    "provider_down", "provider_slow", "provider_429", "provider_500", "provider_garbage", "provider_short",
    "provider_dimension", "webhook_dead", "webhook_refuses", "database_disk_full", "clock_jump",
    "kill_program", "older_version",
)  # fmt: skip
ROLES = (
    "kill_worker", "kill_reconciler", "terminate_worker", "terminate_reconciler", "pause_worker", "pause_reconciler",
)  # fmt: skip
FILES = ("files_disk_full", "files_read_only")
SERVERS = tuple(kind for kind in SERVER_FAULTS if not kind.startswith("broker_"))
BROKER = tuple(kind for kind in SERVER_FAULTS if kind.startswith("broker_"))
KINDS: Mapping[str, Sequence[str]] = {
    "sqlite": (*ANYWHERE, *FILES),
    "postgres": (*ANYWHERE, *ROLES, *SERVERS),
    "celery-redis": (*ANYWHERE, *ROLES, *SERVERS, *BROKER),
    "celery-rabbitmq": (*ANYWHERE, *ROLES, *SERVERS, *BROKER),
}
NEEDS_MOUNTS = frozenset({"database_disk_full", *FILES})


def kinds_for(deployment: str) -> list[str]:
    """Return the kinds of faults that a deployment can have on this machine."""
    missing = set() if can_mount() else set(NEEDS_MOUNTS)
    if find_library() is None:
        missing.add("clock_jump")
    return [kind for kind in KINDS[deployment] if kind not in missing]


class Nemesis:
    """Lets the faults of a schedule occur, each in its own thread, and records them."""

    def __init__(self, system: System, planned: Sequence[PlannedFault]) -> None:
        self._system = system
        self._planned = planned
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._main = threading.Thread(target=self._run, name="nemesis", daemon=True)
        self.crashes: list[BaseException] = []

    def start(self) -> None:
        self._main.start()

    def stop(self) -> None:
        """Let no more faults begin, and wait until the others are repaired."""
        self._stop.set()
        for thread in (self._main, *self._threads):
            thread.join()
        if self.crashes:
            raise self.crashes[0]

    def _run(self) -> None:
        began = time.monotonic()
        for planned in self._planned:
            if self._stop.wait(max(0.0, began + planned.at - time.monotonic())):
                return
            thread = threading.Thread(target=self._inject, args=(planned,), name=planned.kind, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _inject(self, planned: PlannedFault) -> None:
        history = self._system.history
        begin = history.now
        try:
            fired = FAULTS[planned.kind](self._system, random.Random(planned.choice))
        except BaseException as error:  # noqa: BLE001 - `stop` raises it
            self.crashes.append(error)
            fired = False
        history.write("fault", kind=planned.kind, begin=begin, end=history.now, fired=fired)
