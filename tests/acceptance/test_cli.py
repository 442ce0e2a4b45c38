"""The CLI as a separate process: on a terminal, in a pipe, beside a server, and interrupted."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest
from typer.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.app import app
from tests.support.paid_provider import PaidProvider
from tests.support.processes import ROOT, Running, until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = ["-m", "holdfast.cli"]
HEAVY = {"sqlalchemy", "numpy", "fastapi", "pydantic", "rich", "alembic", "openai", "uvicorn", "httpx2", "mcp"}
ESCAPE = "\x1b"


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | {"HOLDFAST_HOME": str(home), "TERM": "xterm-256color"} | more


def holdfast(home: Path, *words: object, end: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, *COMMAND, *map(str, words)],
        cwd=ROOT,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS * 2,
    )
    assert ran.returncode == end, f"{words}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran


class OnTerminal:
    """A command that runs on its own pseudo-terminal."""

    def __init__(self, home: Path, *words: object, **more: str) -> None:
        ours, theirs = pty.openpty()
        self._terminal = ours
        self._process = subprocess.Popen(
            # A background process ignores SIGINT and its children inherit that, so restore the default.
            ["env", "--default-signal=INT", sys.executable, *COMMAND, *map(str, words)],
            cwd=ROOT,
            env=environment(home, **more),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            close_fds=True,
        )
        os.close(theirs)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def read(self, seconds: float = 0.2) -> bool:
        """Read new output into `seen`. Return False when the terminal is closed."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self._terminal, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            part = b""
        self.seen += part.decode(errors="replace")
        return bool(part)

    def until(self, words: str) -> None:
        """Wait until the output contains these words."""
        until(lambda: (self.read(), words in self.seen)[1], f"{words!r} in {self.seen[-2000:]!r}")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ended(self) -> int:
        """Read until the command exits, and return its exit code."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while self.read() and time.monotonic() < ends:
            pass
        return self._process.wait(PATIENCE_SECONDS)

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.smoke
def test_no_heavy_module_is_imported_before_a_command_runs(home: Path) -> None:
    script = (
        "import sys; from holdfast.cli import main; main(['--help']); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment(home), capture_output=True, text=True, check=True, cwd=ROOT
    )
    lines = ran.stdout.splitlines()
    assert "  webhooks   Create and manage webhooks: URLs that receive events." in lines
    assert HEAVY.isdisjoint(lines[-1].split())


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["ls", "status"])
def test_a_command_imports_only_the_modules_it_uses(home: Path, command: str) -> None:
    holdfast(home, "base", "create", "default")
    script = f"import sys; from holdfast.cli import main; main([{command!r}]); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment(home), capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(ran.stderr.split())
    assert "sqlalchemy" in loaded
    assert loaded.isdisjoint(HEAVY - {"sqlalchemy"})
    unused = ("api", "doctor", "indexes.graph", "search", "sources.web", "web", "webhooks", "engine.worker")
    assert not [name for name in loaded for part in unused if f"{name}.".startswith(f"holdfast.{part}.")]


def test_ctrl_c_keeps_the_job_and_prints_how_to_check_it_later(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "anchors.md"
    file.write_text("An anchor holds.")
    with Holdfast(home, work=False) as library:
        library.bases.create("default")
        library.jobs.pause()
    with OnTerminal(home, "add", file) as adding:
        adding.until("Waiting: The queue has been paused since")
        assert "0 of 1 document done" in adding.text
        adding.interrupt()
        assert adding.ended() == 130
    assert "Stopped waiting. The job is kept, and indexed documents stay indexed." in adding.text
    assert "The work continues with the next `holdfast add`" in adding.text
    assert "Check it later: holdfast status 1" in adding.text
    assert "Traceback" not in adding.text
    with Holdfast(home) as library:
        library.jobs.resume()
        assert library.wait("default", [1], timeout=PATIENCE_SECONDS)[0].status == "success"
    with OnTerminal(home, "ls") as listing:
        assert listing.ended() == 0
    assert "anchors.md" in listing.text
    assert "\x1b[32mready" in listing.seen


def test_a_delete_needs_confirmation(home: Path) -> None:
    with Holdfast(home, work=False) as library:
        library.bases.create("default")
        library.documents.note("default", "anchors", "An anchor holds.")
        with OnTerminal(home, "rm", "anchors") as removing:
            removing.until("Delete anchors from base 'default'? This cannot be undone. [y/N]")
            removing.type("n\n")
            assert removing.ended() == 1
        assert "Nothing was changed." in removing.text
        assert library.documents.list("default").total == 1


def test_an_answer_is_streamed_and_its_citations_show_the_command_to_open_them(home: Path) -> None:
    with Holdfast(home) as library:
        library.bases.create("default")
        library.documents.note("default", "anchors", "An anchor holds a ship.")
        library.wait("default", [1], timeout=PATIENCE_SECONDS)
    with PaidProvider() as paid:
        paid.reply = lambda _: "An anchor holds a ship [1]."
        chat = {"HOLDFAST_CHAT_URL": paid.url, "HOLDFAST_CHAT_MODEL": paid.chat_model, "HOLDFAST_CHAT_KEY": paid.key}
        with OnTerminal(home, "ask", "What holds a ship?", **chat) as asking:
            assert asking.ended() == 0
    said = [line.rstrip() for line in asking.text.splitlines() if line.strip()]
    assert said == ["An anchor holds a ship [1].", '[1]  anchors  "An anchor holds a ship."  holdfast show 1 --chunk 1']


def test_a_worker_indexes_documents_until_it_is_interrupted(home: Path) -> None:
    with Holdfast(home, work=False) as library, OnTerminal(home, "worker", "--workers", 1) as working:
        working.until("1 worker on sqlite:")
        library.bases.create("default")
        library.documents.note("default", "anchors", "An anchor holds a ship.")
        assert library.wait("default", [1], timeout=PATIENCE_SECONDS)[0].status == "success"
        working.interrupt()
        assert working.ended() == 0
    assert "Stopping. Unfinished work returns to the queue." in working.text


def test_a_watch_syncs_until_it_is_interrupted(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("One.")
    with OnTerminal(home, "watch", folder) as watching:
        watching.until("syncing")
        with Holdfast(home, work=False) as library:
            until(lambda: _names(library) == {"notes", "a.txt"}, "the first file is in")
            (folder / "b.txt").write_text("Two.")
            until(lambda: "b.txt" in _names(library), "the second file is in")
        watching.interrupt()
        assert watching.ended() == 0
    assert "Stopped watching." in watching.text


def _names(library: Holdfast) -> set[str]:
    return {one.name for one in library.documents.list("default").items}


def test_a_closed_pipe_causes_no_error_message(home: Path) -> None:
    shell = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m holdfast.cli config show | head -1"],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == "setting\tvalue\torigin\tmeaning\n"
    assert shell.stderr == ""


def test_a_missing_extra_is_named(home: Path) -> None:
    script = "import sys; sys.modules['mcp'] = None; from holdfast.cli import main; sys.exit(main(['mcp']))"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment(home), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 1
    assert "pip install 'holdfast[mcp]'" in ran.stderr


@contextmanager
def serving(home: Path, log: Path) -> Iterator[str]:
    """Run a server on a free port and yield its address."""
    with Running([*COMMAND, "--home", str(home), "serve", "--port", "0"], log, {}) as server:
        until(lambda: re.search(r"^http://\S+$", log.read_text(), re.MULTILINE), "the server is ready")
        yield re.findall(r"^http://\S+$", log.read_text(), re.MULTILINE)[0]
        server.send(signal.SIGINT)
        assert server.ended() == 0
        assert "The server has stopped." in log.read_text()


@pytest.mark.smoke
def test_the_commands_work_against_a_server(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "buoys.md"
    file.write_text("# Buoys\n\nA buoy floats.")
    with Holdfast(home, work=False) as library:
        secret = library.keys.create("me", "admin").secret
    with serving(home, tmp_path / "server.log") as address:

        def asked(*words: object, end: int = 0, key: str = secret) -> Any:
            given = {"HOLDFAST_HOME": str(tmp_path / "elsewhere"), "HOLDFAST_KEY": key}
            ran = CliRunner().invoke(app, ["--at", address, *map(str, words), "--json"], env=given)
            assert ran.exit_code == end, f"{words}: {ran.exit_code}\n{ran.stdout}\n{ran.stderr}"
            return json.loads(ran.stdout)

        assert asked("ls", key="hf_wrong", end=77)["error"]["exit"] == 77
        assert asked("add", file)["documents"][0]["status"] == "success"
        copy = tmp_path / "copy.md"
        copy.write_bytes(file.read_bytes())
        assert asked("add", copy, end=4)["replies"][0]["document"] == 1
        assert asked("search", "buoy")["hits"][0]["name"] == "buoys.md"
        assert asked("ls", "--base", "nope", end=3)["error"]["code"] == "unknown_base"
        assert asked("rm", 1, end=2)["error"]["code"] == "bad_request"
        # In the same folder, a command sends requests to the database and the workers of the server carry them out.
        ran = holdfast(home, "reindex", 1)
        assert ran.stdout == "1\tbuoys.md\tready\t\n"
        assert ESCAPE not in ran.stdout + ran.stderr
    assert "does not respond" in asked("ls", end=75)["error"]["message"]
    assert not (tmp_path / "elsewhere").exists()
