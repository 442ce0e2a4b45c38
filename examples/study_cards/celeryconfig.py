"""The Celery settings of both versions. Everything else is Celery's default."""

import os

broker_url = os.environ["REDIS_URL"]
broker_connection_retry_on_startup = True
task_ignore_result = True
