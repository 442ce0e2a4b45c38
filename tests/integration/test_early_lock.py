"""The early lock on a real server: it refuses duplicates cheaply, and no failure of Redis affects the work."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.lock import Lock

from holdfast.errors import BadSettings
from holdfast.guard.lock import EarlyLock
from tests.support.processes import ROOT, until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Valkey

KEY = "holdfast:guard:doc-1"
SECOND = timedelta(seconds=1)
QUICK = {"ttl": 60 * SECOND, "extend": SECOND / 20}  # extended constantly, so that it never comes near its expiry
STILL = {"ttl": 60 * SECOND, "extend": 59 * SECOND}  # never extended during a test

BEGINNING = """
import os, signal, sys
from datetime import timedelta
from holdfast.guard.lock import EarlyLock
def early(ttl, extend):
    return EarlyLock(sys.argv[1], ttl=timedelta(seconds=ttl), extend=timedelta(seconds=extend))
"""
HOLDER = """
with early(2, 0.1).hold("doc-1") as ours:
    print(ours, flush=True)
    signal.pause()
"""
# A process forks while its lock, thread and connection are in use, as Celery does.
PARENT = """
lock = early(60, 0.05)
with lock.hold("of the parent") as ours:
    if os.fork() == 0:
        with lock.hold("of the parent") as again, lock.hold("doc-1") as ours:
            print(again, ours, flush=True)
            sys.stdin.readline()
        os._exit(0)
    os.wait()
"""
# A child that was forked inside the block leaves the block while its parent stays in it.
DESERTER = """
lock = early(60, 59)
with lock.hold("doc-1"):
    child = os.fork()
    if child:
        os.wait()
