"""Erasure on SQLite: no file contains deleted data; stage one overwrites rows, stage two removes their copies."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.config import Config

from holdfast.catalog.erasure import (
    CLEANUP_WAIT,
    COMPACT_RETRY,
    COMPACT_SPACING,
    OVERWRITE_SPACING,
    QUIET,
    Eraser,
    ErasureState,
    PendingErasure,
)
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.db import secure_delete, sqlite
from holdfast.db.secure_delete import Obstacle
from holdfast.documents.requests import Upload
from holdfast.engine.rules import Rules
from holdfast.engine.states import Operation
from holdfast.engine.store.factory import open_database, open_store
from holdfast.errors import Permanent, StoreFull
from holdfast.llm.offline import OfflineProvider
from tests.support.disk import WholeRig, found
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from holdfast.llm.base import Embeddings
    from tests.support.clock import FakeClock

SMALL: dict[str, Any] = {"indexes": ("fulltext",), "chunk_size": 64, "chunk_overlap": 0}
EMBEDDED = SMALL | {"indexes": ("fulltext", "vector")}
STONES = "# Stones\n\nThe granite is hard and old. The basalt is black.\n"
CANARIES = (
    "# Qvagga Heading5\n\nThe xwebcanary7 is seen under a violet jkbridge3.\n\n"
    "[[Yzthing Canaryname8|animal|It has ujstripes4.]] [[Krill|animal|Eaten by vqcanary6.]]\n"
)
WORDS = ("heading5", "canary7", "violet jkbridge3", "bridge3", "canaryname8", "stripes4", "canary6", "name-of-it9")
NAME = "wqname-of-it9.md"


@pytest.fixture
def rig(tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(f"sqlite:///{tmp_path / 'holdfast.db'}", tmp_path / "blobs", clock, **SMALL)
    rig.index("stones.md", STONES)
    yield rig
    rig.close()


@pytest.fixture
def whole(tmp_path: Path, clock: FakeClock) -> Iterator[WholeRig]:
    with PaidProvider() as paid:
        rig = WholeRig(tmp_path, clock, paid)
        yield rig
        rig.close()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Record the FTS5 tables of each run of the first stage."""
    calls: list[Sequence[str]] = []

    def overwrite(path: Path, turn: secure_delete.WriterTurn, fts_tables: Collection[str]) -> Obstacle | None:
        calls.append(list(fts_tables))
        return secure_delete.overwrite(path, turn, fts_tables)

    monkeypatch.setattr(sqlite, "overwrite", overwrite)
    return calls


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Record the size limit of each run of the second stage."""
    calls: list[int | None] = []

    def compact(path: Path, turn: secure_delete.WriterTurn, largest: int | None) -> Obstacle | None:
        calls.append(largest)
        return secure_delete.compact(path, turn, largest)

    monkeypatch.setattr(sqlite, "compact", compact)
    return calls


def state(rig: Rig) -> ErasureState:
    return rig.library.erasure.read_state()


def tend(rig: Rig, clock: FakeClock) -> None:
    """Advance the clock and sweep, as the reconciler does, so that the first stage completes."""
    rig.work()
    clock.advance(OVERWRITE_SPACING)
    rig.library.sweep(500)


def rest(rig: Rig, clock: FakeClock) -> None:
    """Advance the clock without any activity until the second stage completes too."""
    tend(rig, clock)
    for _ in range(2):
        clock.advance(COMPACT_SPACING)
        rig.library.sweep(500)


def holds(folder: Path, content: bytes) -> bool:
    return any(content in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def vectors_of(rig: Rig, name: str) -> list[bytes]:
    """Read the vectors of the chunks of a document."""
    item = rig.library.items.find(rig.base, name)
    found: list[bytes] = []
    with rig.store.database.reading() as tx:
        chunks = tx.run_sql(
            "SELECT library_chunks.id FROM library_chunks JOIN owners ON owners.id = library_chunks.owner_id "
            "WHERE owners.owner = ?",
            [item.key],
        )
        for recipe in rig.library.indexes.recipes(rig.base, "vector"):
            for (chunk,) in chunks:
                rows = tx.run_sql(f"SELECT vector FROM vector_{recipe.id} WHERE chunk = ?", [chunk])  # noqa: S608 - an id of our own
                found += [vector for (vector,) in rows]
    return found


def test_no_file_contains_any_byte_of_a_deleted_document(whole: WholeRig, clock: FakeClock) -> None:
    others = {f"{n}.md": f"# Part {n}\n\nThe seal is here. [[Krill|animal|Krill fact {n}.]]\n" for n in range(9)}
    whole.put_all(others | {NAME: CANARIES})
    whole.tend()
    whole.library.cards.generate(whole.base)
    whole.work()
    assert whole.merged() > 0
    assert whole.count("cards") > 0
    for query in ("xwebcanary7", "Yzthing Canaryname8"):
        assert whole.library.searcher.search(whole.base, query)
    assert set(found(whole.whole, WORDS)) == set(WORDS)
    vectors = vectors_of(whole, NAME)
    assert vectors
    assert all(holds(whole.whole, one) for one in vectors)
    whole.delete(NAME)
    whole.work()
    assert found(whole.whole, WORDS)
    tend(whole, clock)
    whole.tend()
    tend(whole, clock)
    assert state(whole).overwrite is None
    assert state(whole).compact is not None
    rest(whole, clock)
    assert found(whole.whole, WORDS) == {}
    assert not any(holds(whole.whole, one) for one in vectors)
    assert state(whole) == (None, None)
    assert {hit.name for hit in whole.find("seal")} == set(others)


def test_the_first_stage_erases_rows_that_sqlite_has_not_moved(
    rig: Rig, tmp_path: Path, clock: FakeClock, compactions: list[int | None]
) -> None:
    rig.index(NAME, CANARIES)
    assert set(found(tmp_path, WORDS)) == set(WORDS)
    rig.delete(NAME)
    tend(rig, clock)
    assert found(tmp_path, WORDS) == {}
    assert compactions == []
    # The log contains only the record that the stage is complete.
    assert (tmp_path / "holdfast.db-wal").stat().st_size < 64 * 1024


def test_the_text_before_an_edit_is_erased(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.index(NAME, CANARIES)
    rig.index(NAME, STONES.replace("Stones", "Other stones"))
    rest(rig, clock)
    assert found(tmp_path, WORDS[:-1]) == {}
    assert state(rig) == (None, None)
    assert "name-of-it9" in found(tmp_path, WORDS)


def test_text_quoted_in_an_error_is_erased_with_the_document(tmp_path: Path, clock: FakeClock) -> None:
    class Quoting(OfflineProvider):
        def embed(self, texts: Sequence[str]) -> Embeddings:
            if any("canary7" in text for text in texts):
                raise Permanent("bad_text", f"I cannot read: {texts}")
            return super().embed(texts)

        def embed_parts(self, texts: Sequence[str], *_: object) -> Iterator[Embeddings]:
            yield self.embed(texts)

    rig = Rig(f"sqlite:///{tmp_path / 'holdfast.db'}", tmp_path / "blobs", clock, Quoting(), **EMBEDDED)
    for again in ("deleted", "changed"):
        rig.index(NAME, CANARIES)
        error = rig.slot(NAME, "vector").error
        assert error is not None
        assert "canary7" in error.params["message"]
        if again == "deleted":
            rig.delete(NAME)
        else:
            rig.put(NAME, STONES)
        rest(rig, clock)
        assert found(tmp_path, WORDS[:-1]) == {}
    rig.close()


def test_a_cancelled_build_leaves_nothing(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.put(NAME, CANARIES)
    rig.worker.run_next(1)
    assert rig.count("chunks") > 1
    rig.ask(NAME, Operation.CANCEL)
    rig.delete(NAME)
    rest(rig, clock)
    assert found(tmp_path, WORDS) == {}


def test_a_document_deleted_during_indexing_leaves_no_data(tmp_path: Path, clock: FakeClock) -> None:
    class Meanwhile(OfflineProvider):
        def embed_parts(self, texts: Sequence[str], *more: Any) -> Iterator[Embeddings]:
            yield from super().embed_parts(texts, *more)
            if any("canary7" in text for text in texts):
                stand.delete(NAME)

    stand = Rig(f"sqlite:///{tmp_path / 'holdfast.db'}", tmp_path / "blobs", clock, Meanwhile(), **EMBEDDED)
    stand.index("stones.md", STONES)
    stand.put(NAME, CANARIES)
    rest(stand, clock)
    assert stand.count("items") == 1
    assert found(tmp_path, WORDS) == {}
    stand.close()


def test_a_dropped_table_leaves_no_data(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.index(NAME, CANARIES)
    recipes = [(kind, one) for kind in SMALL["indexes"] for one in rig.library.indexes.recipes(rig.base, kind)]
    rig.delete(NAME, "stones.md")
    rig.work()
    for kind, recipe in recipes:
        rig.library.indexes[kind].forget(recipe)
        rig.library.catalog.remove_recipe(recipe)
    assert rig.library.erasure.run_now() == (None, None)
    assert found(tmp_path, (*WORDS, "basalt")) == {}


def test_a_cleared_or_deleted_base_leaves_no_data(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    bases = rig.library.bases
    base = bases.create("pxbasename2", BaseSettings(**SMALL))
    for end in (bases.clear, bases.delete):
        rig.library.adder.put(base, [Upload(NAME, CANARIES.encode())])
        rig.work()
        assert set(found(tmp_path, ("basename2", *WORDS))) == {"basename2", *WORDS}
        end(base)
        for _ in range(3):
            rest(rig, clock)
        assert found(tmp_path, WORDS) == {}
    assert found(tmp_path, ["basename2"]) == {}


def test_every_statement_that_removes_text_is_counted(rig: Rig) -> None:
    """Each count comes from a trigger. This test fails if a migration recreates a table without its trigger."""
    statements = [
        "UPDATE library_bases SET name = 'x'",
        *(f"UPDATE library_items SET {one} = 'x'" for one in ("name", "blob", "metadata", "source")),  # noqa: S608
        *(f"DELETE FROM library_{one}" for one in ("builds", "chunks", "recipes", "items", "bases")),  # noqa: S608
        "DELETE FROM slots",
    ]
    with rig.store.database.writing(durable=False) as tx:
        tx.run_sql("INSERT INTO library_memos (tenant, key, value, created_at) VALUES ('', '', '', 0)")
        for statement in [*statements, "DELETE FROM library_memos"]:
            ((before,),) = tx.run_sql("SELECT removed FROM erasures WHERE place = 'rows'")
            tx.run_sql(statement)
            assert tx.run_sql("SELECT removed > ? FROM erasures WHERE place = 'rows'", [before]) == [(1,)], statement
        ((before,),) = tx.run_sql("SELECT removed FROM erasures WHERE place = 'rows'")
        tx.run_sql("UPDATE library_items SET look_at = 1, name = name")
        assert tx.run_sql("SELECT removed FROM erasures WHERE place = 'rows'") == [(before,)]


@pytest.mark.parametrize("empty", [True])
@pytest.mark.usefixtures("empty")
def test_counts_and_triggers_of_an_older_database_are_kept(database_url: str) -> None:
    """Data that an older version has erased needs neither stage, and triggers count in the new table."""
    database = open_database(database_url, SystemClock())
    database.prepare()
    config = Config()
    config.set_main_option("script_location", "holdfast:db/migrations")
    config.set_main_option("path_separator", "os")
    with database.writing(durable=True) as tx:
        config.attributes["connection"] = tx.connection
        command.upgrade(config, "0015")
        tx.run_sql("UPDATE erasures SET removed = 7, erased = 5, since = 1, tried_at = 2, held_since = 3")
        tx.run_sql("INSERT INTO erasures (place, removed, erased) VALUES ('fulltext_1', 4, 4)")
    database.close()
    store = open_store(database_url, rules=Rules(), clock=SystemClock())
    with store.database.writing(durable=True) as tx:
        counts = tx.run_sql("SELECT place, removed, overwritten, compacted FROM erasures ORDER BY place")
        assert counts == [("documents", 7, 5, 5), ("fulltext_1", 4, 4, 4), ("rows", 7, 5, 5)]
        tx.run_sql("INSERT INTO library_bases (id, name, settings, created_at) VALUES (3, 'shelf', '{}', 1)")
        tx.run_sql("DELETE FROM library_bases")
        removed = 8 if database_url.startswith("sqlite") else 7
        assert tx.run_sql("SELECT removed FROM erasures WHERE place = 'rows'") == [(removed,)]
    if database_url.startswith("sqlite"):
        assert Eraser(store.database).run_now() == (None, None)
    store.close()


def test_many_deletes_are_erased_together(
    rig: Rig, tmp_path: Path, clock: FakeClock, runs: list[Sequence[str]]
) -> None:
    names = [f"{n}-{NAME}" for n in range(50)]
    uploads = [Upload(name, CANARIES.replace("xweb", f"{n}xweb").encode()) for n, name in enumerate(names)]
    rig.library.adder.put(rig.base, uploads)
    rig.work()
    for first in range(0, 50, 10):
        rig.delete(*names[first : first + 10])
        rig.worker.run_next(7)
        rig.library.sweep(500)
        clock.advance(timedelta(seconds=1))
    assert runs == []  # the clean-up is still running
    tend(rig, clock)
    assert len(runs) == 1
    rest(rig, clock)
    assert len(runs) == 1
    assert found(tmp_path, WORDS) == {}


def test_a_clean_up_that_never_ends_delays_erasure_only_for_a_limited_time(
    rig: Rig, clock: FakeClock, runs: list[Sequence[str]]
) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rig.work()
    rig.delete("stones.md")
    for passed in (timedelta(), CLEANUP_WAIT - timedelta(seconds=1)):
        clock.advance(passed)
        rig.library.sweep(500)
        assert runs == []
    clock.advance(timedelta(seconds=1))
    rig.library.sweep(500)
    assert len(runs) == 1
    assert state(rig).overwrite is None


def test_without_deletes_neither_stage_runs(
    rig: Rig, clock: FakeClock, runs: list[Sequence[str]], compactions: list[int | None]
) -> None:
    rig.index("more.md", CANARIES)
    rest(rig, clock)
    assert (runs, compactions) == ([], [])
    assert state(rig) == (None, None)


@pytest.mark.postgres
def test_erasure_does_nothing_on_postgresql(postgres_url: str, tmp_path: Path, clock: FakeClock) -> None:
    rig = Rig(postgres_url, tmp_path / "blobs", clock, **SMALL)
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    tend(rig, clock)
    assert state(rig) == (None, None)
    assert rig.library.erasure.run_now() == (None, None)
    assert found(tmp_path, WORDS) == {}
    rig.close()


def test_only_fts5_tables_with_deleted_rows_are_merged(rig: Rig, clock: FakeClock, runs: list[Sequence[str]]) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    tend(rig, clock)
    (recipe,) = rig.library.indexes.recipes(rig.base, "fulltext")
    assert runs == [[f"fulltext_{recipe.id}"]]
    rig.put("stones.md", STONES.replace("Stones", "Rocks"))
    with rig.store.database.writing(durable=False) as tx:
        tx.run_sql("DELETE FROM library_memos")
        tx.run_sql("UPDATE library_items SET name = 'rocks.md'")
    assert rig.library.erasure.overwrite()
    assert runs[1:] == [[]]


def test_the_database_is_compacted_when_idle_and_at_most_once_an_hour(
    rig: Rig, tmp_path: Path, clock: FakeClock, compactions: list[int | None]
) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    tend(rig, clock)
    rig.library.sweep(500)  # this sweep records that the second stage has work
    clock.advance(QUIET - timedelta(seconds=1))
    rig.library.sweep(500)
    assert compactions == []
    clock.advance(timedelta(seconds=1))
    rig.library.sweep(500)
    assert compactions == [512 * 2**20]
    assert found(tmp_path, WORDS) == {}
    rig.delete("stones.md")
    tend(rig, clock)
    for _ in range(3):
        clock.advance(QUIET)
        rig.library.sweep(500)
    assert len(compactions) == 1  # the last one was less than an hour ago
    clock.advance(COMPACT_SPACING)
    rig.library.sweep(500)
    assert len(compactions) == 2
    assert state(rig) == (None, None)


def test_the_database_is_not_compacted_while_work_is_queued(
    rig: Rig, clock: FakeClock, compactions: list[int | None]
) -> None:
    rig.delete("stones.md")
    tend(rig, clock)
    rig.library.sweep(500)
    rig.put(NAME, CANARIES)
    clock.advance(COMPACT_SPACING)
    rig.library.sweep(500)
    assert compactions == []
    rig.work()
    rig.library.sweep(500)
    assert compactions == []  # a job has just ended
    clock.advance(QUIET)
    rig.library.sweep(500)
    assert len(compactions) == 1


def test_a_large_database_is_compacted_only_on_demand(tmp_path: Path, clock: FakeClock) -> None:
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    rig = Rig(url, tmp_path / "blobs", clock, settings={"compact_limit": 0}, **SMALL)
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rest(rig, clock)
    left = state(rig).compact
    assert left is not None
    assert (left.documents, left.obstacle) == (1, Obstacle.TOO_LARGE)
    assert rig.library.erasure.run_now() == (None, None)
    assert found(tmp_path, WORDS) == {}
    rig.close()


def test_a_reader_that_prevents_only_compaction_is_reported_on_demand(rig: Rig, tmp_path: Path) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rig.work()
    assert rig.library.erasure.overwrite()
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM library_chunks").fetchall()
        rig.index("other.md", CANARIES)  # so that the log has pages that the reader has not seen
        left = rig.library.erasure.run_now()
        assert left.overwrite is None
        assert left.compact is not None
        assert left.compact.obstacle is Obstacle.READER
    assert rig.library.erasure.run_now() == (None, None)


def test_a_reader_that_blocks_either_stage_is_reported_with_the_start_time(
    rig: Rig, tmp_path: Path, clock: FakeClock
) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rig.work()
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM library_chunks").fetchall()
        tend(rig, clock)
        since = clock.now()
        blocked = PendingErasure(documents=1, since=since, obstacle=Obstacle.READER, blocked_since=since)
        assert state(rig).overwrite == blocked
        assert found(tmp_path, WORDS)
        rig.index("more.md", STONES)  # readers do not block writers
        tend(rig, clock)
        assert state(rig).overwrite == blocked
        assert rig.library.erasure.run_now().overwrite == blocked
    rig.library.sweep(500)
    assert found(tmp_path, WORDS)  # no new attempt so soon after the last one
    tend(rig, clock)
    assert state(rig).overwrite is None
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM library_chunks").fetchall()
        rig.library.sweep(500)
        seen = clock.now()
        rig.index("other.md", CANARIES)  # so that the log has pages that the reader has not seen
        clock.advance(COMPACT_SPACING)
        rig.library.sweep(500)
        left = state(rig).compact
        assert left is not None
        assert left[1:] == (seen, Obstacle.READER, clock.now())
    rig.library.sweep(500)
    assert state(rig).compact == left  # no new attempt so soon after the last one
    clock.advance(COMPACT_RETRY)
    rig.library.sweep(500)
    assert state(rig) == (None, None)
    rig.delete("more.md")
    rig.work()
    assert state(rig) == (PendingErasure(documents=1, since=None), PendingErasure(documents=1, since=None))


def test_data_deleted_during_a_stage_is_erased_by_the_next_run(
    rig: Rig, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("more.md", STONES.replace("Stones", "Rocks"))
    rig.index(NAME, CANARIES)
    rig.delete("more.md")
    rig.work()

    def overwrite(path: Path, turn: secure_delete.WriterTurn, fts_tables: Collection[str]) -> Obstacle | None:
        obstacle = secure_delete.overwrite(path, turn, fts_tables)
        rig.delete(NAME)
        rig.work()
        return obstacle

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "overwrite", overwrite)
        left = rig.library.erasure.run_now()
    assert left.overwrite == PendingErasure(documents=1, since=clock.now())
    # The data that was overwritten earlier is compacted.
    assert left.compact == PendingErasure(documents=1, since=clock.now())
    rest(rig, clock)
    assert found(tmp_path, WORDS) == {}


ERRORS = [OSError("no such device"), StoreFull("The disk is full."), Obstacle.NO_SPACE]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("stage", ["overwrite", "compact"])
def test_a_failed_stage_is_reported_and_retried(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, stage: str, error: Exception | Obstacle
) -> None:
    def fail(*_: object) -> Obstacle:
        if isinstance(error, Obstacle):
            return error
        raise error

    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, stage, fail)
        rest(rig, clock)
    left = getattr(state(rig), stage)
    assert left.documents == 1
    assert left.obstacle == (error if isinstance(error, Obstacle) else Obstacle.FAILED)
    assert rig.find("granite")
    rest(rig, clock)
    assert state(rig) == (None, None)


DIES = """
import os, sys
from pathlib import Path
from holdfast.clock import SystemClock
from holdfast.db import secure_delete
from holdfast.engine.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

