"""Test doubles: workers with scripted indexers, stores with replaced methods, and schedulers that record rings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.engine.executor import Executor, no_failpoint
from holdfast.engine.slot import BuildResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.clock import Clock
    from holdfast.engine.schedulers.base import Worker
    from holdfast.engine.slot import Ring
    from holdfast.engine.store.base import Store
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task

KINDS = ("content", "vector", "graph", "cards")


class Scripted:
    """An indexer that calls functions of the test."""

    def __init__(self, build: Callable[[Task], BuildResult | None], remove: Callable[[Task], None]) -> None:
        self._build = build
        self._remove = remove

    def build(self, task: Task) -> BuildResult | None:
        return self._build(task)

    def remove(self, task: Task) -> None:
        self._remove(task)


class Meddling:
    """A store in which the test replaces some methods."""

    def __init__(self, store: SqlStore, **verbs: Callable[..., Any]) -> None:
        unknown = [verb for verb in verbs if not hasattr(store, verb)]
        assert not unknown, f"The store has no {unknown}, so the test would replace nothing."
        self._store = store
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._store, name)


class Carrier:
    """A scheduler that only records the rings it gets."""

    def __init__(self, room: int | None = 100) -> None:
        self.carried: list[Ring] = []
        self.wakes = 0
        self.needs_rings = room is not None
        self._room = room or 0

    def start(self, crew: Worker) -> None:
        """Do nothing: this scheduler runs no workers."""

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - the same for every kind
        return self._room - outstanding()

    def carry(self, rings: Sequence[Ring]) -> None:
        self.wakes += 1
        self.carried += rings

    def stop(self) -> None:
        """Do nothing: this scheduler runs no workers."""


def raises(error: BaseException) -> Callable[..., Any]:
    """Return a function that always raises this error."""

    def fail(*_: object) -> Any:
        raise error

    return fail


def worker(
    store: SqlStore | Meddling,
    clock: Clock,
    build: Callable[[Task], BuildResult | None] = lambda _: BuildResult(),
    remove: Callable[[Task], None] = lambda _: None,
    *,
    holder: str = "worker",
    reach: Callable[[str], None] = no_failpoint,
) -> Executor:
    """Return a worker for all kinds, without a heartbeat thread and without random delays."""
    return Executor(
        cast("Store", store),
        dict.fromkeys(KINDS, Scripted(build, remove)),
        holder=holder,
        clock=clock,
        rules=store.rules,
        chance=lambda: 0.5,
        reach=reach,
    )
