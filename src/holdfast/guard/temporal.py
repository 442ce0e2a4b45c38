"""Guarded activities of Temporal.

    @guarded_activity(guard, key="document_id")
    def index_document(run: Run, document_id: int) -> str: ...

Temporal decides when an activity runs and rejects a late completion. It cannot take back what a late activity has
already written: that is what the fence of the guard prevents.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import update_wrapper
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from holdfast.engine import Operation, Outcome
from holdfast.extras import importing_extra
from holdfast.guard.function import GuardedFunction

with importing_extra("temporal"):
    from temporalio import activity
    from temporalio.exceptions import ApplicationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.guard.answers import DeliveryResult, Finished
    from holdfast.guard.guard import Guard

DONE = frozenset({"already_indexed", "already_success", "already_degraded"})


def guarded_activity(
    guard: Guard,
    *,
    key: str | Callable[..., str] | None = None,
    name: str | None = None,
    operation: Operation | str = Operation.INDEX,
    on_finished: Callable[[Finished], None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a guarded activity; the function gets a `Run` before its own arguments.

    All attempts of one activity are one request. An attempt that meets a live holder, or fails for now, is repeated by
    Temporal when the guard says so. Work without attempts left fails the activity for good.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        full = name or function.__name__
        call = GuardedFunction(guard.work(full, operation=operation, on_finished=on_finished), function, key)

        def attempt(*args: Any) -> Any:
            info = activity.info()
            cause = f"temporal:{info.workflow_run_id}:{info.activity_id}"
            job = call.find_job_of_cause(cause, *args)
            result = call.run_job(job) if job is not None else call.with_options(cause=cause)(*args)
            return _answer(result)

        update_wrapper(attempt, function)
        _hide_run(attempt, function)
        return activity.defn(name=full)(attempt)

    return decorate


def _hide_run(attempt: Any, function: Callable[..., Any]) -> None:
    """Give the activity the parameters of the function without the run: Temporal decodes arguments by their types."""
    del attempt.__wrapped__
    first, *others = inspect.signature(function).parameters.values()
    attempt.__signature__ = inspect.Signature(others)
    attempt.__annotations__ = {}
    for name, hint in function.__annotations__.items():
        if name != first.name:
            with suppress(NameError):  # a type that is imported for annotations only
                holder = SimpleNamespace(__annotations__={name: hint})
                attempt.__annotations__ |= get_type_hints(holder, function.__globals__)


def _answer(result: DeliveryResult) -> Any:
    """Return the value to Temporal, or raise the error that makes it repeat or fail the activity."""
    if result.redeliver_in is not None:
        raise ApplicationError(result.reason, type=result.reason, next_retry_delay=result.redeliver_in)
    if result.outcome in (Outcome.SUCCESS, Outcome.DEGRADED) or result.reason in DONE:
        return result.value
    raise ApplicationError(result.reason, type=result.reason, non_retryable=True)
