"""The guard for Celery: turns a task into a guarded task.

The guard decides on each call of a task before the work begins. Calls of a key that is active join its job, and get the
result of this job when it ends. Each call is answered once: its result is stored, and its chain, chord and links
continue, with the value of the run that published.

    @guarded(app, guard, key="invoice")
    def build_invoice(run: Run, invoice: int) -> str: ...

    build_invoice.delay(42).get()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
