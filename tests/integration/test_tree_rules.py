"""Rules of trees learnt from other systems: the meaning of a selection, conflicting requests, and which one wins."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.file_records import LEASE
from holdfast.catalog.repository import ItemKind, OnDuplicate
from holdfast.documents.requests import SOURCE_SLOT, Action, AddOptions, Upload
from holdfast.documents.source_sync import SourceAccess
from holdfast.engine.admission import Verdict
from holdfast.engine.slot import Fault
from holdfast.engine.states import Operation, Outcome, Status
from holdfast.engine.store.base import Failure
from holdfast.errors import StateConflict, Transient, UnknownItem
from holdfast.sources.address_policy import Reach
from tests.support.audit import audit_quiet
from tests.support.harness import Rig
from tests.support.scripted_site import Site
from tests.support.scripted_workers import raises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.documents.requests import ItemReply
    from holdfast.engine.slot import Ticket
    from tests.support.clock import FakeClock

WHALES = b"# Whales\n\nThe blue whale eats krill.\n"
STONES = b"# Stones\n\nGranite is hard.\n"
NO_TEXT = b" \n"
V = Verdict


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    rig.library.source_policy = SourceAccess(reach=Reach.parse("127.0.0.1"))
    rig.indexers = rig.library.indexers()
    rig.worker = rig.hire("worker")
    yield rig
    rig.close()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """A folder on disk, two levels deep."""
    root = tmp_path / "books"
    write(root / "whales.md", WHALES)
    write(root / "deep" / "stones.md", STONES)
    return root


def write(path: Path, content: bytes) -> None:
    """Write a file with an old modification time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time.time() - 3600, time.time() - 3600))


def add(rig: Rig, upload: Upload, **terms: Any) -> int:
    (reply,) = rig.library.adder.add(rig.base, [upload], AddOptions(**terms))
    assert reply.item is not None
    return reply.item


def file(rig: Rig, name: str, content: bytes, parent: int = 0, **terms: Any) -> int:
    return add(rig, Upload(name, content, parent=parent), **terms)


def folder(rig: Rig, name: str, parent: int = 0) -> int:
    """Make a folder without a source."""
    return add(rig, Upload(name, kind=ItemKind.DIRECTORY, parent=parent))


def shelve(rig: Rig, root: Path) -> int:
    """Add a folder on disk as an item, and refresh it."""
    item = add(rig, Upload("books", kind=ItemKind.DIRECTORY, source=str(root)))
    rig.work()
    return item


def told(reply: ItemReply) -> tuple[Verdict, str]:
    return reply.verdict, reply.reason


def generation(rig: Rig, item: int) -> int:
    return rig.store.owner(rig.base.key, str(item)).generation


def settle(rig: Rig) -> None:
    """Run workers and sweeps until no work is left."""
    rig.work()
    for _ in range(50):
        if not rig.library.sweep(100):
            return
        rig.work()
    raise AssertionError("there is always something left to sweep")


def everything(rig: Rig) -> list[Any]:
    """Read all tables that hold the state of items and their work."""
    with rig.store.database.reading() as tx:
        tables = ("library_bases", "library_items", "owners", "slots", "jobs", "events")
        return [tx.run_sql(f"SELECT * FROM {table} ORDER BY 1") for table in tables]  # noqa: S608 - constant table names


