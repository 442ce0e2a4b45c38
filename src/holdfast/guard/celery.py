"""The guard for Celery: turns a task into a guarded task.

A message has the id of its job, so a message that is delivered twice, late or after a newer request names a job that
has ended, and is skipped. The request is in the database, so a message that the broker loses is sent again.

    @guarded(app, guard, key="invoice")
    def build_invoice(run: Run, invoice: int) -> str: ...

    build_invoice.delay(42).admission.accepted
"""

from __future__ import annotations

import inspect
import json
import logging
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from holdfast.engine import Operation, Outcome
from holdfast.errors import BadRequest, BadSettings, GuardedWorkFailed
from holdfast.extras import importing_extra

with importing_extra("celery"):
    from celery import Task
    from celery.result import AsyncResult
    from kombu.exceptions import OperationalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from celery import Celery

    from holdfast.engine.store import Job
    from holdfast.guard.answers import Admission, Finished
    from holdfast.guard.guard import Guard
    from holdfast.guard.work import Work

log = logging.getLogger("holdfast")

ADMISSION_OPTIONS = frozenset({"operation", "fingerprint", "requester", "cost", "cause", "priority"})
STORED_OPTIONS = frozenset({"queue", "exchange", "routing_key", "ignore_result", "soft_time_limit", "time_limit"})
NO_JOB = "no-job"  # the id of a result for a key without any job
RECONCILE_TASK = "holdfast.guard.reconcile"


class GuardedResult(AsyncResult):  # type: ignore[misc]  # Celery has no types
    """The result of the job of a key, also if an earlier request started this job."""

    def __init__(self, admission: Admission, task_id: str, *, app: Celery) -> None:
        super().__init__(task_id, app=app)
        self.admission = admission


class GuardedTask(Task):  # type: ignore[misc]  # Celery has no types
    """A task that sends a message only for requests that the guard accepts."""

    abstract = True
    work: Work
    key_of: Callable[..., str]

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> GuardedResult:
        """Request the work; if it is accepted, send a message with the id of the job.

        In addition to Celery's options it takes those of `Work.admit`: `operation`, `fingerprint`, `requester`, `cost`,
        `cause` and `priority`.
        """
        args, kwargs = list(args or ()), dict(kwargs or {})
        key = self.key_of(*args, **kwargs)
        admission_options = {name: options.pop(name) for name in ADMISSION_OPTIONS & options.keys()}
        stored_options = {name: options[name] for name in STORED_OPTIONS & options.keys()}
        payload = self._payload({"args": args, "kwargs": kwargs, "options": stored_options})
        admission = self.work.admit(key, payload=payload, **admission_options)
        if admission.accepted:
            self.work.mark_sent(key)
            with _tolerate_broker_outage(admission.job):
                super().apply_async(args, kwargs, **{**options, "task_id": admission.job})
        newest = next((job.id for job in self.work.history(key, 1)), NO_JOB)
        return GuardedResult(admission, newest, app=self.app)

    def resend(self, job: Job, **options: Any) -> None:
        """Send the message of a job again, with its first arguments and options."""
        if job.payload is None:  # not requested through its task, so the arguments are not stored
            log.warning("message.unknown job=%s", job.id)
            return
        call = json.loads(job.payload)
        super().apply_async(call["args"], call["kwargs"], task_id=job.id, **call["options"], **options)

    def _payload(self, call: Mapping[str, Any]) -> str:
        try:
            return json.dumps(call)
        except (TypeError, ValueError) as error:
            raise BadRequest("arguments_not_json", task=self.name, detail=error) from error

    def run_delivery(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Process one delivery of a message; return the Celery result."""
        job = self.request.id
        result = self.work.perform(job, lambda run: function(run, *args, **kwargs))
        if result.redeliver_in is not None:
            held = result.verdict == "lock_held"
            if held and self.request.retries >= self.work.lock_held_tries:
                return {**result.body(), "verdict": "skipped"}  # the other worker continues
            with _tolerate_broker_outage(job):
                self.resend(
                    self.work.job(job),
                    countdown=result.redeliver_in.total_seconds(),
                    retries=self.request.retries + 1 if held else 0,
                )
        if result.outcome is Outcome.FAILED:
            raise GuardedWorkFailed(task=self.name, reason=result.reason)
        return result.body()


def guarded(
    app: Celery,
    guard: Guard,
    *,
    key: str | Callable[..., str],
    name: str | None = None,
    operation: Operation | str = Operation.INDEX,
    on_finished: Callable[[Finished], None] | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], GuardedTask]:
    """Return a decorator that makes a guarded task; the function gets a `Run` before its own arguments.

    `key` is the name of the parameter that identifies the work, or a function of the arguments. `operation` is the
    default of requests: `index` skips a key that is done, `force` does it again, but never twice at once.
    """

    def decorate(function: Callable[..., Any]) -> GuardedTask:
        full = name or f"{function.__module__}.{function.__name__}"
        work = guard.work(full, operation=operation, on_finished=on_finished)

        @wraps(function)
        def deliver(task: GuardedTask, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return task.run_delivery(function, args, kwargs)

        # Not shared with other apps of the process: they would register the task without its guard.
        settings = {"acks_late": True, "reject_on_worker_lost": True, "typing": False, "shared": False, **options}
        task: GuardedTask = app.task(bind=True, base=GuardedTask, name=full, **settings)(deliver)
        task.work = work
        task.key_of = key if callable(key) else _key_from_parameter(function, key)
        work.resend = task.resend
        return task

    return decorate


def reconcile_by_beat(app: Celery, guard: Guard) -> dict[str, Any]:
    """Register the reconciler as a Celery task; return its entry for `beat_schedule`.

    Example:
        app.conf.beat_schedule = {"holdfast": reconcile_by_beat(app, guard)}
    """

    @app.task(name=RECONCILE_TASK, ignore_result=True, shared=False)  # type: ignore[untyped-decorator]  # Celery has no types
    def reconcile() -> None:
        guard.reconcile()

    return {"task": RECONCILE_TASK, "schedule": guard.settings.period, "options": {"expires": guard.settings.period}}


@contextmanager
def _tolerate_broker_outage(job: str | None) -> Iterator[None]:
    """Log that a message could not be sent. The reconciler sends it later."""
    try:
        yield
    except OperationalError as error:
        log.warning("message.not_sent job=%s error=%s", job, error)


def _key_from_parameter(function: Callable[..., Any], name: str) -> Callable[..., str]:
    """Return a function that finds the value of one parameter in the arguments of a call."""
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    if name not in {one.name for one in others}:
        raise BadSettings("key_parameter_missing", function=function.__name__, parameter=name, first=first.name)
    plain = signature.replace(parameters=others)

    def key_of(*args: Any, **kwargs: Any) -> str:
        try:
            return str(plain.bind(*args, **kwargs).arguments[name])
        except (TypeError, KeyError) as error:
            raise BadRequest(
                "key_argument_missing", function=function.__name__, parameter=name, detail=error
            ) from error

    return key_of
