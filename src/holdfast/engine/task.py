"""The interface between the engine and indexers: a task with checkpoints and guarded transactions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from holdfast.engine.attempt_meter import AttemptMeter
from holdfast.engine.slot import BuildResult, Progress
from holdfast.engine.store.base import Completion
from holdfast.tracing import NO_SPAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.engine.heartbeat import Heartbeat
    from holdfast.engine.slot import Ticket
    from holdfast.engine.store.base import Store
    from holdfast.engine.usage import Usage
    from holdfast.process_usage import ProcessUsage
    from holdfast.tracing import Span


_EMPTY_RESULT = BuildResult()


class Task:
    """One claimed slot, passed to an indexer."""

    def __init__(
        self,
        ticket: Ticket,
        store: Store,
        heartbeat: Heartbeat,
        reach: Callable[[str], None],
        meter: AttemptMeter | None = None,
        *,
        span: Span = NO_SPAN,
    ) -> None:
        self.ticket = ticket
        self._store = store
        self._heartbeat = heartbeat
        self._failpoint = reach
        self._meter = meter or AttemptMeter()
        self._span = span
        self._stage = ""
        self.published = False  # the indexer published the result itself

    def checkpoint(self, *, stage: str = "", step: int = 0, steps: int = 0, done: int = 0, total: int = 0) -> None:
        """Report progress. Raises `StopWork` if the worker lost the slot or the process shuts down.

        A checkpoint is cheap: the next heartbeat writes the progress. Call it between pieces of work and before each
        paid call.
        """
        self._failpoint("checkpoint")
        if stage and stage != self._stage:
            self._stage = stage
            self._span.stage(stage)
            self._meter.start_stage(stage)
        self._heartbeat.record_progress(
            self.ticket, Progress(stage=stage, step=step, steps=steps, done=done, total=total)
        )
        self._heartbeat.check(self.ticket)

    def guarded(self) -> AbstractContextManager[Connection]:
        """Open a transaction for rows of the indexer. Raises `StaleLease` if the worker lost the slot."""
        return self._store.guarded(self.ticket)

    def renew(self) -> None:
        """Renew the lease now, so that the next checkpoint knows the current state."""
        self._heartbeat.beat()

    def count_rows(self, *, written: int = 0, kept: int = 0, removed: int = 0) -> None:
        """Add to the rows that this attempt wrote, kept from an earlier build, and removed from what is served."""
        self._meter.written += written
        self._meter.kept += kept
        self._meter.removed += removed

    def add_child_usage(self, usage: ProcessUsage) -> None:
        """Add the usage of another process that worked for this attempt."""
        self._meter.add_child(usage)

    def read_usage(self) -> Usage:
        """Return what this attempt has used until now."""
        return self._meter.read(self.ticket.waited_ms)

    @contextmanager
    def publish(self, built: BuildResult = _EMPTY_RESULT) -> Iterator[Connection]:
        """Open a transaction for rows of the indexer. Its commit also publishes the result."""
        completion = Completion(ticket=self.ticket, built=built, usage=self.read_usage())
        self._span.stage("publish")
        with (
            self._heartbeat.pause_renewal(self.ticket),
            self._store.publish_transaction(completion) as connection,
        ):
            yield connection
        self.published = True

    def publish_in(self, connection: Connection) -> None:
        """Publish the result in a transaction that the indexer opened itself. Its commit publishes the result."""
        self._span.stage("publish")
        self._heartbeat.stop_renewing([self.ticket])
        completion = Completion(ticket=self.ticket, built=BuildResult(), usage=self.read_usage())
        self._store.publish_in(connection, completion)
        self.published = True


class Indexer(Protocol):
    """Builds and removes the slots of one kind.

    Both methods may run more than once, also concurrently with a late worker. Durable writes must use `Task.guarded` or
    contain the generation and fence of the ticket. An indexer may also be a `BatchPreparer`, a `BatchRemover` or a
    `Publisher`.

        class WordCount:
            def build(self, task: Task) -> BuildResult:
                with task.guarded() as connection:
                    connection.execute(…)
                return BuildResult()
    """

    def build(self, task: Task) -> BuildResult | None:
        """Build the result of the slot. None means that there is no result, which is a failure."""
        ...

    def remove(self, task: Task) -> None:
        """Remove everything that was ever built for the slot. Some of it may be gone already."""
        ...


@runtime_checkable
class BatchPreparer(Protocol):
    """An indexer that does a part of its work for a whole batch, such as one provider call for many documents."""

    def begin(self, tasks: Sequence[Task]) -> None:
        """Prepare the tasks of a claimed batch, before `build` runs for each of them. May fail without harm."""
        ...


@runtime_checkable
class BatchRemover(Protocol):
    """An indexer that removes the slots of many owners at once, for little more than the price of one.

    If a batch fails, the executor removes its slots one by one, so that one owner cannot block the others.
    """

    def remove_all(self, tasks: Sequence[Task]) -> None:
        """Remove everything that was ever built for these slots. Some of it may be gone already."""
        ...


class CommitListener(Protocol):
    """An indexer that must know when its results are committed."""

    def committed(self, completions: Sequence[Completion]) -> None:
        """Note that the transaction that publishes these results was committed. Must not raise."""
        ...


class Publisher(Protocol):
    """An indexer with rows that are written in the transaction that publishes the result.

    A result and its rows are one commit, and the rows of many small documents are written together.
    """

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Write the rows of these builds. Called again if the transaction is repeated."""
        ...
