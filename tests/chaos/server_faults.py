"""Faults of the servers behind the product: PostgreSQL, the object storage and the broker."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psycopg
from kombu import Connection, Producer, Queue
from kombu.exceptions import ChannelError, OperationalError

from holdfast.wiring import list_kinds
from tests.chaos.waiting import await_fact
from tests.support.cutting_proxy import Cut
from tests.support.object_storage import Answer
from tests.support.processes import process_state

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.chaos.deployments import SeparateRoles, WithBroker
    from tests.chaos.system import System
    from tests.support.servers import Server

Inject = Callable[["System", "random.Random"], bool]
OUTAGE = (0.5, 3.0)
SLOW_SECONDS = 1.5
CUT_AFTER = 40  # bytes of each answer
COPIES = 3
QUEUE_PREFIX = "holdfast"
VERBS = ("GET", "HEAD", "PUT", "POST", "DELETE")
BROKER_PATIENCE = 5.0

_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def alone_at(place: str) -> Callable[[Inject], Inject]:
    """Let a place have one fault at a time: otherwise one could not be repaired, or would end another too early.

    A server cannot crash while it restarts, for example, and a full disk cannot be made read-only.
    """

    def wrap(inject: Inject) -> Inject:
        def inject_alone(system: System, chance: random.Random) -> bool:
            with _locks[place]:
                return inject(system, chance)

        return inject_alone

    return wrap


def _restart(find: Callable[[System], Server], how: str) -> Inject:
    """Stop a server with SIGKILL or cleanly, and start it again after a moment."""

    def inject(system: System, chance: random.Random) -> bool:
        server = find(system)
        pid = server.pid
        getattr(server, how)()
        fired = not Path(f"/proc/{pid}").exists()
        time.sleep(chance.uniform(*OUTAGE))
        server.restart()
        return fired

    return inject


def _postgres(system: System) -> Server:
    return cast("SeparateRoles", system).postgres


def _seaweedfs(system: System) -> Server:
    return cast("SeparateRoles", system).seaweedfs


def _broker(system: System) -> Server:
    return cast("WithBroker", system).broker


def terminate_backends(system: System, chance: random.Random) -> bool:
    """End about half of all connections to PostgreSQL, in the middle of whatever they do."""
    with psycopg.connect(system.dsn, autocommit=True) as link:
        found = link.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < %s",
            (chance.uniform(0.3, 1.0),),
        ).fetchone()
    return bool(found and found[0])


def _cut_commit(when: Cut) -> Inject:
    def inject(system: System, chance: random.Random) -> bool:
        cutter = cast("SeparateRoles", system).cutter
        cutter.cut_next_commit(when)
        return await_fact(lambda: not cutter.armed)

    return inject


@alone_at("database")
def make_database_read_only(system: System, chance: random.Random) -> bool:
    """Refuse all writes for a moment, as a server does after a failover."""
    refused = _set_read_only(system, "on")
    time.sleep(chance.uniform(*OUTAGE))
    _set_read_only(system, "off")
    return refused


def _set_read_only(system: System, value: str) -> bool:
    with psycopg.connect(system.dsn, autocommit=True) as link:
        link.execute("SET default_transaction_read_only = off")
        link.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        link.execute("SELECT pg_reload_conf()")
    with psycopg.connect(system.dsn) as link:
        return await_fact(lambda: link.execute("SHOW default_transaction_read_only").fetchone() == (value,))


def _bucket_answers(answer: Answer, *verbs: str) -> Inject:
    """Let requests to the bucket fail for a moment."""

    @alone_at("bucket proxy")
    def inject(system: System, chance: random.Random) -> bool:
        proxy = cast("SeparateRoles", system).s3
        failed: list[str] = []

        def fault(verb: str, path: str) -> Answer | None:
            if verb not in verbs:
                return None
            failed.append(path)
            return answer

        proxy.fault = fault
        fired = await_fact(lambda: bool(failed))
        time.sleep(chance.uniform(*OUTAGE))
        proxy.recover()
        return fired

    return inject


@alone_at("bucket proxy")
def slow_bucket(system: System, chance: random.Random) -> bool:
    proxy = cast("SeparateRoles", system).s3
    before = len(proxy.requests)
    proxy.delay = lambda: time.sleep(SLOW_SECONDS)
    fired = await_fact(lambda: len(proxy.requests) > before)
    time.sleep(chance.uniform(*OUTAGE))
    proxy.delay = lambda: None
    return fired


@alone_at("bucket proxy")
def cut_downloads(system: System, chance: random.Random) -> bool:
    """End every answer of the bucket after a few bytes."""
    proxy = cast("SeparateRoles", system).s3
    before = len(proxy.requests)
    proxy.cut_after = CUT_AFTER
    fired = await_fact(lambda: any(one.startswith("GET") for one in proxy.requests[before:]))
    time.sleep(chance.uniform(*OUTAGE))
    proxy.recover()
    return fired


@alone_at("broker")
def pause_broker(system: System, chance: random.Random) -> bool:
    """Stop the broker, so that it keeps its connections and answers nothing, and let it continue."""
    pid = _broker(system).pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(*OUTAGE))
    fired = process_state(pid) == "T"
    os.kill(pid, signal.SIGCONT)
    return fired


@alone_at("broker")
def flush_broker(system: System, chance: random.Random) -> bool:
    """Remove all messages from the broker."""
    with _queues(system) as queues:
        for queue in queues:
            with contextlib.suppress(ChannelError):  # nobody has used this queue
                queue.purge()
        return bool(queues)


@alone_at("broker")
def duplicate_messages(system: System, chance: random.Random) -> bool:
    """Take the messages that wait in the queues, and send each of them several times."""
    return await_fact(lambda: _copy_messages(system) > 0)


def _copy_messages(system: System) -> int:
    copied = 0
    with _queues(system) as queues:
        for queue in queues:
            with contextlib.suppress(ChannelError):
                taken = list(iter(partial(queue.get, no_ack=True), None))
                copied += len(taken)
                for message in taken * COPIES:
                    _send_again(queue, message)
    return copied


def _send_again(queue: Any, message: Any) -> None:
    known = ("correlation_id", "reply_to", "delivery_mode", "priority")
    properties = {name: message.properties[name] for name in known if name in message.properties}
    Producer(queue.channel).publish(
        message.body,
        routing_key=queue.name,
        exchange="",
        headers=message.headers,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        serializer=None,
        **properties,
    )


@contextmanager
def _queues(system: System) -> Iterator[list[Any]]:
    """Yield the queues of all kinds of work; none if the broker is down."""
    with ExitStack() as held:
        queues = []
        with contextlib.suppress(OperationalError, OSError):
            connection = held.enter_context(Connection(_broker(system).url, connect_timeout=BROKER_PATIENCE))
            queues = [Queue(f"{QUEUE_PREFIX}.{kind}", channel=connection.channel()) for kind in list_kinds()]
        yield queues


SERVER_FAULTS: dict[str, Inject] = {
    "postgres_crash": alone_at("database")(_restart(_postgres, "crash")),
    "postgres_restart": alone_at("database")(_restart(_postgres, "stop")),
    "postgres_backends_killed": terminate_backends,
    "postgres_commit_lost": _cut_commit(Cut.BEFORE),
    "postgres_commit_unknown": _cut_commit(Cut.AFTER),
    "postgres_read_only": make_database_read_only,
    "bucket_crash": alone_at("bucket")(_restart(_seaweedfs, "crash")),
    "bucket_errors": _bucket_answers(Answer(503, "ServiceUnavailable"), *VERBS),
    "bucket_answers_lost": _bucket_answers(Answer(500, "InternalError", applied=True), "PUT", "DELETE", "POST"),
    "bucket_read_only": _bucket_answers(Answer(403, "AccessDenied"), "PUT", "DELETE", "POST"),
    "bucket_full": _bucket_answers(Answer(507, "XMinioStorageFull"), "PUT"),
    "bucket_slow": slow_bucket,
    "bucket_cut": cut_downloads,
    "broker_crash": alone_at("broker")(_restart(_broker, "crash")),
    "broker_flushed": flush_broker,
    "broker_duplicates": duplicate_messages,
    "broker_paused": pause_broker,
}
