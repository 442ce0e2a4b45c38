"""Both stages of erasing SQLite files remove deleted rows, wait for readers and writers, and survive a full disk."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.db import secure_delete
from holdfast.db.secure_delete import Obstacle, compact, overwrite
from tests.support.processes import ROOT

KEPT = 30  # documents
LOST = b"lost"


def opened(path: Path) -> sqlite3.Connection:
    """Open a connection with the settings of our dialect."""
    raw = sqlite3.connect(path, isolation_level=None, timeout=0)
    raw.execute("PRAGMA secure_delete=ON")
    raw.execute("PRAGMA synchronous=OFF")
    return raw


def fill(path: Path, seed: int = 1) -> None:
    """Write words in random order and delete documents in between, so that pages split and merge."""
    chance = random.Random(seed)
    with closing(opened(path)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("BEGIN")
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


def fill_without_splits(path: Path) -> None:
    """Write a few short rows, which cause no page split, and delete some of them."""
    with closing(opened(path)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT)")
        raw.execute("CREATE TABLE long (word TEXT)")
        raw.execute("CREATE VIRTUAL TABLE texts USING fts5(body)")
        for number in range(20):
            named = "lost" if number % 2 else "kept"
            raw.execute("INSERT INTO words VALUES (?, ?)", [number, f"{named}{number}"])
            raw.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", [number, f"q{number}lost"])
        raw.execute("INSERT INTO long VALUES (?)", ["a lost text " * 2_000])
        for statement in (
            "DELETE FROM words WHERE id % 2 = 1",
            "DELETE FROM texts",
            "UPDATE long SET word = 'short'",
        ):
            raw.execute(statement)


def left(path: Path) -> int:
    """Count the deleted words that remain in the files of the folder."""
    return sum(file.read_bytes().count(LOST) for file in path.parent.iterdir() if file.is_file())


def log_size(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


def whole(path: Path) -> bool:
    with closing(opened(path)) as raw:
        ((kept,),) = raw.execute("SELECT count(*) FROM words NOT INDEXED WHERE word LIKE '% kept%'").fetchall()
        ((long,),) = raw.execute("SELECT length(word) FROM long").fetchall()
        return raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)] and (kept, long) == (25 * KEPT, 24_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database that still contains a copy of a deleted row after the first stage."""
    path = tmp_path / "some.db"
    fill(path, 3)
    return path


def test_without_page_splits_the_first_stage_erases_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    with closing(opened(path)) as held:  # otherwise closing the last connection would remove the log
        fill_without_splits(path)
        held.execute("SELECT count(*) FROM words").fetchall()
        assert left(path) > 0
        assert overwrite(path, nullcontext, ["texts"]) is None
        assert left(path) == 0
        assert log_size(path) == 0


def test_the_second_stage_erases_copies_left_by_page_splits(tmp_path: Path) -> None:
    after_first = 0
    for seed in range(6):
        path = tmp_path / str(seed) / "some.db"
        path.parent.mkdir()
        fill(path, seed)
        assert overwrite(path, nullcontext, ()) is None
        after_first += left(path)
        assert compact(path, nullcontext, None) is None
        assert left(path) == 0
        assert whole(path)
    assert after_first > 0  # if this fails, SQLite overwrites more than before, and the second stage may be unnecessary


def test_a_full_text_table_is_erased_in_batches_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure_delete, "FTS_MERGE_PAGES", 1)
    path, turns = tmp_path / "some.db", 0
    with closing(opened(path)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("CREATE VIRTUAL TABLE texts USING fts5(body, content='')")
        for number in range(400):
            named = "lost" if number % 2 else "kept"
            body = " ".join(f"q{number * 31 + word}z{named}" for word in range(20))
            raw.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", [number, body])
        for number in range(1, 400, 2):
            body = " ".join(f"q{number * 31 + word}zlost" for word in range(20))
            raw.execute("INSERT INTO texts (texts, rowid, body) VALUES ('delete', ?, ?)", [number, body])

        def turn() -> nullcontext[None]:
            nonlocal turns
            turns += 1
            raw.execute("INSERT INTO texts (rowid, body) VALUES (?, ?)", [1_000 + turns, f"more{turns}"])
            return nullcontext()

        assert left(path) > 0
        assert overwrite(path, turn, ["texts"]) is None
        assert turns > 5
        raw.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
        ((kept,),) = raw.execute("SELECT count(*) FROM texts WHERE texts MATCH 'q0zkept'").fetchall()
        assert kept == 1
        assert compact(path, nullcontext, None) is None
        assert left(path) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="shows open files on Linux only")
