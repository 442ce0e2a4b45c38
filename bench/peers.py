"""What the job queues that people already run achieve on this machine, so that our own rate has a scale.

A rate counts no-op jobs from end to end: one client enqueues them one by one while one worker process runs
them, and the clock stops when the state of the last job is recorded. Durability is not equal among the
peers, so each result says what its peer keeps.
"""

import contextlib
import importlib
import importlib.metadata
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.support.servers import Child, Postgres, Valkey, log_tail

CAP_SECONDS = 60.0
POLL_SECONDS = 0.01  # counting more often slows the peers that share their database with us
WARM_UP_JOBS = 10
REPOSITORY = Path(__file__).parent.parent
# Imports the module by its name instead of running it, since Huey names a task after its module.
WORK = "import importlib, sys; importlib.import_module(sys.argv[1]).work(sys.argv[2])"


class Client(Protocol):
    """What each `bench/peer_*.py` offers, beside a function `work(url)` that is the worker."""

    @property
    def durability(self) -> str: ...

    def enqueue(self) -> None: ...

    def finished(self) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer: `package` names the distribution and, after `peer_`, our module for it."""

    name: str
    package: str
    jobs: int
    server: Callable[[Path], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """A rate, or the reason in `skipped` why there is none."""

    name: str
    version: str
    jobs: int
    seconds: float
    rate: float
    durability: str
    capped: bool
    skipped: str | None


class PeerError(RuntimeError):
    """A peer's worker does not do its work."""


@contextlib.contextmanager
def valkey(directory: Path) -> Iterator[str]:
    with Valkey(directory) as server:
        yield server.url


@contextlib.contextmanager
def postgres(directory: Path) -> Iterator[str]:
    with Postgres(directory, durable=True) as server:
        yield server.dsn


@contextlib.contextmanager
def sqlite(directory: Path) -> Iterator[str]:
    yield f"sqlite:///{directory / 'peer.sqlite'}"


PEERS = (
    Peer(name="Celery on Valkey", package="celery", jobs=4000, server=valkey),
    Peer(name="Huey on SQLite", package="huey", jobs=6000, server=sqlite),
    Peer(name="Procrastinate on PostgreSQL", package="procrastinate", jobs=3000, server=postgres),
    Peer(name="DBOS on SQLite", package="dbos", jobs=1200, server=sqlite),
)


def measure(peer: Peer) -> PeerResult:
    try:
        with tempfile.TemporaryDirectory(prefix="peer-") as directory:
            return _measure(peer, Path(directory))
    except Exception as error:  # noqa: BLE001 - whatever stops a peer is its result, not our failure
        return PeerResult(
            name=peer.name,
            version=version(peer),
            jobs=0,
            seconds=0.0,
            rate=0.0,
            durability="",
            capped=False,
            skipped=f"{type(error).__name__}: {error}",
        )


def _measure(peer: Peer, directory: Path) -> PeerResult:
    module: Any = importlib.import_module(module_name(peer))
    with peer.server(directory) as url, contextlib.closing(module.Client(url)) as client:
        with worker(peer, url, directory) as running:
            warm_up(client, running)
            done, seconds = run(client, peer.jobs, running)
        return PeerResult(
            name=peer.name,
            version=version(peer),
            jobs=done,
            seconds=round(seconds, 3),
            rate=round(done / seconds, 1),
            durability=client.durability,
            capped=done < peer.jobs,
            skipped=None,
        )


@contextlib.contextmanager
def worker(peer: Peer, url: str, directory: Path) -> Iterator[Callable[[], None]]:
    """Run the worker of a peer; what is yielded raises once the worker is no longer there."""
    log = directory / "worker.log"
    child = Child([sys.executable, "-c", WORK, module_name(peer), url], log=log, cwd=REPOSITORY)

    def running() -> None:
        if not child.alive:
            raise PeerError(f"the worker ended; the end of its log:\n{log_tail(log)}")

    try:
        yield running
    finally:
        child.end(signal.SIGTERM)


def warm_up(client: Client, running: Callable[[], None]) -> None:
    """Return when the worker has done its first jobs."""
    done, seconds = run(client, WARM_UP_JOBS, running)
    if done < WARM_UP_JOBS:
        raise PeerError(f"the worker finished {done} of {WARM_UP_JOBS} jobs in {seconds:.0f} s")


def run(client: Client, jobs: int, running: Callable[[], None]) -> tuple[int, float]:
    """Enqueue the jobs and return how many were finished, all or those within the cap, after how long."""
    before = client.finished()
    start = time.perf_counter()
    deadline = start + CAP_SECONDS
    for _ in range(jobs):
        client.enqueue()
        if time.perf_counter() > deadline:
            break
    while (done := client.finished() - before) < jobs and time.perf_counter() < deadline:
        running()
        time.sleep(POLL_SECONDS)
    return done, time.perf_counter() - start


def module_name(peer: Peer) -> str:
    return f"bench.peer_{peer.package}"


def version(peer: Peer) -> str:
    try:
        return importlib.metadata.version(peer.package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
