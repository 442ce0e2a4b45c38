"""Guarded jobs of RQ.

@guarded_job(queue, guard, key="document_id")
def index_document(run: Run, document_id: int) -> str: ...

index_document.send(42)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.extras import importing_extra
from holdfast.guard.messages import MessageTask

with importing_extra("rq"):
    from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from rq import Queue

    from holdfast.engine import Operation
    from holdfast.guard.answers import Finished
    from holdfast.guard.guard import Guard

NO_TIMEOUT = -1  # the guard ends work that makes no progress


def guarded_job(
    queue: Queue,
    guard: Guard,
    *,
    key: str | Callable[..., str] | None = None,
    name: str | None = None,
    operation: Operation | str = "index",
    on_finished: Callable[[Finished], None] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], MessageTask]:
    """Return a decorator that makes a guarded job; the function gets a `Run` before its own arguments.

    `key` is the name of the parameter that identifies the work; by default, the first one after the run. `options` are
    those of `Queue.enqueue`, such as `job_timeout`. Workers import the function by its module and name. Delayed
    messages need a worker with `--with-scheduler`; without one, the reconciler sends them when they are due.
    """

    def decorate(function: Callable[..., Any]) -> MessageTask:
        full = name or f"{function.__module__}.{function.__name__}"
        target = f"{function.__module__}.{function.__qualname__}.run_job"
        defaults = {"job_timeout": NO_TIMEOUT, **options}

        def send(job: str, tries: int, delay: timedelta | None) -> None:
            if delay is None:
                queue.enqueue(target, job, tries, **defaults)
            else:
                queue.enqueue_in(delay, target, job, tries, **defaults)

        work = guard.work(full, operation=operation, on_finished=on_finished)
        return MessageTask(work, function, key, send, (RedisError,))

    return decorate
