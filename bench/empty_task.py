"""A Celery app with one task that only records when it started: `celery -A bench.empty_task worker`."""

import os
import time

import redis
from celery import Celery

BROKER = os.environ["BENCH_BROKER"]

app = Celery("empty", broker=BROKER, set_as_current=False)
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1)
connection = redis.Redis.from_url(BROKER)


def record_start() -> None:
    connection.rpush("started", time.time())


app.task(record_start, name="started")
