"""The documents describe the library, the API and MCP as they are, and the examples in them run."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast.api.app import ServerState, make_app
from holdfast.mcp import McpTools
from holdfast.service import local, routes
from holdfast.settings import Settings
from tests.support.harness import Rig
from tests.support.serve_process import Serving
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.clock import FakeClock

ROOT = Path(__file__).resolve().parents[2]


def rows(name: str) -> list[list[str]]:
    lines = [line for line in (ROOT / "docs" / name).read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of a document in this language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


def test_the_documented_routes_are_those_of_the_openapi_description() -> None:
    nobody: Any = None
    app = make_app(ServerState(library=nobody, settings=Settings(), feed=nobody, needs_key=False))
    described = {
        f"`{method.upper()} {path.removeprefix('/api/v1')}`": operation["description"].splitlines()[0]
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    }
    told = {row[0]: row[1] for row in rows("api.md") if row[0].startswith("`")}
    assert told == described


def test_every_method_of_the_library_is_documented() -> None:
    told = {group.strip("` "): row[1] for row in rows("library.md")[2:] for group in row[0].split(",")}
    groups = {name for name, one in vars(local.LocalService).items() if isinstance(one, cached_property)}
    assert groups == told.keys() == routes.GROUPS.keys() - {""}
    for group in groups:
        if group in ("keys", "webhooks"):
            continue
        calls = {
            name
            for name, _ in inspect.getmembers(routes.GROUPS[group], inspect.isfunction)
            if not name.startswith("_") and name not in ("original", "visible_base_keys", "make_filter", "watch")
        }
        assert calls == set(re.findall(r"\w+", told[group])), group


def test_every_mcp_tool_is_documented() -> None:
    tools = {name for name, _ in inspect.getmembers(McpTools, inspect.isfunction) if not name.startswith("_")}
    assert tools == {name for row in rows("mcp.md")[2:] for name in re.findall(r"`(\w+)`", row[0])}


def run_python(code: str, folder: Path) -> str:
    """Run a program in a folder and return its output."""
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=clean(), capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_the_examples_of_the_library_run(tmp_path: Path) -> None:
    programs = blocks("docs/library.md", "python")
    assert len(programs) == 2
    said = run_python("\n".join(programs), tmp_path)
    assert "The blue whale eats krill." in said
    assert "already_indexed success" in said


def test_the_program_in_the_readme_runs(tmp_path: Path) -> None:
    (program,) = blocks("README.md", "python")
    shutil.copy(ROOT / "README.md", tmp_path)
    assert "worker" in run_python(program, tmp_path)


def test_the_examples_for_the_doctor_and_for_archives_run(
    sqlite_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rig = Rig(sqlite_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    rig.put("whales.md", "# Whales\n\nThe blue whale eats krill.\n")
    known: dict[str, Any] = {"library": rig.library, "base": rig.base, "Path": Path}
    for name in ("docs/doctor.md", "docs/archives.md"):
        (calls,) = blocks(name, "python")
        exec(calls, known)  # noqa: S102 - the code comes from our own document
    assert rig.library.catalog.find_base("handbook")
    rig.close()


def by_curl(words: list[str], until: str) -> str:
    """Run curl as documented. Return the output up to `until`, because a stream does not end."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as asked:
        assert asked.stdout is not None
        said = ""
        for line in asked.stdout:
            said += line
            if until in said:
                break
        asked.terminate()
    return said


def by_its_words(words: list[str], until: str) -> str:
    """Send the same request without curl. An option that this parser does not know fails the test."""
    options = ArgumentParser()
    options.add_argument("-s", action="store_true")
    options.add_argument("-N", action="store_true")
    options.add_argument("-H", action="append", default=[])
    options.add_argument("-d", "--data-binary", dest="data")
    options.add_argument("url")
    read = options.parse_args(words[1:])
    headers = {"content-type": "application/x-www-form-urlencoded"} if read.data else {}
    headers |= {name.strip(): value.strip() for name, value in (one.split(":", 1) for one in read.H)}
    body = (ROOT / read.data[1:]).read_bytes() if (read.data or "").startswith("@") else (read.data or "").encode()
    method = "POST" if read.data else "GET"
    said = ""
    with httpx2.stream(
        method, read.url, headers=headers, content=body, timeout=PATIENCE_SECONDS, trust_env=False
    ) as answer:
        for piece in answer.iter_text():
            said += piece
            if until in said:
                break
    return said


@pytest.mark.parametrize("ask", [by_curl, by_its_words])
def test_the_documented_requests_are_answered(ask: Callable[[list[str], str], str], tmp_path: Path) -> None:
    if ask is by_curl and shutil.which("curl") is None:
        pytest.skip("curl is not installed; the same requests are sent without it")
    server = Serving(tmp_path / "home")
    (block,) = blocks("docs/api.md", "console")
    made, added, found, followed = [
        shlex.split(line.removeprefix("$ ").replace("localhost:7340", server.address))
        for line in block.strip().splitlines()
    ]
    assert '"name":"handbook"' in ask(made, "}}")
    assert '"verdict":"accepted"' in ask(added, "}]}")
    (document,) = server.http.get("/bases/handbook/documents").json()["items"]
    server.rested(f"/bases/handbook/documents/{document['id']}")
    assert '"name":"guide.md"' in ask(found, "took_ms")
    assert "retry:" in ask(followed, "retry:")
    assert server.end() == 0
    assert [line for line in server.errors if "ERROR" in line or "Traceback" in line] == []


def test_the_commands_in_the_readme_run(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text().split("## Start")[1].split("\n## ")[0]
    commands = [line.removeprefix("$ .venv/bin/holdfast ") for line in text.splitlines() if "/holdfast " in line]
    assert len(commands) >= 3
    said = run_commands(commands, ROOT, tmp_path / "home")
    assert "lifecycle.md" in said.stdout or "passages" in said.stderr


@pytest.mark.proof
def test_the_commands_of_the_first_ten_minutes_run(tmp_path: Path) -> None:
    """The file that cannot be read fails; every other command succeeds."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    lines = "\n".join(blocks("docs/start.md", "console")).splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line and "make serve" not in line]
    assert len(commands) == 9
    codes = {}
    for command in commands:
        script = command.replace(".venv/bin/holdfast", f"{shlex.quote(sys.executable)} -m holdfast.cli")
        said = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=clean() | {"HOLDFAST_HOME": str(tmp_path / "home")}, check=False
        )
        codes[command.removeprefix(".venv/bin/holdfast ")] = said.returncode
    assert {command for command, code in codes.items() if code} == {"add broken.pdf"}


def test_the_commands_in_the_command_reference_run(tmp_path: Path) -> None:
    block = blocks("docs/cli.md", "console")[0]
    commands = [line.removeprefix("$ holdfast ") for line in block.splitlines()]
    assert len(commands) == 3
    said = run_commands(commands, ROOT / "src/holdfast/web/static/samples", tmp_path / "home")
    assert "anchors.md" in said.stdout


def run_commands(commands: list[str], folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run the documented commands in order and return the result of the last one."""
    for command in commands:
        said = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *shlex.split(command)],
            cwd=folder,
            env=clean() | {"HOLDFAST_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, (command, said.stderr)
    return said
