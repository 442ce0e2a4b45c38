"""An indexer for workers under test that writes rows, and named points at which a test can inject faults.

Tests observe a worker from outside: its rows and events in the database, and its points in a journal file.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text

from holdfast.clock import SystemClock
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import SlotState
from holdfast.engine.worker import WorkerParts
from holdfast.errors import Transient
from holdfast.wiring import configure_logging, open_configured_store, open_work_notifier

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.slot import Slot
    from holdfast.engine.store.base import Store
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from holdfast.settings import Settings

KINDS = ("content", "vector", "graph", "cards")
ROWS = 3  # rows of each build
PAUSE_SECONDS = 0.005  # between two checks of a build that is held
WHOLE = list(range(ROWS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The action at a named point: the n-th time it is reached, or every time if `nth` is 0."""

    point: str
    action: str  # kill or stop this process, fail the attempt, or meet: wait until the test opens the gate
    nth: int = 1


class Points:
    """The named points of one process. Each time one is reached, the journal gets a line: process id and point."""

    def __init__(self, folder: Path, faults: tuple[Fault, ...]) -> None:
        self.still = threading.Lock()  # threads other than the main thread hold it while they use the database
        self._folder = folder
        self._faults = faults
        self._passed: dict[str, int] = {}

    def reach(self, point: str) -> None:
        self._passed[point] = count = self._passed.get(point, 0) + 1
        note(self._folder, point)
        for fault in self._faults:
            if fault.point == point and fault.nth in (0, count):
                self._suffer(fault)

    def held(self, owner: str) -> bool:
        """Return whether the test wants the build of this owner to continue without end, with checkpoints."""
        return (self._folder / f"hold {owner}").exists()

    def _suffer(self, fault: Fault) -> None:
        if fault.action == "meet":
            (self._folder / fault.point).read_bytes()  # blocks until the test opens the other end
        elif fault.action == "fail":
            raise Transient("away", "It is away.")
        elif fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            # A process stopped inside a transaction would keep its locks, which is not what these tests examine.
            with self.still:
                os.kill(os.getpid(), signal.SIGSTOP)


class StillStore:
    """A store that can keep all threads but the main one away from the database."""

    def __init__(self, store: Store, still: threading.Lock) -> None:
        self._store = store
        self._still = still

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if threading.current_thread() is threading.main_thread():
            return verb

        def quietly(*args: Any, **more: Any) -> Any:
            with self._still:
                return verb(*args, **more)

        return quietly


class RowIndexer:
    """Writes a few rows, each in its own guarded transaction, with a checkpoint before each."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def build(self, task: Task) -> BuildResult:
        ticket = task.ticket
        self._points.reach(f"build {ticket.key.owner}")
        while self._points.held(ticket.key.owner):
            task.checkpoint(stage="held")
            time.sleep(PAUSE_SECONDS)
        for ordinal in range(ROWS):
            task.checkpoint(stage="rows", done=ordinal, total=ROWS)
            self._points.reach("write")
            with task.guarded() as connection:
                connection.execute(
                    text("INSERT INTO built_rows VALUES (:slot, :generation, :fence, :ordinal)"),
                    {"slot": ticket.slot, "generation": ticket.generation, "fence": ticket.fence, "ordinal": ordinal},
                )
        return BuildResult()

    def remove(self, task: Task) -> None:
        with task.guarded() as connection:
            connection.execute(text("DELETE FROM built_rows WHERE slot = :slot"), {"slot": task.ticket.slot})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Creates the parts of a worker process under test. It can be pickled, as every such factory must be."""

    settings: Settings
    folder: Path
    faults: tuple[Fault, ...] = ()

    def __call__(self) -> WorkerParts:
        points = Points(self.folder, self.faults)
        settings, notifier = self.settings, open_work_notifier(self.settings.database, self.settings.connections)
        if settings.log:
            configure_logging(settings.log)
        return WorkerParts(
            store=cast("Store", StillStore(open_configured_store(settings, notifier), points.still)),
            notifier=notifier,
            indexers=dict.fromkeys(KINDS, RowIndexer(points)),
            clock=SystemClock(),
            rules=settings.rules,
            period=settings.period,
            retention=settings.retention,
            claim_batch=settings.claim_batch,
            failpoint=points.reach,
        )


def note(folder: Path, word: str) -> None:
    """Add a line to the journal. Short appends of several processes do not mix."""
    journal = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(journal, f"{os.getpid()} {word}\n".encode())
    os.close(journal)


def journal(folder: Path) -> list[tuple[int, str]]:
    """Return the lines of the journal in order, as process id and point."""
    path = folder / "journal"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), word) for pid, _, word in (line.partition(" ") for line in lines)]


def passed(folder: Path, point: str) -> list[int]:
    """Return the process ids that reached a point, in order."""
    return [pid for pid, word in journal(folder) if word == point]


def hold(folder: Path, owner: str) -> Path:
    """Hold the build of an owner until the returned file is removed."""
    path = folder / f"hold {owner}"
    path.touch()
    return path


def make_rows_table(store: SqlStore) -> None:
    with store.database.engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE built_rows (slot BIGINT, generation BIGINT, fence BIGINT, ordinal BIGINT)")
        )


def visible(store: SqlStore, slot: Slot) -> list[int]:
    """Return the rows of the build that a slot serves. The fence of a ready slot identifies its build."""
    assert slot.state is SlotState.READY
    return _rows(store, "slot = :slot AND generation = :generation AND fence = :fence", slot)


def all_rows(store: SqlStore, slot: Slot) -> list[int]:
    """Return all rows of a slot that were written and not removed."""
    return _rows(store, "slot = :slot", slot)


def _rows(store: SqlStore, condition: str, slot: Slot) -> list[int]:
    shown = {"slot": slot.id, "generation": slot.built, "fence": slot.fence}
    statement = text(f"SELECT ordinal FROM built_rows WHERE {condition} ORDER BY ordinal")  # noqa: S608 - constants
    with store.database.engine.connect() as connection:
        return list(connection.execute(statement, shown).scalars())
