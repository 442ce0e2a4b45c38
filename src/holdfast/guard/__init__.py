"""The engine for existing pipelines: at most one active job per key, and late writes are never visible.

`Guard` opens a database, and `Guard.work` registers a kind of work in it. `holdfast.guard.celery.guarded` turns an
existing Celery task into a guarded one.

    guard = Guard("postgresql+psycopg://…")
    invoices = guard.work("invoices")
    admission = invoices.admit("42")  # returns the job, or the reason why there is no new one
    invoices.perform(admission.job, lambda run: build_invoice(run.key))
"""

from holdfast.guard.answers import Admission, DeliveryResult, Finished, KeyStatus
from holdfast.guard.guard import Guard
from holdfast.guard.run import Run
from holdfast.guard.work import Work

__all__ = ["Admission", "DeliveryResult", "Finished", "Guard", "KeyStatus", "Run", "Work"]
