"""Bulk operations: they affect exactly the documents that a list with the same filter shows, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog import repository_statements as sql
from holdfast.catalog.repository import ItemKind
from holdfast.documents import bulk_run
from holdfast.documents.requests import Upload
from holdfast.engine.states import Status
from holdfast.errors import BadRequest, BaseFailed, Transient, UnknownItem
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.audit import audit_quiet
from tests.support.harness import Rig
from tests.support.scripted_workers import raises

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.service.documents import LocalDocuments
    from tests.support.clock import FakeClock

NO_TEXT = b" \n"


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


@pytest.fixture
def documents(rig: Rig) -> LocalDocuments:
    return LocalService(rig.library, local_caller()).documents


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a batch to two items."""
    monkeypatch.setattr(bulk_run, "ITEMS_PER_CLEAN_UP", 2)


def put(rig: Rig, name: str, text: bytes | None = None, parent: int = 0, **more: Any) -> int:
    content = name.encode() if text is None else text
    (reply,) = rig.library.adder.add(rig.base, [Upload(name, content, parent=parent, **more)])
    assert reply.item is not None
    return reply.item


def folder(rig: Rig, name: str, parent: int = 0) -> int:
    (reply,) = rig.library.adder.add(rig.base, [Upload(name, kind=ItemKind.DIRECTORY, parent=parent)])
    assert reply.item is not None
    return reply.item


def listed(documents: LocalDocuments, **filters: Any) -> set[int]:
    return {one.id for one in documents.list("shelf", size=500, **filters).items}


def jobs(rig: Rig) -> int:
    return rig.count("jobs")


@pytest.mark.usefixtures("small")
def test_a_bulk_retry_affects_all_failed_documents_and_no_others(rig: Rig, documents: LocalDocuments) -> None:
    bad = [put(rig, f"bad{number}.md", NO_TEXT + b"\n" * number) for number in range(5)]
    fine = [put(rig, f"fine{number}.md") for number in range(3)]
    rig.work()
    assert listed(documents, states=["failed"]) == set(bad)
    before = jobs(rig)
    counted = documents.matching("shelf", "retry", states=["failed"], dry_run=True)
    assert (counted.found, counted.accepted, counted.answers, counted.dry_run) == (5, 0, {}, True)
    assert jobs(rig) == before
    summary = documents.matching("shelf", "retry", states=["failed"])
    assert (summary.found, summary.accepted, summary.dry_run) == (5, 5, False)
    assert summary.answers == {"accepted: not_complete": 5}
    assert listed(documents, states=["queued"]) == set(bad)
    assert listed(documents, states=["success"]) == set(fine)
    assert jobs(rig) == before + 5
    rig.work()
    rig.sweep()
    audit_quiet(rig)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kinds": ["file"]}, 5),
        ({"text": "WHALE"}, 4),
        ({"text": "whale", "kinds": ["file"]}, 3),
        ({"parent": 0}, 4),
        ({"states": ["failed"]}, 1),
        ({"states": ["failed"], "kinds": ["note"]}, 0),
        ({}, 7),
    ],
)
def test_a_dry_run_counts_what_a_list_with_the_same_filters_shows(
    rig: Rig, documents: LocalDocuments, filters: dict[str, Any], expected: int
) -> None:
    inside = folder(rig, "whales")
    for name in ("whale1.md", "whale2.md"):
        put(rig, name, parent=inside)
    put(rig, "inner", NO_TEXT, inside)
    for name in ("whale3.md", "stones.md"):
        put(rig, name)
    documents.note("shelf", "a note", "It eats krill.")
    rig.work()
    assert documents.matching("shelf", "cancel", dry_run=True, **filters).found == expected
    assert documents.list("shelf", **filters).total == expected


@pytest.mark.usefixtures("small")
def test_a_bulk_delete_removes_matching_documents_and_keeps_their_folders(rig: Rig, documents: LocalDocuments) -> None:
    inside = folder(rig, "folder")
    bad = [put(rig, f"bad{number}.md", NO_TEXT + b"\n" * number, inside) for number in range(3)]
    good = put(rig, "good.md", parent=inside)
    lost = folder(rig, "lost")
    bad.append(put(rig, "bad.md", b"\n", lost))
    unasked = put(rig, "waits.md", parent=lost)
    documents.cancel("shelf", unasked)
    rig.work()
    assert lost in listed(documents, states=["failed"])
    summary = documents.matching("shelf", "delete", states=["failed"])
    assert (summary.found, summary.answers) == (4, {"accepted: delete": 4})
    assert listed(documents) == {inside, good, lost, unasked}
    assert listed(documents, deleting=True) == set(bad)


@pytest.mark.usefixtures("small")
def test_documents_below_a_matching_folder_are_not_requested_twice(rig: Rig, documents: LocalDocuments) -> None:
    whole = folder(rig, "folder")
    deep = folder(rig, "deep", whole)
    inner = [put(rig, f"{number}.md", parent=deep) for number in range(5)]
    beside = put(rig, "beside.md")
    rig.work()
    summary = documents.matching("shelf", "reindex")
    assert (summary.found, summary.answers) == (8, {"accepted: reindex": 2})
    assert listed(documents, states=["queued"], kinds=["file"]) == {*inner, beside}
    rig.work()
    summary = documents.matching("shelf", "delete", text="", kinds=["directory", "file"])
    assert (summary.found, summary.answers) == (8, {"accepted: delete": 2})
    assert listed(documents) == set()


