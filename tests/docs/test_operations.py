"""Every command, request and statement in docs/operations.md runs, and shows what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import psycopg
import pytest

from holdfast.messages import format_message, load_catalogue
from holdfast.metrics import METRICS
from tests.support.command_lines import parse
from tests.support.serve_process import Serving

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text("utf-8")


def blocks(language: str, section: str = "") -> list[str]:
    """Return the code blocks of a section, or of the whole page."""
    part = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0] if section else TEXT
    return re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)


def lines(section: str = "") -> list[str]:
    return [line.removeprefix("$ ") for block in blocks("console", section) for line in block.splitlines()]


class Installation:
    """A served library with one indexed, one failed and one waiting document; the base is paused."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.server = Serving(self.home)
        self.folder = folder
        (folder / "tide.md").write_text("# Tide\n\nThe sea rises.\n")
        (folder / "broken.pdf").write_text("%PDF-1.7 cut off")
        self.run("holdfast base create handbook")
        assert "1 failed, 1 ready" in self.run("holdfast add tide.md broken.pdf --base handbook", expect=5)
        self.run("holdfast queue pause --base handbook")
        self.run("holdfast add --note wait --name waiting.md --base handbook --no-wait")

    def run(self, line: str, expect: int = 0) -> str:
        """Run a command of the page and return its output."""
        if line.startswith("curl "):
            return self._request(shlex.split(line)[-1])
        program = f"{shlex.quote(sys.executable)} -m holdfast.cli"
        done = subprocess.run(
            ["sh", "-c", re.sub(r"^holdfast\b", program, line.replace("JOB", self.waiting_job()))],
            cwd=self.folder,
            env={name: text for name, text in os.environ.items() if not name.startswith("HOLDFAST_")}
            | {"HOLDFAST_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == expect, f"{line}: {done.stdout}"
        return done.stdout

    def waiting_job(self) -> str:
        """Return the newest job."""
        listed = self.server.http.get("/jobs").json()["items"]
        return str(listed[0]["id"]) if listed else ""

    def _request(self, address: str) -> str:
        found = httpx2.get(address.replace("http://localhost:7340", self.server.address), trust_env=False)
        return found.raise_for_status().text


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path)
    yield installation
    assert installation.server.end() == 0


def test_the_commands_of_the_page_run_in_their_order_and_show_what_it_says(installation: Installation) -> None:
    said = [(line, installation.run(line)) for line in lines()]
    shown = dict(said)
    assert "1 queued, 1 ready, 1 failed" in shown["holdfast status"]
    assert "50%" in shown["holdfast status"]
    assert "handbook" in shown["holdfast status"].split("paused")[1]
    assert "Base handbook has been paused since" in shown["holdfast status JOB"]
    assert "1 document would be retried" in shown["holdfast retry --all --base handbook --dry-run"]
    assert '"spent"' in shown["curl -s http://localhost:7340/api/v1/bases/handbook/usage"]
    assert "complete" in shown["holdfast doctor --erase"]
    assert "tide.md" in installation.run("holdfast ls --base handbook --status ready")
    assert "5000000" in installation.run("holdfast base show handbook")
    for file in (installation.home / "files").rglob("*-*"):
        file.unlink()
    assert "tide.md" in installation.run("holdfast doctor", expect=1)


def test_every_command_in_the_text_and_the_tables_is_a_valid_one() -> None:
    named = set(re.findall(r"`(holdfast [^`]+)`", TEXT))
    complete = {name for name in named if name not in INCOMPLETE}
    assert {parse(line.replace("JOB", "job")) for line in complete}
    assert named >= INCOMPLETE


# Named without the arguments that they need.
INCOMPLETE = {"holdfast cancel", "holdfast retry", "holdfast rm", "holdfast base delete"}


def test_the_quoted_reasons_are_those_of_the_catalogue() -> None:
    shown = [format_message(key, {}) for key in load_catalogue() if key.startswith("waits.")]
    quoted = [text.rstrip("…") for text in re.findall(r'"([^"\n]+)"', TEXT)]
    assert len(quoted) >= 7
    assert [text for text in quoted if not any(text in reason for reason in shown)] == []


@pytest.mark.postgres
def test_the_statements_of_the_page_run_on_postgresql(postgres_url: str) -> None:
    statements = blocks("sql")
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("SELECT 1")
        with psycopg.connect(postgres_url.replace("+psycopg", "")) as other:
            waiting, tables = [other.execute(statement).fetchall() for statement in statements]
    assert "idle in transaction" in [row[1] for row in waiting]
    assert "slots" in [row[0] for row in tables]


@pytest.mark.parametrize("section", ["It is slow", "It is stuck", "It costs too much", "The disk is full"])
def test_each_section_names_metrics_and_commands(section: str) -> None:
    part = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    assert set(re.findall(r"`(holdfast_\w+)`", part)) & {metric.name for metric in METRICS}
    assert any(line.startswith("holdfast ") for line in lines(section))
