"""Deleted documents are cleaned up in batches: many cost little more than one, and failures stay separate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.repository import BaseSettings
from holdfast.db.database import Database
from holdfast.documents import remove
from holdfast.documents.lists import DocumentFilter
from holdfast.documents.requests import Upload
from holdfast.engine.states import SlotState, Status
from holdfast.errors import StoreFull, StoreReadOnly, Transient
from holdfast.indexes import gc, gc_statements
from tests.support.audit import audit_quiet, changed
from tests.support.foreign_index import install
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.catalog.repository import Base
    from tests.support.clock import FakeClock

KINDS = ("vector", "fulltext", "graph")


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=KINDS)
    yield rig
    rig.close()


def fill(rig: Rig, count: int, word: str = "krill", base: Base | None = None) -> list[int]:
    """Index documents and return their ids."""
    uploads = [Upload(f"{word} {n}.md", f"# Whale {n}\n\nIt eats {word} number {n}.\n".encode()) for n in range(count)]
    replies = rig.library.adder.put(base or rig.base, uploads)
    rig.work()
    return [reply.item for reply in replies if reply.item is not None]


def delete(rig: Rig, ids: list[int], base: Base | None = None) -> None:
    rig.library.remover.delete(base or rig.base, ids)


def left(rig: Rig) -> tuple[int, ...]:
    return tuple(rig.count(table) for table in ("items", "owners", "slots", "chunks", "lists", "builds"))


def test_cleaning_up_many_documents_takes_no_more_transactions_than_a_few(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = fill(rig, 3, "krill"), fill(rig, 60, "plankton")
    written: list[object] = []
    write = Database.write

    def counting(self: Database, *work: Any, **how: Any) -> Any:
        written.append(self)
        return write(self, *work, **how)

    counts = []
    for ids in (few, many):
        delete(rig, ids)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "write", counting)
            rig.work()
        counts.append(len(written))
        written.clear()
    assert counts[1] == counts[0]
    assert set(left(rig)) == {0}
    assert [rig.rows(kind) for kind in KINDS] == [[], [], []]
    rig.sweep()
    audit_quiet(rig)


def test_an_unavailable_index_store_delays_only_documents_that_use_it(
    rig: Rig, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = install(rig, tmp_path / "outside.db")
    other = rig.library.catalog.create_base("other", BaseSettings(indexes=("fulltext", "outside")))
    mine, theirs = fill(rig, 5), fill(rig, 5, "plankton", other)
    asked: list[int] = []

    def drop(_: Any, chunks: Any) -> None:
        asked.append(len(chunks))
        raise Transient("away", "The store is away.")

    with monkeypatch.context() as away:
        away.setattr(outside, "drop", drop)
        delete(rig, theirs, other)
        delete(rig, mine)
        rig.work()
        for item in theirs:
            owner = rig.store.owner(other.key, str(item))
            assert owner.status is Status.DELETING
            faults = {slot.kind: slot.error and slot.error.code for slot in owner.slots}
            assert faults == {"content": "away", "outside": "away"}  # the other index is already cleaned up
        assert asked == [5, 5]  # one call for the lists and one for the index, not one for each document
        assert {row.id for row in rig.library.document_queries.list(other, DocumentFilter(deleting=True)).items} == set(
            theirs
        )
        assert rig.library.document_queries.list(rig.base, DocumentFilter(deleting=True)).items == []
        assert rig.count("items") == len(theirs)
    clock.advance(rig.store.rules.retry.max_delay)
    rig.work()
    assert set(left(rig)) == {0}
    assert outside._run("SELECT count(*) FROM rows") == [(0,)]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (PermissionError("The file may not be removed."), "unexpected"),
        (
            StoreReadOnly("bucket_read_only", bucket="b", endpoint="e", action="s3:DeleteObject", detail=""),
            "bucket_read_only",
        ),
    ],
)
def test_a_document_that_cannot_be_cleaned_up_keeps_its_error_and_delays_no_other(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, refusal: Exception, code: str
) -> None:
    ids = fill(rig, 8)
    bad = rig.library.items.find(rig.base, "krill 3.md")
    remove = rig.library.blobs.remove

    def refusing(names: list[str]) -> None:
        if bad.blob in names:
            raise refusal
        remove(names)

    delete(rig, ids)
    with monkeypatch.context() as patch:
        patch.setattr(rig.library.blobs, "remove", refusing)
        rig.work()
    (owner,) = [rig.store.owner(rig.base.key, str(id_)) for id_ in ids if id_ == bad.id]
    (slot,) = owner.slots
    assert (slot.kind, slot.state, slot.error and slot.error.code) == ("content", SlotState.DELETING, code)
    assert rig.count("owners") == 1
    clock.advance(rig.store.rules.retry.max_delay)
    rig.work()
    assert set(left(rig)) == {0}
    assert [path for path in rig.folder.rglob("*") if path.is_file()] == []


def test_a_worker_that_stops_within_a_batch_releases_it_and_another_finishes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(rig, 8)
    delete(rig, ids)
    monkeypatch.setattr(gc, "LARGEST_BATCH", 3)
    index = rig.library.indexes["fulltext"]
    drop = type(index).drop

    def stopping(self: Any, recipe: Any, chunks: Any) -> None:
        drop(self, recipe, chunks)
        rig.worker.stop()

    with monkeypatch.context() as patch:
        patch.setattr(type(index), "drop", stopping)
        rig.worker.run_next(100)
    assert rig.count("items") == len(ids)
    assert 0 < rig.count("chunks") < len(ids)
    rig.worker = rig.hire("another")
    rig.work()
    assert set(left(rig)) == {0}
    audit_quiet(rig)


@pytest.mark.parametrize("guard", ["list_entries", "builds", "chunks"])
def test_a_batch_removes_no_rows_of_documents_that_are_not_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    """Passes owners of live documents to the garbage collector, which no worker does."""
    fill(rig, 2)
    before = left(rig)
    batch = f"select(_row.c.{'id' if guard == 'chunks' else 'owner_id'}))"
    living = [rig.owner(f"krill {n}.md").id for n in range(2)]
    monkeypatch.setattr(type(rig.library.indexes), "drop", lambda *_: None)
    rig.library.indexes.garbage_collector().remove_owners(living, lambda: None)
    assert left(rig) == before
    monkeypatch.setattr(gc, "sql", changed(gc_statements, {f"{batch}, _is_deleted({guard}.c.owner_id))": f"{batch})"}))
    rig.library.indexes.garbage_collector().remove_owners(living, lambda: None)
    assert left(rig) != before


@pytest.mark.parametrize("how", ["delete", "clear"])
def test_a_committed_delete_is_answered_as_done_if_its_clean_up_cannot_be_requested(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An error would claim that nothing was written, and the documents disappear later all the same."""
    monkeypatch.setattr(remove, "ITEMS_PER_REQUEST", 2)
    ids = fill(rig, 4)

    def refuse(*_: Any) -> list[Any]:
        raise StoreFull(place="PostgreSQL")

    with monkeypatch.context() as patch:
        patch.setattr(type(rig.store), "admit", refuse)
        if how == "delete":
            delete(rig, ids)
        else:
            rig.library.remover.clear(rig.base)
    assert rig.library.searcher.search(rig.base, "krill") == []
    rig.library.remover.continue_deletes()
    rig.work()
    while rig.library.sweep(100):
        pass
    assert set(left(rig)) == {0}


def test_a_claim_takes_up_to_the_limit_of_deleted_slots_of_each_kind(rig: Rig) -> None:
    delete(rig, fill(rig, 5))
    tickets = rig.store.claim_next(("content", *KINDS), "cleaner", 3)
    assert len(tickets) == 3 * 4  # the limit applies to each kind
    assert {ticket.key.kind for ticket in tickets} == {"content", *KINDS}


def test_a_claim_takes_up_to_the_limit_of_queued_work_beside_a_clean_up(rig: Rig) -> None:
    delete(rig, fill(rig, 2))
    rig.library.adder.put(rig.base, [Upload(f"new {n}.md", b"Something new.%d" % n) for n in range(5)])
    tickets = rig.store.claim_next(("content", *KINDS), "worker", 3)
    assert sum(not ticket.removing for ticket in tickets) <= 3
    assert len([ticket for ticket in tickets if ticket.removing]) == 8
