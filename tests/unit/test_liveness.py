"""A worker counts as dead only if its process on this host has certainly ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.liveness import host_id, known_dead, make_holder_name, read_start_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME_AND_WAIT = (
    "import sys; from holdfast.engine.liveness import make_holder_name; "
    "print(make_holder_name(), flush=True); sys.stdin.read()"
)


@contextmanager
def child(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a child that prints one line and waits. Kill it at the end of the test."""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def part(holder: str, position: int, value: str) -> str:
    """Return the holder with one of its five parts replaced."""
    parts = holder.split("/")
    parts[position] = value
    return "/".join(parts)


HOST, PID, START = 1, 2, 3


def test_a_worker_of_this_process_is_not_dead() -> None:
    assert not known_dead(make_holder_name())


def test_each_worker_of_a_process_has_a_name_of_its_own() -> None:
    names = [make_holder_name() for _ in range(3)]
    assert len(set(names)) == 3
    assert {name.rsplit("/", 1)[0] for name in names} == {names[0].rsplit("/", 1)[0]}
    assert names[0].split("/")[PID] == str(os.getpid())


def test_a_worker_of_another_running_process_is_not_dead() -> None:
    with child(NAME_AND_WAIT) as (_, holder):
        assert holder.split("/")[HOST] == host_id()
        assert not known_dead(holder)


def test_a_killed_process_is_known_to_be_dead() -> None:
    with child(NAME_AND_WAIT) as (process, holder):
        process.kill()
        process.wait()
        assert known_dead(holder)


def test_a_zombie_process_is_known_to_be_dead() -> None:
    with child(NAME_AND_WAIT) as (process, holder):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # the process has ended and stays a zombie
        assert known_dead(holder)


def test_a_stopped_process_is_not_dead() -> None:
    with child(NAME_AND_WAIT) as (process, holder):
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert not known_dead(holder)


def test_a_holder_is_dead_if_its_process_id_was_reused() -> None:
    mine = make_holder_name()
    start = int(mine.split("/")[START])
    assert known_dead(part(mine, START, str(start - 1)))


def test_a_holder_on_another_host_is_not_known_to_be_dead() -> None:
    with child(NAME_AND_WAIT) as (process, holder):
        process.kill()
        process.wait()
        assert known_dead(holder)
        boot, _, space = host_id().partition("+")
        assert not known_dead(part(holder, HOST, f"another-boot+{space}"))
        assert not known_dead(part(holder, HOST, f"{boot}+1"))  # another container on this machine


def test_without_a_host_id_no_holder_is_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = part(make_holder_name(), START, "1")
    assert known_dead(dead)
    monkeypatch.setattr("holdfast.engine.liveness.host_id", lambda: "")
    assert not known_dead(dead)
    assert not known_dead(part(dead, HOST, ""))


def test_without_access_to_other_processes_no_holder_is_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = part(make_holder_name(), START, "1")
    assert known_dead(dead)
    monkeypatch.setattr("holdfast.engine.liveness.read_start_time", lambda pid: "" if pid != os.getpid() else "7")
    assert not known_dead(dead)


@pytest.mark.parametrize("holder", ["", "worker", "a/b", "/////", "a/b/c/d/e", "celery@host"])
def test_a_holder_with_a_name_of_another_format_is_not_known_to_be_dead(holder: str) -> None:
    assert not known_dead(holder)


@pytest.mark.parametrize("pid", ["", "x", "-1", "1.5", "²"])
def test_a_holder_without_a_process_id_is_not_known_to_be_dead(pid: str) -> None:
    assert not known_dead(part(make_holder_name(), PID, pid))


def test_a_process_name_may_contain_any_characters() -> None:
    rename = (
        "import sys; from holdfast.engine.liveness import make_holder_name; "
        "open('/proc/self/comm', 'wb').write({}); print(make_holder_name(), flush=True); sys.stdin.read()"
    )
    with child(rename.format(repr(b"a) Z 1 (b"))) as (process, holder):
        assert holder.split("/")[START] == read_start_time(process.pid) != ""
        assert not known_dead(holder)


def test_a_process_name_may_be_invalid_utf8() -> None:
    rename = (
        "import sys; open('/proc/self/comm', 'wb').write(b'\\xff\\xfe'); print('renamed', flush=True); sys.stdin.read()"
    )
    with child(rename) as (process, line):
        assert line == "renamed"
        assert read_start_time(process.pid).isdigit()


def test_an_impossible_process_id_has_no_start_time() -> None:
    assert read_start_time(2**31) == ""
    assert read_start_time(os.getpid()).isdigit()


def test_the_host_id_consists_of_boot_id_and_process_namespace() -> None:
    boot, _, space = host_id().partition("+")
    assert len(boot) == 36
    assert space.isdigit()


def test_the_host_id_is_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = host_id()
    monkeypatch.setattr("holdfast.engine.liveness.PROC", tmp_path)
    assert host_id() == known


def test_the_check_of_a_live_worker_reads_its_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def count(pid: int) -> str:
        read.append(pid)
        return read_start_time(pid)

    monkeypatch.setattr("holdfast.engine.liveness.read_start_time", count)
    assert not known_dead(make_holder_name())
    assert read == [os.getpid()] * 2  # to make the name, and to check it