def die(*_):
    os.kill(os.getpid(), 9)

settings = Settings(database=sys.argv[1], data=sys.argv[2])
store = open_configured_store(settings)
library = Library(store, settings)
base = library.catalog.find_base("shelf")
library.remover.delete(base, [library.items.find(base, sys.argv[3]).id])
worker = Executor(store, library.indexers(), holder="other", clock=SystemClock(), rules=store.rules)
while worker.run_next(100):
    pass
if sys.argv[4] == "before":
    die()
if sys.argv[4] == "merged":
    secure_delete._truncate_log = die
assert library.erasure.overwrite()
if sys.argv[4] == "between":
    die()
truncate, calls = secure_delete._truncate_log, []

def truncate_once(*given):  # the first call is before VACUUM, the second after it
    calls.append(given)
    return truncate(*given) if len(calls) == 1 else die()

secure_delete._truncate_log = truncate_once
library.erasure.run_now()
"""


@pytest.mark.parametrize("moment", ["before", "merged", "between", "vacuumed"])
def test_the_unfinished_erasure_of_a_killed_process_is_repeated(tmp_path: Path, rig: Rig, moment: str) -> None:
    rig.index(NAME, CANARIES)
    rig.close()
    arguments = [f"sqlite:///{tmp_path / 'holdfast.db'}", str(tmp_path / "blobs"), NAME, moment]
    ran = subprocess.run([sys.executable, "-c", DIES, *arguments], cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    again = Eraser(rig.store.database)
    left = again.read_state()
    assert (left.overwrite is None) == (moment in ("between", "vacuumed"))
    assert left.compact is not None
    assert left.compact.documents == 1
    assert again.run_now() == (None, None)
    assert found(tmp_path, WORDS) == {}


ERASES = """
import sys
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

settings = Settings(database=sys.argv[1], data=sys.argv[2])
library = Library(open_configured_store(settings), settings)
print("ready", flush=True)
sys.stdin.readline()
print(*[stage and stage.obstacle for stage in library.erasure.run_now()], flush=True)
"""


def test_two_processes_that_erase_concurrently_leave_no_data_and_no_damage(tmp_path: Path, rig: Rig) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rig.work()
    program = [sys.executable, "-c", ERASES, f"sqlite:///{tmp_path / 'holdfast.db'}", str(tmp_path / "blobs")]
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        both = [stack.enter_context(subprocess.Popen(program, cwd=ROOT, stdin=pipe, stdout=pipe)) for _ in range(2)]
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == b"ready\n"
        for one in both:
            assert one.stdin is not None
            one.stdin.write(b"\n")
            one.stdin.flush()
        said = [word for one in both for word in one.communicate()[0].decode().split()]
    assert len(said) == 4
    assert set(said) <= {"None", "eraser", "reader", "writer"}
    assert rig.library.erasure.run_now() == (None, None)
    with rig.store.database.reading() as tx:
        assert tx.run_sql("PRAGMA integrity_check") == [("ok",)]
    rig.close()
    assert found(tmp_path, WORDS) == {}