if not child:
    print("left", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def server(valkey: Valkey) -> Valkey:
    return valkey


@pytest.fixture
def client(server: Valkey) -> Iterator[redis.Redis]:
    """Return a separate client of the emptied server, to observe its keys."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.config_resetstat()
        yield client


@pytest.fixture
def make(client: redis.Redis, server: Valkey) -> Iterator[Callable[..., EarlyLock]]:
    """Make locks and close them after the test."""
    with ExitStack() as closing:

        def make(**settings: Any) -> EarlyLock:
            lock = EarlyLock(server.url, **settings)
            closing.callback(lock.close)
            return lock

        yield make


@contextmanager
def paused(server: Valkey) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def gone(server: Valkey) -> Iterator[None]:
    server.crash()
    try:
        yield
    finally:
        server.restart()


@contextmanager
def program(server: Valkey, text: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in its own process, and kill it afterwards if it still runs."""
    command = [sys.executable, "-c", BEGINNING + text, server.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def free(lock: EarlyLock, name: str = "doc-1") -> bool:
    with lock.hold(name) as ours:
        return ours


def extended(client: redis.Redis, key: str = KEY) -> bool:
    """Shorten the expiry of a key and wait until the lock restores its full time to live."""
    client.pexpire(key, 30_000)
    until(lambda: client.pttl(key) > 50_000, "nobody extends the lock")
    return 50_000 < client.pttl(key) <= 60_000


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().split()[0] for record in caplog.records if record.name == "holdfast"]


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-early-lock"]


def test_a_second_holder_is_refused_until_the_first_releases_the_lock(make: Callable[..., EarlyLock]) -> None:
    first, second = make(), make()
    with first.hold("doc-1") as ours:
        assert ours
        assert not free(second)
        assert not free(first)  # the same process is refused too, also after an earlier refusal
        assert free(second, "doc-2")
    assert free(second)
    assert free(first)


def test_a_lock_is_released_when_the_work_raises(make: Callable[..., EarlyLock], client: redis.Redis) -> None:
    with pytest.raises(ZeroDivisionError), make().hold("doc-1"):
        raise ZeroDivisionError
    assert not client.exists(KEY)


def test_a_refusal_needs_only_one_command(make: Callable[..., EarlyLock], client: redis.Redis) -> None:
    client.set(KEY, "somebody else's")
    assert not free(make())
    assert "cmdstat_evalsha" not in client.info("commandstats")
    assert client.get(KEY) == b"somebody else's"


def test_a_lock_expires_after_its_time_to_live(make: Callable[..., EarlyLock], client: redis.Redis) -> None:
    with make(ttl=7 * SECOND, extend=6 * SECOND, prefix="mine/").hold("doc-1"):
        assert 0 < client.pttl("mine/doc-1") <= 7000


def test_any_text_is_a_name(make: Callable[..., EarlyLock]) -> None:
    lock = make()
    names = ["", " ", "ä\n\0", "{tag}*?", "lone \udcff", "lone \ud800", "long" * 10_000]
    with ExitStack() as holding:
        assert all(holding.enter_context(lock.hold(name)) for name in names)
        assert not any(free(lock, name) for name in names)
    assert all(free(lock, name) for name in names)


@pytest.mark.parametrize("extinct", ["flushed", "expired"])
def test_a_lock_that_another_holder_has_taken_over_is_never_deleted(
    make: Callable[..., EarlyLock], client: redis.Redis, caplog: pytest.LogCaptureFixture, extinct: str
) -> None:
    first, second = make(**STILL), make(**STILL)
    with ExitStack() as other:
        with first.hold("doc-1") as ours:
            assert ours
            if extinct == "flushed":
                client.flushall()
            else:
                client.pexpire(KEY, 1)
                until(lambda: not client.exists(KEY), "the key does not expire")
            assert other.enter_context(second.hold("doc-1"))
            token = client.get(KEY)
        assert client.get(KEY) == token
        assert words(caplog) == ["lock.lost"]
    assert not client.exists(KEY)


def test_a_held_lock_is_extended_beyond_its_time_to_live(make: Callable[..., EarlyLock], client: redis.Redis) -> None:
    with make(**QUICK).hold("doc-1"):
        token = client.get(KEY)
        for _ in range(3):  # half of its time to live passes in each round, so more than one in total
            assert extended(client)
        assert client.get(KEY) == token


def test_one_thread_extends_every_held_lock_to_its_full_time_to_live(
    make: Callable[..., EarlyLock], client: redis.Redis
) -> None:
    lock = make(**QUICK)
    assert not watchdogs()
    with lock.hold("doc-1"), lock.hold("doc-2"):
        for key in (KEY, "holdfast:guard:doc-2", KEY):
            assert extended(client, key)
        (thread,) = watchdogs()
        assert thread.daemon
    lock.close()
    assert not watchdogs()


def test_a_released_lock_is_not_extended_any_more(
    make: Callable[..., EarlyLock], client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make(**QUICK)
    assert free(lock)
    with lock.hold("doc-2"):
        assert extended(client, "holdfast:guard:doc-2")
        assert extended(client, "holdfast:guard:doc-2")
    assert words(caplog) == []


def test_closing_a_lock_does_not_interrupt_the_work_and_the_lock_can_be_used_again(
    make: Callable[..., EarlyLock], client: redis.Redis
) -> None:
    lock = make(**QUICK)
    with lock.hold("doc-1"):
        lock.close()
        assert not watchdogs()
    assert not client.exists(KEY)
    lock.close()
    with lock.hold("doc-1"):
        assert extended(client)


def test_closing_a_lock_closes_its_connections(server: Valkey, client: redis.Redis) -> None:
    before = len(client.client_list())
    lock = EarlyLock(server.url)
    watch = lock._renewer()  # a reference, so that garbage collection does not close the connections
    assert free(lock)
    assert len(client.client_list()) > before
    lock.close()
    until(lambda: len(client.client_list()) <= before, f"the connections of {watch} stay")


def test_an_extension_after_the_release_is_not_logged_as_a_lost_lock(
    make: Callable[..., EarlyLock], client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make(**STILL)
    with lock.hold("doc-1"):
        (held,) = lock._renewer()._held
    lock._renewer()._renew(held)
    assert words(caplog) == []
    assert not client.exists(KEY)


def test_a_flush_is_logged_once_and_the_work_continues(
    make: Callable[..., EarlyLock], client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make(**QUICK)
    with lock.hold("doc-1") as ours:
        assert ours
        client.flushall()
        until(lambda: words(caplog), "nobody noticed")
        with lock.hold("doc-2"):  # the thread still runs and no longer extends the first lock
            assert extended(client, "holdfast:guard:doc-2")
            assert extended(client, "holdfast:guard:doc-2")
    assert words(caplog) == ["lock.lost"]
    assert not client.exists(KEY)


def test_a_server_that_crashes_does_not_disturb_the_work(
    make: Callable[..., EarlyLock], server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make(**QUICK)
    with gone(server):
        with lock.hold("doc-1") as ours:
            assert ours
        assert {"lock.unanswered", "lock.not_released"} <= set(words(caplog))
    with lock.hold("doc-2"):
        with gone(server):
            until(lambda: "lock.not_extended" in words(caplog), "nobody noticed")
        until(lambda: "lock.lost" in words(caplog), "the restarted server is empty, and nobody noticed")
    assert free(lock, "doc-2")


def test_a_server_that_does_not_answer_is_called_once_per_command(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lock = EarlyLock(f"redis://127.0.0.1:{silent.getsockname()[1]}", ttl=60 * SECOND, extend=59 * SECOND)
        with lock.hold("doc-1") as ours:
            assert ours
        lock.close()
        silent.setblocking(False)
        calls = []
        with suppress(BlockingIOError):
            while True:
                calls.append(silent.accept()[0])
        for call in calls:
            call.close()
    assert words(caplog) == ["lock.unanswered", "lock.not_released"]
    assert len(calls) == 2  # one per command; with the client's own retries it would be ten more


def test_a_paused_server_does_not_block_work_and_is_used_again_afterwards(
    make: Callable[..., EarlyLock], server: Valkey
) -> None:
    lock, new = make(**STILL), make(**STILL)
    assert free(lock)  # this lock has a connection now, the other has none
    for one in (lock, new):
        with ExitStack() as holding, paused(server):
            assert holding.enter_context(one.hold("doc-1"))
        assert free(lock)
        with lock.hold("doc-1"):
            assert not free(new)


def test_a_lock_that_the_server_creates_late_is_held_and_released(
    make: Callable[..., EarlyLock], server: Valkey, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make(**STILL)
    assert free(lock)  # opens the connection, so that the next command is sent
    with ExitStack() as holding:
        with paused(server):
            assert holding.enter_context(lock.hold("doc-1"))
        assert words(caplog) == ["lock.unanswered"]
        until(lambda: client.exists(KEY), "the server forgot the question")
        assert len(lock._renewer()._held) == 1  # it is extended like any other lock
    assert not client.exists(KEY)


def test_a_failed_extension_is_retried(
    make: Callable[..., EarlyLock], server: Valkey, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with make(**QUICK).hold("doc-1"):
        with paused(server):
            until(lambda: "lock.not_extended" in words(caplog), "nobody noticed")
        assert extended(client)
    assert "lock.lost" not in words(caplog)


def test_closing_does_not_wait_for_all_the_locks_of_a_paused_server(
    make: Callable[..., EarlyLock], server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make(**QUICK)
    with ExitStack() as holding:
        for number in range(12):
            holding.enter_context(lock.hold(f"doc-{number}"))
        with paused(server):
            until(lambda: "lock.not_extended" in words(caplog), "nobody noticed")
            before = words(caplog).count("lock.not_extended")
            lock.close()
            assert words(caplog).count("lock.not_extended") <= before + 1  # only the extension that was in progress
            assert not watchdogs()  # close has still waited for the thread to end


def test_the_client_never_retries_whatever_the_address_configures(client: redis.Redis, server: Valkey) -> None:
    lock = EarlyLock(server.url + "?retry_on_timeout=yes&socket_timeout=20")
    connection: Any = lock._renewer()._client.connection_pool.make_connection()
    assert connection.retry.get_retries() == 0
    assert connection.socket_connect_timeout == 1
    lock.close()


@pytest.mark.parametrize("error", [redis.ResponseError("READONLY"), OSError(9, "bad"), UnicodeError("label too long")])
def test_no_error_of_redis_or_its_client_affects_the_work(
    make: Callable[..., EarlyLock], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    lock = make(**QUICK)
    monkeypatch.setattr(Lock, "do_acquire", fail)
    monkeypatch.setattr(Lock, "do_release", fail)
    with lock.hold("doc-1") as ours:
        assert ours
    assert {"lock.unanswered", "lock.not_released"} <= set(words(caplog))


def test_an_invalid_host_is_treated_as_a_server_that_does_not_answer() -> None:
    lock = EarlyLock("redis://no..host:6379/0")
    assert free(lock)
    lock.close()


def test_no_error_ends_the_thread_that_extends_locks(
    make: Callable[..., EarlyLock],
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Lock) -> None:
        raise RuntimeError("a bug")

    with make(**QUICK).hold("doc-1"):
        with monkeypatch.context() as patch:
            patch.setattr(Lock, "reacquire", fail)
            until(lambda: "lock.not_extended" in words(caplog), "it was not tried")
        assert extended(client)


@pytest.mark.parametrize("limit", [KeyboardInterrupt, type("SoftTimeLimitExceeded", (Exception,), {})])
def test_a_time_limit_during_the_acquisition_leaves_no_lock(
    make: Callable[..., EarlyLock],
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    limit: type[BaseException],
) -> None:
    take = Lock.do_acquire

    def struck(lock: Lock, token: Any) -> bool:
        assert take(lock, token)
        assert client.exists(KEY)
        raise limit

    monkeypatch.setattr(Lock, "do_acquire", struck)
    with pytest.raises(limit), make(**STILL).hold("doc-1"):
        pass
    assert not client.exists(KEY)


def test_the_lock_of_a_killed_process_expires_by_itself(
    make: Callable[..., EarlyLock], server: Valkey, client: redis.Redis
) -> None:
    with program(server, HOLDER) as holder:
        assert said(holder) == "True"
        assert client.exists(KEY)
        holder.kill()
        holder.wait()
    until(lambda: not client.exists(KEY), "the lock outlives its holder")
    assert free(make())


def test_a_forked_child_holds_and_extends_locks_of_its_own(
    make: Callable[..., EarlyLock], server: Valkey, client: redis.Redis
) -> None:
    lock = make(**STILL)
    with program(server, PARENT) as parent:
        assert said(parent) == "False True"
        assert not free(lock)
        assert extended(client)
        assert extended(client, "holdfast:guard:of the parent")
        parent.communicate("\n")
        assert parent.returncode == 0
    assert client.keys() == []


def test_a_child_forked_during_the_work_does_not_release_the_lock_of_its_parent(
    server: Valkey, client: redis.Redis
) -> None:
    with program(server, DESERTER) as parent:
        assert said(parent) == "left"
        assert client.exists(KEY)
        parent.communicate("\n")
    assert not client.exists(KEY)


def test_concurrent_threads_of_a_new_process_start_only_one_extending_thread(make: Callable[..., EarlyLock]) -> None:
    lock = make(**QUICK)
    lock.close()  # no thread and no connection, as after a fork
    gate, inside = threading.Barrier(8, timeout=PATIENCE_SECONDS), threading.Barrier(9, timeout=PATIENCE_SECONDS)
    leave = threading.Event()

    def work(number: int) -> None:
        gate.wait()
        with lock.hold(f"doc-{number}"):
            inside.wait()
            leave.wait(PATIENCE_SECONDS)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert len(watchdogs()) == 1
    leave.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("ttl", "extend"), [(SECOND, SECOND), (SECOND, 2 * SECOND), (SECOND, 0 * SECOND), (SECOND, -SECOND)]
)
def test_settings_that_let_a_held_lock_expire_are_refused(ttl: timedelta, extend: timedelta) -> None:
    with pytest.raises(BadSettings, match=f"The early lock expires after {ttl}, but is extended every {extend}"):
        EarlyLock("redis://localhost", ttl=ttl, extend=extend)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://:hush@host",
        "redis://:hush@host:many/0",
        "redis://:hush@host/0?patience=7",
        "redis://:hush@host/0?protocol=9",
    ],
)
def test_an_invalid_address_is_refused_without_revealing_its_password(url: str) -> None:
    with pytest.raises(BadSettings, match="The Redis address of the early lock is invalid") as refusal:
        EarlyLock(url)
    assert "hush" not in str(refusal.value)
    assert refusal.value.__suppress_context__


def test_a_missing_redis_client_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(BadSettings, match=r"pip install 'holdfast\[celery\]'"):
        EarlyLock("redis://localhost")


def test_the_redis_client_is_not_imported_until_a_lock_is_made() -> None:
    command = "import sys, holdfast.guard.lock; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


def test_a_lost_lock_is_logged_as_a_warning_that_can_be_encoded(
    make: Callable[..., EarlyLock], client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with make(**STILL).hold("lone \ud800"):
        client.flushall()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    record.getMessage().encode()
