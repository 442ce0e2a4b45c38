"""The mechanism for pipelines that already exist: one job for a key at a time, and no late write is ever seen.

`Guard` opens a database, `Guard.work` names a piece of work in it. For a Celery app there is
`holdfast.guard.celery.guarded`, which turns an existing task into a guarded one.
"""

from holdfast.guard.answers import Admission, DeliveryResult, Finished, KeyStatus
from holdfast.guard.guard import Guard
from holdfast.guard.run import Run
from holdfast.guard.work import Work

__all__ = ["Admission", "DeliveryResult", "Finished", "Guard", "KeyStatus", "Run", "Work"]
