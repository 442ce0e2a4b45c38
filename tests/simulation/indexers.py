"""Simulated indexers: content writes a list of chunks under its build, the other kinds write one row per chunk.

Every row is written through `Task.guarded`. Every chunk is paid for at a provider that can fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from holdfast.engine.slot import BuildResult
from holdfast.errors import Outage, Permanent, Transient

if TYPE_CHECKING:
    from holdfast.engine.task import Task
    from tests.simulation.world import World

TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS sim_manifest (slot INTEGER, build INTEGER, ordinal INTEGER, text TEXT,"
        " PRIMARY KEY (slot, build, ordinal))"
    ),
    "CREATE TABLE IF NOT EXISTS sim_rows (slot INTEGER, text TEXT, PRIMARY KEY (slot, text))",
)


class SimIndexer(ABC):
    """Pays for each chunk, and fails when the world decides so."""

    def __init__(self, world: World) -> None:
        self._world = world

    def build(self, task: Task) -> BuildResult | None:
        world = self._world
        if world.happens("no_result", 0.02):
            return None
        chunks = self.read(task)
        missing = 0
        task.checkpoint(stage="read", step=1, steps=2, done=len(chunks), total=len(chunks))
        for number, chunk in enumerate(chunks):
            task.checkpoint(stage="index", step=2, steps=2, done=number, total=len(chunks))
            if self.may_miss and world.happens("missing_chunk", 0.02):
                missing += 1
                continue
            world.pay(task.ticket, chunk)
            self._provider()
            self.write(task, number, chunk)
        task.checkpoint(stage="index", step=2, steps=2, done=len(chunks), total=len(chunks))
        return BuildResult(missing=missing)

    may_miss = True

    def _provider(self) -> None:
        world = self._world
        if world.happens("provider_transient", 0.03):
            raise Transient("timeout", retry_after=timedelta(seconds=world.rng.choice([1, 100])))
        if world.happens("provider_permanent", 0.01):
            raise Permanent("bad_file")
        if world.happens("provider_outage", 0.01):
            raise Outage("outage")
        if world.happens("provider_unexpected", 0.02):
            raise RuntimeError("simulated")

    def remove(self, task: Task) -> None:
        task.checkpoint()
        self._provider()
        with task.guarded() as connection:
            connection.execute(text("DELETE FROM sim_manifest WHERE slot = :slot"), {"slot": task.ticket.slot})
            connection.execute(text("DELETE FROM sim_rows WHERE slot = :slot"), {"slot": task.ticket.slot})
        task.checkpoint()

    @abstractmethod
    def read(self, task: Task) -> list[str]:
        """Return the chunks to build."""

    @abstractmethod
    def write(self, task: Task, number: int, chunk: str) -> None:
        """Write the result of one chunk."""


class Content(SimIndexer):
    """Writes the list of chunks of a build. The fence identifies the build."""

    may_miss = False

    def read(self, task: Task) -> list[str]:
        return self._world.texts[task.ticket.owner, task.ticket.generation]

    def write(self, task: Task, number: int, chunk: str) -> None:
        with task.guarded() as connection:
            connection.execute(
                text("INSERT INTO sim_manifest VALUES (:slot, :build, :ordinal, :text)"),
                {"slot": task.ticket.slot, "build": task.ticket.fence, "ordinal": number, "text": chunk},
            )


class Rows(SimIndexer):
    """Writes a row for each chunk of the given content build, unless the row exists."""

    def read(self, task: Task) -> list[str]:
        return self._world.manifest(task.ticket.owner, task.ticket.source)

    def write(self, task: Task, number: int, chunk: str) -> None:  # noqa: ARG002
        with task.guarded() as connection:
            connection.execute(
                text("INSERT OR IGNORE INTO sim_rows VALUES (:slot, :text)"), {"slot": task.ticket.slot, "text": chunk}
            )
