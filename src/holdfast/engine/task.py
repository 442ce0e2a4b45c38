"""What an indexer sees: a task with checkpoints, and a guarded door to the database."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from holdfast.engine.slot import BuildResult, Progress
from holdfast.engine.store.base import Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.engine.heartbeat import Heartbeat
    from holdfast.engine.slot import Ticket
    from holdfast.engine.store.base import Store


_EMPTY_RESULT = BuildResult()


class Task:
    """One claimed slot in the hands of an indexer."""

    def __init__(self, ticket: Ticket, store: Store, heartbeat: Heartbeat, reach: Callable[[str], None]) -> None:
        self.ticket = ticket
        self._store = store
        self._heartbeat = heartbeat
        self._failpoint = reach
        self.published = False  # the work published its result itself

    def checkpoint(self, *, stage: str = "", step: int = 0, steps: int = 0, done: int = 0, total: int = 0) -> None:
        """Report progress, and raise `StopWork` if the slot is no longer ours or the process goes down.

        Costs nothing: the progress is written with the next heartbeat. Call it between any two pieces of work,
        and before each call that costs money.
        """
        self._failpoint("checkpoint")
        self._heartbeat.record_progress(
            self.ticket, Progress(stage=stage, step=step, steps=steps, done=done, total=total)
        )
        self._heartbeat.check(self.ticket)

    def guarded(self) -> AbstractContextManager[Connection]:
        """Open a transaction for the indexer's own rows; it refuses when the ticket no longer holds."""
        return self._store.guarded(self.ticket)

    def renew(self) -> None:
        """Renew the lease now, so that the next checkpoint knows what the database knows."""
        self._heartbeat.beat()

    @contextmanager
    def publish(self, built: BuildResult = _EMPTY_RESULT) -> Iterator[Connection]:
        """Open a transaction for the work's own rows; leaving it publishes the result with them."""
        with (
            self._heartbeat.pause_renewal(self.ticket),
            self._store.publish_transaction(Completion(ticket=self.ticket, built=built)) as connection,
        ):
            yield connection
        self.published = True

    def publish_in(self, connection: Connection) -> None:
        """Publish the result within a transaction that the work opened itself; it is kept when that commits."""
        self._heartbeat.stop_renewing([self.ticket])
        self._store.publish_in(connection, Completion(ticket=self.ticket, built=BuildResult()))
        self.published = True


class Indexer(Protocol):
    """Builds and removes the slots of one kind.

    Both may run more than once and side by side with a late twin; what they write durably goes through
    `Task.guarded` or carries the ticket's generation and fence. An indexer may also have `begin(tasks)`: it sees the
    tasks of a claimed batch before they are built one by one, for work that is better done together. One whose builds
    carry rows is a `Publisher`.
    """

    def build(self, task: Task) -> BuildResult | None:
        """Build what stands in the slot. None means that nothing came of it, which is a failure."""
        ...

    def remove(self, task: Task) -> None:
        """Remove all that was ever built for the slot; it may be partly gone already."""
        ...


@runtime_checkable
class BatchPreparer(Protocol):
    """An indexer that does a part of its work for a whole batch, such as one provider call for many documents."""

    def begin(self, tasks: Sequence[Task]) -> None:
        """Prepare the tasks of a claimed batch, before `build` runs for each of them. May fail without harm."""
        ...


@runtime_checkable
class BatchRemover(Protocol):
    """An indexer that removes the slots of many owners together, which costs little more than removing one.

    A set that fails is tried slot by slot, so that one owner does not hold up the others.
    """

    def remove_all(self, tasks: Sequence[Task]) -> None:
        """Remove all that was ever built for these slots; it may be partly gone already."""
        ...


class Publisher(Protocol):
    """An indexer whose builds have rows that are written in the transaction that publishes them.

    So a result and its rows are one commit, and those of many small documents are written together.
    """

    def publish(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Write the rows of these builds, all or none; called again if the transaction has to be."""
        ...
