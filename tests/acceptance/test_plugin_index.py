"""An index from another package is built, searched and offered in every interface once it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.serve_process import Serving
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = '''
"""Finds chunks by words spelled backwards, so that no index of ours finds what this one does."""

import os
import sqlite3
from contextlib import closing

from holdfast.indexes.base import Found


class BackwardsIndex:
    kind = "backwards"

    def __init__(self, tools):
        with self._open() as store:
            store.execute("CREATE TABLE IF NOT EXISTS said (recipe, chunk, text, PRIMARY KEY (recipe, chunk))")

    def spec(self, base):
        return {"version": 1}

    def absent(self, recipe, chunks):
        have = {chunk for (chunk,) in self._run("SELECT chunk FROM said WHERE recipe = ?", recipe.id)}
        return [chunk for chunk in chunks if chunk not in have]

    def prepare(self, works):
        pass

    def fill(self, work):
        for piece in work.pieces:
            work.task.checkpoint(stage="spelling")
            self._run("INSERT OR IGNORE INTO said VALUES (?, ?, ?)", work.recipe.id, piece.chunk, piece.whole[::-1])
        return {}

    def drop(self, recipe, chunks):
        for chunk in chunks:
            self._run("DELETE FROM said WHERE recipe = ? AND chunk = ?", recipe.id, chunk)

    def find(self, recipe, query, limit, within=None):
        rows = self._run("SELECT chunk FROM said WHERE recipe = ? AND instr(text, ?)", recipe.id, query)
        return [Found(chunk, 1.0) for (chunk,) in rows if within is None or chunk in within][:limit]

    def scan(self, recipe, after, limit):
        sql = "SELECT chunk FROM said WHERE recipe = ? AND chunk > ? ORDER BY chunk LIMIT ?"
        return [chunk for (chunk,) in self._run(sql, recipe.id, after, limit)]

    def forget(self, recipe):
        self._run("DELETE FROM said WHERE recipe = ?", recipe.id)

    def tend(self, recipe):
        pass

    def close(self):
        pass

    def _open(self):
        return sqlite3.connect(os.environ["BACKWARDS_STORE"], timeout=30)

    def _run(self, sql, *values):
        with closing(self._open()) as store, store:
            return store.execute(sql, values).fetchall()
'''


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Install the package as pip would: a module, and metadata with its entry point."""
    site = tmp_path / "site"
    about = site / "backwards-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "backwards.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: backwards\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[holdfast.indexes]\nbackwards = backwards:BackwardsIndex\n")
    return {"PYTHONPATH": str(site), "BACKWARDS_STORE": str(tmp_path / "backwards.db")}


@pytest.fixture
def server(tmp_path: Path, installed: dict[str, str]) -> Iterator[Serving]:
    serving = Serving(tmp_path / "home", environment=installed)
    serving.http.post("/bases", json={"name": "sea", "indexes": ["fulltext", "backwards"]}).raise_for_status()
    yield serving
    serving.end()


def test_an_index_from_another_package_is_built_searched_and_offered(server: Serving) -> None:
    document = server.add("whales.md", "# Whales\n\nThey eat krill.\n")
    server.add("stones.md", "# Stones\n\nThey eat nothing.\n")

    def found(**how: object) -> list[tuple[int, list[str]]]:
        answer = server.http.post("/bases/sea/search", json={"query": "llirk", **how}).raise_for_status().json()
        return [(hit["document"], list(hit["channels"])) for hit in answer["hits"]]

    assert found() == [(document, ["backwards"])]  # a search of all channels includes the new index
    assert found(channels=["backwards"]) == [(document, ["backwards"])]
    assert found(channels=["fulltext"]) == []
    page = httpx2.get(f"{server.address}/bases/sea/search", params={"q": "llirk"}, trust_env=False).text
    assert 'name="channel" value="backwards" checked' in page
    assert 'data-channel="backwards"' in page
    told = server.http.post("/bases/sea/search", json={"query": "x", "channels": ["sideways"]})
    assert told.status_code == 422
    assert told.json()["subcode"] == "unknown_channel"
    assert told.json()["detail"] == (
        "No search channel named 'sideways'. Choose one of: fulltext, vector, questions, graph, backwards."
    )
    server.http.delete(f"/bases/sea/documents/{document}").raise_for_status()
    assert found() == []


def test_the_cli_searches_an_index_from_another_package(tmp_path: Path, installed: dict[str, str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    note = tmp_path / "whales.md"
    note.write_text("They eat krill.")

    def holdfast(*words: object) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *map(str, words)],
            env=kept | installed | {"HOLDFAST_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    holdfast("base", "create", "sea", "indexes=fulltext,backwards")
    holdfast("add", note, "--base", "sea")
    told = json.loads(holdfast("search", "llirk", "--channel", "backwards", "--base", "sea", "--json"))
    assert [hit["name"] for hit in told["hits"]] == ["whales.md"]
