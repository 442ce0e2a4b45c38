"""The Celery application: one queue for each kind of work, and settings that agree with the leases.

A message is a ring: it names a slot and contains no text. Losing it costs time, because the reconciler rings again;
delivering it twice costs a query, because a worker claims slots in the database before it works.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine import OwnerId, Ring, SlotId, SlotKey
from holdfast.errors import BadSettings
from holdfast.extras import importing_extra

with importing_extra("celery"):
    from celery import Celery
    from kombu import Exchange, Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.engine.schedulers.base import SchedulerSettings

TASK_PREFIX = "holdfast"
GRACE = timedelta(minutes=5)  # after the deadline of an attempt, until Celery kills its process
# RabbitMQ 3.12 and later close a channel after this time without an acknowledgement. It is a constant because a queue
# cannot be declared again with another value; leases find lost workers long before.
CONSUMER_TIMEOUT = timedelta(days=7)
REDIS_SCHEMES = ("redis", "rediss", "sentinel")


def make_app(settings: SchedulerSettings, kinds: Iterable[str]) -> Celery:
    """Return the application for these kinds of work. It connects to nothing yet."""
    if not settings.broker:
        raise BadSettings("broker_missing")
    app = Celery("holdfast", broker=settings.broker, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_transport_options=_transport_options(settings),
        task_acks_late=True,
        task_default_queue=queue_name(settings, "content"),
        task_ignore_result=True,
        task_queues=[make_queue(settings, kind) for kind in kinds],
        task_reject_on_worker_lost=True,
        task_serializer="json",
        task_time_limit=time_limit(settings).total_seconds(),
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_prefetch_multiplier=1,
    )
    return app


def queue_name(settings: SchedulerSettings, kind: str) -> str:
    return f"{settings.queue_prefix}.{kind}"


def task_name(kind: str) -> str:
    return f"{TASK_PREFIX}.{kind}"


def make_queue(settings: SchedulerSettings, kind: str) -> Queue:
    name = queue_name(settings, kind)
    # The default exchange needs no bindings, which a publisher would read from Redis for each message.
    arguments = {"x-consumer-timeout": int(CONSUMER_TIMEOUT.total_seconds() * 1000)}
    return Queue(name, Exchange(""), routing_key=name, queue_arguments=arguments)


def time_limit(settings: SchedulerSettings) -> timedelta:
    """Return the longest time that an answer to a ring may take: longer than an attempt, which ends at its deadline."""
    return settings.deadline + settings.lease + GRACE


def make_arguments(ring: Ring) -> dict[str, str | int]:
    """Return the arguments of the task for a ring, as `celery inspect active` and Flower show them."""
    return {
        "base": ring.key.base,
        "document": ring.key.owner,
        "owner_id": ring.owner,
        "slot": ring.slot,
        "generation": ring.generation,
    }


def parse_arguments(kind: str, arguments: Mapping[str, Any]) -> Ring:
    """Return the ring that `make_arguments` encoded."""
    return Ring(
        slot=SlotId(arguments["slot"]),
        owner=OwnerId(arguments["owner_id"]),
        key=SlotKey(arguments["base"], arguments["document"], kind),
        generation=arguments["generation"],
    )


def _transport_options(settings: SchedulerSettings) -> dict[str, bool | float]:
    """Return options for Redis. It keeps no copy of a message that a worker has received.

    Such a copy would be delivered again after hours, long after the reconciler rang again for the lost message. And a
    worker that loses the broker while it holds a message would fail to restore it, and end.
    """
    if settings.broker.partition(":")[0].partition("+")[0] not in REDIS_SCHEMES:
        return {}
    return {
        "ack_emulation": False,
        "socket_connect_timeout": 5,
        "socket_timeout": 30,
        "health_check_interval": 25,
    }
