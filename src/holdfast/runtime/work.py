"""What an indexer sees: a task with checkpoints, and a guarded door to the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.core.slot import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from holdfast.core.slot import Built, Ticket
    from holdfast.runtime.heartbeat import Heartbeat
    from holdfast.stores.base import Store


class Task:
    """One claimed slot in the hands of an indexer."""

    def __init__(self, ticket: Ticket, store: Store, heartbeat: Heartbeat, reach: Callable[[str], None]) -> None:
        self.ticket = ticket
        self._store = store
        self._heartbeat = heartbeat
        self._reach = reach

    def checkpoint(self, *, stage: str = "", step: int = 0, steps: int = 0, done: int = 0, total: int = 0) -> None:
        """Report progress, and raise `StopWork` if the slot is no longer ours or the process goes down.

        Costs nothing: the progress is written with the next heartbeat. Call it between any two pieces of work,
        and before each call that costs money.
        """
        self._reach("checkpoint")
        self._heartbeat.note(self.ticket, Progress(stage=stage, step=step, steps=steps, done=done, total=total))
        self._heartbeat.check(self.ticket)

    def guarded(self) -> AbstractContextManager[Connection]:
        """Open a transaction for the indexer's own rows; it refuses when the ticket no longer holds."""
        return self._store.guarded(self.ticket)


class Indexer(Protocol):
    """Builds and removes the slots of one kind.

    Both may run more than once and side by side with a late twin; what they write durably goes through
    `Task.guarded` or carries the ticket's generation and fence.
    """

    def build(self, task: Task) -> Built | None:
        """Build what stands in the slot. None means that nothing came of it, which is a failure."""
        ...

    def remove(self, task: Task) -> None:
        """Remove all that was ever built for the slot; it may be partly gone already."""
        ...
