"""Runs guarded work as an indexer of the engine: one delivery of a message, or jobs that wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.engine import BuildResult
from holdfast.errors import WorkError
from holdfast.guard.reports import Report
from holdfast.guard.run import Run
from holdfast.llm import categorise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from holdfast.db import Transaction
    from holdfast.engine.store import Completion, Job, SqlStore
    from holdfast.engine.task import Task


class ResultWriter(Protocol):
    """Stores the results of runs, in the transactions that publish them."""

    def save(self, connection: Connection, run: Run, value: Any) -> None:
        """Store the value that the work passes to `run.commit`."""
        ...

    def save_final(self, tx: Transaction, run: Run, value: Any) -> None:
        """Store the value that the work has returned. Called again if the transaction is repeated."""
        ...

    def committed(self) -> None:
        """Note that the transaction of `save_final` was committed."""
        ...


class DeliveryRunner:
    """Runs the work of one delivery as an indexer, and stores its return value."""

    def __init__(
        self,
        work: Callable[[Run], Any],
        store: SqlStore,
        results: ResultWriter | None = None,
        *,
        requires_result: bool = True,
    ) -> None:
        self._work = work
        self._store = store
        self._results = results
        self._requires_result = requires_result
        self._run: Run | None = None
        self._report: Report | None = None
        self.value: Any = None
        self.has_committed = False  # the engine has published the value

    def build(self, task: Task) -> BuildResult | None:
        """Do the work. If it returns None or says "skipped", there is no result, and the engine records a failure."""
        report = self._report = Report(self._store, task.ticket)
        produced = False
        try:
            self._run = Run(task, report, self._results.save if self._results is not None else None)
            self.value = self._work(self._run)
            report.set_result(self.value)
            produced = not ((self.value is None and self._requires_result) or _is_skipped(self.value))
        except WorkError:
            raise
        except Exception as error:
            categorised = categorise(error)
            if categorised is None:
                raise
            raise categorised from error
        finally:
            if task.published or not produced:  # else `publish` writes the report
                report.flush()
        return BuildResult(rows=(self.value,)) if produced else None

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:  # noqa: ARG002 - of one run
        """Store the report and the return value in the transaction that publishes the result."""
        assert self._run is not None  # noqa: S101 - it was built before
        assert self._report is not None  # noqa: S101 - it was built before
        tx = self._store.database.wrap_connection(connection)
        self._report.write_in(tx)
        if self._results is not None:
            self._results.save_final(tx, self._run, self.value)

    def committed(self, completions: Sequence[Completion]) -> None:  # noqa: ARG002 - of one run
        self.has_committed = True
        if self._results is not None:
            self._results.committed()

    def remove(self, task: Task) -> None:
        """Do nothing: the results of guarded work are not stored here."""


class WaitingRunner:
    """Runs the jobs of claimed slots as an indexer, one after the other. `bind` returns the work of a job."""

    def __init__(self, bind: Callable[[Job], Callable[[Run], Any]], store: SqlStore) -> None:
        self._store = store
        self._bind = bind
        self._runner: DeliveryRunner | None = None
        self.job: str | None = None  # that ran last

    def build(self, task: Task) -> BuildResult | None:
        self.job = task.ticket.job
        self._runner = DeliveryRunner(self._bind(self._store.job(self.job)), self._store)
        return self._runner.build(task)

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Store the report of the run, as `DeliveryRunner`."""
        assert self._runner is not None  # noqa: S101 - it was built before
        self._runner.publish(connection, completions)

    def remove(self, task: Task) -> None:
        """Do nothing, as `DeliveryRunner`."""


def _is_skipped(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "skipped" in (value.get("status"), value.get("verdict"))
    return bool(value == "skipped")