def before_its_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Run `act` after the next request has started and before its transaction begins."""
    real = rig.store.admit_with

    def late(*how: Any) -> Any:
        monkeypatch.setattr(rig.store, "admit_with", real)
        act()
        return real(*how)

    monkeypatch.setattr(rig.store, "admit_with", late)


def test_a_nested_selection_is_reindexed_once_by_its_outermost_roots(rig: Rig) -> None:
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    inner = file(rig, "whales.md", WHALES, deep)
    beside = file(rig, "stones.md", STONES)
    rig.work()
    replies = rig.library.operations.reindex(rig.base, [inner, beside, docs, docs, inner])
    assert [(reply.item, told(reply)) for reply in replies] == [
        (beside, (V.ACCEPTED, "reindex")),
        (docs, (V.ACCEPTED, "reindex")),
    ]
    rig.work()
    assert [generation(rig, item) for item in (inner, beside)] == [2, 2]


def test_an_empty_selection_does_nothing(rig: Rig, books: Path) -> None:
    shelve(rig, books)
    before = everything(rig)
    assert (
        rig.library.remover.delete(rig.base, [])
        == rig.library.operations.reindex(rig.base, [])
        == rig.library.operations.refresh(rig.base, [])
        == []
    )
    assert [
        rig.library.operations.request(rig.base, [], Action(one))
        for one in (Operation.INDEX, Operation.FORCE, Operation.CANCEL)
    ] == [[]] * 3
    assert everything(rig) == before


def test_a_document_added_before_a_delete_commits_is_deleted_with_its_folder(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    before_its_turn(rig, monkeypatch, lambda: file(rig, "whales.md", WHALES, deep))
    rig.library.remover.delete(rig.base, [docs])
    settle(rig)
    assert rig.find("krill") == []
    assert (rig.count("items"), rig.count("owners")) == (0, 0)
    audit_quiet(rig)


def test_work_that_starts_before_a_reindex_commits_refuses_the_reindex(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = folder(rig, "docs")
    whales = file(rig, "whales.md", WHALES, docs)
    rig.work()
    before_its_turn(rig, monkeypatch, lambda: file(rig, "stones.md", STONES, docs))
    assert told(rig.library.operations.reindex(rig.base, [docs])[0]) == (V.REJECTED, "not_terminal")
    assert generation(rig, whales) == 1


def test_a_reindex_of_a_document_deleted_before_it_commits_is_rejected(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whales = file(rig, "whales.md", WHALES)
    rig.work()

    def removed() -> None:
        rig.library.remover.delete(rig.base, [whales])
        settle(rig)

    before_its_turn(rig, monkeypatch, removed)
    assert told(rig.library.operations.reindex(rig.base, [whales])[0]) == (V.REJECTED, "being_deleted")
    assert (rig.count("items"), rig.count("owners")) == (0, 0)


def test_a_refresh_of_a_folder_deleted_before_it_commits_starts_no_work(
    rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = shelve(rig, books)

    def cleaned_up() -> None:
        rig.library.remover.delete(rig.base, [shelf])
        rig.work()  # the slots are removed, but the row of the folder still exists

    before_its_turn(rig, monkeypatch, cleaned_up)
    assert told(rig.library.operations.refresh(rig.base, [shelf])[0]) == (V.SKIPPED, "nothing_to_do")
    assert rig.count("owners") == 0


def test_a_container_gets_a_source_slot_and_a_leaf_gets_index_slots(rig: Rig, books: Path) -> None:
    shelf = add(rig, Upload("books", kind=ItemKind.DIRECTORY, source=str(books)))
    leaf = file(rig, "sand.md", b"Quartz is common.")
    with rig.store.database.reading() as tx:
        asked = tx.run_sql("SELECT owner, kind FROM slots JOIN owners ON owners.id = owner_id ORDER BY owner, kind")
    assert [tuple(row) for row in asked] == [
        (str(leaf), "content"),
        (str(leaf), "fulltext"),
        (f"source:{shelf}", "source"),
    ]
    assert [rig.library.items.status(rig.base, item) for item in (shelf, leaf)] == [Status.QUEUED, Status.QUEUED]


def test_a_folder_without_a_source_has_the_status_of_its_documents(rig: Rig) -> None:
    (reply,) = rig.library.adder.add(rig.base, [Upload("docs", kind=ItemKind.DIRECTORY)])
    assert reply.item is not None
    assert (told(reply), reply.job) == ((V.ACCEPTED, "added"), None)
    rig.work()
    assert rig.library.items.status(rig.base, reply.item) is Status.NOT_INDEXED
    file(rig, "whales.md", WHALES, reply.item)
    rig.work()
    assert rig.library.items.status(rig.base, reply.item) is Status.SUCCESS


def ask(rig: Rig, item: int, *operations: Operation) -> None:
    for operation in operations:
        assert rig.library.operations.request(rig.base, [item], Action(operation))[0].accepted


def claim(rig: Rig) -> Ticket:
    (ticket,) = rig.store.claim_next(["content"], "somebody", 1)
    return ticket


def test_a_tree_at_rest_is_reindexed_whatever_the_statuses_of_its_documents(rig: Rig) -> None:
    roots = {name: folder(rig, name) for name in ("success", "degraded", "failed", "cancelled", "kept")}
    inside = {name: folder(rig, "deep", root) for name, root in roots.items()}
    leaves = {
        name: file(rig, f"{name}.md", NO_TEXT if name == "failed" else f"krill {name}".encode(), parent)
        for name, parent in inside.items()
    }
    rig.work()
    file(rig, "degraded.md", NO_TEXT, inside["degraded"], on_duplicate=OnDuplicate.REPLACE)
    file(rig, "later.md", b"Quartz is common.", inside["kept"], index=False)
    rig.work()
    ask(rig, leaves["cancelled"], Operation.FORCE, Operation.CANCEL)
    standing = [str(rig.library.items.status(rig.base, root)) for root in roots.values()]
    assert standing == ["success", "degraded", "failed", "success", "degraded"]
    before = {name: generation(rig, leaf) for name, leaf in leaves.items()}
    replies = rig.library.operations.reindex(rig.base, roots.values())
    assert [told(reply) for reply in replies] == [(V.ACCEPTED, "reindex")] * 5
    assert {name: generation(rig, leaf) - before[name] for name, leaf in leaves.items()} == dict.fromkeys(leaves, 1)
    rig.work()
    standing = [str(rig.library.items.status(rig.base, root)) for root in roots.values()]
    assert standing == ["success", "degraded", "failed", "success", "success"]


def test_a_tree_with_any_active_document_is_not_reindexed(rig: Rig) -> None:
    names = ("running", "waiting", "half built", "queued")
    roots = {name: folder(rig, name) for name in names}
    leaves = {name: file(rig, f"{name}.md", name.encode(), folder(rig, "deep", roots[name])) for name in names}
    resting = [file(rig, "resting.md", f"stone {name}".encode(), roots[name]) for name in names]
    rig.work()
    ask(rig, leaves["running"], Operation.FORCE)
    claim(rig)
    ask(rig, leaves["waiting"], Operation.FORCE)
    rig.store.fail([Failure(ticket=claim(rig), fault=Fault("busy"), delay=timedelta(minutes=1))])
    ask(rig, leaves["half built"], Operation.FORCE)
    rig.worker.run_next(1)
    ask(rig, leaves["queued"], Operation.FORCE)
    before = everything(rig)
    replies = rig.library.operations.reindex(rig.base, roots.values())
    assert [(told(reply), str(reply.status)) for reply in replies] == [
        ((V.REJECTED, "not_terminal"), status) for status in ("indexing", "indexing", "indexing", "queued")
    ]
    assert [generation(rig, item) for item in resting] == [1] * 4
    assert everything(rig) == before


def test_a_folder_that_is_being_refreshed_is_not_reindexed(rig: Rig, books: Path) -> None:
    shelf = shelve(rig, books)
    rig.library.operations.refresh(rig.base, [shelf])
    assert told(rig.library.operations.reindex(rig.base, [shelf])[0]) == (V.REJECTED, "not_terminal")


def test_concurrent_reindex_requests_create_one_generation(rig: Rig) -> None:
    docs = folder(rig, "docs")
    whales = file(rig, "whales.md", WHALES, docs)
    rig.work()
    replies: list[ItemReply] = []
    start = threading.Barrier(8)

    def reindex() -> None:
        start.wait()
        replies.extend(rig.library.operations.reindex(rig.base, [docs]))

    threads = [threading.Thread(target=reindex) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(told, replies)) == [(V.ACCEPTED, "reindex"), *[(V.REJECTED, "not_terminal")] * 7]
    assert generation(rig, whales) == 2


def test_reindexing_a_folder_of_uploads_builds_every_document_below_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.documents.operations.LARGEST_BATCH", 2)  # forces more than one transaction
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    items = [file(rig, f"{number}.md", b"krill %d" % number, (docs, deep)[number % 2]) for number in range(5)]
    rig.work()
    assert told(rig.library.operations.reindex(rig.base, [docs])[0]) == (V.ACCEPTED, "reindex")
    assert len(rig.find("krill")) == 5
    rig.work()
    assert {hit.document: hit.generation for hit in rig.find("krill")} == dict.fromkeys(items, 2)
    assert rig.library.items.status(rig.base, docs) is Status.SUCCESS
    rig.sweep()
    audit_quiet(rig)


def test_reindexing_a_folder_on_disk_also_builds_documents_uploaded_into_it(rig: Rig, books: Path) -> None:
    shelf = shelve(rig, books)
    file(rig, "sand.md", b"Quartz is common.", shelf)
    rig.work()
    assert rig.library.operations.reindex(rig.base, [shelf])[0].accepted
    rig.work()
    served = {hit.generation for word in ("krill", "granite", "quartz") for hit in rig.find(word)}
    assert served == {2}


def test_a_reindex_keeps_the_files_it_reads_from(rig: Rig, books: Path) -> None:
    shelf = shelve(rig, books)
    whales = file(rig, "sand.md", b"Quartz is common.")
    rig.work()
    before = sorted(path.name for path in rig.folder.rglob("*") if path.is_file())
    assert all(reply.accepted for reply in rig.library.operations.reindex(rig.base, [shelf, whales]))
    settle(rig)
    assert sorted(path.name for path in rig.folder.rglob("*") if path.is_file()) == before
    audit_quiet(rig)


def test_a_delete_after_a_reindex_was_accepted_wins(rig: Rig, books: Path) -> None:
    shelf = shelve(rig, books)
    whales = file(rig, "sand.md", b"Quartz is common.")
    rig.work()
    jobs = [reply.job for reply in rig.library.operations.reindex(rig.base, [shelf, whales])]
    rig.library.remover.delete(rig.base, [shelf, whales])
    assert [rig.store.job(job or "").outcome for job in jobs] == [Outcome.DELETED, Outcome.DELETED]
    settle(rig)
    assert (rig.count("items"), rig.count("owners")) == (0, 0)
    audit_quiet(rig)


def test_requests_for_a_document_that_is_being_deleted_are_rejected(rig: Rig, books: Path) -> None:
    shelf = shelve(rig, books)
    rig.library.remover.delete(rig.base, [shelf])
    rig.work()  # the slots are removed, but the row of the folder still exists
    for (reply,) in (
        rig.library.operations.refresh(rig.base, [shelf]),
        rig.library.operations.reindex(rig.base, [shelf]),
        *(rig.library.operations.request(rig.base, [shelf], Action(one)) for one in (Operation.INDEX, Operation.FORCE)),
    ):
        assert (told(reply), reply.job) == ((V.REJECTED, "being_deleted"), None)
    (again,) = rig.library.operations.request(rig.base, [shelf], Action.RETRY)
    assert (told(again), again.job) == ((V.JOINED, "already_deleting"), None)
    assert [one.reason for one in rig.store.refusals()] == [*["being_deleted"] * 4, "already_deleting"]
    assert rig.count("owners") == 0
    settle(rig)
    assert rig.count("items") == 0
    with pytest.raises(UnknownItem):
        rig.library.operations.refresh(rig.base, [shelf])


def test_a_document_that_is_being_deleted_is_shown_nowhere(rig: Rig) -> None:
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    upload = Upload("whales.md", WHALES, {"year": 2026}, parent=deep)
    whales = add(rig, upload)
    stones = file(rig, "stones.md", STONES, docs)
    rig.work()
    rig.library.remover.delete(rig.base, [deep])
    items = rig.library.items
    assert [one.id for one in rig.children(rig.base, docs)] == [stones]
    assert [one.item.id for one in items.tree(rig.base, docs)] == [docs, stones]
    assert items.select_documents(rig.base, below=[docs]) == [stones]
    assert items.select_documents(rig.base, metadata={"year": 2026}) == []
    assert items.status(rig.base, docs) is Status.SUCCESS
    assert rig.find("krill") == []
    for item in (deep, whales):
        with pytest.raises(UnknownItem):
            items.status(rig.base, item)
        with pytest.raises(UnknownItem):
            items.tree(rig.base, item)
    with pytest.raises(UnknownItem):
        items.find(rig.base, "whales.md", deep)


def test_a_tree_whose_clean_up_fails_stays_hidden_and_is_removed_later(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = folder(rig, "docs")
    whales = file(rig, "whales.md", WHALES, docs)
    rig.work()
    rig.library.remover.delete(rig.base, [docs])
    with monkeypatch.context() as patch:
        patch.setattr(rig.library.indexes["fulltext"], "drop", raises(OSError("the index is away")))
        for _ in range(6):  # more often than the attempt limit of a build
            rig.work()
            rig.library.remover.continue_deletes(100) + rig.library.operations.refresh_due(100)
            clock.advance(timedelta(minutes=20))
            slots = rig.store.owner(rig.base.key, str(whales)).slots
            assert {str(slot.state) for slot in slots} == {"deleting"}
            assert rig.find("krill") == []
            assert rig.children(rig.base) == []
    settle(rig)
    assert (rig.count("items"), rig.count("owners")) == (0, 0)
    audit_quiet(rig)


def test_a_request_that_fails_before_its_commit_changes_nothing(
    rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = shelve(rig, books)
    act: list[Callable[[], object]] = [
        lambda: rig.library.adder.add(rig.base, [Upload("sand.md", b"sand"), Upload("more.md", b"more sand")]),
        lambda: rig.library.operations.reindex(rig.base, [shelf]),
        lambda: rig.library.operations.refresh(rig.base, [shelf]),
        lambda: rig.library.operations.request(rig.base, [shelf], Action.FORCE),
        lambda: rig.library.remover.delete(rig.base, [shelf]),
    ]
    for one in act:
        before = everything(rig)
        with monkeypatch.context() as patch:
            patch.setattr(rig.store, "_apply_effects", raises(RuntimeError("the power went")))
            with pytest.raises(RuntimeError):
                one()
        assert everything(rig) == before
        one()
        assert everything(rig) != before
        settle(rig)
    # The files of an interrupted add are kept for a lease, because the add might have been committed.
    rig.clock.advance(LEASE)
    rig.library.file_records.remove_due_files(100)
    audit_quiet(rig)


def test_a_status_change_of_a_document_shows_in_every_folder_above_it(rig: Rig) -> None:
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    whales = file(rig, "whales.md", WHALES, deep)
    rig.work()

    def standing() -> list[Status]:
        return [rig.library.items.status(rig.base, item) for item in (docs, deep, whales)]

    assert standing() == [Status.SUCCESS] * 3
    rig.library.operations.reindex(rig.base, [deep])
    assert standing() == [Status.QUEUED] * 3
    (ticket,) = rig.store.claim_next(["content"], "somebody", 1)
    assert standing() == [Status.INDEXING] * 3
    rig.store.fail([Failure(ticket=ticket, fault=Fault("bad"))])
    assert standing() == [Status.DEGRADED] * 3  # the old content is served
    rig.library.operations.request(rig.base, [deep], Action.RETRY)
    assert standing() == [Status.QUEUED] * 3
    rig.work()
    assert standing() == [Status.SUCCESS] * 3
    rig.library.remover.delete(rig.base, [whales])
    assert [rig.library.items.status(rig.base, item) for item in (docs, deep)] == [Status.NOT_INDEXED] * 2


def test_an_interrupted_refresh_is_finished_without_duplicates(
    rig: Rig, books: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.documents.add.ITEMS_PER_TRANSACTION", 1)
    for number in range(4):
        write(books / f"{number}.md", b"krill %d" % number)
    real = rig.store.admit_with
    left = iter(range(4))

    def broken(write: Any) -> Any:
        if next(left, None) is None:
            raise Transient("gone", "The connection is gone.")
        return real(write)

    item = add(rig, Upload("books", kind=ItemKind.DIRECTORY, source=str(books)))
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", broken)
        rig.work()
    assert 1 < rig.count("items") < 8
    clock.advance(timedelta(minutes=20))
    settle(rig)
    names = [one.item.name for one in rig.library.items.tree(rig.base, item)]
    assert sorted(names) == ["0.md", "1.md", "2.md", "3.md", "books", "deep", "stones.md", "whales.md"]
    assert {hit.generation for hit in rig.find("krill")} == {1}
    audit_quiet(rig)


def test_a_refresh_does_not_touch_documents_that_are_being_deleted(
    rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sources.folder.COARSE_NS", -(10**18))  # every stamp is trusted
    shelf = shelve(rig, books)
    old = rig.library.items.find(rig.base, "whales.md", shelf).id
    rig.library.remover.delete(rig.base, [old])
    rig.library.operations.refresh(rig.base, [shelf])
    looker = rig.hire("looker")
    looker.indexers = {SOURCE_SLOT: rig.indexers[SOURCE_SLOT]}
    assert looker.run_next(1)  # before any clean-up
    settle(rig)
    new = rig.library.items.find(rig.base, "whales.md", shelf).id  # the file is still in the folder
    assert new != old
    assert [hit.document for hit in rig.find("krill")] == [new]
    audit_quiet(rig)


def test_a_refresh_does_not_touch_documents_uploaded_into_its_folder(rig: Rig, books: Path) -> None:
    shelf = shelve(rig, books)
    notes = folder(rig, "notes", shelf)
    for number, parent in enumerate((shelf, shelf, notes)):
        file(rig, f"{number}.md", b"quartz %d" % number, parent)
    (books / "whales.md").unlink()
    rig.library.operations.refresh(rig.base, [shelf])
    settle(rig)
    assert [len(rig.find(word)) for word in ("quartz", "krill", "granite")] == [3, 0, 1]
    audit_quiet(rig)


def page(text: str) -> bytes:
    body = f"<html><body><main><h1>Page</h1><p>{text}</p></main></body></html>".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def sitemap(site: Site, *targets: str) -> bytes:
    urls = "".join(f"<url><loc>{site.url(one)}</loc><lastmod>2026-01-01</lastmod></url>" for one in targets)
    body = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_reindexing_a_sitemap_also_builds_unchanged_pages_and_uploads(rig: Rig) -> None:
    with Site() as site:
        site.says("/robots.txt", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        site.says("/a", page("The blue whale eats krill."))
        site.says("/b", page("Granite is hard."))
        site.says("/sitemap.xml", sitemap(site, "/a", "/b"))
        item = add(rig, Upload("site", kind=ItemKind.SITEMAP, source=site.url("/sitemap.xml")))
        file(rig, "note.md", b"Quartz is common.", item)
        rig.work()
        site.says("/sitemap.xml", sitemap(site, "/a"))
        assert rig.library.operations.reindex(rig.base, [item])[0].accepted
        settle(rig)
    served = {word: [hit.generation for hit in rig.find(word)] for word in ("krill", "quartz", "granite")}
    assert served == {"krill": [2], "quartz": [2], "granite": []}
    audit_quiet(rig)


def test_chunks_are_listed_only_for_complete_or_degraded_documents(rig: Rig) -> None:
    docs = folder(rig, "docs")
    items = rig.library.items
    whales = file(rig, "whales.md", WHALES, docs)
    rig.work()
    file(rig, "whales.md", NO_TEXT, docs, on_duplicate=OnDuplicate.REPLACE)
    rig.work()
    assert items.status(rig.base, whales) is Status.DEGRADED
    assert ["krill" in one.text for one in items.chunks(rig.base, whales)] == [True]
    refused = {
        file(rig, "empty.md", b"\n"): "failed",
        file(rig, "kept.md", b"Quartz is common.", index=False): "not_indexed",
        folder(rig, "nothing"): "not_indexed",
    }
    rig.work()
    refused[file(rig, "new.md", b"Basalt is dark.")] = "queued"
    rig.library.operations.request(rig.base, [whales], Action.FORCE)
    refused[whales] = refused[docs] = "queued"
    for item, status in refused.items():
        with pytest.raises(StateConflict, match=status):
            items.chunks(rig.base, item)