def test_the_temporary_file_of_vacuum_is_unlinked_and_has_only_live_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite unlinks the temporary file when it creates it; only the descriptor shows its content."""
    assert overwrite(path, nullcontext, ()) is None
    assert left(path) > 0
    connect, seen = secure_delete._connect, b""

    def look() -> int:
        nonlocal seen
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if link.readlink().name.startswith("etilqs_"):
                    seen += link.read_bytes()
        return 0

    def watched(path: Path) -> sqlite3.Connection:
        raw = connect(path)
        raw.execute("PRAGMA cache_size=5")  # makes SQLite write pages to the temporary file early
        raw.set_progress_handler(look, 200)
        return raw

    monkeypatch.setattr(secure_delete, "_connect", watched)
    assert compact(path, nullcontext, None) is None
    assert b"kept" in seen
    assert LOST not in seen
    assert left(path) == 0


def test_a_dropped_table_needs_no_merge(path: Path) -> None:
    assert overwrite(path, nullcontext, ["dropped"]) is None


@pytest.mark.parametrize("stage", ["overwrite", "compact"])
def test_a_reader_postpones_either_stage_and_is_not_blocked(path: Path, stage: str) -> None:
    def run() -> Obstacle | None:
        return overwrite(path, nullcontext, ()) if stage == "overwrite" else compact(path, nullcontext, None)

    with closing(opened(path)) as reader, closing(opened(path)) as writer:
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM words").fetchall()
        writer.execute("UPDATE words SET document = document + 1")
        size = path.stat().st_size
        assert run() is Obstacle.READER
        assert path.stat().st_size == size
        assert reader.execute("SELECT count(*) FROM words").fetchall() == before
        assert log_size(path) > 0
        reader.execute("COMMIT")
        assert run() is None
        assert log_size(path) == 0


def test_truncating_the_log_waits_for_a_reader_that_came_during_vacuum(path: Path) -> None:
    """The log of VACUUM contains all live rows; it is truncated when the reader ends."""
    turns = 0
    with closing(opened(path)) as reader:

        def turn() -> nullcontext[None]:
            nonlocal turns
            turns += 1
            if turns == 2:  # turn 1 truncates the log, turn 2 is VACUUM
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM words").fetchall()
            if turns == 5:
                reader.execute("COMMIT")
            return nullcontext()

        assert compact(path, turn, None) is None
        assert turns == 5
    assert left(path) == 0


def test_another_writing_process_postpones_both_stages(path: Path) -> None:
    with closing(opened(path)) as other:
        other.execute("CREATE VIRTUAL TABLE texts USING fts5(body)")
        other.execute("BEGIN IMMEDIATE")
        assert overwrite(path, nullcontext, ["texts"]) is Obstacle.WRITER
        assert compact(path, nullcontext, None) in (Obstacle.WRITER, Obstacle.READER)
        other.execute("ROLLBACK")
        assert compact(path, nullcontext, None) is None


HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "ab")
fcntl.flock(file, fcntl.LOCK_EX)
print("holds", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_erase_concurrently(path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(path.with_name("some.db-erase"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"holds\n"
        assert overwrite(path, nullcontext, ()) is Obstacle.ERASER
        assert compact(path, nullcontext, None) is Obstacle.ERASER
        other.communicate()
    assert overwrite(path, nullcontext, ()) is None
    assert compact(path, nullcontext, None) is None


def test_a_database_above_the_size_limit_is_not_compacted(path: Path) -> None:
    with closing(opened(path)) as raw:
        raw.execute("VACUUM")
    size = path.stat().st_size
    assert compact(path, nullcontext, size - 1) is Obstacle.TOO_LARGE
    assert compact(path, nullcontext, size) is None


def test_compaction_does_not_fill_a_disk_without_space(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = path.stat().st_size
    for free, told in ((size, Obstacle.NO_SPACE), (3 * size, None)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        assert compact(path, nullcontext, None) is told


ON_A_SMALL_DISK = """
import os, shutil, subprocess, sys
from contextlib import nullcontext
from pathlib import Path
folder, source = Path(sys.argv[1]), Path(sys.argv[2])
size = source.stat().st_size
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size * 5 // 2}", "tmpfs", folder], check=True)
path = folder / "some.db"
shutil.copy(source, path)
os.environ["SQLITE_TMPDIR"] = sys.argv[3]
import sqlite3
from holdfast.db import secure_delete
secure_delete._lacks_space = lambda *_: False  # the disk fills up after this was asked
ballast = folder / "ballast"
ballast.write_bytes(bytes(shutil.disk_usage(folder).free - size // 2))
with sqlite3.connect(path) as held:
    held.execute("SELECT count(*) FROM words").fetchall()
    print(secure_delete.compact(path, nullcontext, None))
    print(path.with_name("some.db-wal").stat().st_size)
    print(held.execute("PRAGMA integrity_check").fetchall()[0][0])
    held.commit()
    ballast.unlink()
    print(secure_delete.compact(path, nullcontext, None))
    print(path.read_bytes().count(b"lost"))
"""


def test_vacuum_on_a_full_disk_changes_nothing_and_frees_its_space(path: Path, tmp_path: Path) -> None:
    assert overwrite(path, nullcontext, ()) is None
    assert left(path) > 0
    (tmp_path / "disk").mkdir()
    (tmp_path / "other").mkdir()
    command = [sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path / "disk"), str(path)]
    ran = subprocess.run(
        ["unshare", "-rm", *command, str(tmp_path / "other")],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode and ("unshare" in ran.stderr or "mount" in ran.stderr):
        pytest.skip("this machine does not allow a disk of one's own")
    assert ran.stdout.split() == ["no_space", "0", "ok", "None", "0"], ran.stderr
