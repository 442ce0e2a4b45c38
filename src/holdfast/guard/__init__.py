"""The engine for existing pipelines: at most one active job per key, and late writes are never visible.

`Guard` opens a database, and `Guard.work` registers a kind of work in it. `holdfast.guard.celery.guarded` turns an
existing Celery task into a guarded one.

    guard = Guard("postgresql+psycopg://…")
    invoices = guard.work("invoices")
    admission = invoices.admit("42")  # returns the job, or the reason why there is no new one
    invoices.perform(admission.job, lambda run: build_invoice(run.key))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
