"""A pytest plugin that runs tests in processes forked from one parent: `pytest -p tests.support.forks --forks 4`.

The parent imports and collects once. Independent processes would each import the same modules and collect the same
thousands of tests, and in a clean clone each would also compile them.

The parent hands out batches of tests. All tests of a file are one batch if they share a fixture of module scope, such
as a server with a browser. If a process dies during a test, that test fails and a new process runs the rest of the
batch.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from _pytest.capture import CaptureManager
    from _pytest.terminal import TerminalReporter

BATCH = 4  # number of tests of a file in one batch


class ForkHooks:
    """Hooks that other plugins can implement."""

    @pytest.hookspec
    def pytest_after_fork(self, session: pytest.Session, name: str) -> None:
        """Replace resources that a test process must not share with other processes."""


@dataclass(kw_only=True)
class Worker:
    """The parent's record of a test process."""

    pid: int
    link: Connection[Any, Any]
    batch: deque[int]  # numbers of the unfinished tests; the first one is running


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run tests in so many processes forked from this one")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(ForkHooks)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    if not config.option.forks or config.option.collectonly or (session.testsfailed and not session.items):
        return None  # use pytest's own loop
    reporter = cast("TerminalReporter | None", config.pluginmanager.get_plugin("terminalreporter"))
    if reporter is not None:
        reporter.showfspath = False  # reports of several files arrive interleaved
    Parent(session).run(config.option.forks)
    return True


def batches(items: list[pytest.Item]) -> Iterator[deque[int]]:
    """Divide the tests into batches of numbers. Long batches come first, so that short ones fill the end."""
    files = [list(numbers) for _, numbers in groupby(range(len(items)), lambda number: items[number].path)]
    whole = [file for file in files if any(shares_its_module(items[number]) for number in file)]
    yield from map(deque, whole)
    for file in files:
        if file not in whole:
            yield from (deque(file[first : first + BATCH]) for first in range(0, len(file), BATCH))


def shares_its_module(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture of module scope."""
    known = cast("Any", item)._fixtureinfo.name2fixturedefs
    return any(found[-1].scope == "module" for found in known.values())


class Parent:
    """Forks the test processes, hands out batches and forwards their reports."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._left = deque(batches(session.items))
        self._workers: dict[Connection[Any, Any], Worker] = {}
        self._made = 0

    def run(self, processes: int) -> None:
        try:
            for _ in range(min(processes, len(self._left))):
                self._fork()
            while self._workers:
                for link in wait(list(self._workers)):
                    self._listen(self._workers[cast("Connection[Any, Any]", link)])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for worker in self._workers.values():
                worker.link.close()  # the process exits before its next test
            for worker in self._workers.values():
                os.waitpid(worker.pid, 0)

    def _fork(self) -> None:
        capture = cast("CaptureManager", self._session.config.pluginmanager.getplugin("capturemanager"))
        capture.stop_global_capturing()  # otherwise parent and child write into the same file
        ours, theirs = Pipe()
        self._made += 1
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # the only other threads are NumPy's, which handles forks
            pid = os.fork()
        capture.start_global_capturing()
        capture.suspend_global_capture()  # until a test runs
        if pid == 0:
            ours.close()
            for other in self._workers:
                other.close()
            work(self._session, theirs, f"process-{self._made}")
        theirs.close()
        self._workers[ours] = Worker(pid=pid, link=ours, batch=deque())

    def _listen(self, worker: Worker) -> None:
        try:
            word, value = worker.link.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker)
            return
        if word == "more":
            batch = self._left.popleft() if self._left else deque[int]()
            worker.batch += batch
            with suppress(BrokenPipeError):  # the process has just ended; the next recv reports that
                worker.link.send(list(batch))
        elif word == "done":
            worker.batch.popleft()
        elif word == "report":
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=value)
            self._hook.pytest_runtest_logreport(report=report)
        elif word == "warning":
            self._hook.pytest_warning_recorded.call_historic(kwargs=value)
        else:
            self._report_failure("a test process outside of its tests", ("", None, ""), value)

    def _bury(self, worker: Worker) -> None:
        del self._workers[worker.link]
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if not worker.batch and code == 0:
            return
        ended = f"The test process ended with {code}"
        if worker.batch:
            item = self._session.items[worker.batch.popleft()]
            self._report_failure(item.nodeid, item.location, f"{ended} in the middle of this test.")
        else:
            self._report_failure("a test process outside of its tests", ("", None, ""), f"{ended} after its last test.")
        if worker.batch:
            self._left.appendleft(worker.batch)
        if self._left:
            self._fork()

    def _report_failure(self, nodeid: str, location: tuple[str, int | None, str], message: str) -> None:
        report = pytest.TestReport(nodeid, location, {}, "failed", message, "call")
        self._hook.pytest_runtest_logreport(report=report)


class Messenger:
    """Sends reports and warnings of a test process to the parent."""

    def __init__(self, session: pytest.Session, link: Connection[Any, Any]) -> None:
        self._session = session
        self._link = link

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._link.send(("report", data))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, **more: Any) -> None:
        text = warnings.WarningMessage(
            str(warning_message.message), UserWarning, warning_message.filename, warning_message.lineno
        )
        self._link.send(("warning", {"warning_message": text, **more}))

    def more(self) -> list[int]:
        """Return the next batch. It is empty when no tests are left."""
        self._link.send(("more", None))
        batch: list[int] = self._link.recv()
        return batch

    def run(self) -> None:
        """Run batches until none are left."""
        items, hook = self._session.items, self._session.config.hook
        batch = self.more()
        while batch:
            following = batch[1:] or self.more()  # pytest needs the next test to decide which fixtures to keep
            item, after = items[batch[0]], items[following[0]] if following else None
            hook.pytest_runtest_protocol(item=item, nextitem=after)
            self._link.send(("done", None))
            batch = following


def work(session: pytest.Session, link: Connection[Any, Any], name: str) -> NoReturn:
    """Run tests as a test process, and exit."""
    config, code = session.config, 1
    try:
        config.pluginmanager.unregister(name="terminalreporter")
        messenger = Messenger(session, link)
        config.pluginmanager.register(messenger, "messenger")
        config.hook.pytest_after_fork(session=session, name=name)
        messenger.run()
        config.hook.pytest_unconfigure(config=config)  # reports exceptions raised during garbage collection
        code = 0
    except (BrokenPipeError, EOFError, ConnectionResetError):
        pass  # the parent has ended or closed the connection
    except BaseException:  # noqa: BLE001 - the parent must report every error
        link.send(("broken", traceback.format_exc()))
        code = 0  # the error is already reported
    finally:
        with suppress(BaseException):  # after an interrupt, fixtures may still hold servers
            cast("Any", session)._setupstate.teardown_exact(None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
