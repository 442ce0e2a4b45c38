"""Guarded functions without a broker: whatever calls them runs them, such as a thread, cron or a Kubernetes job.

@guard.work("report")
def build_report(run: Run, tenant: str) -> str: ...

build_report("acme")  # requests the work and runs it here
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.engine import Verdict
from holdfast.guard.answers import DeliveryResult
from holdfast.guard.calls import bind_call, make_key_function, write_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.guard.answers import Admission
    from holdfast.guard.work import RequestOptions, Work


class GuardedFunction:
    """A function whose calls the guard decides on.

    A call requests the work and runs it in the calling thread. If the work has an active job, the call runs that job:
    a pod that starts again continues the job of the pod that was killed. If another process runs the job, the call
    returns `lock_held` at once.
    """

    def __init__(
        self,
        work: Work,
        function: Callable[..., Any],
        key: str | Callable[..., str] | None = None,
        options: RequestOptions | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.work = work
        self._function = function
        self._key_of = make_key_function(function, key)
        self._options: RequestOptions = options or {}

    def with_options(self, **options: Unpack[RequestOptions]) -> GuardedFunction:
        """Return the function with options for its requests.

        Example:
            build_report.with_options(requester="cron", operation="force")("acme")
        """
        return GuardedFunction(self.work, self._function, self._key_of, self._options | options)

    def request(self, *args: Any, **kwargs: Any) -> Admission:
        """Request the work, without running it; `run_waiting` runs it later, in any process."""
        options = self._options.copy()
        options["payload"] = write_call(self.work.name, args, kwargs)
        return self.work.admit(self._key_of(*args, **kwargs), **options)

    def __call__(self, *args: Any, **kwargs: Any) -> DeliveryResult:
        """Request the work and run it here.

        The result has `redeliver_in` if the work should be called again after that time: because it failed for now, or
        because another process runs it.
        """
        admission = self.request(*args, **kwargs)
        if admission.job is None or admission.verdict not in (Verdict.ACCEPTED, Verdict.JOINED):
            return DeliveryResult(verdict=str(admission.verdict), reason=admission.reason)
        return self.run_job(admission.job)

    def run_job(self, job: str) -> DeliveryResult:
        """Run a job with the arguments that were stored with it."""
        return self.work.perform(job, bind_call(self._function, self.work.job(job)))

    def find_job_of_cause(self, cause: str, *args: Any, **kwargs: Any) -> str | None:
        """Return the newest job of the key of this call, if it was requested for this cause."""
        newest = next(iter(self.work.history(self._key_of(*args, **kwargs), 1)), None)
        return newest.id if newest is not None and newest.cause == cause else None

    def run_waiting(self, limit: int = 100) -> int:
        """Run up to `limit` jobs of this work that wait: requested, failed for now and due, or of a dead process.

        Returns how many were run. Any number of processes may call it at once.
        """
        return self.work.run_waiting(lambda job: bind_call(self._function, job), limit)
