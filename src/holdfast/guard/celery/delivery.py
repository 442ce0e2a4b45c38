"""One execution of a guarded task: it runs the job, waits for it, or answers the call with a result that is known.

Celery gets what a plain task would give it: the return value, the exception, or `Retry`. So Celery itself stores the
result, continues the canvas and sends the events. While the job is not at its end, Celery gets `Ignore` or `Retry`,
which store no final state.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, assert_never

from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import EncodeError

from holdfast.engine import Outcome
from holdfast.errors import (
    GuardedRequestRejected,
    GuardedWorkCancelled,
    GuardedWorkFailed,
    GuardedWorkSuperseded,
    Permanent,
    RetryLater,
    StaleLease,
    StoreError,
    Transient,
    WorkError,
)
from holdfast.guard.celery.calls import Call, KnownCall, StoredResult
from holdfast.guard.celery.encoding import decode, decode_exception, encode, encode_exception
from holdfast.guard.celery.message import TRIES_HEADER, Message
from holdfast.guard.tables import CallVerdict, ResultKind
from holdfast.llm import categorise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.db import Transaction
    from holdfast.engine import Ring
    from holdfast.engine.store import Job
    from holdfast.guard.answers import DeliveryResult
    from holdfast.guard.celery.task import GuardedTask
    from holdfast.guard.run import Run

log = logging.getLogger("holdfast")

LONGEST_WAIT_SECONDS = 1.0  # between two looks at a job that another process runs
SHORTEST_DELAY = timedelta(milliseconds=1)  # a delay of zero would be the default one


class Replacement(Ignore):  # type: ignore[misc]  # Celery has no types
    """The task called `replace`: the signature runs after the job has ended."""

    def __init__(self, signature: Any) -> None:
        super().__init__("Replaced by new task")
        self.signature = signature


class Delivery:
    """One execution. `local` means in the process of the caller: a direct call, `apply` or eager mode."""

    def __init__(self, task: GuardedTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._task = task
        self._request = task.request
        self._args = args
        self._kwargs = kwargs
        self._local = bool(self._request.called_directly or self._request.is_eager)
        self._run: Run | None = None
        self._value: Any = None
        self._kind = ResultKind.VALUE
        self._encoded: str | None = None
        self._error: BaseException | None = None
        self._retry_message: Message | None = None
        self._released: list[Call] = []  # calls that the published job answers
        self._has_committed = False
        self.gave_up = False  # Celery's own retries are used up

    @property
    def run(self) -> Run:
        """The handle of the current attempt."""
        assert self._run is not None  # noqa: S101 - only the body of the task reads it
        return self._run

    def execute(self) -> Any:
        """Run the job or wait for it; return or raise what answers the call."""
        known = self._task.find_or_admit(self._request, self._args, self._kwargs, local=self._local)
        self._call = known.call
        while (job := known.active_job) is not None:
            if not known.call.runs_job and not self._local:
                raise self._discard("joined")
            result = self._attempt(known.call, job, known.ring)
            if self._has_committed:
                return self._answer_published(known.call)
            if result.outcome is None and result.verdict != "skipped":
                self._wait(known.call, result)
            known = self._task.calls.get_with_job(known.call.id)
            if result.verdict == "skipped":
                break  # the job has ended
        return self._answer(known)

    def _attempt(self, call: Call, job: Job, ring: Ring | None) -> DeliveryResult:
        """Try to run the job. A local call that joined it runs it with the arguments of the call that began it."""
        self._run = self._error = self._retry_message = None
        if not call.runs_job:
            first = self._task.calls.find(job.id)
            if first is not None:
                message = Message.decode(self._task.app, first.message)
                self._args, self._kwargs = message.args, message.kwargs
        return self._task.work.perform(
            job, self._run_body, ring=ring, results=self, requires_result=self._task.requires_result
        )

    def _run_body(self, run: Run) -> Any:
        """Run the function of the task. Turn Celery's control exceptions into results and errors of the engine."""
        self._run, self._kind, self._encoded = run, ResultKind.VALUE, None
        try:
            value = self._task.call_body(*self._args, **self._kwargs)
            self._value = value if self._encoded is None else self._value
        except Replacement as replacement:
            self._kind, self._value = ResultKind.REPLACED, dict(replacement.signature)
        except Retry as retry:
            if retry.sig is not None:  # Celery sends nothing in eager mode
                self.plan_retry(retry.sig.args, retry.sig.kwargs, retry.sig.options)
            raise self._try_again(retry, retry.when) from retry
        except Ignore:
            self._kind = ResultKind.IGNORED
        except (StaleLease, StoreError):
            raise
        except Exception as error:
            raise self._classify(error) from error
        else:
            if self._retry_message is not None:  # `retry(throw=False)`
                raise self._try_again(Retry(when=0), 0)
        return self._produced(run)

    def _produced(self, run: Run) -> Any:
        """Encode the result, so that a result that cannot be stored fails the run before it is published."""
        if self._encoded is None:
            try:
                self._encoded = encode(self._value, self._task.app.conf.result_serializer)
            except EncodeError as error:
                if not run.published:
                    raise self._classify(error) from error
                log.warning("result.not_stored job=%s error=%s", run.job, error)
            else:
                if run.published:
                    self._task.work.write(lambda tx: self._save_in(tx, run))
        return self._value if self._kind is ResultKind.VALUE else True

    def save(self, connection: Connection, run: Run, value: Any) -> None:
        """Store the value that the task passes to `run.commit`, in the transaction that publishes it."""
        if self._encoded is None:
            self._value = value
            self._encoded = encode(value, self._task.app.conf.result_serializer)
        self._save_in(self._task.work.wrap_connection(connection), run)

    def save_final(self, tx: Transaction, run: Run, value: Any) -> None:  # noqa: ARG002 - kept as `_value`
        """Store the result in the transaction that publishes it. Reserve the answer of this call, release the others.

        So an answer needs no further transaction, and a call that joins later finds the job at its end.
        """
        self._save_in(tx, run)
        self._released = self._task.calls.release_and_reserve(tx, run.job, run.key, self._call.id)
        self._task.work.mark_reported_in(tx, run.job)

    def committed(self) -> None:
        self._has_committed = True

    def _save_in(self, tx: Transaction, run: Run) -> None:
        self._task.calls.save_result(tx, run.job, run.key, self._make_result(run))

    def _make_result(self, run: Run) -> StoredResult:
        assert self._encoded is not None  # noqa: S101 - it is encoded before it is stored
        return StoredResult(run.fence, self._kind, self._encoded)

    def _try_again(self, retry: Retry, when: Any) -> RetryLater:
        """Return the error for a retry of Celery: another attempt of this generation, which is not counted."""
        self._error = retry
        now = self._task.app.now()
        if self._retry_message is not None:
            when = self._retry_message.due_at(self._task.app)
        seconds = when if isinstance(when, int | float) else (when - now).total_seconds() if when else 0
        return RetryLater("retry_requested", retry_after=max(SHORTEST_DELAY, timedelta(seconds=seconds)))

    def _classify(self, error: Exception) -> WorkError:
        """Return the error for the engine. An error that the guard does not know is final, as in Celery."""
        if isinstance(error, Reject) and error.requeue:
            delay = self._task.work.lock_held_delay.total_seconds()
            return self._try_again(Retry(exc=error, when=delay), delay)
        self._error = error
        run = self.run
        self._task.calls.save_error(run.job, run.key, run.fence, encode_exception(self._task, error))
        known = categorise(error)
        if known is None:
            return Permanent("unexpected", params={"type": type(error).__name__, "detail": str(error)[:500]})
        if self.gave_up:
            return Permanent(known.code, params=known.params)
        return known

    def plan_retry(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Keep the message of Celery's `retry`. It is sent when the attempt has ended."""
        self._retry_message = Message.from_options(self._task, self._request.id, args, kwargs, options)

    def _wait(self, call: Call, result: DeliveryResult) -> None:
        """Wait in this process, or leave the rest to a later message by raising `Retry` or `Ignore`."""
        if self._retry_message is not None:
            message = self._retry_message.encode(self._task)
            self._task.calls.set_message(call, message)
            call = replace(call, message=message)
        if self._local:
            self._wait_here(result)
            return
        if result.verdict == "lock_held":
            tries = int(self._request.get(TRIES_HEADER) or 0)
            if tries < self._task.work.lock_held_tries:
                self._task.send(call, delay=result.redeliver_in, tries=tries + 1)
            raise self._discard("lock_held")
        if self._run is not None:
            self._task.send(call, delay=result.redeliver_in)
        raise self._make_retry(result)

    def _make_retry(self, result: DeliveryResult) -> Retry:
        """Return the exception that makes Celery acknowledge the message and store the state RETRY."""
        if isinstance(self._error, Retry):
            return self._error
        when = None if result.redeliver_in is None else result.redeliver_in.total_seconds()
        if self._error is not None:
            return Retry(exc=self._error, when=when)
        waits = Transient("work_postponed", params={"task": self._task.name, "reason": result.reason})
        return Retry(str(waits), exc=waits, when=when)

    def _discard(self, reason: str) -> Ignore:
        """Return the exception that makes Celery acknowledge the message and store no state."""
        log.info("delivery.discarded task=%s call=%s reason=%s", self._task.name, self._request.id, reason)
        return Ignore(reason)

    def _wait_here(self, result: DeliveryResult) -> None:
        pause = result.redeliver_in.total_seconds() if result.redeliver_in is not None else LONGEST_WAIT_SECONDS
        time.sleep(min(pause, LONGEST_WAIT_SECONDS))
        if self._retry_message is not None:
            self._args, self._kwargs = self._retry_message.args, self._retry_message.kwargs
            self._request.retries += 1

    def _answer_published(self, call: Call) -> Any:
        """Return the answer after the result was committed. The same transaction reserved it."""
        for one in self._released:
            if one.id != call.id:
                self._task.send_answer(one)
        if not self._local and all(one.id != call.id for one in self._released):
            raise self._discard("answered")
        return self._return(call, self._make_result(self.run))

    def _answer(self, known: KnownCall) -> Any:
        """Return or raise the answer to a call whose job has ended. Each call is answered once."""
        call = known.call
        if not self._local and not self._task.calls.claim_answer(call):
            raise self._discard("answered")
        if call.verdict is CallVerdict.REJECTED:
            raise GuardedRequestRejected(task=self._task.name, reason=call.reason)
        if call.verdict is CallVerdict.REVOKED:
            return self._answer_cancelled(call)
        if call.verdict is CallVerdict.SKIPPED:
            return self._return(call, self._task.calls.find_newest_result(call.key))
        assert known.job is not None  # noqa: S101 - the call was accepted, or joined a job
        return self._answer_ended(call, known.job)

    def _answer_ended(self, call: Call, job: Job) -> Any:
        match job.outcome:
            case Outcome.SUCCESS | Outcome.DEGRADED:
                return self._return(call, self._task.calls.find_result(job.id))
            case Outcome.FAILED:
                error = self._failure(job)
                if isinstance(error, Reject):  # Celery stores it after this process is done
                    self._task.calls.mark_answered(call.id)
                raise error
            case Outcome.SUPERSEDED:
                raise GuardedWorkSuperseded(task=self._task.name, key=call.key)
            case Outcome.CANCELLED | Outcome.DELETED:
                return self._answer_cancelled(call)
            case None:
                raise self._discard("postponed")
            case _:
                assert_never(job.outcome)

    def _return(self, call: Call, result: StoredResult | None) -> Any:
        """Return what the run returned that published."""
        if result is None or result.kind is ResultKind.ERROR:  # adopted, or lost between publishing and returning
            return self._value if self._run is not None and self._run.published else None
        if result.kind is ResultKind.IGNORED:
            self._task.calls.mark_answered(call.id)
            raise self._discard("ignored_by_task")
        if result.kind is ResultKind.REPLACED:
            return self._replace(call, decode(self._task.app, result.data))
        if self._run is not None and self._run.fence == result.fence:
            return self._value
        return decode(self._task.app, result.data)

    def _replace(self, call: Call, signature: Mapping[str, Any]) -> Any:
        """Send the signature in place of this call, with its continuation."""
        try:
            return self._task.replace_call(self._task.app.signature(signature))
        except Ignore:
            self._task.calls.mark_answered(call.id)
            raise

    def _failure(self, job: Job) -> BaseException:
        """Return what the last attempt raised; a task whose workers died raised nothing."""
        code = str(job.results.get(job.base, {}).get("error", ""))
        if code not in ("attempts_spent", "no_result"):
            if self._error is not None:
                return self._error
            stored = self._task.calls.find_result(job.id)
            if stored is not None:
                return decode_exception(self._task, stored.data)
        return GuardedWorkFailed(task=self._task.name, reason=code)

    def _answer_cancelled(self, call: Call) -> NoReturn:
        """Store the state REVOKED, call the errbacks, and end the canvas."""
        if self._local:
            raise GuardedWorkCancelled(task=self._task.name, key=call.key)
        self._task.store_revoked(call, self._request)
        self._task.report_revoked(call)
        raise self._discard("cancelled")
