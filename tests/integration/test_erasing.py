"""What was deleted is found in no byte of any file, once the clean-up and the erasing are done; on SQLite."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.states import Operation
from holdfast.errors import Permanent
from holdfast.knowledge.adding import Upload
from holdfast.library.catalogue import BaseSettings
from holdfast.providers.offline import OfflineProvider
from holdfast.stores import gaps, shredding, sqlite
from holdfast.stores.erasing import PATIENCE, SPACING, Erasing, Pending
from tests.support.disk import WholeRig, found
from tests.support.paid_provider import PaidProvider
from tests.support.processes import ROOT
from tests.support.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from holdfast.providers.base import Embedded
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
    """The tables of words of each time that the disk was gone through."""
    told: list[Sequence[str]] = []

    def shred(path: Path, turn: shredding.Turn, words: Collection[str]) -> bool:
        told.append(list(words))
        return shredding.shred(path, turn, words)

    monkeypatch.setattr(sqlite, "shred", shred)
    return told


def pending(rig: Rig) -> Pending | None:
    return rig.library.erasing.pending()


def tend(rig: Rig, clock: FakeClock) -> None:
    """Let time pass and sweep, as a reconciler does."""
    rig.work()
    clock.advance(SPACING)
    rig.library.sweep(500)


# -------------------------------------------------------------------- what goes


def test_a_deleted_document_is_in_no_byte_of_any_file(whole: WholeRig, clock: FakeClock) -> None:
    others = {f"{n}.md": f"# Part {n}\n\nThe seal is here. [[Krill|animal|Krill fact {n}.]]\n" for n in range(9)}
    whole.put_all(others | {NAME: CANARIES})
    whole.tend()
    whole.library.cards.generate(whole.base)
    whole.work()
    assert whole.merged() > 0
    assert whole.count("cards") > 0
    for query in ("xwebcanary7", "Yzthing Canaryname8"):
        assert whole.library.searching.search(whole.base, query)
    assert set(found(whole.whole, WORDS)) == set(WORDS)
    whole.delete(NAME)
    whole.work()
    assert found(whole.whole, WORDS)
    tend(whole, clock)
    whole.tend()
    tend(whole, clock)
    assert found(whole.whole, WORDS) == {}
    assert pending(whole) is None
    assert {hit.served.name for hit in whole.find("seal")} == set(others)


def test_what_was_said_before_an_edit_goes(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.index(NAME, CANARIES)
    rig.index(NAME, STONES.replace("Stones", "Other stones"))
    tend(rig, clock)
    assert found(tmp_path, WORDS[:-1]) == {}
    assert pending(rig) is None
    assert "name-of-it9" in found(tmp_path, WORDS)


def test_what_an_error_quotes_goes_with_the_document(tmp_path: Path, clock: FakeClock) -> None:
    class Quoting(OfflineProvider):
        def embed(self, texts: Sequence[str]) -> Embedded:
            if any("canary7" in text for text in texts):
                raise Permanent("bad_text", f"I cannot read: {texts}")
            return super().embed(texts)

        def embed_parts(self, texts: Sequence[str], *_: object) -> Iterator[Embedded]:
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
        tend(rig, clock)
        assert found(tmp_path, WORDS[:-1]) == {}
    rig.close()


def test_a_cancelled_build_leaves_nothing(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.put(NAME, CANARIES)
    rig.worker.run_next(1)
    assert rig.count("chunks") > 1
    rig.ask(NAME, Operation.CANCEL)
    rig.delete(NAME)
    tend(rig, clock)
    assert found(tmp_path, WORDS) == {}


def test_a_document_deleted_while_it_is_indexed_leaves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    class Meanwhile(OfflineProvider):
        def embed_parts(self, texts: Sequence[str], *more: Any) -> Iterator[Embedded]:
            yield from super().embed_parts(texts, *more)
            if any("canary7" in text for text in texts):
                stand.delete(NAME)

    stand = Rig(f"sqlite:///{tmp_path / 'holdfast.db'}", tmp_path / "blobs", clock, Meanwhile(), **EMBEDDED)
    stand.index("stones.md", STONES)
    stand.put(NAME, CANARIES)
    tend(stand, clock)
    assert stand.count("items") == 1
    assert found(tmp_path, WORDS) == {}
    stand.close()


def test_a_table_that_is_dropped_leaves_nothing(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.index(NAME, CANARIES)
    recipes = [(kind, one) for kind in SMALL["indexes"] for one in rig.library.indexes.recipes(rig.base, kind)]
    rig.delete(NAME, "stones.md")
    rig.work()
    for kind, recipe in recipes:
        rig.library.indexes[kind].forget(recipe)
        rig.library.catalogue.remove(recipe)
    clock.advance(SPACING)
    assert rig.library.erasing.erase()
    assert found(tmp_path, (*WORDS, "basalt")) == {}


def test_a_base_leaves_nothing_when_it_is_cleared_or_deleted(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    bases, items = rig.library.bases, rig.library.items
    base = bases.create("pxbasename2", BaseSettings(**SMALL))
    for end in (bases.clear, bases.delete):
        items.put(base, [Upload(NAME, CANARIES.encode())])
        rig.work()
        assert set(found(tmp_path, ("basename2", *WORDS))) == {"basename2", *WORDS}
        end(base)
        for _ in range(3):
            tend(rig, clock)
        assert found(tmp_path, WORDS) == {}
    assert found(tmp_path, ["basename2"]) == {}


def test_whatever_takes_text_out_of_the_database_is_counted(rig: Rig) -> None:
    """Each is a trigger; a migration that makes one of these tables anew must not forget it."""
    statements = [
        "UPDATE library_bases SET name = 'x'",
        *(f"UPDATE library_items SET {one} = 'x'" for one in ("name", "blob", "metadata", "source")),  # noqa: S608
        *(f"DELETE FROM library_{one}" for one in ("builds", "chunks", "recipes", "items", "bases")),  # noqa: S608
        "DELETE FROM slots",
    ]
    with rig.store.database.writing(durable=False) as tx:
        tx.plain("INSERT INTO library_memos (tenant, key, value, created_at) VALUES ('', '', '', 0)")
        for statement in [*statements, "DELETE FROM library_memos"]:
            ((before,),) = tx.plain("SELECT removed FROM erasures WHERE place = 'rows'")
            tx.plain(statement)
            assert tx.plain("SELECT removed > ? FROM erasures WHERE place = 'rows'", [before]) == [(1,)], statement
        ((before,),) = tx.plain("SELECT removed FROM erasures WHERE place = 'rows'")
        tx.plain("UPDATE library_items SET look_at = 1, name = name")
        assert tx.plain("SELECT removed FROM erasures WHERE place = 'rows'") == [(before,)]


# -------------------------------------------------------------------- when


def test_many_deletes_are_erased_together(
    rig: Rig, tmp_path: Path, clock: FakeClock, runs: list[Sequence[str]]
) -> None:
    names = [f"{n}-{NAME}" for n in range(50)]
    uploads = [Upload(name, CANARIES.replace("xweb", f"{n}xweb").encode()) for n, name in enumerate(names)]
    rig.library.items.put(rig.base, uploads)
    rig.work()
    for first in range(0, 50, 10):
        rig.delete(*names[first : first + 10])
        rig.worker.run_next(7)
        rig.library.sweep(500)
        clock.advance(timedelta(seconds=1))
    assert runs == []  # the clean-up goes on
    tend(rig, clock)
    assert len(runs) == 1
    assert found(tmp_path, WORDS) == {}


def test_a_clean_up_that_never_ends_is_not_waited_for(
    rig: Rig, tmp_path: Path, clock: FakeClock, runs: list[Sequence[str]]
) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rig.work()
    rig.delete("stones.md")
    for passed in (timedelta(), PATIENCE - timedelta(seconds=1)):
        clock.advance(passed)
        rig.library.sweep(500)
        assert runs == []
    clock.advance(timedelta(seconds=1))
    rig.library.sweep(500)
    assert len(runs) == 1
    assert found(tmp_path, WORDS) == {}


def test_where_nothing_is_deleted_the_disk_is_left_alone(rig: Rig, clock: FakeClock, runs: list[Sequence[str]]) -> None:
    rig.index("more.md", CANARIES)
    tend(rig, clock)
    tend(rig, clock)
    assert runs == []
    assert pending(rig) is None
    assert rig.library.erasing.erase()


@pytest.mark.postgres
def test_on_postgresql_nothing_is_counted_and_nothing_is_done(
    postgres_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    rig = Rig(postgres_url, tmp_path / "blobs", clock, **SMALL)
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    tend(rig, clock)
    assert pending(rig) is None
    assert found(tmp_path, WORDS) == {}
    rig.close()


def test_only_tables_of_words_from_which_something_went_are_merged(
    rig: Rig, clock: FakeClock, runs: list[Sequence[str]]
) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    tend(rig, clock)
    (recipe,) = rig.library.indexes.recipes(rig.base, "fulltext")
    assert runs == [[f"fulltext_{recipe.id}"]]
    rig.put("stones.md", STONES.replace("Stones", "Rocks"))
    with rig.store.database.writing(durable=False) as tx:
        tx.plain("DELETE FROM library_memos")
        tx.plain("UPDATE library_items SET name = 'rocks.md'")
    clock.advance(SPACING)
    rig.library.erasing.erase(at_once=True)
    assert runs[1:] == [[]]


# -------------------------------------------------------------------- until it succeeds


def test_whoever_reads_keeps_it_there_and_it_is_told_since_when(rig: Rig, tmp_path: Path, clock: FakeClock) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    rig.work()
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM library_chunks").fetchall()
        tend(rig, clock)
        since = clock.now()
        assert pending(rig) == Pending(documents=1, since=since, held_since=since)
        assert found(tmp_path, WORDS)
        rig.index("more.md", STONES)  # nobody waits for whoever reads
        tend(rig, clock)
        assert pending(rig) == Pending(documents=1, since=since, held_since=since)
    rig.library.sweep(500)
    assert found(tmp_path, WORDS)  # it was tried a moment ago
    tend(rig, clock)
    assert found(tmp_path, WORDS) == {}
    assert pending(rig) is None
    rig.delete("more.md")
    rig.work()
    assert pending(rig) == Pending(documents=1, since=None, held_since=None)


def test_what_is_deleted_while_it_is_erased_is_erased_next(
    rig: Rig, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("more.md", STONES.replace("Stones", "Rocks"))
    rig.index(NAME, CANARIES)
    rig.delete("more.md")
    rig.work()

    def shred(path: Path, turn: shredding.Turn, words: Collection[str]) -> bool:
        done = shredding.shred(path, turn, words)
        rig.delete(NAME)
        rig.work()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "shred", shred)
        assert not rig.library.erasing.erase(at_once=True)
    assert pending(rig) == Pending(documents=1, since=clock.now(), held_since=None)
    tend(rig, clock)
    assert found(tmp_path, WORDS) == {}


def test_whoever_fails_in_the_middle_begins_again(
    rig: Rig, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index(NAME, CANARIES)
    rig.delete(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(gaps, "__file__", str(tmp_path / "nowhere.py"))
        tend(rig, clock)
    assert pending(rig) == Pending(documents=1, since=clock.now(), held_since=None)
    tend(rig, clock)
    assert found(tmp_path, WORDS) == {}
    assert pending(rig) is None


DIES = """
import os, sys
from pathlib import Path
from holdfast.core.clock import SystemClock
from holdfast.runtime.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_settings

settings = Settings(database=sys.argv[1], data=sys.argv[2])
store = open_settings(settings)
library = Library(store, settings)
base = library.catalogue.find_base("shelf")
library.items.delete(base, [library.items.find(base, sys.argv[3]).id])
worker = Executor(store, library.indexers(), holder="other", clock=SystemClock(), rules=store.rules)
while worker.run_next(100):
    pass
os.kill(os.getpid(), 9)
"""


def test_what_another_process_has_deleted_before_it_was_killed_is_erased(
    tmp_path: Path, clock: FakeClock, rig: Rig
) -> None:
    rig.index(NAME, CANARIES)
    rig.close()
    arguments = [f"sqlite:///{tmp_path / 'holdfast.db'}", str(tmp_path / "blobs"), NAME]
    ran = subprocess.run([sys.executable, "-c", DIES, *arguments], cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert found(tmp_path, WORDS)
    again = Erasing(rig.store.database)
    told = again.pending()
    assert told is not None
    assert told.documents == 1
    assert again.erase(at_once=True)
    assert found(tmp_path, WORDS) == {}
