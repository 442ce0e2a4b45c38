"""Notifications wake waiting loops immediately, also when another process requested the work."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.db.notify import MemoryNotifier, PipeListener, PipeNotifier, PostgresListener, PostgresNotifier
from holdfast.engine.loop import Loop
from holdfast.errors import StoreUnavailable
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_work_notifier
from tests.support.processes import ROOT, until
from tests.support.stores import request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOUR = timedelta(hours=1)  # the polling period, too long to matter in these tests
PERIOD = timedelta(seconds=0.2)
# Admits one document and exits.
ADMITTER = """
import sys
from holdfast.settings import Settings
from holdfast.wiring import open_work_notifier, open_configured_store
from tests.support.stores import request
bell = open_work_notifier(sys.argv[1])
store = open_configured_store(Settings(database=sys.argv[1]), bell)
assert store.admit([request("elsewhere")])[0].accepted
store.close()
bell.close()
"""
# Listens, reports it, and waits to be killed.
LISTENER = """
import signal, sys
from holdfast.wiring import open_work_notifier
listener = open_work_notifier(sys.argv[1]).listen()
print("listening", flush=True)
signal.pause()
"""


def python(code: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def heard(listener: PipeListener | PostgresListener) -> bool:
    return listener.wait(PATIENCE_SECONDS)


def test_a_loop_wakes_immediately_when_another_process_requests_work(database_url: str) -> None:
    settings = Settings(database=database_url)
    bell = open_work_notifier(database_url)
    store = open_configured_store(settings, bell)
    found: list[int] = []
    looked = threading.Event()

    def look() -> None:
        found.append(len(store.find_unrung(["content"], 10).slots))
        looked.set()

    loop = Loop("worker", look, bell.listen(), HOUR)
    thread = loop.start()
    assert looked.wait(PATIENCE_SECONDS)
    assert found == [0]
    with python(ADMITTER, database_url) as admitting:
        assert admitting.wait(PATIENCE_SECONDS) == 0
    until(lambda: found[-1] == 1, "the loop slept on")
    loop.stop()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    loop._listener.close()
    store.close()
    bell.close()


def test_a_loop_finds_work_whose_notification_was_lost_after_one_period(database_url: str) -> None:
    bell, silent = open_work_notifier(database_url), MemoryNotifier()
    store = open_configured_store(Settings(database=database_url), bell)
    elsewhere = open_configured_store(Settings(database=database_url), silent)  # its notifications reach nobody here
    found: list[int] = []
    loop = Loop("worker", lambda: found.append(len(store.find_unrung(["content"], 10).slots)), bell.listen(), PERIOD)
    thread = loop.start()
    until(lambda: found != [], "the loop did not start")
    assert elsewhere.admit([request("elsewhere")])[0].accepted
    until(lambda: found[-1] == 1, "the loop slept on")
    loop.stop()
    thread.join(PATIENCE_SECONDS)
    loop._listener.close()
    for one in (store, elsewhere, bell, silent):
        one.close()


def test_a_loop_passes_a_wake_up_on_to_the_next_loop_but_not_the_end_of_its_period() -> None:
    listener, next_listener = PipeListener(), PipeListener()
    steps: list[bool] = []

    def step() -> timedelta | None:
        steps.append(next_listener.wait(0))
        if len(steps) == 2:
            listener.wake()
        if len(steps) == 3:
            loop.stop()
        return timedelta(milliseconds=1)

    loop = Loop("first", step, listener, HOUR, next_listener=next_listener)
    loop.run()
    assert steps == [False, False, True]
    for one in (listener, next_listener):
        one.close()


def test_a_loop_continues_after_any_exception_of_its_step() -> None:
    errors = [StoreUnavailable("the database is away"), ZeroDivisionError("a bug")]
    steps: list[object] = []

    def step() -> timedelta | None:
        steps.append(None)
        listener.wake()  # skip the polling period
        if errors:
            raise errors.pop()
        loop.stop()
        return None

    listener = PipeListener()
    loop = Loop("worker", step, listener, HOUR)
    loop.run()
    assert len(steps) == 3
    listener.close()


def test_a_loop_waits_as_long_as_its_step_requests() -> None:
    wishes = iter([timedelta(), timedelta(milliseconds=1), timedelta(days=1)])
    pauses: list[float] = []

    class Deaf:
        def wait(self, seconds: float) -> bool:
            pauses.append(seconds)
            return False

        def wake(self) -> None: ...

        def close(self) -> None: ...

    def step() -> timedelta | None:
        wish = next(wishes, None)
        if wish is None:
            loop.stop()
        return wish

    loop = Loop("reconciler", step, Deaf(), HOUR)
    loop.run()
    assert pauses == [0.001, 3600.0]  # zero means no pause, and no pause exceeds the period


def test_a_loop_can_be_stopped_from_a_signal_handler_even_twice() -> None:
    def stop(*_: object) -> None:
        stops.append(None)
        if len(stops) == 1:
            signal.raise_signal(signal.SIGUSR1)  # a second signal arrives while the handler runs
        loop.stop()

    stops: list[None] = []
    listener = PipeListener()
    loop = Loop("worker", lambda: os.kill(os.getpid(), signal.SIGUSR1), listener, HOUR)
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        loop.run()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(stops) == 2
    listener.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bells"


def test_every_listener_receives_a_notification_once(folder: Path) -> None:
    bell = PipeNotifier(folder)
    bell.notify()  # no listener exists yet
    listeners = [bell.listen(), PipeNotifier(folder).listen()]
    bell.notify()
    bell.notify()
    assert [heard(listener) for listener in listeners] == [True, True]
    assert [listener.wait(0) for listener in listeners] == [False, False]
    for listener in listeners:
        listener.close()
    assert list(folder.iterdir()) == []


def test_the_pipe_of_a_killed_listener_is_removed(sqlite_url: str, tmp_path: Path) -> None:
    pipes = tmp_path / "holdfast.db-bells"
    with python(LISTENER, sqlite_url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        bell = open_work_notifier(sqlite_url)
        alive = bell.listen()
        bell.notify()
        assert len(list(pipes.iterdir())) == 2
        process.kill()
        process.wait(PATIENCE_SECONDS)
    bell.notify()
    assert len(list(pipes.iterdir())) == 1
    assert alive.wait(0)
    alive.close()


def test_a_notification_that_cannot_be_sent_does_not_remove_the_pipe(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = PipeNotifier(folder)
    listener = bell.listen()
    tried: list[object] = []

    def no_descriptor_left(*args: object) -> int:
        tried.append(args)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.db.notify.os.open", no_descriptor_left)
        bell.notify()
    assert len(tried) == 1
    assert not listener.wait(0)
    bell.notify()
    assert heard(listener)
    listener.close()


def test_a_pipe_that_is_not_open_yet_is_not_removed_as_dead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bell = PipeNotifier(folder)
    made: list[Path] = []
    make = os.mkfifo

    def make_and_ring(path: Path, mode: int) -> None:
        make(path, mode)
        made.append(path)
        bell.notify()  # a notification arrives between mkfifo and open

    monkeypatch.setattr("holdfast.db.notify.os.mkfifo", make_and_ring)
    listener = bell.listen()
    assert len(made) == 1
    bell.notify()
    assert heard(listener)
    listener.close()


def test_a_full_pipe_blocks_no_sender(folder: Path) -> None:
    bell = PipeNotifier(folder)
    listener = bell.listen()
    with contextlib.suppress(BlockingIOError):
        while os.write(listener.fileno(), bytes(4096)):
            pass
    bell.notify()
    listener.wake()
    assert heard(listener)
    assert not listener.wait(0)
    listener.close()


@pytest.mark.parametrize("make", [PipeListener, lambda: MemoryNotifier().listen()])
def test_a_late_wake_up_does_not_write_to_a_reused_descriptor(make: Callable[[], PipeListener]) -> None:
    listener = make()
    descriptors = {listener._read_fd, listener._write_fd}
    listener.close()
    reads, writes = os.pipe2(os.O_NONBLOCK)
    assert {reads, writes} == descriptors  # the operating system reuses the descriptor numbers
    listener.wake()
    with pytest.raises(BlockingIOError):
        os.read(reads, 1)
    os.close(reads)
    os.close(writes)
    listener.close()  # closing twice is harmless


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


@pytest.fixture
def bell(postgres_url: str) -> Iterator[PostgresNotifier]:
    bell = PostgresNotifier(postgres_url)
    yield bell
    bell.close()


@pytest.mark.postgres
def test_a_listener_whose_connection_is_cut_wakes_up_and_reconnects(
    bell: PostgresNotifier, admin: psycopg.Connection
) -> None:
    listener = bell.listen()
    assert isinstance(listener, PostgresListener)
    first = listener._connection.info.backend_pid
    assert not listener.wait(0)
    admin.execute("SELECT pg_terminate_backend(%s)", [first])
    assert heard(listener)  # the cut wakes the listener, because it may have missed a notification

    def noticed() -> bool:
        if listener._connection is not None:
            listener.wait(0)
        return listener._connection is None

    until(noticed, "the cut is not noticed")
    bell.notify()  # while no connection listens
    assert heard(listener)  # the new connection wakes the listener for the same reason
    assert listener._connection.info.backend_pid != first
    until(lambda: not listener.wait(0), "it is woken on and on")
    bell.notify()
    assert heard(listener)
    listener.close()


@pytest.mark.postgres
def test_a_notifier_whose_connection_was_cut_reconnects_and_sends(
    bell: PostgresNotifier, admin: psycopg.Connection
) -> None:
    listener = bell.listen()
    bell.notify()
    assert heard(listener)
    pid = bell._connection.info.backend_pid
    admin.execute("SELECT pg_terminate_backend(%s)", [pid])
    until(
        lambda: not admin.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone(),
        "the connection is not cut",
    )
    bell.notify()
    assert heard(listener)
    assert bell._connection.info.backend_pid != pid
    listener.close()


@pytest.mark.postgres
def test_a_burst_of_notifications_is_combined_and_the_last_one_arrives(
    bell: PostgresNotifier, admin: psycopg.Connection
) -> None:
    admin.execute(f"LISTEN {PostgresNotifier.CHANNEL}")
    start = time.monotonic()
    for _ in range(200):
        bell.notify()
    burst = time.monotonic() - start
    until(lambda: bell._timer is None, "the last ring is still to come")
    with bell._mutex:  # wait until the last notification is sent
        admin.execute(f"NOTIFY {PostgresNotifier.CHANNEL}, 'last'")  # arrives after all notifications sent before it
    count = 0
    for notice in admin.notifies(timeout=PATIENCE_SECONDS):
        if notice.payload == "last":
            break
        count += 1
    assert 2 <= count <= 2 + burst / PostgresNotifier.SPACING


@pytest.mark.postgres
def test_closing_a_notifier_sends_its_pending_notification(
    bell: PostgresNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bell, "SPACING", 1e9)  # seconds, longer than any machine has been running
    listener = bell.listen()
    bell.notify()
    assert heard(listener)
    bell.notify()
    assert bell._timer is not None  # it would fire in thirty years
    bell.close()
    assert heard(listener)
    bell.notify()  # a closed notifier sends nothing
    assert not listener.wait(0)
    listener.close()


@pytest.mark.postgres
def test_a_listener_can_be_woken_while_the_server_is_down() -> None:
    listener = PostgresListener("postgresql+psycopg://postgres@127.0.0.1:1/none", "holdfast", 2)
    assert listener._connection is None
    listener.wake()
    assert heard(listener)
    assert not listener.wait(0)
    listener.close()
