"""Items on both databases: adding, deleting, reindexing, containers, chunks and filtered search."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.file_records import LEASE
from holdfast.catalog.repository import BaseSettings, ItemKind, OnDuplicate
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.engine.admission import Verdict
from holdfast.engine.slot import Fault
from holdfast.engine.states import Status
from holdfast.errors import BadRequest, BaseFailed, StateConflict, UnknownBase, UnknownItem
from tests.support.audit import audit, audit_quiet
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.documents.requests import ItemReply
    from tests.support.clock import FakeClock

WHALES = b"# Whales\n\nThe blue whale eats krill.\n"
STONES = b"# Stones\n\nGranite is hard.\n"
V = Verdict


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


def add(rig: Rig, name: str, content: bytes, *, parent: int = 0, **terms: Any) -> ItemReply:
    return rig.library.adder.add(rig.base, [Upload(name, content, parent=parent)], AddOptions(**terms))[0]


def folder(rig: Rig, name: str, parent: int = 0) -> int:
    """Make a container without a source."""
    upload = Upload(name, kind=ItemKind.DIRECTORY, parent=parent)
    (reply,) = rig.library.adder.add(rig.base, [upload], AddOptions(index=False))
    assert reply.item is not None
    return reply.item


def told(reply: ItemReply) -> tuple[Verdict, str]:
    return reply.verdict, reply.reason


def fail(rig: Rig) -> None:
    """Mark the base as failed."""
    problem = '{"code": "model_missing", "message": "The model is gone."}'
    rig.store.database.write(
        lambda tx: tx.run_sql(f"UPDATE library_bases SET problem = '{problem}'"),  # noqa: S608
        durable=True,
    )


def files(rig: Rig) -> list[str]:
    return sorted(path.name for path in rig.folder.rglob("*") if path.is_file())


def test_something_new_is_accepted_and_indexed(rig: Rig) -> None:
    reply = add(rig, "whales.md", WHALES)
    assert told(reply) == (V.ACCEPTED, "content_changed")
    assert reply.job is not None
    rig.work()
    assert [hit.document for hit in rig.find("krill")] == [reply.item]
    audit(rig)


def test_a_taken_name_is_rejected_with_the_existing_item(rig: Rig) -> None:
    first = add(rig, "whales.md", WHALES)
    second = add(rig, "whales.md", STONES)
    assert told(second) == (V.REJECTED, "name_taken")
    assert second.item == first.item
    rig.work()
    assert rig.find("granite") == []
    audit(rig)


def test_the_same_name_in_another_folder_is_another_item(rig: Rig) -> None:
    here = add(rig, "readme.md", WHALES, refuse_copies=False)
    there = add(rig, "readme.md", WHALES, parent=folder(rig, "docs"), refuse_copies=False)
    assert here.accepted
    assert there.accepted
    assert here.item != there.item


def test_equal_content_under_another_name_is_rejected_with_the_existing_item(rig: Rig) -> None:
    first = add(rig, "whales.md", WHALES)
    second = add(rig, "copy.md", WHALES, parent=folder(rig, "docs"))
    assert told(second) == (V.REJECTED, "content_exists")
    assert second.item == first.item


def test_two_equal_contents_in_one_request_are_one_item(rig: Rig) -> None:
    one, two = rig.library.adder.add(rig.base, [Upload("a.md", WHALES), Upload("b.md", WHALES)])
    assert one.accepted
    assert told(two) == (V.REJECTED, "content_exists")
    assert two.item == one.item
    rig.work()
    audit(rig)


def test_the_same_name_and_content_join_the_job_and_then_are_skipped(rig: Rig) -> None:
    first = add(rig, "whales.md", WHALES)
    joined = add(rig, "whales.md", WHALES)
    assert (told(joined), joined.job, joined.item) == ((V.JOINED, "same_content"), first.job, first.item)
    rig.work()
    assert told(add(rig, "whales.md", WHALES)) == (V.SKIPPED, "same_content")
    assert len(files(rig)) == 1


def test_replace_changes_the_item_and_the_old_content_is_found_until_the_new_is_built(rig: Rig) -> None:
    first = add(rig, "whales.md", WHALES)
    rig.work()
    second = add(rig, "whales.md", STONES, on_duplicate=OnDuplicate.REPLACE)
    assert told(second) == (V.ACCEPTED, "content_changed")
    assert (second.item, second.generation) == (first.item, 2)
    assert rig.find("krill")
    rig.work()
    assert (rig.find("krill"), len(rig.find("granite"))) == ([], 1)
    rig.sweep()
    audit(rig)


def test_rename_keeps_both_and_chooses_a_free_name(rig: Rig) -> None:
    names = [add(rig, "a.tar.gz", content, on_duplicate=OnDuplicate.RENAME).name for content in (b"one", b"two", b"3")]
    assert names == ["a.tar.gz", "a.tar (2).gz", "a.tar (3).gz"]
    same = add(rig, "other.gz", b"two", on_duplicate=OnDuplicate.RENAME)
    assert (same.accepted, same.name) == (True, "other.gz")


def test_a_request_overrides_the_duplicate_setting_of_the_base(rig: Rig) -> None:
    base = rig.library.catalog.create_base("other", BaseSettings(on_duplicate=OnDuplicate.REPLACE))
    rig.library.adder.add(base, [Upload("a.md", WHALES)])
    assert rig.library.adder.add(base, [Upload("a.md", STONES)])[0].accepted
    reject = AddOptions(on_duplicate=OnDuplicate.REJECT)
    assert told(rig.library.adder.add(base, [Upload("a.md", b"third")], reject)[0]) == (V.REJECTED, "name_taken")


def test_a_file_does_not_replace_a_folder_with_the_same_name(rig: Rig) -> None:
    folder(rig, "docs")
    assert told(add(rig, "docs", WHALES, on_duplicate=OnDuplicate.REPLACE)) == (V.REJECTED, "name_taken")


def test_fifty_concurrent_identical_uploads_make_one_item_one_generation_and_one_job(rig: Rig) -> None:
    replies: list[ItemReply] = []
    start = threading.Barrier(50)

    def upload() -> None:
        start.wait()
        replies.append(add(rig, "whales.md", WHALES))

    threads = [threading.Thread(target=upload) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 50
    assert {(one.item, one.job, one.generation) for one in replies} == {(replies[0].item, replies[0].job, 1)}
    assert sorted(one.verdict for one in replies) == [V.ACCEPTED, *[V.JOINED] * 49]
    assert rig.count("items") == 1
    assert len(files(rig)) == 1
    rig.work()
    audit(rig)


def test_only_one_of_many_concurrent_uploads_of_equal_content_is_kept(rig: Rig) -> None:
    replies: list[ItemReply] = []
    start = threading.Barrier(8)

    def upload(number: int) -> None:
        start.wait()
        replies.append(add(rig, f"{number}.md", WHALES))

    threads = [threading.Thread(target=upload, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.verdict for one in replies) == [V.ACCEPTED, *[V.REJECTED] * 7]
    assert len({one.item for one in replies}) == 1


def test_without_auto_index_a_document_is_indexed_only_on_request(rig: Rig) -> None:
    reply = add(rig, "whales.md", WHALES, index=False)
    assert (told(reply), reply.job, reply.status) == ((V.ACCEPTED, "added"), None, Status.NOT_INDEXED)
    rig.work()
    assert reply.item is not None
    assert rig.library.items.status(rig.base, reply.item) is Status.NOT_INDEXED
    assert rig.find("krill") == []
    (asked,) = rig.library.operations.request(rig.base, [reply.item], Action.INDEX)
    assert asked.accepted
    rig.work()
    assert rig.library.items.status(rig.base, reply.item) is Status.SUCCESS
    assert len(rig.find("krill")) == 1


def test_an_invalid_item_is_failed_and_has_no_job(rig: Rig) -> None:
    bad = Upload("page", kind=ItemKind.URL, source="ftp://x", problem=Fault("bad_url", {"message": "Only http."}))
    (reply,) = rig.library.adder.add(rig.base, [bad])
    assert (told(reply), reply.job) == ((V.REJECTED, "bad_url"), None)
    assert reply.item is not None
    assert rig.library.items.status(rig.base, reply.item) is Status.FAILED
    assert rig.count("jobs") == 0


def test_empty_requests_do_nothing(rig: Rig) -> None:
    assert rig.library.adder.add(rig.base, []) == []
    assert rig.library.remover.delete(rig.base, []) == []
    assert rig.library.operations.reindex(rig.base, []) == []


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "x" * 1001, "half \ud800"])
def test_an_invalid_name_is_refused(rig: Rig, name: str) -> None:
    with pytest.raises(BadRequest):
        add(rig, name, WHALES)
    assert files(rig) == []


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a/b\\c", "\u202egpj.exe", "n" * 300, "<img src=x>"]
)
def test_a_name_is_data_and_never_a_path(rig: Rig, name: str) -> None:
    reply = add(rig, name, WHALES)
    rig.work()
    assert [hit.name for hit in rig.find("krill")] == [name]
    assert reply.name == name
    audit(rig)


def test_a_failed_upload_leaves_no_row_and_no_file(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "_accept", broken)
        with pytest.raises(RuntimeError):
            add(rig, "whales.md", WHALES)
    rig.clock.advance(LEASE)  # until the lease expires, the error could have come after the commit
    rig.library.file_records.remove_due_files(100)
    assert (rig.count("items"), rig.count("owners"), files(rig)) == (0, 0, [])
    assert add(rig, "whales.md", WHALES).accepted


def test_a_failed_base_refuses_new_documents_but_allows_deletes(rig: Rig) -> None:
    reply = add(rig, "whales.md", WHALES)
    rig.work()
    fail(rig)
    with pytest.raises(BaseFailed, match=r"Base 'shelf' has failed: The model is gone\. Repair or delete the base\."):
        add(rig, "stones.md", STONES)
    assert reply.item is not None
    with pytest.raises(BaseFailed):
        rig.library.operations.reindex(rig.base, [reply.item])
    with pytest.raises(BaseFailed):
        rig.library.items.chunks(rig.base, reply.item)
    assert rig.library.remover.delete(rig.base, [reply.item])[0].accepted
    rig.work()
    audit(rig)


def test_adding_to_a_deleted_base_a_deleted_folder_or_a_file_is_refused(rig: Rig) -> None:
    docs = folder(rig, "docs")
    rig.library.remover.delete(rig.base, [docs])
    with pytest.raises(UnknownItem):
        add(rig, "whales.md", WHALES, parent=docs)
    file = add(rig, "whales.md", WHALES).item
    assert file is not None
    with pytest.raises(BadRequest, match=r"'whales\.md' cannot contain documents"):
        add(rig, "stones.md", STONES, parent=file)
    rig.store.database.write(lambda tx: tx.run_sql("UPDATE library_bases SET deleting = 1"), durable=True)
    with pytest.raises(UnknownBase):
        add(rig, "sand.md", b"sand")


def test_deleting_a_folder_deletes_all_below_it_and_nothing_else(rig: Rig) -> None:
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    below = add(rig, "whales.md", WHALES, parent=deep)
    beside = add(rig, "stones.md", STONES)
    rig.work()
    (reply,) = rig.library.remover.delete(rig.base, [docs])
    assert (told(reply), reply.status) == ((V.ACCEPTED, "delete"), Status.DELETING)
    assert rig.find("krill") == []
    assert [item.id for item in rig.children(rig.base)] == [beside.item]
    rig.work()
    while rig.library.sweep(100):
        pass
    assert rig.count("items") == 1
    assert below.item is not None
    audit(rig)


def test_a_nested_selection_is_reduced_to_its_outermost_items(rig: Rig) -> None:
    docs = folder(rig, "docs")
    inner = add(rig, "whales.md", WHALES, parent=docs).item
    other = add(rig, "stones.md", STONES).item
    assert inner is not None
    assert other is not None
    rig.work()
    replies = rig.library.remover.delete(rig.base, [inner, other, docs, docs, inner])
    assert [reply.item for reply in replies] == [other, docs]


def test_an_item_of_another_base_is_refused_and_nothing_is_deleted(rig: Rig) -> None:
    mine = add(rig, "whales.md", WHALES).item
    other = rig.library.catalog.create_base("other", BaseSettings())
    (theirs,) = rig.library.adder.add(other, [Upload("stones.md", STONES)])
    assert mine is not None
    assert theirs.item is not None
    rig.work()
    with pytest.raises(UnknownItem, match=str(theirs.item)):
        rig.library.remover.delete(rig.base, [mine, theirs.item])
    with pytest.raises(UnknownItem):
        rig.library.operations.reindex(rig.base, [theirs.item])
    with pytest.raises(UnknownItem):
        rig.library.items.chunks(rig.base, theirs.item)
    assert rig.find("krill")


def test_an_upload_during_deleting_is_a_new_item(rig: Rig) -> None:
    first = add(rig, "whales.md", WHALES).item
    assert first is not None
    rig.work()
    rig.library.remover.delete(rig.base, [first])
    second = add(rig, "whales.md", WHALES)
    assert second.accepted
    assert second.item != first
    rig.work()
    assert [hit.document for hit in rig.find("krill")] == [second.item]
    audit(rig)


def test_a_second_delete_joins_the_first(rig: Rig) -> None:
    item = add(rig, "whales.md", WHALES).item
    assert item is not None
    rig.library.remover.delete(rig.base, [item])
    assert told(rig.library.remover.delete(rig.base, [item])[0]) == (V.JOINED, "already_deleting")


def test_a_large_tree_is_hidden_immediately_and_deleted_in_bounded_transactions(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.documents.remove.ITEMS_PER_REQUEST", 5)
    monkeypatch.setattr("holdfast.documents.remove.LARGEST_BATCH", 10)
    docs = folder(rig, "docs")
    uploads = [Upload(f"{n}.md", f"# {n}\n\nkrill {n}".encode(), parent=docs) for n in range(40)]
    rig.library.adder.add(rig.base, uploads)
    rig.work()
    sizes: list[int] = []
    real = rig.store.admit

    def seen(requests: Any) -> Any:
        sizes.append(len(requests))
        return real(requests)

    monkeypatch.setattr(rig.store, "admit", seen)
    rig.library.remover.delete(rig.base, [docs])
    assert rig.find("krill") == []
    assert max(sizes) <= 10
    assert sum(sizes) >= 30
    rig.work()
    while rig.library.sweep(100):
        pass
    assert rig.count("items") == 0
    audit_quiet(rig)


def test_the_sweep_completes_an_interrupted_delete(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.documents.remove.ITEMS_PER_REQUEST", 5)
    monkeypatch.setattr("holdfast.documents.remove.LARGEST_BATCH", 10)
    docs = folder(rig, "docs")
    rig.library.adder.add(rig.base, [Upload(f"{n}.md", f"krill {n}".encode(), parent=docs) for n in range(20)])
    rig.work()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rig.library.remover, "_request_clean_up", crash)
        with pytest.raises(KeyboardInterrupt):
            rig.library.remover.delete(rig.base, [docs])
    assert rig.find("krill") == []
    while rig.library.sweep(100):
        rig.work()
    assert rig.count("items") == 0
    audit_quiet(rig)


def test_reindex_rebuilds_a_finished_document_and_keeps_the_old_one_until_then(rig: Rig) -> None:
    item = add(rig, "whales.md", WHALES).item
    assert item is not None
    rig.work()
    (reply,) = rig.library.operations.reindex(rig.base, [item])
    assert (told(reply), reply.generation) == ((V.ACCEPTED, "reindex"), 2)
    assert [hit.generation for hit in rig.find("krill")] == [1]
    rig.work()
    assert [hit.generation for hit in rig.find("krill")] == [2]


def test_reindex_is_rejected_for_a_busy_root_and_accepted_for_others(rig: Rig) -> None:
    resting = add(rig, "whales.md", WHALES).item
    rig.work()
    docs = folder(rig, "docs")
    add(rig, "stones.md", STONES, parent=docs)
    assert resting is not None
    busy, ready = rig.library.operations.reindex(rig.base, [docs, resting])
    assert (told(busy), busy.status) == ((V.REJECTED, "not_terminal"), Status.QUEUED)
    assert busy.job is not None
    assert rig.store.job(busy.job).outcome is None
    assert ready.accepted
    assert [refusal.reason for refusal in rig.store.refusals()][-1] == "not_terminal"


def test_reindex_of_a_folder_is_rejected_during_a_delete_below_it(rig: Rig) -> None:
    docs = folder(rig, "docs")
    inner = add(rig, "stones.md", STONES, parent=docs).item
    assert inner is not None
    rig.work()
    rig.library.remover.delete(rig.base, [inner])
    assert told(rig.library.operations.reindex(rig.base, [docs])[0]) == (V.REJECTED, "being_deleted")


def test_a_refused_reindex_writes_no_state(rig: Rig) -> None:
    item = add(rig, "whales.md", WHALES).item
    assert item is not None
    before = rig.owner("whales.md")
    rig.library.operations.reindex(rig.base, [item])
    assert rig.owner("whales.md") == before


def test_a_container_derives_its_status_from_its_children(rig: Rig) -> None:
    docs = folder(rig, "docs")
    status = rig.library.items.status
    assert status(rig.base, docs) is Status.NOT_INDEXED
    add(rig, "whales.md", WHALES, parent=folder(rig, "deep", docs))
    assert status(rig.base, docs) is Status.QUEUED
    rig.work()
    assert status(rig.base, docs) is Status.SUCCESS
    empty = add(rig, "empty.md", b" ", parent=docs).item
    rig.work()
    assert status(rig.base, docs) is Status.DEGRADED
    assert empty is not None
    rig.library.remover.delete(rig.base, [empty])
    assert status(rig.base, docs) is Status.SUCCESS


def test_served_chunks_are_listed_with_text_offsets_and_tokens(rig: Rig) -> None:
    item = add(rig, "whales.md", WHALES).item
    assert item is not None
    rig.work()
    (chunk,) = rig.library.items.chunks(rig.base, item)
    assert (chunk.document, chunk.generation) == (item, 1)
    assert WHALES.decode()[chunk.start : chunk.end] == chunk.text
    assert chunk.tokens > 5
    assert "krill" in chunk.text


def test_chunks_of_a_container_are_listed_page_by_page(rig: Rig) -> None:
    docs = folder(rig, "docs")
    for number in range(3):
        text = "\n\n".join(f"# Part {part}\n\nThis is part {part} of {number}. " + "Words. " * 100 for part in range(4))
        add(rig, f"{number}.md", text.encode(), parent=docs)
    rig.work()
    whole = rig.library.items.chunks(rig.base, docs, limit=1000)
    assert len(whole) >= 12
    paged, after = [], (0, -1)
    while page := rig.library.items.chunks(rig.base, docs, after=after, limit=5):
        paged += page
        after = (page[-1].document, page[-1].ordinal)
    assert paged == whole


def test_chunks_are_refused_while_an_item_is_incomplete_or_a_delete_runs_below_it(rig: Rig) -> None:
    docs = folder(rig, "docs")
    one = add(rig, "whales.md", WHALES, parent=docs).item
    assert one is not None
    with pytest.raises(StateConflict, match=r"'whales\.md' cannot be listed, because its status is queued"):
        rig.library.items.chunks(rig.base, one)
    add(rig, "stones.md", STONES, parent=docs)
    rig.work()
    assert len(rig.library.items.chunks(rig.base, docs)) == 2
    rig.library.remover.delete(rig.base, [one])
    with pytest.raises(StateConflict, match="A document in 'docs' is being deleted"):
        rig.library.items.chunks(rig.base, docs)
    with pytest.raises(UnknownItem):
        rig.library.items.chunks(rig.base, one)


def test_a_search_can_be_limited_to_a_subtree_and_to_metadata(rig: Rig) -> None:
    docs = folder(rig, "docs")
    deep = folder(rig, "deep", docs)
    texts: dict[str, tuple[int, dict[str, Any]]] = {
        "here.md": (0, {"year": 2026, "by": "Ann"}),
        "there.md": (deep, {"year": 2026}),
        "old.md": (docs, {}),
    }
    ids = {}
    for name, (parent, metadata) in texts.items():
        upload = Upload(name, f"All about krill in {name}.".encode(), metadata, parent=parent)
        ids[name] = rig.library.adder.add(rig.base, [upload])[0].item
    rig.work()

    def found(**about: Any) -> list[str]:
        documents = rig.library.items.select_documents(rig.base, **about)
        hits = rig.library.searcher.search(rig.base, "krill", 10, documents=documents)
        return sorted(hit.name for hit in hits)

    assert found() == ["here.md", "old.md", "there.md"]
    assert found(below=[docs]) == ["old.md", "there.md"]
    assert found(below=[deep]) == ["there.md"]
    assert found(below=[ids["here.md"]]) == ["here.md"]
    assert found(metadata={"year": 2026}) == ["here.md", "there.md"]
    assert found(metadata={"year": 2026, "by": "Ann"}) == ["here.md"]
    assert found(metadata={"year": "2026"}) == []
    assert found(below=[docs], metadata={"year": 2026}) == ["there.md"]
    with pytest.raises(UnknownItem):
        found(below=[999])
    assert found(metadata={'a"b': 1}) == []


def test_a_search_limited_to_no_documents_finds_nothing(rig: Rig) -> None:
    add(rig, "whales.md", WHALES)
    rig.work()
    docs = folder(rig, "docs")
    documents = rig.library.items.select_documents(rig.base, below=[docs])
    assert documents == []
    assert rig.library.searcher.search(rig.base, "krill", 10, documents=documents) == []
