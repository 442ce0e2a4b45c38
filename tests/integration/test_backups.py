"""Backups of a library that is in use: consistent, checked, and restored into either kind of database."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import pytest

from holdfast.catalog.file_holds import FileHolds
from holdfast.catalog.file_records import LEASE
from holdfast.cli import main
from holdfast.engine.liveness import make_holder_name
from holdfast.errors import BadBackup, StateConflict, StoreError, StoreUnavailable
from holdfast.moving import backup
from holdfast.moving.backup import restore_backup, write_backup
from holdfast.moving.copying import Copy
from holdfast.moving.files import copy_files
from tests.integration.test_archives import ABOUT
from tests.integration.test_moving import PLAIN, WAYS, Desk, desk, paid, provider, rows, searched
from tests.support.harness import Rig
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.blobs.base import BlobStore
    from holdfast.llm.openai import OpenAIProvider
    from tests.support.paid_provider import PaidProvider

__all__ = ["desk", "paid", "provider"]  # fixtures
DOCUMENTS = 20
KINDS = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])


def findings(library: Any) -> list[Any]:
    return [one for one in library.doctor.check(deep=True) if one.code != "nobody_works"]


@pytest.fixture
def written(desk: Desk) -> Path:
    """A backup of a small library on SQLite."""
    source = desk.new_database()
    desk.fill(source).close()
    write_backup(desk.open_end(source), desk.folder / "backup", "1.0")
    return desk.folder / "backup"


@WAYS
def test_a_backup_restores_everything_and_pays_for_nothing(
    desk: Desk, kind: str, other: str, paid: PaidProvider, provider: OpenAIProvider
) -> None:
    source, target, folder = desk.new_database(kind), desk.new_database(other), desk.folder / "backup"
    rig = desk.fill(source, provider)
    hits, before = searched(rig.library, rig.base), rows(rig.store.database)
    bill = dict(paid.bill.texts), dict(paid.bill.prompts)
    done = write_backup(desk.open_end(source), folder, "1.0")
    assert done.missing_files == 0
    rig.close()

    restore_backup(desk.open_end(target, desk.files), folder)

    library = desk.open(target, provider, desk.files)
    restored = rows(library.store.database)
    assert {name: found for name, found in restored.items() if name != "library_files"} == {
        name: found for name, found in before.items() if name != "library_files"
    }
    assert (dict(paid.bill.texts), dict(paid.bill.prompts)) == bill
    (base,) = library.catalog.bases()
    for asked, found in searched(library, base).items():
        assert found.keys() == hits[asked].keys()
        assert list(found.values()) == pytest.approx([hits[asked][key] for key in found], abs=0.02), asked
    assert findings(library) == []


class Load:
    """Uploads, edits, deletes and a worker, in two threads."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rounds = 0
        self.errors: list[Exception] = []
        self._ended = threading.Event()
        self._worker = rig.hire("second worker")
        self._threads = [threading.Thread(target=self._repeat, args=[one]) for one in (self._change, self._work)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def await_rounds(self, more: int) -> None:
        wanted = self.rounds + more
        until(lambda: self.rounds >= wanted or self.errors, "the load has ended")

    def _repeat(self, one: Callable[[], None]) -> None:
        try:
            while not self._ended.is_set():
                one()
        except Exception as error:  # noqa: BLE001 - the test reads it
            self.errors.append(error)

    def _change(self) -> None:
        number = self.rounds
        self.rig.put(f"new-{number}.md", ABOUT.format(number))
        self.rig.put(f"first-{number % DOCUMENTS}.md", ABOUT.format(number + 1000))
        if number:
            self.rig.delete(f"new-{number - 1}.md")
        self.rounds += 1

    def _work(self) -> None:
        self._worker.run_next(10)


@KINDS
def test_a_backup_taken_under_load_is_consistent(desk: Desk, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, folder = desk.new_database(kind), desk.new_database(kind), desk.folder / "backup"
    rig = Rig(source, desk.folder / "blobs", desk.clock, **PLAIN)
    for number in range(DOCUMENTS):
        rig.put(f"first-{number}.md", ABOUT.format(number))
    rig.work()
    with Load(rig) as load:
        load.await_rounds(3)

        def copy_late(names: list[str], *stores: BlobStore) -> int:
            load.await_rounds(3)  # between the snapshot and the copy of each batch of files
            return copy_files(names, *stores)

        monkeypatch.setattr(backup, "copy_files", copy_late)
        monkeypatch.setattr(backup, "FILES_PER_BATCH", 5)
        done = write_backup(desk.open_end(source), folder, "1.0")
        load.await_rounds(2)
    monkeypatch.undo()
    assert load.errors == []
    assert done.missing_files == 0
    rig.close()

    restore_backup(desk.open_end(target, desk.files), folder)
    library = desk.open(target, data=desk.files)
    restored = desk.continue_work(library)
    found = {hit.name for hit in restored.find("krill", limit=1000)}
    assert {f"first-{number}.md" for number in range(DOCUMENTS)} <= found
    assert {item.name for item in restored.children(restored.base)} == found
    assert findings(library) == []


@KINDS
def test_files_stay_while_a_backup_holds_them(desk: Desk, kind: str) -> None:
    source = desk.new_database(kind)
    rig = desk.fill(source)
    path = rig.path(rig.library.items.find(rig.base, "2.md").blob)
    with rig.library.file_holds.holding():
        rig.delete("2.md")
        rig.work()
        assert not [hit for hit in rig.find("granite") if hit.name == "2.md"]
        assert path.exists()
        with pytest.raises(StoreUnavailable, match="a backup copies them"):
            rig.library.blobs.remove([path.name])
    desk.clock.advance(timedelta(minutes=5))
    rig.work()
    while rig.library.remover.continue_deletes():
        rig.work()
    assert not path.exists()
    rig.close()


def test_a_hold_of_a_killed_backup_ends(desk: Desk) -> None:
    rig = desk.fill(desk.new_database())
    holds = FileHolds(rig.store.database, "elsewhere/another host/1/1/1", lambda _: False)
    context = holds.holding()
    context.__enter__()
    assert rig.library.file_holds.exist()
    desk.clock.advance(LEASE + timedelta(seconds=1))
    assert not rig.library.file_holds.exist()
    assert rig.library.file_records.remove_due_files(100)
    with pytest.raises(StoreError, match="interrupted for more than 120 s"):
        context.__exit__(None, None, None)
    dead = FileHolds(rig.store.database, make_holder_name(), lambda _: True)
    with dead.holding():
        assert not dead.exist()
    rig.close()


def test_an_interrupted_backup_is_recognised(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = desk.new_database(), desk.folder / "backup"
    desk.fill(source).close()
    monkeypatch.setattr(backup, "copy_files", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_backup(desk.open_end(source), folder, "1.0")
    with pytest.raises(BadBackup, match="has no manifest"):
        restore_backup(desk.open_end(desk.new_database(), desk.files), folder)
    with pytest.raises(BadBackup, match="not an empty folder"):
        write_backup(desk.open_end(source), folder, "1.0")


@pytest.mark.parametrize("damage", ["row", "file", "no rows", "no file", "manifest", "version"])
def test_a_damaged_backup_is_refused_before_anything_is_restored(desk: Desk, written: Path, damage: str) -> None:
    table, file = written / "rows" / "library_items.jsonl", next((written / "files").glob("*/*"))
    manifest = written / "manifest.json"
    if damage == "row":
        table.write_text(table.read_text().replace("2.md", "3.md"))
    elif damage == "file":
        file.write_bytes(b"changed")
    elif damage == "no rows":
        table.unlink()
    elif damage == "no file":
        file.unlink()
    elif damage == "manifest":
        manifest.write_text("{")
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": "0001"}))
    target = desk.new_database()
    with pytest.raises(BadBackup):
        restore_backup(desk.open_end(target, desk.files), written)
    assert not desk.open_end(target).exists()


def test_a_restore_needs_an_empty_target_and_can_be_repeated(
    desk: Desk, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = desk.new_database()
    desk.fill(used, indexes=("fulltext",)).close()
    with pytest.raises(StoreError, match="only an empty one can be filled"):
        restore_backup(desk.open_end(used, desk.files), written)
    target = desk.new_database()
    with pytest.raises(StoreError, match="is not empty"):
        restore_backup(desk.open_end(target), written)
    with monkeypatch.context() as patch:
        patch.setattr(Copy, "_compare_counts", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restore_backup(desk.open_end(target, desk.files), written)
    other = desk.folder / "other backup"
    write_backup(desk.open_end(used), other, "1.0")
    with pytest.raises(StateConflict, match="not complete"):
        restore_backup(desk.open_end(target, desk.files), other)
    restore_backup(desk.open_end(target, desk.files), written)
    assert findings(desk.open(target, data=desk.files)) == []


def test_a_file_that_was_missing_before_is_counted(desk: Desk) -> None:
    source, folder = desk.new_database(), desk.folder / "backup"
    rig = desk.fill(source)
    rig.path(rig.library.items.find(rig.base, "2.md").blob).unlink()
    rig.close()
    assert write_backup(desk.open_end(source), folder, "1.0").missing_files == 1
    target = desk.new_database()
    restore_backup(desk.open_end(target, desk.files), folder)
    assert [one.code for one in findings(desk.open(target, data=desk.files))] == ["file_lacks"]


def test_the_commands_back_up_and_restore(desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = desk.new_database(), desk.folder / "backup"
    desk.fill(source).close()
    monkeypatch.setenv("HOLDFAST_HOME", str(desk.folder / "home"))
    monkeypatch.setenv("HOLDFAST_DATA", desk.settings.data)
    monkeypatch.setenv("HOLDFAST_DATABASE", source)
    assert main(["backup", str(folder)]) == 0
    assert "files to " in capsys.readouterr().err
    assert main(["backup", str(folder)]) == 2
    restored = desk.folder / "restored"
    monkeypatch.delenv("HOLDFAST_DATABASE")
    monkeypatch.delenv("HOLDFAST_DATA")
    assert main(["--home", str(restored), "restore", str(folder)]) == 0
    assert "Restored and verified" in capsys.readouterr().err
    assert main(["--home", str(restored), "ls", "--base", "shelf"]) == 0
    assert "note" in capsys.readouterr().out
