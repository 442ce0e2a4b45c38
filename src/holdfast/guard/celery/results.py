"""The result of a call, as its caller gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.extras import importing_extra

with importing_extra("celery"):
    from celery.result import AsyncResult

if TYPE_CHECKING:
    from holdfast.guard.answers import Admission
    from holdfast.guard.celery.task import GuardedTask


class GuardedResult(AsyncResult):  # type: ignore[misc]  # Celery has no types
    """The result of a call, with the decision on it. A call that joined a job gets the result of this job."""

    def __init__(self, task: GuardedTask, task_id: str, admission: Admission) -> None:
        super().__init__(task_id, backend=task.backend, task_name=task.name, app=task.app)
        self.admission = admission
        self._guarded_task = task

    def revoke(self, *args: Any, **options: Any) -> None:
        """Cancel the call in the database, then revoke it in all workers.

        The cancellation lasts: a worker that starts later does not run the task.
        """
        self._guarded_task.cancel_call(self.id)
        super().revoke(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain result."""
        return AsyncResult, self.__reduce_args__()
