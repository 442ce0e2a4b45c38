"""How SQLite is made to forget: copies that it leaves in the gaps of its pages go, and nothing else changes."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreError
from holdfast.stores import shredding
from holdfast.stores.gaps import Layout, gap, layout
from holdfast.stores.shredding import Clearer, shred

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 30  # documents
LOST = b"lost"


def opened(path: Path, **pragmas: object) -> sqlite3.Connection:
    """Open as our dialect does."""
    raw = sqlite3.connect(path, isolation_level=None, timeout=0)
    for name, value in ({"secure_delete": "ON", "synchronous": "OFF"} | pragmas).items():
        raw.execute(f"PRAGMA {name}={value}")
    return raw


def fill(path: Path, seed: int = 1, **pragmas: object) -> None:
    """Write documents of words in no order, and delete every other one now and then, so that rows are moved about."""
    chance = random.Random(seed)
    with closing(opened(path, **pragmas)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("BEGIN")
        raw.execute("CREATE TABLE erasures (place TEXT PRIMARY KEY, step INTEGER NOT NULL)")
        raw.execute("INSERT INTO erasures VALUES ('rows', 0)")
        raw.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, document INTEGER, word TEXT)")
        raw.execute("CREATE INDEX by_word ON words (word)")
        raw.execute("CREATE TABLE long (word TEXT)")
        raw.execute("INSERT INTO long VALUES (?)", ["a long text " * 2_000])
        lost: list[int] = []
        for document in range(2 * KEPT):
            named = "lost" if document % 2 else "kept"
            for _ in range(25):
                word = f"{chance.randint(0, 9999):04} {named}{document}" + "x" * chance.randint(0, 30)
                raw.execute("INSERT INTO words (document, word) VALUES (?, ?)", [document, word])
            lost += [document] if document % 2 else []
            if chance.random() < 0.5 and lost:
                raw.execute("DELETE FROM words WHERE document = ?", [lost.pop(chance.randrange(len(lost)))])
        raw.execute("DELETE FROM words WHERE document % 2 = 1")
        raw.execute("COMMIT")


def plant(path: Path) -> int:
    """Write a copy of something deleted into the gap of each page that has room for it, as SQLite now and then does."""
    planted = 0
    with path.open("r+b") as file:
        form = layout(file.fileno())
        for number in range(2, form.pages + 1):
            page = os.pread(file.fileno(), form.size, (number - 1) * form.size)
            found = None if form.points(number) else gap(page, form.usable, 0)
            if found is not None and found[1] - found[0] > len(LOST):
                os.pwrite(file.fileno(), LOST, (number - 1) * form.size + found[1] - len(LOST))
                planted += 1
    return planted


def left(path: Path) -> int:
    """Count what is left of the deleted words, in the file and its log."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.read_bytes().count(LOST) for file in files if file.exists())


def whole(path: Path) -> bool:
    with closing(opened(path)) as raw:
        ((kept,),) = raw.execute("SELECT count(*) FROM words NOT INDEXED WHERE word LIKE '% kept%'").fetchall()
        ((long,),) = raw.execute("SELECT length(word) FROM long").fetchall()
        return raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)] and (kept, long) == (25 * KEPT, 24_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    fill(path)
    assert plant(path) > 10
    return path


def test_what_sqlite_leaves_in_its_own_pages_goes(tmp_path: Path) -> None:
    before = 0
    for seed in range(6):
        path = tmp_path / f"{seed}.db"
        fill(path, seed)
        before += left(path)
        assert shred(path, nullcontext, ())
        assert left(path) == 0
    assert before > 0  # else SQLite overwrites more than it did, and `gaps` may be needed no more


@pytest.mark.parametrize(
    "pragmas",
    [{}, {"page_size": 512}, {"page_size": 65_536}, {"page_size": 1_024, "auto_vacuum": "FULL"}],
    ids=["4096", "512", "65536", "shrinking"],
)
def test_gaps_are_cleared_and_nothing_else_changes(
    tmp_path: Path, pragmas: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.db"
    fill(path, 1, **pragmas)
    assert plant(path)
    assert left(path)
    assert whole(path)
    monkeypatch.setattr(shredding, "PORTION", 50)
    assert shred(path, nullcontext, ())
    assert left(path) == 0
    assert whole(path)


def written_back(path: Path, patch: pytest.MonkeyPatch) -> int:
    """Let another connection read all pages just before they are cleared, and write them afterwards."""
    with closing(opened(path)) as other:

        class ReadBefore(Clearer):
            def clear(self, page: int) -> int:
                other.execute("SELECT * FROM words").fetchall()
                return super().clear(page)

        patch.setattr(shredding, "Clearer", ReadBefore)
        assert shred(path, nullcontext, ())
        other.execute("UPDATE words SET document = document + 1")
        return left(path)


def test_pages_that_another_connection_remembers_are_not_written_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written_back(path, monkeypatch) == 0


def test_without_a_commit_they_would_be_written_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shredding, "STEP", "SELECT 1")
    assert written_back(path, monkeypatch) > 0


def test_another_program_that_writes_makes_it_wait(path: Path) -> None:
    with closing(opened(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not shred(path, nullcontext, ())
        other.execute("ROLLBACK")
    assert shred(path, nullcontext, ())


def test_two_do_not_go_through_the_same_file(path: Path) -> None:
    with shredding._alone(path.with_name("some.db-erase")) as alone:
        assert alone
        assert not shred(path, nullcontext, ())


@pytest.mark.parametrize("content", [b"", b"SQLite format 3", b"no database " * 100])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a database"), Clearer(path):
        pass
    assert path.read_bytes() == content


def test_pages_of_pointers_are_known_by_their_numbers() -> None:
    every = 1024 // 5 + 1
    form = Layout(1024, 1024, 3_000_000, every)
    assert [page for page in range(1, 500) if form.points(page)] == [2, 2 + every, 2 + 2 * every]
    assert not any(Layout(1024, 1024, 500, 0).points(page) for page in range(1, 500))
    locked = (1 << 30) // 1024 + 1
    shifted = Layout(1024, 1024, 3_000_000, next(n for n in range(2, 5_000) if (locked - 2) % n == 0))
    assert shifted.points(locked + 1)
