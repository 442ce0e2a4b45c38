"""`python -m bench.rings [valkey|rabbitmq] [MESSAGES …]`: what brokers and the reconciler cost among many messages.

The first part fills one queue with copies of a ring, although Holdfast never sends so many. It then sends more, counts
the queue as the reconciler does before it rings, and receives some. The second part fills the database, on PostgreSQL,
with as many queued slots, and lets a reconciler ring while there is room in the broker. The CPU time is that of this
process, of its PostgreSQL backends, and of the broker.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.databases import opened
from bench.metrics import COUNT, FILL_OWNERS
from bench.workers import process_cpu
from holdfast.celery.app import make_app, queue_name
from holdfast.celery.scheduler import CeleryScheduler
from holdfast.clock import SystemClock
from holdfast.engine.reconciler import RINGS_AT_ONCE, Reconciler
from holdfast.engine.rules import Rules
from holdfast.engine.slot import OwnerId, Ring, SlotId, SlotKey
from holdfast.engine.store.factory import open_store
from holdfast.settings import Settings
from tests.support.servers import RabbitMQ, Valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SMALL = (1_000,)
BROKERS: dict[str, type[Valkey | RabbitMQ]] = {"valkey": Valkey, "rabbitmq": RabbitMQ}
KIND = "content"
SENT, RECEIVED, COUNTS = 4_000, 4_000, 400
WORKERS = RINGS_AT_ONCE // 2  # so that a pass fills the queue of the broker
PASSES = 25
FILL_SLOTS = """
INSERT INTO slots (id, owner_id, kind, job, wanted, built, state, priority, fence, queued_at)
{numbers} SELECT i, i, 'content', 'job-' || i, 1, 0, 'queued', 5, 0, i FROM n
"""


@dataclass(frozen=True)
class Cost:
    client: float  # CPU milliseconds for each ring, count or message
    broker: float
    seconds: float  # wall time of all

    def __str__(self) -> str:
        return f"{self.client:.3f} + {self.broker:.3f} ms"


class Queue:
    """One queue of a broker, with the scheduler that sends rings to it."""

    def __init__(self, server: Valkey | RabbitMQ) -> None:
        self.settings = Settings(scheduler="celery", broker=server.url, workers=WORKERS)
        self.scheduler = CeleryScheduler(self.settings)
        self.name = queue_name(self.settings, KIND)
        self._server = server
        self._connection = make_app(self.settings, [KIND]).connection_for_write()
        self._channel = self._connection.default_channel
        self._sent = 0

    def send(self, count: int) -> None:
        first, self._sent = self._sent, self._sent + count
        numbers = range(first, self._sent)
        self.scheduler.carry(
            [
                Ring(slot=SlotId(one), owner=OwnerId(one), key=SlotKey("1", str(one), KIND), generation=1)
                for one in numbers
            ]
        )

    def fill(self, messages: int) -> None:
        """Add copies of a message until there are so many."""
        missing = messages - self.count()
        if isinstance(self._server, Valkey):
            (raw,) = self._channel.client.lrange(self.name, 0, 0)
            for first in range(0, missing, 1_000):
                self._channel.client.lpush(self.name, *[raw] * min(1_000, missing - first))
            return
        message = self._channel.basic_get(self.name, no_ack=True)
        for sent in range(missing + 1):
            if sent % 20_000 == 0:  # RabbitMQ stops to read from a publisher that is too fast
                until_counted(self, messages - missing + sent - 1)
            self._channel.basic_publish(message, routing_key=self.name)

    def receive(self, count: int) -> None:
        for _ in range(count):
            message = self._channel.basic_get(self.name)
            assert message is not None
            self._channel.basic_ack(message.delivery_tag)

    def count(self) -> int:
        return self.scheduler.count_messages().get(KIND, 0)

    def purge(self) -> None:
        self._channel.queue_purge(self.name)

    def measure(self, operation: Callable[[], object], times: int) -> Cost:
        began, broker, client = time.perf_counter(), process_cpu(self._server.pid), time.process_time()
        operation()
        client = time.process_time() - client
        return Cost(
            client * 1000 / times,
            (process_cpu(self._server.pid) - broker) * 1000 / times,
            time.perf_counter() - began,
        )

    def close(self) -> None:
        self.scheduler.stop()
        self._connection.release()


def report_messages(queue: Queue, broker: str, messages: int) -> None:
    """Print the cost of a ring with so many messages in the queue."""
    queue.fill(messages)
    until_counted(queue, messages)
    sent = queue.measure(lambda: queue.send(SENT), SENT)
    counted = queue.measure(lambda: [queue.count() for _ in range(COUNTS)], COUNTS)
    received = queue.measure(lambda: queue.receive(RECEIVED), RECEIVED)
    print(
        f"  {broker:8} {messages:9,} messages: send {sent}, {SENT / sent.seconds:5.0f}/s; count {counted};"
        f" receive {received}, {RECEIVED / received.seconds:5.0f}/s",
        flush=True,
    )


def until_counted(queue: Queue, messages: int) -> None:
    """Wait until the broker has accepted all messages."""
    while queue.count() < messages:
        time.sleep(0.1)


def report_reconciler(queue: Queue, broker: str, slots: int) -> int:
    """Print the cost of a ring with so many queued slots. Return how many messages were in the broker at the end."""
    with TemporaryDirectory() as folder, opened("postgresql", Path(folder)) as (url, read_cpu):
        store: Any = open_store(url, rules=Rules(), clock=SystemClock())
        with store.database.writing(durable=False) as tx:
            for statement in (FILL_OWNERS, FILL_SLOTS):
                tx.run_sql(statement.format(numbers=COUNT.format(count=slots)))
        with store.database.autocommit() as tx:
            tx.run_sql("VACUUM ANALYZE")
        reconciler = Reconciler(store, queue.scheduler, (KIND,), store.rules)
        queue.purge()
        queue.scheduler.stop()  # forget the count
        costs = []
        for _ in range(PASSES):
            before = read_cpu()
            reconciler.ring_queued()
            costs.append((read_cpu() - before) * 1000 / RINGS_AT_ONCE)
            until_counted(queue, RINGS_AT_ONCE)
            queue.receive(RINGS_AT_ONCE)
            assert len(store.claim_next([KIND], "bench", RINGS_AT_ONCE)) == RINGS_AT_ONCE
        for _ in range(PASSES):  # nobody receives
            reconciler.reconcile()
            time.sleep(0.1)  # RabbitMQ counts a message later
        waiting = queue.count()
        queue.receive(waiting)
        store.close()
    print(
        f"  {broker:8} {slots:9,} queued slots: the reconciler {median(costs):.3f} ms a ring, which is"
        f" {1000 / median(costs):.0f}/s; without workers {waiting} messages in the broker",
        flush=True,
    )
    return waiting


def report(goals: dict[str, bool], sizes: Sequence[int] = SMALL, brokers: Sequence[str] = ("valkey",)) -> None:
    """Print every figure, and note whether the broker has few messages whatever waits in the database."""
    print("Rings among messages in the broker, and among queued slots in the database; CPU of client + broker")
    for broker in brokers:
        with TemporaryDirectory() as folder, BROKERS[broker](Path(folder)) as server, closing(Queue(server)) as queue:
            queue.send(1)
            for messages in sizes:
                report_messages(queue, broker, messages)
            queue.purge()
            most = max(report_reconciler(queue, broker, slots) for slots in sizes)
            goals[f"rings: {broker} has few messages"] = most <= RINGS_AT_ONCE


def main(arguments: Sequence[str]) -> int:
    goals: dict[str, bool] = {}
    brokers = [name for name in BROKERS if name in arguments] or tuple(BROKERS)
    report(goals, [int(argument) for argument in arguments if argument.isdecimal()] or SIZES, brokers)
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
