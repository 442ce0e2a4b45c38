"""Guarded actors of Dramatiq.

@guarded_actor(broker, guard, key="document_id")
def index_document(run: Run, document_id: int) -> str: ...

index_document.send(42)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.extras import importing_extra
from holdfast.guard.messages import MessageTask

with importing_extra("dramatiq"):
    import dramatiq
    from dramatiq.errors import BrokerConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from holdfast.engine import Operation
    from holdfast.guard.answers import Finished
    from holdfast.guard.guard import Guard


def guarded_actor(
    broker: dramatiq.Broker,
    guard: Guard,
    *,
    key: str | Callable[..., str] | None = None,
    name: str | None = None,
    operation: Operation | str = "index",
    on_finished: Callable[[Finished], None] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], MessageTask]:
    """Return a decorator that makes a guarded actor; the function gets a `Run` before its own arguments.

    `key` is the name of the parameter that identifies the work; by default, the first one after the run. `options` are
    those of `dramatiq.actor`. Dramatiq does not retry: the guard decides when a job runs again.
    """

    def decorate(function: Callable[..., Any]) -> MessageTask:
        full = name or f"{function.__module__}.{function.__name__}"

        def deliver(job: str, tries: int = 0) -> None:
            task.run_job(job, tries)

        defaults = {"max_retries": 0, "time_limit": float("inf"), **options}
        actor = dramatiq.actor(actor_name=full, broker=broker, **defaults)(deliver)

        def send(job: str, tries: int, delay: timedelta | None) -> None:
            actor.send_with_options(args=(job, tries), delay=delay)

        work = guard.work(full, operation=operation, on_finished=on_finished)
        task = MessageTask(work, function, key, send, (BrokerConnectionError,))
        return task

    return decorate
