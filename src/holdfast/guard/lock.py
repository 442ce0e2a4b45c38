"""The early lock: refuses duplicate work before it begins, for pipelines that already have a Redis.

The fence in the database decides which result is written; this lock only saves the cost of work that the fence would
refuse. If the lock is lost, expired or flushed, work may be done twice, but only one result is written. An error of
Redis never stops the work.

The lock itself is redis-py's. This module adds what redis-py lacks: one thread in each process that renews held locks,
safety across forks (Celery forks its workers after the import, so client, mutex and thread belong to a process id), and
work that continues while Redis does not answer. A holder that dies loses its lock after the time to live.
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

TIMEOUT_SECONDS = 1.0  # the delay that an unreachable Redis may cause at the beginning, and again at the end
MIN_EXTEND = timedelta(milliseconds=1)  # Redis counts in milliseconds


class EarlyLock:
    """A lock for each name. It is not re-entrant, and `hold` never waits.

    Example:
        guard = Guard("postgresql+psycopg://…", lock=EarlyLock("redis://localhost:6379/0"))
    """

    def __init__(
        self,
        url: str,
        *,
        ttl: timedelta = timedelta(seconds=120),
        extend: timedelta = timedelta(seconds=30),
        prefix: str = "holdfast:guard:",
    ) -> None:
        if not MIN_EXTEND <= extend < ttl:
            raise BadSettings("lock_extend_interval", ttl=ttl, extend=extend)
        self._url = url
        self._ttl = ttl
        self._extend = extend
        self._prefix = prefix
        self._renewers: dict[int, _LockRenewer] = {}
        self._renewer()  # reports an invalid address here, not in the first task

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Yield True if this process holds the lock or Redis does not answer; False if another holder has it."""
        renewer = self._renewer()
        lock = renewer.make_lock((self._prefix + name).encode("utf-8", "surrogatepass"))
        refused = False
        try:  # includes `acquire`: a time limit of Celery may interrupt it after Redis has granted the lock
            refused = not renewer.acquire(lock)
            yield not refused
        finally:
            if not refused:
                renewer.release(lock)

    def close(self) -> None:
        """Stop the thread and close the connections of this process. Held locks expire."""
        renewer = self._renewers.pop(os.getpid(), None)
        if renewer is not None:
            renewer.stop()

    def _renewer(self) -> _LockRenewer:
        """Return the renewer of this process. No mutex: a fork could copy it while it is locked."""
        pid = os.getpid()
        renewer = self._renewers.get(pid)
        return renewer or self._renewers.setdefault(pid, _LockRenewer(_client(self._url), self._ttl, self._extend))


class _LockRenewer:
    """The locks that one process holds, and the thread that renews them."""

    def __init__(self, client: Redis, ttl: timedelta, extend: timedelta) -> None:
        from redis.exceptions import LockError, RedisError  # noqa: PLC0415 - an extra

        self._lost_error = LockError
        # UnicodeError: an invalid host name. Not Exception, because Celery raises its time limit as one.
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
        """Return a lock with its token set, so that it can be released even if `acquire` was interrupted."""
        from redis.lock import Lock  # noqa: PLC0415 - an extra

        ttl = self._ttl.total_seconds()
        # Redis keys are bytes; the annotation of redis-py allows only str.
        lock = Lock(self._client, key, timeout=ttl, blocking=False, thread_local=False)  # type: ignore[arg-type]
        lock.local.token = uuid.uuid4().hex.encode()
        return lock

    def acquire(self, lock: Lock) -> bool:
        """Return whether work may begin. After an error the lock is renewed, too, because Redis may have granted it."""
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
        """Release the lock, unless another holder has it or it belongs to the parent of this process."""
        if self._pid != os.getpid():
            return
        held = self._forget(lock)
        try:
            lock.release()
        except self._lost_error:
            if held:
                log.warning("lock.lost key=%r", lock.name)
        except self._connection_errors as error:
            log.warning("lock.not_released key=%r error=%s", lock.name, error)

    def stop(self) -> None:
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
                if self._stopped.is_set():  # each renewal may take a second if Redis does not answer
                    break
                self._renew(lock)

    def _renew(self, lock: Lock) -> None:
        """Renew the time to live; stop renewing a lock that another holder has."""
        try:
            lock.reacquire()
        except self._lost_error:
            if self._forget(lock):
                log.warning("lock.lost key=%r", lock.name)
        except Exception as error:  # noqa: BLE001 - the thread must not end; the next renewal may succeed
            log.warning("lock.not_extended key=%r error=%s", lock.name, error)

    def _forget(self, lock: Lock) -> bool:
        """Stop renewing a lock; return whether it was being renewed."""
        with self._mutex:
            held = lock in self._held
            self._held.discard(lock)
        return held


def _client(url: str) -> Redis:
    """Return a client that does not retry, because the work waits for it."""
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
        client.connection_pool.make_connection()  # does not connect; refuses unknown options
    except (ValueError, TypeError, RedisError):
        # Show neither the address nor the message of redis-py: they may contain a password.
        raise BadSettings("redis_address_invalid") from None
    return client
