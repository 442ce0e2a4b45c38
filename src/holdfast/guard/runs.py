"""Runs guarded work as an indexer of the engine: one delivery of a message, or jobs that wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.engine import BuildResult
from holdfast.errors import WorkError
from holdfast.guard.reports import Report
from holdfast.guard.run import Run
from holdfast.llm import categorise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from holdfast.engine.store import Completion, Job, SqlStore
    from holdfast.engine.task import Task

    SaveResult = Callable[[Connection, Run, Any], None]


class DeliveryRunner:
    """Runs the work of one delivery as an indexer, and stores its return value."""

    def __init__(
        self,
        work: Callable[[Run], Any],
        store: SqlStore,
        save: SaveResult | None = None,
        *,
        requires_result: bool = True,
    ) -> None:
        self._work = work
        self._store = store
        self._save = save
        self._requires_result = requires_result
        self._run: Run | None = None
        self.value: Any = None

    def build(self, task: Task) -> BuildResult | None:
        """Do the work. If it returns None or says "skipped", there is no result, and the engine records a failure."""
        report = Report(self._store, task.ticket)
        try:
            self._run = Run(task, report, self._save)
            self.value = self._work(self._run)
            report.finish(self.value)
        except WorkError:
            raise
        except Exception as error:
            categorised = categorise(error)
            if categorised is None:
                raise
            raise categorised from error
        finally:
            report.flush()
        if (self.value is None and self._requires_result) or _is_skipped(self.value):
            return None
        return BuildResult(rows=(self.value,) if self._save is not None else None)

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:  # noqa: ARG002 - of one run
        """Store the return value in the transaction that publishes it."""
        assert self._save is not None  # noqa: S101 - else there are no rows
        assert self._run is not None  # noqa: S101 - it was built before
        self._save(connection, self._run, self.value)

    def remove(self, task: Task) -> None:
        """Do nothing: the results of guarded work are not stored here."""


class WaitingRunner:
    """Runs the jobs of claimed slots as an indexer. `bind` returns the work of a job."""

    def __init__(self, bind: Callable[[Job], Callable[[Run], Any]], store: SqlStore) -> None:
        self._store = store
        self._bind = bind
        self.job: str | None = None  # that ran last

    def build(self, task: Task) -> BuildResult | None:
        self.job = task.ticket.job
        return DeliveryRunner(self._bind(self._store.job(self.job)), self._store).build(task)

    def remove(self, task: Task) -> None:
        """Do nothing, as `DeliveryRunner`."""


def _is_skipped(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "skipped" in (value.get("status"), value.get("verdict"))
    return bool(value == "skipped")
