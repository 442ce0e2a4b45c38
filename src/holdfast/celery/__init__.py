"""Celery carries the work: `celery -A holdfast.celery worker -Q holdfast.vector,holdfast.graph`.

The settings come from the environment. There is one queue for each kind of work.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Create the application for the `celery` command. The scheduler, which only sends rings, needs no tasks."""
    if name not in ("app", "celery"):
        raise AttributeError(name)
    from holdfast.celery.worker import make_worker_app  # noqa: PLC0415
    from holdfast.settings import Settings  # noqa: PLC0415

    globals()["app"] = app = make_worker_app(Settings.from_environment())
    return app