@pytest.mark.usefixtures("small")
def test_failed_clean_ups_are_retried_in_bulk(
    rig: Rig, documents: LocalDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [put(rig, f"{number}.md") for number in range(5)]
    rig.work()
    documents.many("shelf", "delete", items)
    with monkeypatch.context() as away:
        away.setattr(rig.indexers["content"], "remove_all", raises(Transient("away", "It is away.")))
        rig.work()
    assert documents.matching("shelf", "retry", deleting=True, dry_run=True).found == 5
    summary = documents.matching("shelf", "retry", deleting=True)
    assert (summary.found, summary.answers) == (5, {"accepted: clean_up_again": 5})
    assert documents.matching("shelf", "retry", deleting=True).answers == {"joined: already_deleting": 5}
    rig.work()
    while rig.library.sweep(100):
        rig.work()
    assert (documents.matching("shelf", "retry", deleting=True).found, rig.count("items")) == (0, 0)


def test_a_document_that_stops_matching_before_its_batch_is_left_unchanged(
    rig: Rig, documents: LocalDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, other = put(rig, "a.md", NO_TEXT), put(rig, "b.md", NO_TEXT + b"\n")
    rig.work()
    real = rig.store.admit_with

    def late(*how: Any) -> Any:
        monkeypatch.setattr(rig.store, "admit_with", real)
        documents.retry("shelf", item)
        return real(*how)

    monkeypatch.setattr(rig.store, "admit_with", late)
    summary = documents.matching("shelf", "delete", states=["failed"])
    assert (summary.found, summary.answers) == (2, {"accepted: delete": 1})
    assert listed(documents) == {item}
    assert listed(documents, deleting=True) == {other}


@pytest.mark.usefixtures("small")
def test_documents_added_during_a_bulk_operation_are_not_affected(
    rig: Rig, documents: LocalDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [put(rig, f"{number}.md") for number in range(3)]
    real = rig.store.admit_with
    came: list[int] = []

    def late(*how: Any) -> Any:
        answers = real(*how)
        monkeypatch.setattr(rig.store, "admit_with", real)
        came.append(put(rig, f"late{len(came)}.md"))
        monkeypatch.setattr(rig.store, "admit_with", late)
        return answers

    monkeypatch.setattr(rig.store, "admit_with", late)
    summary = documents.matching("shelf", "delete", kinds=["file"])
    assert (summary.found, summary.accepted) == (3, 3)
    assert listed(documents) == set(came)
    assert listed(documents, deleting=True) == set(items)


def test_a_batch_is_one_transaction_of_a_bounded_size(
    rig: Rig, documents: LocalDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_run, "ITEMS_PER_CLEAN_UP", 10)
    for number in range(25):
        put(rig, f"{number}.md")
    rig.work()
    sizes: list[int] = []
    real = rig.store.admit_with

    def counted(*how: Any) -> Any:
        answers = real(*how)
        sizes.append(len(answers))
        return answers

    monkeypatch.setattr(rig.store, "admit_with", counted)
    assert documents.matching("shelf", "reindex").accepted == 25
    assert sizes == [10, 10, 5]


def test_invalid_bulk_operations_are_refused(rig: Rig, documents: LocalDocuments) -> None:
    item = put(rig, "a.md")
    for nothing in (None, ""):
        with pytest.raises(BadRequest, match="clear"):
            documents.matching("shelf", "delete", text=nothing, dry_run=True)
    with pytest.raises(BadRequest, match="Only the action 'retry'"):
        documents.matching("shelf", "reindex", deleting=True)
    with pytest.raises(BadRequest, match="explode"):
        documents.matching("shelf", "explode")
    with pytest.raises(UnknownItem):
        documents.matching("shelf", "cancel", parent=item + 1)
    rig.library.remover.delete(rig.base, [item])
    with pytest.raises(UnknownItem):
        documents.matching("shelf", "cancel", parent=item)
    assert documents.matching("shelf", "delete", kinds=["sitemap"]).answers == {}


def test_a_failed_base_allows_bulk_deletes_but_refuses_bulk_indexing(rig: Rig, documents: LocalDocuments) -> None:
    put(rig, "a.md")
    problem = '{"code": "away", "params": {"message": "It is away."}}'
    rig.store.database.write(lambda tx: tx.run(sql.FAIL_BASE, id=rig.base.id, problem=problem), durable=True)
    with pytest.raises(BaseFailed):
        documents.matching("shelf", "index")
    assert documents.matching("shelf", "cancel").answers == {"accepted: cancel": 1}
    assert documents.matching("shelf", "delete", kinds=["file"]).accepted == 1


def test_a_bulk_refresh_fetches_web_pages_and_skips_uploads(rig: Rig, documents: LocalDocuments) -> None:
    put(rig, "a.md")
    page = documents.url("shelf", "https://example.org/")
    documents.cancel("shelf", page.document or 0)
    summary = documents.matching("shelf", "refresh")
    assert summary.answers == {"skipped: nothing_to_do": 1, "accepted: forced": 1}
    assert rig.store.owner(rig.base.key, f"source:{page.document}").status is Status.QUEUED
