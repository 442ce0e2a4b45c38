"""What the main process of a worker does with a message: revoke, expiry, lost pool processes and time limits.

Only workers import this module: Celery loads the class by the name in `GuardedTask.Request`.
"""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from celery import signals
from celery.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.utils.functional import maybe_list
from celery.worker.control import control_command
from celery.worker.control import revoke as revoke_in_celery
from celery.worker.request import Request
from celery.worker.state import revoked as revoked_tasks
from celery.worker.state import revoked_stamps, task_ready

from holdfast.engine import Fault
from holdfast.guard.celery.encoding import encode_exception
from holdfast.guard.celery.message import make_call_id
from holdfast.guard.celery.task import GuardedTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery

log = logging.getLogger("holdfast")

ENDED_PROCESS = (Terminated, WorkerLostError, SystemExit)


class GuardedRequest(Request):  # type: ignore[misc]  # Celery has no types
    """The execution of a guarded task, as the main process of a worker sees it."""

    task: GuardedTask
    _revocation: Mapping[str, Any] = MappingProxyType({})  # the fields of the event, if the call was revoked here

    @property
    def call_id(self) -> str:
        return make_call_id(self.id, self.request_dict)

    def maybe_expire(self) -> bool | None:
        """Expire a call only before its job begins: a message that is sent again must not end a running job."""
        if self.task.has_begun(self.call_id):
            return False
        expired: bool | None = super().maybe_expire()
        return expired

    def revoked(self) -> bool:
        """Do not discard the message for a call whose answer is known: it stores REVOKED and calls the errbacks."""
        if self._may_be_revoked() and self.task.has_answer(self.call_id):
            return False
        revoked: bool = super().revoked()
        return revoked

    def _may_be_revoked(self) -> bool:
        """Return whether Celery reads more than its own memory: most messages need no look at the database."""
        return bool(self.expires or revoked_stamps or self.id in revoked_tasks)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Cancel the job. Celery would store REVOKED now, call no errbacks and leave the canvas waiting for ever."""
        if self.task.calls.find(self.call_id) is None:
            super()._announce_revoked(reason, terminated, signum, expired)
            return
        task_ready(self)
        self.acknowledge()
        self._already_revoked = True
        self.task.cancel_call(self.call_id)
        self._revocation = {"terminated": terminated, "signum": signum, "expired": expired}
        self._answer_revoked()
        signals.task_revoked.send(self.task, request=self._context, **self._revocation)

    def _answer_revoked(self) -> None:
        """Store the state REVOKED, unless the job ended in another way, or another process answers the call."""
        call = self.task.calls.get(self.call_id)
        if self.task.is_cancelled(call) and self.task.calls.claim_answer(call):
            self.task.store_revoked(call, self._context)
            self.send_event("task-revoked", **self._revocation)

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Cancel the job, then end the process that runs it. Other pools have none: the run ends at its checkpoint.

        A message that no process has accepted will only answer the call now. The process that does must not be ended.
        """
        self.task.cancel_call(self.call_id)
        if self.time_start is None and self.task.has_answer(self.call_id):
            return
        try:
            super().terminate(pool, signal)
        except NotImplementedError:
            log.info("revoke.at_checkpoint task=%s call=%s", self.name, self.id)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Leave a call whose process was lost to another attempt. Without requeueing, Celery would fail it."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if self._revocation and isinstance(error, ENDED_PROCESS):  # perhaps while it answered the call
            self.task.calls.release_answer(self.call_id)
            self._answer_revoked()
            return
        if isinstance(error, WorkerLostError) and self._is_repeated():
            self.acknowledge()
            self.task.work.reconcile()
            return
        super().on_failure(exc_info, send_failed_event, return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Fail the job at its hard time limit, as Celery fails the call."""
        if not soft:
            self._fail_overdue(TimeLimitExceeded(timeout))
        super().on_timeout(soft, timeout)

    def _is_repeated(self) -> bool:
        """Return whether the guard sends the message again, because Celery does not deliver it again.

        If the job has ended, its answer is sent again.
        """
        requeued = self.task.acks_late and self.task.reject_on_worker_lost
        return not requeued and self.task.calls.find(self.call_id) is not None

    def _fail_overdue(self, error: TimeLimitExceeded) -> None:
        call = self.task.calls.find(self.call_id)
        if call is None or not call.runs_job:
            return
        assert call.job is not None  # noqa: S101 - it runs this job
        self.task.calls.save_error(call.job, call.key, 0, encode_exception(self.task, error))
        self.task.work.fail(call.job, Fault("time_limit_exceeded", {"limit": str(error)}))


@control_command(variadic="task_id", signature="[id1 [id2 [... [idN]]]]")  # type: ignore[untyped-decorator]
def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **options: Any) -> Any:
    """Revoke tasks by id. For a guarded task this cancels its job, also one that runs, in every pool."""
    for one in maybe_list(task_id):
        for task in _guarded_tasks(state.app):
            task.cancel_call(one)
    return revoke_in_celery(state, task_id, terminate=terminate, signal=signal, **options)


def _guarded_tasks(app: Celery) -> list[GuardedTask]:
    return [task for task in app.tasks.values() if isinstance(task, GuardedTask)]
