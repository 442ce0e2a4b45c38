"""Forked test processes run every test once, report its output, and survive a test that kills its process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
import os, signal
import pytest

@pytest.fixture(scope="session")
def served():
    yield os.getpid()
    note("session ends")

def note(what):
    with open({journal!r}, "a") as journal:
        journal.write(f"{{os.getpid()}} {{what}}\\n")

@pytest.mark.parametrize("number", range(40))
def test_passes(number, served, tmp_path):
    assert served == os.getpid()
    note(f"{{tmp_path.parent.name}} passed {{number}}")

def test_fails():
    print("the last words")
    assert False

def test_kills_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after_it():
    note("after it")

def test_skips():
    pytest.skip("no reason")
"""


LEAKING_FILE = """
import gc

class Leaked:
    def __del__(self):
        raise RuntimeError("left to the garbage collector")

def test_fails():
    assert False

def test_leaks():
    gc.disable()  # until the process looks for garbage at its end
    leaked = Leaked()
    leaked.itself = leaked
"""

HANGING_FILE = """
import threading

def test_hangs():
    threading.Event().wait()

def test_after_it():
    pass
"""


@pytest.fixture
def run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return run_forked(tmp_path, FILE.format(journal=str(tmp_path / "journal")))


def run_forked(tmp_path: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_sample.py").write_text(tests)
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "tests.support.forks", "--forks", "2", "-p", "no:cacheprovider",
            "-p", "tests.conftest", "-ra", "--rootdir", str(tmp_path), "-c", os.devnull, "-W", "error", *options,
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip


def test_every_test_runs_once_and_each_process_has_its_own_folder_and_fixtures(
    run: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    assert re.search(r"^[.Fs]{44} +\[100%\]$", run.stdout, re.MULTILINE), "progress is shown while tests run"
    assert "2 failed, 41 passed, 1 skipped" in run.stdout
    assert run.returncode == 1
    lines = [line.split(" ", 1) for line in (tmp_path / "journal").read_text().splitlines()]
    passed = [what.split() for _, what in lines if "passed" in what]
    assert sorted(int(number) for *_, number in passed) == list(range(40))
    assert len({pid for pid, what in lines if "passed" in what}) == len({folder for folder, *_ in passed})
    ended = [pid for pid, what in lines if what == "session ends"]
    assert len(ended) == len(set(ended)) > 0


def test_a_failure_is_reported_with_the_output_of_the_test(run: subprocess.CompletedProcess[str]) -> None:
    assert "the last words" in run.stdout
    assert re.search(r"^FAILED .*::test_fails", run.stdout, re.MULTILINE)


def test_a_test_that_kills_its_process_fails_and_the_others_still_run(
    run: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    assert re.search(r"^FAILED .*::test_kills_its_process", run.stdout, re.MULTILINE)
    assert "ended with -9 in the middle of this test" in run.stdout
    assert "after it" in (tmp_path / "journal").read_text()


def test_errors_of_the_garbage_collector_at_exit_are_reported_in_addition_to_failures(tmp_path: Path) -> None:
    run = run_forked(tmp_path, LEAKING_FILE)
    assert "left to the garbage collector" in run.stdout
    assert re.search(r"^FAILED .*::test_fails", run.stdout, re.MULTILINE)
    assert "2 failed, 1 passed" in run.stdout
    assert run.returncode == 1


def test_a_test_that_hangs_fails_and_shows_where_it_waits(tmp_path: Path) -> None:
    run = run_forked(tmp_path, HANGING_FILE, "-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true")
    assert re.search(r"^FAILED .*::test_hangs", run.stdout, re.MULTILINE)
    assert "in test_hangs" in run.stderr
    assert "1 failed, 1 passed" in run.stdout


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("faulthandler_timeout")) > 0
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
