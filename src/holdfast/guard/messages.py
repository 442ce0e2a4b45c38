"""Guarded tasks of a message queue whose messages carry only the id of a job.

The arguments are in the database, so a message that is lost, repeated or late does no harm. A queue needs one function
that sends such a message; `holdfast.guard.dramatiq` and `holdfast.guard.rq` have theirs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.engine import Outcome
from holdfast.errors import GuardedWorkFailed
from holdfast.guard.function import GuardedFunction

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from holdfast.engine.store import Job
    from holdfast.guard.answers import Admission
    from holdfast.guard.work import RequestOptions, Work

log = logging.getLogger("holdfast")


class SendMessage(Protocol):
    def __call__(self, job: str, tries: int, delay: timedelta | None) -> None:
        """Send a message with the id of a job and the number of deliveries that met a live holder."""
        ...


class MessageTask:
    """A guarded task. `send` requests the work, and sends a message if the guard accepts."""

    def __init__(
        self,
        work: Work,
        function: Callable[..., Any],
        key: str | Callable[..., str] | None,
        send: SendMessage,
        failures: tuple[type[Exception], ...],
    ) -> None:
        """`failures` are the errors of a queue that cannot be reached; the reconciler sends the message later."""
        self.__doc__ = function.__doc__
        self.work = work
        self._call = GuardedFunction(work, function, key)
        self._send = send
        self._failures = failures
        work.resend = self._resend

    def send(self, *args: Any, **kwargs: Any) -> Admission:
        """Request the work with the arguments of the function.

        Example:
            index_document.send(42).http_status
        """
        return self._send_request(self._call.request(*args, **kwargs))

    def send_with_options(
        self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Admission:
        """Request the work with options of `Work.admit`, such as `requester`."""
        known: RequestOptions = options  # type: ignore[assignment]  # `admit` refuses unknown names
        return self._send_request(self._call.with_options(**known).request(*args, **(kwargs or {})))

    def run_job(self, job: str, tries: int = 0) -> Any:
        """Process one delivery, in a worker. Returns the value of the function; raises `GuardedWorkFailed`."""
        result = self._call.run_job(job)
        if result.redeliver_in is not None:
            held = result.verdict == "lock_held"
            if held and tries >= self.work.lock_held_tries:
                return None  # the other worker continues
            self._send_quietly(job, tries + 1 if held else 0, result.redeliver_in)
        if result.outcome is Outcome.FAILED:
            raise GuardedWorkFailed(task=self.work.name, reason=result.reason)
        return result.value

    def _send_request(self, admission: Admission) -> Admission:
        if admission.accepted and admission.job is not None:
            self.work.mark_sent(admission.key)
            self._send_quietly(admission.job, 0, None)
        return admission

    def _resend(self, job: Job) -> None:
        self._send(job.id, 0, None)

    def _send_quietly(self, job: str, tries: int, delay: timedelta | None) -> None:
        try:
            self._send(job, tries, delay)
        except self._failures as error:
            log.warning("message.not_sent job=%s error=%s", job, error)
