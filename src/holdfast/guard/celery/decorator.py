"""The decorator that makes a guarded task."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

from holdfast.engine import Operation
from holdfast.errors import (
    GuardedRequestRejected,
    GuardedWorkCancelled,
    GuardedWorkSuperseded,
)
from holdfast.extras import importing_extra
from holdfast.guard.calls import drop_parameters, make_key_function

with importing_extra("celery"):
    from celery import Task

from holdfast.guard.celery.calls import CallStore
from holdfast.guard.celery.task import GuardedTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from holdfast.guard.answers import Finished
    from holdfast.guard.guard import Guard

EXPECTED = (GuardedRequestRejected, GuardedWorkCancelled, GuardedWorkSuperseded)  # logged without a traceback
HANDLERS = ("on_success", "on_failure")  # the guarded task has its own, and then calls these


def guarded(
    app: Celery,
    guard: Guard,
    *,
    key: str | Callable[..., str],
    name: str | None = None,
    operation: Operation | str = Operation.INDEX,
    requires_result: bool = False,
    on_finished: Callable[[Finished], None] | None = None,
    bind: bool = False,
    base: type[Task] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], GuardedTask]:
    """Return a decorator that makes a guarded task; the function gets a `Run` before its own arguments.

    `key` is the name of the parameter that identifies the work, or a function of the arguments. `operation` is the
    default of requests: `index` skips a key that is done, `force` does it again, but never twice at once. With
    `requires_result`, a run that returns None without publishing fails with `no_result`.

    All other options are those of Celery's `task`. With `bind`, the function gets the task before the `Run`.
    """

    def decorate(function: Callable[..., Any]) -> GuardedTask:
        full = name or f"{function.__module__}.{function.__name__}"
        work = guard.work(full, operation=operation, on_finished=on_finished)
        passed = 2 if bind else 1  # parameters that the guard passes
        settings = {"acks_late": True, "reject_on_worker_lost": True, "typing": False, **options}
        settings["throws"] = (*settings.get("throws", ()), *EXPECTED)
        made = _make_base(base or app.Task, {one: settings.pop(one) for one in HANDLERS if one in settings})
        # Not shared with other apps of the process: they would register the task without its guard.
        task: GuardedTask = app.task(bind=True, base=made, name=full, shared=False, **settings)(
            _make_body(function, drop_parameters(function, passed), bind=bind)
        )
        task.work = work
        task.calls = CallStore(guard, full)
        task.key_of = make_key_function(function, key, passed)
        task.requires_result = requires_result
        work.resend, work.repeat = task.resend, task.repeat
        work.answer_calls, work.send_due_answers = task.answer_calls, task.send_due_answers
        return task

    return decorate


def _make_base(base: type[Task], handlers: dict[str, Callable[..., None]]) -> type[GuardedTask]:
    """Return a base class for the task. A `__call__` of the app's own base class wraps each run."""
    own = type("Handlers", (base,), {**handlers, "abstract": True})
    calling = next(one for one in own.__mro__ if "__call__" in vars(one))
    body = None if calling is Task else staticmethod(calling.__call__)
    return type("GuardedTask", (GuardedTask, own), {"abstract": True, "wrapped_call": body})


def _make_body(function: Callable[..., Any], plain: inspect.Signature, *, bind: bool) -> Callable[..., Any]:
    """Return the function with the parameters that callers pass: the guard adds the `Run`."""

    @wraps(function)
    def body(task: GuardedTask, *args: Any, **kwargs: Any) -> Any:
        return function(*((task,) if bind else ()), task.current_run, *args, **kwargs)

    first = inspect.Parameter("task", inspect.Parameter.POSITIONAL_ONLY)
    body.__signature__ = plain.replace(parameters=[first, *plain.parameters.values()])  # type: ignore[attr-defined]
    return body
