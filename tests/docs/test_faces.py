"""What the documents say of the library, the API and MCP is what the code does; their examples are run."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.api.app import Served, make_app
from holdfast.front import local
from holdfast.mcp import Tools
from holdfast.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def rows(name: str) -> list[list[str]]:
    lines = [line for line in (ROOT / "docs" / name).read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_routes_is_that_of_the_description() -> None:
    nobody: Any = None
    app = make_app(Served(library=nobody, settings=Settings(), feed=nobody, needs_key=False))
    described = {
        f"`{method.upper()} {path.removeprefix('/api/v1')}`": operation["description"].splitlines()[0]
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    }
    told = {row[0]: row[1] for row in rows("api.md") if row[0].startswith("`")}
    assert told == described


def test_every_call_of_the_library_is_in_its_table() -> None:
    told = {group.strip("` "): row[1] for row in rows("library.md")[2:] for group in row[0].split(",")}
    groups = dict(re.findall(r"self\.(\w+) = (Local\w+)\(", inspect.getsource(local.Local)))
    assert groups.keys() == told.keys()
    for group, kind in groups.items():
        if group in ("keys", "webhooks"):
            continue
        calls = {
            name
            for name, _ in inspect.getmembers(getattr(local, kind), inspect.isfunction)
            if not name.startswith("_") and name not in ("original", "seen", "visible", "watch")
        }
        assert calls == set(re.findall(r"\w+", told[group])), group


def test_every_tool_is_in_its_table() -> None:
    tools = {name for name, _ in inspect.getmembers(Tools, inspect.isfunction) if not name.startswith("_")}
    assert tools == {name for row in rows("mcp.md")[2:] for name in re.findall(r"`(\w+)`", row[0])}


def test_the_examples_of_the_library_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    said = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "The blue whale eats krill." in said.stdout
    assert "already_indexed success" in said.stdout


def test_the_commands_of_the_first_page_run(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text().split("## Start")[1].split("\n## ")[0]
    commands = [line.removeprefix("$ .venv/bin/holdfast ") for line in text.splitlines() if "/holdfast " in line]
    assert len(commands) >= 3
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    for command in commands:
        said = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *shlex.split(command)],
            cwd=ROOT,
            env=environment | {"HOLDFAST_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, (command, said.stderr)
    assert "lifecycle.md" in said.stdout or "passages" in said.stderr
