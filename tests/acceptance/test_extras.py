"""The built wheel works without extras and with each extra alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import ROOT
from tests.support.samples import pdf

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = "http://127.0.0.1:1"  # no server listens on this port

# Tries every entry point in one process and prints the error that each one raised.
ENTRIES = """
import contextlib, importlib, io, json, sys
from holdfast.cli import main

def raised(act):
    try:
        act()
    except BaseException as error:
        return [type(error).__name__, str(error)]

def door(where):
    from holdfast import File, Holdfast
    Holdfast(where)

def command(*words):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = main([*words])
    return [code, said.getvalue()]

folder, nobody = sys.argv[1:]
print(json.dumps({
    "Holdfast(folder)": raised(lambda: door(folder)),
    "Holdfast(server)": raised(lambda: door(nobody)),
    "holdfast.mcp": raised(lambda: importlib.import_module("holdfast.mcp")),
    "holdfast.guard": raised(lambda: importlib.import_module("holdfast.guard")),
    "holdfast.guard.celery": raised(lambda: importlib.import_module("holdfast.guard.celery").guarded),
    "ls": command("ls"),
    "ls at": command("--at", nobody, "ls"),
    "serve": command("serve", "--port", "0"),
    "worker": command("worker"),
    "doctor": command("doctor"),
    "mcp": command("mcp"),
    "config": command("config", "show"),
}))
"""

INDEX = """
import sys
from holdfast import File, Holdfast
with Holdfast(sys.argv[1]) as library:
    library.bases.create("sea")
    (reply,) = library.documents.add("sea", [File(name="heron.pdf", content=open(sys.argv[2], "rb").read())])
    library.wait("sea", [reply.document])
    print([hit.name for hit in library.search("sea", "heron")])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _uv("build", "--wheel", "--out-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that installs the wheel into a new environment and returns its `bin` folder."""

    def install(extra: str) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        _uv("venv", "--python", sys.executable, folder)
        named = f"{wheel}[{extra}]" if extra else wheel
        _uv("pip", "install", "--python", folder, "--constraint", ROOT / "constraints.txt", named)
        return folder / "bin"

    return install


def _uv(*words: object) -> None:
    command = [str(Path(sys.executable).with_name("uv")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _run(program: Path, *words: object, home: Path) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    variables |= {"HOLDFAST_HOME": str(home)}
    command = [str(program), *map(str, words)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=home, env=variables, check=False
    )


def test_without_extras_every_entry_point_names_the_extra_to_install(
    install: Callable[[str], Path], tmp_path: Path
) -> None:
    programs = install("")
    done = _run(programs / "python", "-c", ENTRIES, tmp_path / "library", NOBODY, home=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    extras = {
        "Holdfast(folder)": "documents",
        "Holdfast(server)": "client",
        "holdfast.mcp": "mcp",
        "holdfast.guard.celery": "celery",
        "ls": "documents",
        "ls at": "client",
        "serve": "server",
        "worker": "documents",
        "doctor": "documents",
        "mcp": "mcp",
    }
    for entry, extra in extras.items():
        kind, said = told.pop(entry)
        assert kind in {"MissingExtra", 1}, entry
        assert f"pip install 'holdfast[{extra}]'" in said, entry
        assert "Traceback" not in said
    assert told == {"holdfast.guard": None, "config": [0, ""]}
    assert list(tmp_path.iterdir()) == []

    command = _run(programs / "holdfast", "ls", home=tmp_path)
    assert (command.returncode, command.stdout) == (1, "")
    assert command.stderr.count("\n") == 1


def test_the_client_extra_can_call_a_server(install: Callable[[str], Path], tmp_path: Path) -> None:
    done = _run(install("client") / "holdfast", "--at", NOBODY, "ls", home=tmp_path)
    assert "does not respond" in done.stderr


def test_the_documents_extra_can_index_and_search(install: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "heron.pdf").write_bytes(pdf("The heron waits in shallow water."))
    done = _run(
        install("documents") / "python", "-c", INDEX, tmp_path / "library", tmp_path / "heron.pdf", home=tmp_path
    )
    assert done.stdout.strip() == "['heron.pdf']", done.stderr


def test_the_mcp_extra_can_serve_over_stdio_and_http(install: Callable[[str], Path], tmp_path: Path) -> None:
    programs = install("mcp")
    assert _run(programs / "holdfast", "mcp", home=tmp_path).returncode == 0  # it ends because its input is empty
    command = [str(programs / "holdfast"), "--home", str(tmp_path / "library"), "mcp", "--http"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert process.stderr.readline().startswith("MCP at http://127.0.0.1:")
        process.terminate()
        process.communicate()
