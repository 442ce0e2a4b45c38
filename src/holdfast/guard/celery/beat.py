"""The reconciler as a periodic task of Celery beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery import Celery

    from holdfast.guard.guard import Guard

RECONCILE_TASK = "holdfast.guard.reconcile"


def reconcile_by_beat(app: Celery, guard: Guard) -> dict[str, Any]:
    """Register the reconciler as a Celery task; return its entry for `beat_schedule`.

    Example:
        app.conf.beat_schedule = {"holdfast": reconcile_by_beat(app, guard)}
    """

    @app.task(name=RECONCILE_TASK, ignore_result=True, shared=False)  # type: ignore[untyped-decorator]  # Celery has no types
    def reconcile() -> None:
        guard.reconcile()

    return {"task": RECONCILE_TASK, "schedule": guard.settings.period, "options": {"expires": guard.settings.period}}
