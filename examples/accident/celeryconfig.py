"""The Celery settings of both task modules: the usual advice for long tasks on a Redis broker.

A task is acknowledged late and given back when its process dies. The broker gives a message out again when it was not
acknowledged within the visibility timeout, and looks for such messages every second, so that a lost worker costs
little time. An hour is the default of that timeout; the scenes shorten it, to wait seconds where others wait hours.
All keys begin with `accident:`, so that a Redis that others use too stays clean.
"""

import os

broker_url = os.environ["REDIS_URL"]
broker_connection_retry_on_startup = True
broker_transport_options = {
    "visibility_timeout": float(os.environ.get("VISIBILITY_TIMEOUT", "3600")),
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "global_keyprefix": "accident:",
}
task_reject_on_worker_lost = True
task_ignore_result = True
worker_prefetch_multiplier = 1
worker_cancel_long_running_tasks_on_connection_loss = False
