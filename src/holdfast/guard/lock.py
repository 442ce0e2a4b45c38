"""The early lock: a cheap refusal before any work begins, for pipelines that already have a Redis.

The fence in the database decides what is written; this lock only saves the cost of work that the fence would refuse. It
may be absent, lost, expired or flushed: then work is done twice and written once. An error of Redis neither reaches the
work nor stops it.

The lock itself is redis-py's. This module adds what redis-py lacks: one thread in each process that renews held locks,
safety across forks (Celery forks its workers after the import, so client, mutex and thread belong to a process id), and
work that goes on while Redis does not answer. A holder that dies loses its lock after the time to live.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.errors import BadSettings
from holdfast.extras import importing_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis
    from redis.lock import Lock

log = logging.getLogger("holdfast")

TIMEOUT_SECONDS = 1.0  # what a Redis that does not answer may cost at the beginning, and again at the end
MIN_EXTEND = timedelta(milliseconds=1)  # Redis counts in milliseconds


class EarlyLock:
    """A lock for each name that is being worked on: not re-entrant, and never waited for."""

    def __init__(
        self,
        url: str,
        *,
        ttl: timedelta = timedelta(seconds=120),
        extend: timedelta = timedelta(seconds=30),
        prefix: str = "holdfast:guard:",
    ) -> None:
        if not MIN_EXTEND <= extend < ttl:
            raise BadSettings(
                f"The early lock cannot live {ttl} and be extended every {extend}: it would end while it is held. "
                "Extend it several times within its time to live."
            )
        self._url = url
        self._ttl = ttl
        self._extend = extend
        self._prefix = prefix
        self._renewers: dict[int, _LockRenewer] = {}
        self._renewer()  # a bad address shows itself here, not in the first task

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Yield True if the lock is ours or Redis does not answer, False if somebody else holds it."""
        watch = self._renewer()
        lock = watch.make_lock((self._prefix + name).encode("utf-8", "surrogatepass"))
        refused = False
        try:  # around the question too: a time limit may strike when it was answered and we do not know yet
            refused = not watch.acquire(lock)
            yield not refused
        finally:
            if not refused:
                watch.release(lock)

    def close(self) -> None:
        """End the thread and the connections of this process; what is still held expires by itself."""
        watch = self._renewers.pop(os.getpid(), None)
        if watch is not None:
            watch.stop()

    def _renewer(self) -> _LockRenewer:
        """Return the watch of this process. Without a mutex: a fork could copy a mutex while it is locked."""
        pid = os.getpid()
        watch = self._renewers.get(pid)
        return watch or self._renewers.setdefault(pid, _LockRenewer(_client(self._url), self._ttl, self._extend))


class _LockRenewer:
    """The locks that one process holds, and the thread that extends them."""

    def __init__(self, client: Redis, ttl: timedelta, extend: timedelta) -> None:
        from redis.exceptions import LockError, RedisError  # noqa: PLC0415 - an extra

        self._lost_error = LockError
        # The last is what the search for an impossible host raises. Not Exception: a time limit of Celery is one.
        self._connection_errors = (RedisError, OSError, UnicodeError)
        self._client = client
        self._ttl = ttl
        self._extend = extend
        self._pid = os.getpid()
        self._held: set[Lock] = set()
        self._mutex = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def make_lock(self, key: bytes) -> Lock:
        """Make a lock whose token is known before it is taken."""
        from redis.lock import Lock  # noqa: PLC0415 - an extra

        ttl = self._ttl.total_seconds()
        # Keys are bytes to Redis; the library's annotation knows only text.
        lock = Lock(self._client, key, timeout=ttl, blocking=False, thread_local=False)  # type: ignore[arg-type]
        lock.local.token = uuid.uuid4().hex.encode()
        return lock

    def acquire(self, lock: Lock) -> bool:
        """Return whether work may begin. A lock that Redis did not answer for may be taken later, so it is watched."""
        try:
            if not lock.acquire(token=lock.local.token):
                return False
        except self._connection_errors as error:
            log.warning("lock.unanswered key=%r error=%s", lock.name, error)
        with self._mutex:
            self._held.add(lock)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-early-lock", daemon=True)
                self._thread.start()
        return True

    def release(self, lock: Lock) -> None:
        """Release the lock, unless another holder took it over or the parent of this process holds it."""
        if self._pid != os.getpid():
            return
        known = self._forget(lock)
        try:
            lock.release()
        except self._lost_error:
            if known:
                log.warning("lock.lost key=%r", lock.name)
        except self._connection_errors as error:
            log.warning("lock.not_released key=%r error=%s", lock.name, error)

    def stop(self) -> None:
        """End the thread and close the connections."""
        self._stopped.set()
        with self._mutex:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._stopped.wait(self._extend.total_seconds()):
            with self._mutex:
                held = list(self._held)
            for lock in held:
                if self._stopped.is_set():  # each may cost a second when Redis does not answer
                    break
                self._renew(lock)

    def _renew(self, lock: Lock) -> None:
        """Renew the time to live; forget the lock if another holder took it over."""
        try:
            lock.reacquire()
        except self._lost_error:
            if self._forget(lock):
                log.warning("lock.lost key=%r", lock.name)
        except Exception as error:  # noqa: BLE001 - the thread must live; the next time may succeed
            log.warning("lock.not_extended key=%r error=%s", lock.name, error)

    def _forget(self, lock: Lock) -> bool:
        """Stop renewing it; return whether it was held until now."""
        with self._mutex:
            known = lock in self._held
            self._held.discard(lock)
        return known


def _client(url: str) -> Redis:
    """Return a client that does not retry: the work waits for its answer."""
    with importing_extra("celery"):
        from redis import Redis  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    try:
        client = Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
        )
        client.connection_pool.make_connection()  # connects to nothing, and refuses options it does not know
    except (ValueError, TypeError, RedisError):
        # Neither the address nor the library's words about it: a password may stand there.
        raise BadSettings(
            "The address of the early lock's Redis cannot be read. Write it as redis://host:6379/0, "
            "rediss://host:6379/0 or unix:///path, with a user and password if it needs them."
        ) from None
    return client
