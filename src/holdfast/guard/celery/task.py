"""The base class of guarded tasks: requests by callers, executions by workers, and messages that are sent again."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.extras import importing_extra

with importing_extra("celery"):
    from celery import Task, states
    from celery._state import _task_stack
    from celery.app.task import Context, get_actual_ignore_result
    from celery.exceptions import Retry
    from celery.utils import uuid
    from kombu.exceptions import OperationalError

from holdfast.engine import Outcome
from holdfast.errors import BadRequest, GuardedWorkCancelled
from holdfast.guard.celery.calls import Admitted, Call, CallStore, KnownCall, NewCall
from holdfast.guard.celery.delivery import Delivery, Replacement
from holdfast.guard.celery.message import HEADER, TRIES_HEADER, Message, continues, make_call_id
from holdfast.guard.celery.results import GuardedResult
from holdfast.guard.tables import CallVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from holdfast.engine.store import Job
    from holdfast.guard.answers import Admission
    from holdfast.guard.run import Run
    from holdfast.guard.work import Work

log = logging.getLogger("holdfast")

ADMISSION_OPTIONS = frozenset({"operation", "fingerprint", "requester", "cost", "cause", "project", "callback"})
GUARD_PRIORITIES = range(10)
REPEATED_OPTIONS = frozenset(
    {"queue", "exchange", "routing_key", "ignore_result", "soft_time_limit", "time_limit", "serializer", "compression"}
)  # a repeated call keeps these, but neither the time nor the canvas of the first one


class GuardedTask(Task):  # type: ignore[misc]  # Celery has no types
    """A task whose calls the guard admits, and answers once.

    `task(42)`, `task.apply((42,))` and eager mode run the job in the calling process, and wait if another process runs
    it already.
    """

    abstract = True
    Request = "holdfast.guard.celery.request:GuardedRequest"
    work: Work
    calls: CallStore
    key_of: Callable[..., str]
    requires_result = False
    wrapped_call: Callable[..., Any] | None = None  # `__call__` of the app's own base class

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.request_stack.top is not None and self._running is None:
            return self._execute(args, kwargs)
        _task_stack.push(self)
        self.request_stack.push(Context(args=args, kwargs=kwargs))  # `push_request` would keep the id of an outer call
        try:
            return self._execute(args, kwargs)
        finally:
            self.request_stack.pop()
            _task_stack.pop()

    def _execute(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        delivery = self.request.guard_delivery = Delivery(self, args, kwargs)
        return delivery.execute()

    @property
    def _running(self) -> Delivery | None:
        """The delivery that runs in this thread."""
        return getattr(self.request_stack.top, "guard_delivery", None)

    @property
    def current_run(self) -> Run:
        """The handle that the function gets as its first argument."""
        delivery = self._running
        assert delivery is not None  # noqa: S101 - Celery calls the function only through `__call__`
        return delivery.run

    def call_body(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function as Celery would: with its automatic retries, and within the app's own `__call__`."""
        if self.wrapped_call is not None:
            return self.wrapped_call(self, *args, **kwargs)
        return self.run(*args, **kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        producer: Any = None,
        **options: Any,
    ) -> Any:
        """Request the work. The guard decides before a message is sent.

        In addition to Celery's options it takes those of `Work.admit`: `operation`, `fingerprint`, `requester`, `cost`
        and `cause`.
        """
        args, kwargs, task_id = tuple(args or ()), dict(kwargs or {}), task_id or uuid()
        if self._is_retry(task_id, options):
            return self._plan_retry(task_id, args, kwargs, options)
        if self.app.conf.task_always_eager:
            result = super().apply_async(args, kwargs, task_id, **_move_to_header(options))
            return self._add_admission(result)
        admission_options = {name: options.pop(name) for name in ADMISSION_OPTIONS & options.keys()}
        message = Message.from_options(self, task_id, args, kwargs, options)
        admitted = self.admit(make_call_id(task_id, options), task_id, message, admission_options)
        result = GuardedResult(self, task_id, admitted.admission)
        if admitted.new and admitted.call.runs_job:
            with _tolerate_broker_outage(admitted.call):
                super().apply_async(args, kwargs, task_id, producer, **message.with_times(options))
        elif self.app.current_worker_task is not None and options.get("add_to_parent", True):
            self.app.current_worker_task.add_trail(result)
        return result

    def apply(self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Run the job in this process, or wait for the process that runs it."""
        return self._add_admission(super().apply(args, kwargs, **_move_to_header(options)))

    def admit(self, call: str, task_id: str, message: Message, options: Mapping[str, Any]) -> Admitted:
        """Decide on a call, and send the messages of all calls that can be answered because of this decision."""
        key = self.key_of(*message.args, **message.kwargs)
        priority = message.options.get("priority")
        given = {**options, **({"priority": priority} if priority in GUARD_PRIORITIES else {})}
        ignored = message.options.get("ignore_result", self.ignore_result)
        new = NewCall(call, task_id, message.encode(self), wanted=not ignored or message.continues)
        admitted = self.calls.admit(new, self.work.make_request(key, job=call, rung=True, **given))
        settled = admitted.new and new.wanted and admitted.admission.settled
        for one in (*admitted.released, *((admitted.call,) if settled else ())):
            self.send_answer(one)
        return admitted

    def find_or_admit(
        self, request: Context, args: Sequence[Any], kwargs: Mapping[str, Any], *, local: bool
    ) -> KnownCall:
        """Return the call of a message. A message from a process without the guard is admitted now."""
        task_id = request.id or uuid()
        call_id = make_call_id(task_id, vars(request))
        found = self.calls.find_with_job(call_id)
        if found is not None:
            return found
        message = Message.from_request(request, args, kwargs)
        options = (request.headers or {}).get(HEADER) or {}
        key = self.key_of(*args, **kwargs)
        wanted = not local and (not self.ignores_result(request) or message.continues)
        new = NewCall(call_id, task_id, message.encode(self), wanted=wanted)
        admitted = self.calls.admit(new, self.work.make_request(key, job=call_id, rung=True, **options))
        for one in admitted.released:
            self.send_answer(one)
        return self.calls.get_with_job(call_id)

    def ignores_result(self, request: Context) -> bool:
        return bool(get_actual_ignore_result(self, request))

    def send(self, call: Call, *, delay: timedelta | None = None, tries: int = 0) -> None:
        """Send the message of a call again."""
        message = Message.decode(self.app, call.message)
        options = dict(message.options)
        if delay is not None:
            options["eta"] = self.app.now() + delay
        if tries:
            options["headers"] = {**(options.get("headers") or {}), TRIES_HEADER: tries}
        self._publish(call, message, options)

    def send_answer(self, call: Call) -> None:
        """Send the message that makes a worker answer a call."""
        message = Message.decode(self.app, call.message)
        self._publish(call, message, message.options_for_answer())

    def _publish(self, call: Call, message: Message, options: Mapping[str, Any]) -> None:
        with _tolerate_broker_outage(call):
            super().apply_async(tuple(message.args), message.kwargs, call.task_id, add_to_parent=False, **options)

    def resend(self, job: Job) -> None:
        """Send the message of a job again, unless its time has not come: a worker or the broker keeps it."""
        call = self.calls.find(job.id)
        if call is None:
            log.warning("message.unknown job=%s", job.id)
            return
        due = Message.decode(self.app, call.message).due_at(self.app)
        if due is None or due <= self.app.now():
            self.send(call)

    def repeat(self, job: Job, options: Mapping[str, Any]) -> Admission:
        """Call the task again with the arguments of a job. The new call has an id of its own, and continues nothing."""
        call = self.calls.find(job.id)
        if call is None:  # the history is longer than the calls are kept
            raise BadRequest("call_forgotten", task=self.name, job=job.id)
        message = Message.decode(self.app, call.message)
        kept = {name: message.options[name] for name in REPEATED_OPTIONS & message.options.keys()}
        admission: Admission = self.apply_async(message.args, message.kwargs, **kept, **options).admission
        return admission

    def answer_calls(self, job: Job) -> None:
        """Send the messages of all calls that wait for an ended job, except the one that is executed here."""
        here = self._call_id
        for call in self.calls.release(job):
            if call.id != here:
                self.send_answer(call)

    def send_due_answers(self) -> None:
        """Send messages that were lost, or whose sender died."""
        for call in self.calls.take_due():
            self.send_answer(call)
        self.calls.sweep()

    def cancel_call(self, task_id: str) -> None:
        """Cancel the job that a call began; a call that joined another one ends alone."""
        call = self.calls.find(task_id)
        if call is None:
            return
        if call.runs_job:
            self.work.cancel(call.key, job=call.job)
            return
        for one in self.calls.revoke(call):
            self.send_answer(one)

    def retry(self, *args: Any, **options: Any) -> Any:
        """Try again in another attempt of the same generation."""
        try:
            return super().retry(*args, **options)
        except Retry:
            raise
        except Exception:
            if self._running is not None:
                self._running.gave_up = True
            raise

    def replace(self, sig: Any) -> Any:
        """End the run with a signature that continues in its place; it is sent when the run is published."""
        raise Replacement(sig)

    def replace_call(self, sig: Any) -> Any:
        """Send a signature in place of the call that is executed."""
        return super().replace(sig)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Record that Celery has stored the result and sent what continues.

        If a power cut loses this record, the call is answered again. That matters only if something continues.
        """
        self.calls.mark_answered(self._call_id, durable=continues(self.request))
        super().on_success(retval, task_id, args, kwargs)

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Record that Celery has stored the error and called the errbacks."""
        self.calls.mark_answered(self._call_id if self.request.id else task_id)
        super().on_failure(exc, task_id, args, kwargs, einfo)

    def store_revoked(self, call: Call, request: Context) -> None:
        """Store the state REVOKED, call the errbacks and end the canvas, as Celery does for a failure."""
        self.backend.mark_as_failure(
            request.id,
            GuardedWorkCancelled(task=self.name, key=call.key),
            request=request,
            store_result=self.store_errors_even_if_ignored or not self.ignores_result(request),
            state=states.REVOKED,
        )
        self.calls.mark_answered(call.id)

    def report_revoked(self, call: Call) -> None:
        """Send the event for a state that is stored. An outage of the broker must not change this state."""
        if self.send_events:
            with _tolerate_broker_outage(call):
                self.send_event("task-revoked", terminated=False, signum=None, expired=False)

    def is_active(self, call: Call) -> bool:
        """Return whether a call waits for a job that has not ended."""
        return not call.settled and call.job is not None and self.work.is_active(call.job)

    def is_cancelled(self, call: Call) -> bool:
        """Return whether a call was revoked, or its job was cancelled or deleted."""
        if call.settled or call.job is None:
            return call.verdict is CallVerdict.REVOKED
        return self.work.find_outcome(call.job) in (Outcome.CANCELLED, Outcome.DELETED)

    def has_answer(self, call_id: str) -> bool:
        """Return whether a call is known and no longer waits for a job."""
        call = self.calls.find(call_id)
        return call is not None and not self.is_active(call)

    def has_begun(self, call_id: str) -> bool:
        """Return whether a call is known and its job was claimed."""
        call = self.calls.find(call_id)
        return call is not None and self.work.status(call.key).attempt > 0

    @property
    def _call_id(self) -> str:
        return make_call_id(self.request.id, vars(self.request))

    def _is_retry(self, task_id: str, options: Mapping[str, Any]) -> bool:
        """Return whether `Task.retry` sends this message from within the task."""
        return bool(self.request.id == task_id and int(options.get("retries") or 0) > self.request.retries)

    def _plan_retry(self, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Any) -> Any:
        assert self._running is not None  # noqa: S101 - see _is_retry
        self._running.plan_retry(args, kwargs, options)
        return self.AsyncResult(task_id)

    def _add_admission(self, result: Any) -> Any:
        """Add the decision on the call to the result of a local run."""
        call = self.calls.find(result.id)
        result.admission = None if call is None else self.calls.describe(call)
        return result


def _move_to_header(options: Mapping[str, Any]) -> dict[str, Any]:
    """Move the options of the guard to a header, for a call that is admitted when it is executed."""
    given = {name: options[name] for name in ADMISSION_OPTIONS & options.keys()}
    rest = {name: value for name, value in options.items() if name not in given}
    return {**rest, "headers": {**(options.get("headers") or {}), HEADER: given}}


@contextmanager
def _tolerate_broker_outage(call: Call) -> Iterator[None]:
    """Log that a message could not be sent. The reconciler sends it later."""
    try:
        yield
    except OperationalError as error:
        log.warning("message.not_sent call=%s error=%s", call.id, error)
