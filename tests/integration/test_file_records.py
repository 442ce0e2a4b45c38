"""No upload leaves an orphan file: it is recorded before its bytes are written, and removed if the upload fails."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.catalog import file_records
from holdfast.catalog import file_statements as statements
from holdfast.catalog.file_records import LEASE, FileRecords
from holdfast.catalog.orphan_blobs import OrphanBlobCollector
from holdfast.documents.requests import Upload
from holdfast.engine.states import Status
from holdfast.errors import BadRequest, StoreError, StoreFull, StoreUnavailable
from tests.support.audit import Manifest, audit_quiet
from tests.support.harness import Rig
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


def files(rig: Rig) -> list[str]:
    return sorted(path.name for path in rig.folder.rglob("*") if path.is_file())


def found(rig: Rig) -> dict[str, int]:
    return {one.code: one.count for one in rig.library.doctor.check() if one.code.startswith("file_")}


def settled(rig: Rig) -> bool:
    """Return whether a row names every file and no record is left."""
    return files(rig) == Manifest(rig).blobs and rig.count("files") == 0


@pytest.mark.parametrize("kept", [False, True])
def test_the_file_of_an_upload_with_unknown_outcome_is_kept_only_if_the_database_has_its_row(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    rig.index("stones.md", STONES)
    admit = rig.store.admit_with

    def lost(write: Any) -> Any:
        if kept:
            admit(write)
        raise StoreUnavailable("The connection was lost.")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", lost)
        for name in ("whales.md", "stones.md"):  # a new document, and new content of an existing one
            with pytest.raises(StoreUnavailable):
                rig.put(name, f"{WHALES}{name}")
    assert len(files(rig)) == 3  # it is not known yet which files have a row
    assert rig.library.file_records.remove_due_files(500) == 0
    assert len(files(rig)) == 3  # the uploads may still be running
    clock.advance(LEASE)
    assert found(rig) == {"file_left": 1 if kept else 2}  # reported at any age
    rig.library.orphan_blobs.sweep(500)
    assert settled(rig)
    assert found(rig) == {}
    rig.work()
    assert len(rig.find("krill")) == (2 if kept else 0)
    rig.sweep()
    audit_quiet(rig)


@pytest.mark.postgres
def test_a_connection_lost_at_the_commit_leaves_no_file(
    postgres_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(postgres_url, tmp_path / "blobs", clock, settings={"database_retry": timedelta()}, indexes=("fulltext",))
    admit = rig.store.admit_with

    def cut(write: Any) -> Any:
        def within(tx: Any) -> Any:
            requests = write(tx)
            ((pid,),) = tx.run_sql("SELECT pg_backend_pid()")
            with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
            return requests

        return admit(within)

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", cut)
        with pytest.raises(StoreUnavailable):
            rig.put("whales.md", WHALES)
    assert len(files(rig)) == 1
    clock.advance(LEASE)
    rig.library.orphan_blobs.sweep(500)
    assert files(rig) == []
    assert settled(rig)
    rig.close()


def test_an_upload_that_is_refused_leaves_neither_file_nor_record(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise BadRequest("Not like this.")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", refuse)
        with pytest.raises(BadRequest):
            rig.put("whales.md", WHALES)
    assert files(rig) == []
    assert settled(rig)

    class Full(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - the disk is full for any size
            raise OSError(28, "No space left on device")

    with pytest.raises(StoreFull):
        rig.library.adder.put(rig.base, [Upload("whales.md", Full())])
    assert files(rig) == []
    assert settled(rig)
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS
    assert settled(rig)
    rig.index("whales.md", STONES)  # the file of the old content is removed, too
    assert settled(rig)


DIES = """
import io, os, sys
from uuid import uuid4
from holdfast.documents.requests import Upload
from holdfast.catalog.file_records import FileRecords
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.clock import FakeClock
from tests.support.stores import open_test_store

_, url, data, point = sys.argv
clock = FakeClock()
store = open_test_store(url, clock)
store._new_job_id = lambda: uuid4().hex
library = Library(store, Settings(database=url, data=data), clock=clock)
base = library.catalog.find_base("shelf")

def die(*_, **__):
    os.kill(os.getpid(), 9)

class Dying(io.BytesIO):
    def read(self, *size):
        return super().read(4) or die()

content = b"# Whales, and nothing else\\n"
if point == "writing":
    content = Dying(content)
elif point == "admitting":
    store.admit_with = die
elif point == "removing":
    FileRecords.remove = die
library.adder.put(base, [Upload("stones.md", content)])
"""


@pytest.mark.parametrize("point", ["writing", "admitting", "removing"])
def test_files_of_a_killed_process_are_removed_at_the_next_start(
    rig: Rig, database_url: str, clock: FakeClock, point: str
) -> None:
    rig.index("stones.md", STONES)
    (before,) = files(rig)
    command = [sys.executable, "-c", DIES, database_url, str(rig.folder), point]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert len(files(rig)) == 2
    for path in rig.folder.rglob("*"):  # makes the files look new, so that only the records identify them
        os.utime(path, (clock.now() / 1_000_000,) * 2)
    assert sum(found(rig).values()) == 1
    rig.library.sweep(500)  # the first sweep of a starting worker; the lease of the record has not expired
    assert settled(rig)
    assert (files(rig) == [before]) is (point != "removing")
    assert found(rig) == {}


def test_a_file_that_another_process_is_writing_is_not_removed(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OrphanBlobCollector(rig.store.database, FileRecords(rig.store.database, rig.library.blobs), clock)
    monkeypatch.setattr(file_records, "EXTEND_SECONDS", 0.0)
    seen: list[int] = []

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - returns small pieces
            clock.advance(LEASE * 0.6)
            other.sweep(500)
            seen.append(len(files(rig)))
            assert found(rig) == {}
            return super().read(10)

    rig.library.adder.put(rig.base, [Upload("whales.md", Slow(WHALES.encode()))])
    assert set(seen) == {1}
    assert len(seen) > 3  # longer than the lease would last without extension
    rig.work()
    assert rig.owner("whales.md").status is Status.SUCCESS
    assert settled(rig)


def test_a_file_that_a_process_is_removing_is_not_reported(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", WHALES)
    remove = rig.library.blobs.remove
    seen: list[dict[str, int]] = []

    def slow(names: list[str]) -> None:
        if names:
            seen.append(found(rig))
        remove(names)

    with monkeypatch.context() as patch:
        patch.setattr(rig.library.blobs, "remove", slow)
        rig.index("whales.md", STONES)
    assert seen == [{}]
    assert settled(rig)


def test_an_expired_upload_is_refused_and_can_be_repeated(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = rig.store.admit_with

    def late(write: Any) -> Any:
        clock.advance(LEASE)
        rig.library.orphan_blobs.sweep(500)
        return admit(write)

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", late)
        with pytest.raises(StoreError, match=r"no data for more than 120 seconds.*Add the file again") as refused:
            rig.put("whales.md", WHALES)
    assert (refused.value.code, refused.value.subcode) == ("database_failed", "upload_expired")
    assert files(rig) == []
    assert settled(rig)
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS


def test_a_record_that_is_extended_after_it_was_read_as_due_is_kept(rig: Rig, clock: FakeClock) -> None:
    records = rig.library.file_records
    recorded = records.record(2)
    clock.advance(LEASE)
    with rig.store.database.reading() as tx:
        due = [file_records.FileRecord(*row) for row in tx.run(statements.READ_FILE_RECORDS)]
    assert [one.due for one in due] == [True, True]
    records.extend(recorded.ids[:1])
    assert records._give_up(due) == set(recorded.ids[1:])
