"""Document lists, statuses, details, texts and passages on both databases; each test proves one guarantee."""

from __future__ import annotations

import itertools
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.catalog.repository import BaseSettings, Item, ItemKind, fold_name, read_items
from holdfast.clock import as_datetime
from holdfast.content.reading import read
from holdfast.db.database import Transaction
from holdfast.documents import lists, queries
from holdfast.documents.lists import DocumentFilter, Order
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.documents.selection import ItemWithStatus, derive_tree_status
from holdfast.documents.source_sync import SourceAccess
from holdfast.documents.status import Document, DocumentStatus, Progress, share
from holdfast.engine.problems import Problem, describe_fault
from holdfast.engine.slot import Fault
from holdfast.engine.slot import Progress as SlotProgress
from holdfast.engine.states import Operation, SlotState, Status
from holdfast.engine.store.base import Failure, LeaseRenewal
from holdfast.errors import BadRequest, Permanent, StateConflict, Transient, UnknownBase, UnknownItem
from holdfast.llm.offline import OfflineProvider
from holdfast.paging import MAX_COUNT, read_all_pages
from holdfast.sources.address_policy import Reach
from tests.support.audit import audit, audit_quiet, audit_standings
from tests.support.bulk_rows import fill
from tests.support.harness import Rig
from tests.support.read_cost import counting_reads
from tests.support.scripted_site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.catalog.repository import Base
    from holdfast.documents.queries import DocumentQueries
    from holdfast.errors import WorkError
    from holdfast.llm.base import Embeddings
    from holdfast.paging import Page
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
S = Status
WEEK = timedelta(days=7)
TOLD_OF_ONE = {"queue_position", "waiting_for", "chunks", "indexes", "not_enabled", "jobs"}  # not in lists


class Moody(OfflineProvider):
    """Embeds, or raises `fault` if it is set."""

    fault: WorkError | None = None

    def embed_parts(self, texts: Sequence[str], *more: Any) -> Iterator[Embeddings]:
        if self.fault is not None:
            raise self.fault
        return super().embed_parts(texts, *more)


@pytest.fixture
def provider() -> Moody:
    return Moody()


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, provider: Moody) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, provider, indexes=("vector", "fulltext"))
    rig.library.source_policy = SourceAccess(reach=Reach.parse("127.0.0.1"))
    rig.indexers = rig.library.indexers()
    rig.worker = rig.hire("worker")
    yield rig
    rig.close()


@pytest.fixture
def shelves(rig: Rig) -> DocumentQueries:
    return rig.library.document_queries


def put(rig: Rig, name: str, text: str | bytes | None = None, *, parent: int = 0, **terms: Any) -> int:
    """Add one document and return its id."""
    content = (name if text is None else text) or ""
    upload = Upload(name, content.encode() if isinstance(content, str) else content, parent=parent)
    (reply,) = rig.library.adder.add(rig.base, [upload], AddOptions(**terms))
    assert reply.item is not None
    return reply.item


def folder(rig: Rig, name: str, parent: int = 0) -> int:
    upload = Upload(name, kind=ItemKind.DIRECTORY, parent=parent)
    (reply,) = rig.library.adder.add(rig.base, [upload], AddOptions(index=False))
    assert reply.item is not None
    return reply.item


def ids(page: Page[Document]) -> list[int]:
    return [row.id for row in page.items]


def told(rig: Rig, item: int) -> DocumentStatus:
    """Return the status of one item; assert that list, statuses and details agree."""
    shelves = rig.library.document_queries
    (one,) = shelves.statuses(rig.base, [item])
    (row,) = [row for row in shelves.list(rig.base).items if row.id == item]
    detail = shelves.read_document(rig.base, item)
    assert all(getattr(detail, field.name) == getattr(one, field.name) for field in fields(DocumentStatus))
    told_in_lists = {field.name for field in fields(Document)} - TOLD_OF_ONE
    assert all(getattr(detail, name) == getattr(row, name) for name in told_in_lists)
    assert (row.status, row.why, row.job) == (one.status, one.why, one.job)
    return one


def change(rig: Rig, *statements: str) -> None:
    def work(tx: Transaction) -> None:
        for statement in statements:
            tx.run_sql(statement)

    rig.store.database.write(work, durable=False)


def test_an_indexed_document_is_searchable_and_has_no_open_work(rig: Rig, clock: FakeClock) -> None:
    began = clock.now()
    item = put(rig, "whales.md", WHALES)
    rig.work()
    one = told(rig, item)
    assert (one.status, one.searchable, one.why, one.job, one.progress) == (S.SUCCESS, True, None, None, None)
    assert (one.generation, one.built, one.priority, one.queue_position) == (1, 1, None, None)
    detail = rig.library.document_queries.read_document(rig.base, item)
    assert (detail.created_at, detail.changed_at) == (as_datetime(began), as_datetime(began))
    assert {
        one.kind: (one.state, one.chunks, one.missing, one.attempts, one.attempts_max) for one in detail.indexes
    } == dict.fromkeys(("content", "vector", "fulltext"), (SlotState.READY, 1, 0, 1, 4))
    assert (detail.chunks, detail.waiting_for, len(detail.jobs)) == (1, [], 1)
    assert "size 512" in str(next(one.made_by for one in detail.indexes if one.kind == "content"))
    audit(rig)


def test_a_queued_document_shows_its_job_priority_and_queue_position(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = put(rig, "a.md"), put(rig, "b.md")
    urgent = put(rig, "c.md", priority=1)
    assert [told(rig, item).queue_position for item in (urgent, first, second)] == [0, 1, 2]
    with monkeypatch.context() as patch:
        patch.setattr(queries, "MAX_COUNT", 1)
        assert [told(rig, item).queue_position for item in (urgent, first, second)] == [0, 1, 1]
    one = told(rig, first)
    assert (one.status, one.searchable, one.priority, one.progress) == (S.QUEUED, False, 5, None)
    detail = rig.library.document_queries.read_document(rig.base, first)
    assert one.job == detail.jobs[0]
    assert [why.code for why in detail.waiting_for] == ["behind", "blocked"]
    assert detail.waiting_for[0].params["ahead"] == "1"
    assert detail.waiting_for[0].message.startswith("1 ")
    assert all(row.queue_position is None for row in rig.library.document_queries.list(rig.base).items)


def test_a_document_that_is_being_indexed_shows_stage_step_and_share(rig: Rig) -> None:
    item = put(rig, "whales.md", WHALES)
    (ticket,) = rig.store.claim_next(["content"], "somebody", 1)
    far = SlotProgress(stage="reading", step=2, steps=4, done=5, total=10)
    rig.store.extend([LeaseRenewal(ticket=ticket, progress=far, progressed=True)])
    shown = Progress(stage="reading", step=2, steps=4, done=5, total=10, share=0.375)
    one = told(rig, item)
    assert (one.status, one.progress, one.job) == (S.INDEXING, shown, ticket.job)
    (content, *_) = rig.library.document_queries.read_document(rig.base, item).indexes
    assert (content.claimed_at is not None, content.progress) == (True, shown)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (SlotProgress(stage="reading"), None),
        (SlotProgress(done=3), None),
        (SlotProgress(done=3, total=12), 0.25),
        (SlotProgress(done=15, total=12), 1.0),
        (SlotProgress(step=1, steps=2, done=1, total=2), 0.25),
        (SlotProgress(step=2, steps=2, done=2, total=2), 1.0),
        (SlotProgress(step=3, steps=2, done=1, total=2), 0.5),
    ],
)
def test_a_share_is_known_only_with_a_total(progress: SlotProgress, expected: float | None) -> None:
    assert share(progress) == expected


def test_a_failed_document_shows_the_error_of_its_first_slot(rig: Rig) -> None:
    item = put(rig, "empty.md", "   \n")
    rig.work()
    one = told(rig, item)
    assert one.why is not None
    assert (one.status, one.searchable, one.why.code, one.retry_at) == (S.FAILED, False, "no_text", None)
    detail = rig.library.document_queries.read_document(rig.base, item)
    assert {index.state for index in detail.indexes} == {SlotState.FAILED}
    assert detail.indexes[0].error == one.why
    assert detail.chunks == 0


def test_a_degraded_document_is_searchable_and_names_the_index_that_failed(rig: Rig, provider: Moody) -> None:
    provider.fault = Permanent("bad_key", "The key is wrong.")
    item = put(rig, "whales.md", WHALES)
    rig.work()
    one = told(rig, item)
    assert (one.status, one.searchable) == (S.DEGRADED, True)
    assert one.why == Problem(code="bad_key", message="The key is wrong.")
    states = {
        index.kind: (index.state, index.chunks)
        for index in rig.library.document_queries.read_document(rig.base, item).indexes
    }
    assert states["vector"] == (SlotState.FAILED, 0)
    assert states["fulltext"] == (SlotState.READY, 1)


def test_a_document_that_waits_for_a_retry_shows_when_and_why(rig: Rig, provider: Moody, clock: FakeClock) -> None:
    provider.fault = Transient("timeout", "It took too long.")
    item = put(rig, "whales.md", WHALES)
    rig.work()
    one = told(rig, item)
    assert one.why is not None
    assert (one.status, one.why.code, one.searchable) == (S.INDEXING, "timeout", True)
    assert one.retry_at is not None
    assert one.retry_at > as_datetime(clock.now())
    detail = rig.library.document_queries.read_document(rig.base, item)
    vector = next(index for index in detail.indexes if index.kind == "vector")
    assert (vector.state, vector.retry_at, vector.attempts) == (SlotState.WAITING, one.retry_at, 1)
    (wait,) = [why for why in detail.waiting_for if why.code == "retry"]
    assert datetime.fromisoformat(wait.params["at"]) == one.retry_at
    assert "timeout" in wait.message


def test_missing_chunks_are_the_reason_if_no_slot_failed(rig: Rig) -> None:
    item = put(rig, "whales.md", WHALES)
    rig.work()
    change(rig, "UPDATE slots SET missing = 1 WHERE kind = 'vector'", "UPDATE owners SET status = 'degraded'")
    one = told(rig, item)
    assert one.why is not None
    assert (one.status, one.why.code, one.why.params["missing"]) == (S.DEGRADED, "chunks_missing", "1")


def test_a_document_stays_searchable_while_it_is_reindexed(rig: Rig) -> None:
    item = put(rig, "whales.md", WHALES)
    rig.work()
    rig.library.operations.reindex(rig.base, [item])
    one = told(rig, item)
    assert (one.status, one.searchable, one.generation, one.built) == (S.QUEUED, True, 2, 1)


def test_a_document_that_is_not_indexed_shows_whether_it_was_cancelled(rig: Rig) -> None:
    kept = put(rig, "kept.md", index=False)
    stopped = put(rig, "stopped.md")
    rig.ask("stopped.md", Operation.CANCEL)
    assert [(told(rig, item).status, getattr(told(rig, item).why, "code", "")) for item in (kept, stopped)] == [
        (S.NOT_INDEXED, "not_asked"),
        (S.NOT_INDEXED, "cancelled"),
    ]
    assert rig.library.document_queries.read_document(rig.base, kept).indexes == []


def test_an_unreadable_file_shows_its_problem(rig: Rig) -> None:
    problem = Fault("unreadable", {"message": "Nobody may read it."})
    rig.library.adder.add(rig.base, [Upload("secret.md", problem=problem, source="secret.md")])
    item = rig.library.items.find(rig.base, "secret.md").id
    assert (told(rig, item).status, told(rig, item).why) == (S.FAILED, describe_fault(problem))
    audit_standings(rig)
    rig.put("secret.md", "now it is there")
    assert told(rig, item).status is not S.FAILED
    audit_standings(rig)


def test_an_index_that_cannot_run_is_listed_as_not_enabled(rig: Rig) -> None:
    base = rig.library.catalog.create_base("asking", BaseSettings(indexes=("fulltext", "questions")))
    (reply,) = rig.library.adder.put(base, [Upload("a.md", b"text")])
    assert reply.item is not None
    detail = rig.library.document_queries.read_document(base, reply.item)
    assert set(detail.not_enabled) == {"questions"}
    assert {index.kind for index in detail.indexes} == {"content", "fulltext"}


def test_the_status_of_a_web_page_combines_its_source_and_its_document(rig: Rig) -> None:
    with Site() as site:
        body = b"<html><body><p>The blue whale eats krill, and much of it.</p></body></html>"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
        site.says("/whales", head + body)
        (reply,) = rig.library.adder.add(rig.base, [Upload("whales", kind=ItemKind.URL, source=site.url("/whales"))])
        item = reply.item
        assert item is not None
        assert told(rig, item).status is S.QUEUED
        with pytest.raises(StateConflict, match="no content yet"):
            rig.library.document_queries.original(rig.base, item)
        rig.work()
        assert told(rig, item).status is S.SUCCESS
        original = rig.library.document_queries.original(rig.base, item)
        assert (rig.path(original.blob).read_bytes(), original.type) == (body, "text/html")
        kinds = [index.kind for index in rig.library.document_queries.read_document(rig.base, item).indexes]
        assert sorted(kinds) == ["content", "fulltext", "source", "vector"]
        site.says("/whales", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        rig.library.operations.refresh(rig.base, [item])
        rig.work()
        one = told(rig, item)
        assert (one.status, one.searchable) == (S.DEGRADED, True)
        assert one.why is not None
        assert len(rig.library.document_queries.read_document(rig.base, item).jobs) == 3
        audit(rig)


def test_the_database_and_python_derive_the_same_status_for_every_combination(rig: Rig) -> None:
    item = put(rig, "a.md", index=False)
    parts: list[Status | None] = [None, *Status]
    found = rig.library.items.find(rig.base, "a.md")
    with rig.store.database.reading() as tx:
        assert tx.run_sql("SELECT count(*) FROM library_standings") == [(1,)]
    for problem, document, source in itertools.product((0, 1), parts, parts):
        cells = [f"'{part}'" if part else "NULL" for part in (document, source)]
        change(rig, f"UPDATE library_standings SET problem = {problem}, document = {cells[0]}, source = {cells[1]}")  # noqa: S608
        with rig.store.database.reading() as tx:
            ((status,),) = tx.run_sql("SELECT status FROM library_standings")
        fault = Fault("x") if problem else None
        named = {name: getattr(found, name) for name in Item.__slots__} | {"problem": fault}
        assert status == ItemWithStatus(Item(**named), document, source).status, (problem, document, source, item)


def test_a_container_derives_its_status_from_its_children(rig: Rig) -> None:
    outer = folder(rig, "outer")
    inner = folder(rig, "inner", outer)
    assert told(rig, outer).status is S.NOT_INDEXED
    good = put(rig, "good.md", parent=inner)
    assert (told(rig, outer).status, told(rig, outer).searchable) == (S.QUEUED, False)
    rig.work()
    assert [(told(rig, one).status, told(rig, one).searchable) for one in (outer, inner)] == [(S.SUCCESS, True)] * 2
    bad = put(rig, "bad.md", " ", parent=inner)
    rig.work()
    one = told(rig, outer)
    assert (one.status, one.why and one.why.code, one.searchable) == (S.DEGRADED, "below", True)
    rig.library.remover.delete(rig.base, [good])
    assert (told(rig, outer).status, told(rig, outer).searchable) == (S.FAILED, False)
    rig.library.remover.delete(rig.base, [bad])
    assert told(rig, outer).status is S.NOT_INDEXED
    assert rig.library.items.status(rig.base, outer) is S.NOT_INDEXED


def test_a_container_stays_searchable_while_its_documents_are_reindexed(rig: Rig) -> None:
    outer = folder(rig, "outer")
    put(rig, "a.md", parent=outer)
    rig.work()
    rig.library.operations.reindex(rig.base, [outer])
    assert (told(rig, outer).status, told(rig, outer).searchable) == (S.QUEUED, True)


def test_a_folder_shows_the_status_of_its_last_sync(rig: Rig, tmp_path: Path) -> None:
    root = tmp_path / "books"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a.md").write_text(WHALES)
    (reply,) = rig.library.adder.add(rig.base, [Upload("books", kind=ItemKind.DIRECTORY, source=str(root))])
    assert reply.item is not None
    assert told(rig, reply.item).status is S.QUEUED
    rig.work()
    assert told(rig, reply.item).status is S.SUCCESS
    (root / "deep" / "a.md").unlink()
    (root / "deep").rmdir()
    root.rmdir()
    rig.library.operations.refresh(rig.base, [reply.item])
    rig.work()
    one = told(rig, reply.item)
    assert one.why is not None
    assert one.status in (S.DEGRADED, S.INDEXING)
    audit(rig)


def test_lists_show_active_items_first_then_failed_then_the_newest(rig: Rig) -> None:
    failed = put(rig, "failed.md", " ")
    old = put(rig, "old.md")
    holder = folder(rig, "folder")
    new = put(rig, "new.md", parent=holder)
    rig.work()
    kept = put(rig, "kept.md", index=False)
    queued = put(rig, "queued.md")
    assert ids(rig.library.document_queries.list(rig.base)) == [queued, failed, kept, new, holder, old]
    assert ids(rig.library.document_queries.list(rig.base, DocumentFilter(parent=0))) == [
        queued,
        failed,
        kept,
        holder,
        old,
    ]
    assert ids(rig.library.document_queries.list(rig.base, DocumentFilter(parent=holder))) == [new]
    put(rig, "more.md", parent=holder)
    assert ids(rig.library.document_queries.list(rig.base, DocumentFilter(parent=0))) == [
        queued,
        holder,
        failed,
        kept,
        old,
    ]


def test_lists_are_ordered_by_name_size_and_change_both_ways(
    rig: Rig, clock: FakeClock, shelves: DocumentQueries
) -> None:
    small = put(rig, "Zebra.md", "x")
    clock.advance(WEEK)
    large = put(rig, "äpfel.md", "x" * 50)
    clock.advance(WEEK)
    middle = put(rig, "apple.md", "x" * 20)
    clock.advance(WEEK)
    rig.put("Zebra.md", "y")
    assert ids(shelves.list(rig.base, order=Order.NAME)) == [middle, small, large]
    assert ids(shelves.list(rig.base, order=Order.NAME, reverse=True)) == [large, small, middle]
    assert ids(shelves.list(rig.base, order=Order.SIZE)) == [large, middle, small]
    assert ids(shelves.list(rig.base, order=Order.SIZE, reverse=True)) == [small, middle, large]
    assert ids(shelves.list(rig.base, order=Order.CHANGED)) == [small, middle, large]
    item = rig.library.items.find(rig.base, "Zebra.md")
    assert item.changed_at - item.created_at == 3 * WEEK // timedelta(microseconds=1)


def test_names_are_matched_by_substring_regardless_of_case_and_special_characters(
    rig: Rig, shelves: DocumentQueries
) -> None:
    names = ["Straße 100%.md", "STRASSE.md", "a_b.md", "axb.md", "Übung.md", "back\\slash.md", "'; DROP TABLE--.md"]
    items = {name: put(rig, name) for name in names}

    def found(text: str) -> set[str]:
        page = shelves.list(rig.base, DocumentFilter(text=text))
        assert page.total == len(page.items)
        return {name for name, item in items.items() if item in ids(page)}

    assert found("strasse") == {"Straße 100%.md", "STRASSE.md"}
    assert found("100%") == {"Straße 100%.md"}
    assert found("A_B") == {"a_b.md"}
    assert found("ÜBUNG") == {"Übung.md"}
    assert found("u\N{COMBINING DIAERESIS}b") == {"Übung.md"}
    assert found("\\") == {"back\\slash.md"}
    assert found("drop table") == {"'; DROP TABLE--.md"}
    assert found("\0") == set()
    assert found("") == set(names)


def test_lists_can_be_filtered_by_state_and_kind(rig: Rig, shelves: DocumentQueries) -> None:
    bad, good = put(rig, "bad.md", " "), put(rig, "good.md")
    holder = folder(rig, "folder")
    inner = put(rig, "inner.md", "  ", parent=holder)
    rig.work()
    assert ids(shelves.list(rig.base, DocumentFilter(states=[S.FAILED]))) == [inner, holder, bad]
    assert ids(shelves.list(rig.base, DocumentFilter(states=["failed"], kinds=["file"]))) == [inner, bad]
    assert ids(shelves.list(rig.base, DocumentFilter(states=["failed"]), order=Order.NAME)) == [bad, holder, inner]
    assert ids(
        shelves.list(rig.base, DocumentFilter(states=["failed"], kinds=[ItemKind.DIRECTORY]), order=Order.NAME)
    ) == [holder]
    assert ids(shelves.list(rig.base, DocumentFilter(states=["success"], parent=0))) == [good]
    assert ids(shelves.list(rig.base, DocumentFilter(states=[]))) == []
    assert shelves.list(rig.base, DocumentFilter(states=["failed"])).total == 3
    for field, value in (("states", "lost"), ("kinds", "picture")):
        with pytest.raises(BadRequest, match=f"'{value}' is not a valid value of '{field}'"):
            DocumentFilter(**{field: [value]})  # type: ignore[arg-type]


def test_pages_have_numbers_and_cursors_and_an_exact_total(rig: Rig, shelves: DocumentQueries) -> None:
    items = [put(rig, f"{n}.md") for n in range(7)]
    pages = [shelves.list(rig.base, page=page, size=3) for page in (1, 2, 3, 4)]
    assert [ids(page) for page in pages] == [items[:3:-1], items[3:0:-1], items[:1], []]
    assert {page.total for page in pages} == {7}
    second = shelves.list(rig.base, cursor=pages[0].next_cursor, size=3)
    assert ids(second) == ids(pages[1])
    assert pages[2].next_cursor is None


def test_a_cursor_repeats_and_skips_nothing_while_documents_are_added_and_deleted(rig: Rig) -> None:
    shelves = rig.library.document_queries
    for order in Order:
        items = [put(rig, f"{order} {n}", index=False) for n in range(6)]
        first = shelves.list(rig.base, DocumentFilter(text=order), order=order, size=4)
        gone, rest = ids(first)[-1], [item for item in items if item not in ids(first)]
        rig.library.remover.delete(rig.base, [gone])
        put(rig, f"another {order}", index=False)
        second = shelves.list(rig.base, DocumentFilter(text=order), order=order, size=4, cursor=first.next_cursor)
        assert set(rest) <= set(ids(second)), order
        assert not set(ids(first)) & set(ids(second)), order


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "active",
        "active/1",
        "active/x/1",
        "active/1/x",
        "name/1/a",
        "active/-1/1",
        "active/1/٣",
        "active/1/1/1",
        "active/99999999999999999999/1",
        "deleting/1/1",
        "active-down/1/1",
        "\0",
        "active/1/01",
    ],
)
def test_an_invalid_cursor_is_refused_with_a_reason(rig: Rig, cursor: str) -> None:
    with pytest.raises(BadRequest, match="without a cursor"):
        rig.library.document_queries.list(rig.base, cursor=cursor)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 501}, {"page": 0}, {"page": 2**40}, {"reverse": True}])
def test_invalid_page_parameters_are_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        rig.library.document_queries.list(rig.base, **wrong)


def test_a_deleted_document_appears_only_in_the_list_of_running_deletes(
    rig: Rig, shelves: DocumentQueries, clock: FakeClock
) -> None:
    holder = folder(rig, "folder")
    item, stays = put(rig, "whales.md", WHALES, parent=holder), put(rig, "stays.md")
    rig.work()
    rig.library.remover.delete(rig.base, [holder])
    audit_standings(rig)
    assert ids(shelves.list(rig.base)) == [stays]
    assert shelves.list(rig.base).total == 1
    assert shelves.statuses(rig.base, [item, holder, stays]) == shelves.statuses(rig.base, [stays])
    for look in (shelves.read_document, shelves.original, shelves.text):
        with pytest.raises(UnknownItem):
            look(rig.base, item)
    with pytest.raises(UnknownItem):
        shelves.passage(rig.base, item, 1)
    with pytest.raises(UnknownItem):
        shelves.list(rig.base, DocumentFilter(parent=holder))
    assert (shelves.counts(rig.base).documents, shelves.counts(rig.base).bytes) == (1, len("stays.md"))
    going = shelves.list(rig.base, DocumentFilter(deleting=True))
    assert (ids(going), going.total) == ([item, holder], 2)
    assert {row.status for row in going.items} == {S.DELETING}
    assert {row.why for row in going.items} == {None}
    (ticket,) = rig.store.claim_next(["fulltext"], "cleaner", 1)
    rig.store.fail([Failure(ticket=ticket, fault=Fault("away", {"message": "Gone."}), delay=timedelta(minutes=1))])
    (row,) = [row for row in shelves.list(rig.base, DocumentFilter(deleting=True)).items if row.id == item]
    assert row.why == Problem(code="away", message="Gone.")
    assert row.retry_at == as_datetime(clock.now()) + timedelta(minutes=1)
    assert not row.searchable
    clock.advance(WEEK)
    rig.work()
    while rig.library.sweep(100):
        rig.work()
    assert ids(shelves.list(rig.base, DocumentFilter(deleting=True))) == []
    audit_quiet(rig)


def test_the_list_of_running_deletes_has_pages_and_filters(rig: Rig, shelves: DocumentQueries) -> None:
    items = [put(rig, f"{n}.md") for n in range(5)]
    rig.library.remover.delete(rig.base, items)
    first = shelves.list(rig.base, DocumentFilter(deleting=True), size=3)
    second = shelves.list(rig.base, DocumentFilter(deleting=True), size=3, cursor=first.next_cursor)
    assert [*ids(first), *ids(second)] == items[::-1]
    assert ids(shelves.list(rig.base, DocumentFilter(deleting=True), size=3, page=2)) == ids(second)
    assert ids(shelves.list(rig.base, DocumentFilter(deleting=True, text="3"))) == [items[3]]


def test_a_hidden_document_without_a_requested_clean_up_is_neither_listed_nor_counted(rig: Rig) -> None:
    shelves = rig.library.document_queries
    holder = folder(rig, "folder")
    item, stays = put(rig, "a.md", parent=holder), put(rig, "b.md")
    rig.work()
    change(rig, f"UPDATE library_items SET deleting = 1 WHERE id = {item}")  # noqa: S608 - the first step of a large delete
    audit_standings(rig)
    assert ids(shelves.list(rig.base)) == [stays, holder]
    ways: list[dict[str, Any]] = [
        {},
        {"order": Order.NAME},
        {"filter_": DocumentFilter(text=".")},
        {"filter_": DocumentFilter(states=["success"])},
        {"filter_": DocumentFilter(kinds=["file"])},
    ]
    for how in ways:
        page = shelves.list(rig.base, **how)
        assert page.total == len(page.items), how
    assert told(rig, holder).status is S.NOT_INDEXED
    assert shelves.counts(rig.base).by_status[S.SUCCESS] == 1
    assert shelves.counts_of_many([rig.base]) == {rig.base.id: shelves.counts(rig.base)}


def test_another_base_does_not_show_the_document(rig: Rig, shelves: DocumentQueries) -> None:
    item, other = put(rig, "a.md"), rig.library.catalog.create_base("other", BaseSettings())
    rig.library.adder.put(other, [Upload("b.md", b"b")])
    rig.work()
    (chunk,) = rig.library.items.chunks(rig.base, item)
    assert [row.name for row in shelves.list(other).items] == ["b.md"]
    assert shelves.list(other).total == 1
    assert shelves.statuses(other, [item]) == []
    for look in (shelves.read_document, shelves.original, shelves.text):
        with pytest.raises(UnknownItem):
            look(other, item)
    with pytest.raises(UnknownItem):
        shelves.passage(other, item, chunk.chunk)
    with pytest.raises(UnknownItem):
        shelves.list(other, DocumentFilter(parent=item))
    assert shelves.counts(other).documents == 1


def test_owners_of_other_packages_with_the_id_of_an_item_do_not_change_its_status(
    rig: Rig, shelves: DocumentQueries
) -> None:
    item = put(rig, "a.md")
    rig.work()
    columns = "INSERT INTO owners (base, owner, generation, status, created_at)"
    names = [("guarded", str(item)), ("99", str(item)), ("99", f"source:{item}"), (str(rig.base.id), f"0{item}")]
    names += [(str(rig.base.id), owner) for owner in ("9" * 40, "source:", "source:x", "-1", "1.0", "")]
    change(rig, *(f"{columns} VALUES ('{base}', '{owner}', 1, 'failed', 0)" for base, owner in names))
    change(rig, "UPDATE owners SET status = 'queued' WHERE status = 'failed'")
    change(rig, "DELETE FROM owners WHERE status = 'queued'")
    assert shelves.list(rig.base).items[0].status is S.SUCCESS
    audit(rig)


def test_a_deleted_base_is_not_counted_even_before_its_items_are_hidden(rig: Rig, shelves: DocumentQueries) -> None:
    put(rig, "a.md")
    change(rig, "UPDATE library_bases SET deleting = 1")
    assert shelves.counts_of_many([rig.base]) == {}


def test_a_deleted_base_is_unknown(rig: Rig, shelves: DocumentQueries) -> None:
    put(rig, "a.md")
    rig.library.bases.delete(rig.base)
    for look in (shelves.list, shelves.counts):
        with pytest.raises(UnknownBase):
            look(rig.base)
    assert shelves.counts_of_many([rig.base]) == {}


def test_a_thousand_statuses_are_read_with_a_constant_number_of_statements(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = folder(rig, "folder")
    fill(rig, rig.base, 1_200, parent=holder)
    shelves = rig.library.document_queries
    seen: list[Any] = []
    run = Transaction.run

    def counting(self: Transaction, statement: Any, rows: Any = None, **values: Any) -> Any:
        assert rows is None or len(rows) == 1, "SQLite takes a longer batch in several statements"
        seen.append(statement)
        return run(self, statement, rows, **values)

    monkeypatch.setattr(Transaction, "run", counting)
    numbers = {}
    for many in (3, 999):
        seen.clear()
        wanted = [holder, *range(holder + 1, holder + many + 1)]
        assert [one.id for one in shelves.statuses(rig.base, wanted)] == wanted
        numbers[many] = len(seen)
    assert numbers == {3: 4, 999: 5}  # none of the first three is queued, which saves a statement
    seen.clear()
    shelves.list(rig.base, size=500)
    assert len(seen) == 7
    with pytest.raises(BadRequest, match="Too many ids: 1001 requested, at most 1000 per call"):
        shelves.statuses(rig.base, range(1, 1_002))
    assert shelves.statuses(rig.base, []) == []
    assert shelves.statuses(rig.base, [holder + 5, 10**15, holder + 5, holder + 4])[0].id == holder + 5


def test_counts_agree_with_the_list(rig: Rig, shelves: DocumentQueries) -> None:
    put(rig, "bad.md", " ")
    holder = folder(rig, "folder")
    put(rig, "good.md", parent=holder)
    rig.work()
    put(rig, "queued.md")
    counts = shelves.counts(rig.base)
    assert {status: many for status, many in counts.by_status.items() if many} == {
        S.FAILED: 1,
        S.SUCCESS: 1,
        S.QUEUED: 1,
    }
    assert (counts.documents, counts.containers, counts.bytes) == (3, 1, 1 + len("good.md") + len("queued.md"))
    assert shelves.counts_of_many([rig.base]) == {rig.base.id: counts}


def test_counts_end_at_a_limit_unless_they_must_be_exact(
    rig: Rig, shelves: DocumentQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig, rig.base, 150)  # most of them ready, three failed
    exact = shelves.counts(rig.base)
    assert (exact.documents, exact.more) == (150, [])
    monkeypatch.setattr(queries, "MAX_COUNT", 10)
    counts = shelves.counts(rig.base)
    assert counts.more == [S.SUCCESS]
    assert counts.by_status == exact.by_status | {S.SUCCESS: 10}
    assert (counts.documents, counts.bytes) == (10 + 150 - exact.by_status[S.SUCCESS], None)
    assert shelves.counts(rig.base, exact=True) == exact
    # Hidden items are not counted, even if there are more of them than the limit.
    change(rig, "UPDATE library_items SET deleting = 1 WHERE id > id / 10 * 10")
    monkeypatch.setattr(queries, "MAX_COUNT", 1_000)
    left = shelves.counts(rig.base)
    assert left.documents == 15
    monkeypatch.setattr(queries, "MAX_COUNT", left.by_status[S.SUCCESS] + 1)
    assert shelves.counts(rig.base) == left
    monkeypatch.setattr(queries, "MAX_COUNT", left.by_status[S.SUCCESS])
    assert shelves.counts(rig.base).more == [S.SUCCESS]


def test_a_list_counts_to_a_limit_and_pages_have_numbers_up_to_it(
    rig: Rig, shelves: DocumentQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig, rig.base, 50)
    page = shelves.list(rig.base, size=10)
    assert (page.total, page.total_is_exact) == (50, True)
    for module in (lists, queries):
        monkeypatch.setattr(module, "MAX_COUNT", 20)
    for filter_ in (DocumentFilter(), DocumentFilter(states=["success"]), DocumentFilter(text="file")):
        page = shelves.list(rig.base, filter_, size=10)
        assert (page.total, page.total_is_exact) == (20, False)
    assert len(shelves.list(rig.base, page=2, size=10).items) == 10
    with pytest.raises(BadRequest, match="cursor"):
        shelves.list(rig.base, page=3, size=10)
    found = list(read_all_pages(lambda cursor: shelves.list(rig.base, cursor=cursor, size=10)))
    assert len({one.id for one in found}) == 50
    few = shelves.list(rig.base, DocumentFilter(text="file 1"), size=10)  # 1 and 10 to 19
    assert (few.total, few.total_is_exact) == (11, True)


def test_the_original_is_found_with_name_type_and_size(rig: Rig, shelves: DocumentQueries) -> None:
    item = put(rig, "whales.md", WHALES)
    original = shelves.original(rig.base, item)
    with original.open(3) as file:
        assert file.read(1 << 20) == WHALES.encode()[3:]
    assert (original.name, original.size, original.type) == ("whales.md", len(WHALES), "text/markdown")
    with pytest.raises(BadRequest, match="'folder' contains other documents"):
        shelves.original(rig.base, folder(rig, "folder"))
    rig.path(original.blob).unlink()
    with pytest.raises(StateConflict, match=r"The file of 'whales\.md' is missing"), original.open():
        pass


def long_text() -> str:
    parts = []
    for n in range(12):
        said = " ".join(f"Sentence {k} of part {n} tells of whales and krill." for k in range(14))
        parts.append(f"## Part {n}\n\n{said}\n\n- one\n- two {n}\n\n" + f"Line {n} of a paragraph. " * 20)
    return "# Whales\n\n" + "\n\n".join(parts) + "\n"


def test_the_text_contains_every_character_of_the_document_once(
    rig: Rig, shelves: DocumentQueries, tmp_path: Path
) -> None:
    (tmp_path / "long.md").write_text(long_text())
    reading = read(tmp_path / "long.md", "long.md")
    base = rig.library.catalog.create_base(
        "small", BaseSettings(indexes=("fulltext",), chunk_size=64, chunk_overlap=16)
    )
    (reply,) = rig.library.adder.put(base, [Upload("long.md", long_text().encode())])
    assert reply.item is not None
    with pytest.raises(StateConflict, match=r"'long\.md' has no text yet"):
        shelves.text(base, reply.item)
    rig.work()
    whole = shelves.text(base, reply.item)
    assert (whole.title, whole.length, whole.following) == (reading.title, len(reading.text), None)
    assert len(whole.text) == whole.length
    assert whole.text.split() == reading.text.split()
    differs = [n for n, (ours, theirs) in enumerate(zip(whole.text, reading.text, strict=True)) if ours != theirs]
    assert all(reading.text[n].isspace() and whole.text[n] == "\n" for n in differs)
    parts, start = [], 0
    while True:
        part = shelves.text(base, reply.item, start=start, limit=777)
        parts.append(part.text)
        if part.following is None:
            break
        start = part.following
    assert "".join(parts).split() == reading.text.split()
    assert len("".join(parts)) == whole.length
    assert shelves.text(base, reply.item, start=whole.length + 5).text == ""
    for wrong in ({"start": -1}, {"limit": 0}, {"limit": 10**9}):
        with pytest.raises(BadRequest):
            shelves.text(base, reply.item, **wrong)


def test_a_passage_opens_with_the_text_around_it(rig: Rig, shelves: DocumentQueries) -> None:
    base = rig.library.catalog.create_base("small", BaseSettings(indexes=("fulltext",), chunk_size=64))
    base = rig.library.bases.change(base, BaseSettings(indexes=("fulltext",), chunk_size=64, chunk_overlap=16)).base
    (reply,) = rig.library.adder.put(base, [Upload("long.md", long_text().encode())])
    assert reply.item is not None
    rig.work()
    whole = shelves.text(base, reply.item).text
    for one in rig.library.items.chunks(base, reply.item):
        opened = shelves.passage(base, reply.item, one.chunk, around=100)
        assert (opened.text, opened.start, opened.headings) == (one.text, one.start, one.headings)
        around = opened.before + opened.text + opened.after
        wanted = whole[max(0, one.start - 100) : one.end + 100]
        assert around.split() == wanted.split()
        assert len(around) == len(wanted)
    with pytest.raises(StateConflict, match=r"'long\.md' no longer has passage 1000000000"):
        shelves.passage(base, reply.item, 10**9)
    with pytest.raises(BadRequest):
        shelves.passage(base, reply.item, 1, around=-1)


def test_a_passage_of_an_older_text_opens_while_an_index_serves_it(rig: Rig, shelves: DocumentQueries) -> None:
    item = put(rig, "whales.md", WHALES)
    rig.work()
    (old,) = rig.library.items.chunks(rig.base, item)
    rig.put("whales.md", "# Stones\n\nGranite is hard.\n")
    rig.worker.run_next(1)  # builds only the content
    assert "krill" in shelves.passage(rig.base, item, old.chunk).text
    rig.work()
    with pytest.raises(StateConflict):
        shelves.passage(rig.base, item, old.chunk)
    assert "Granite" in shelves.text(rig.base, item).text


def test_a_passage_of_an_older_text_does_not_open_when_only_removed_indexes_have_it(rig: Rig) -> None:
    item = put(rig, "whales.md", WHALES)
    rig.work()
    (old,) = rig.library.items.chunks(rig.base, item)
    rig.put("whales.md", "# Stones\n\nGranite is hard.\n")
    rig.worker.run_next(1)  # builds only the content
    change(rig, "UPDATE slots SET state = 'deleting' WHERE kind <> 'content'")
    with pytest.raises(StateConflict):
        rig.library.document_queries.passage(rig.base, item, old.chunk)


STATES = [None, *(status for status in Status if status is not Status.DELETING)]
ITEMS = st.lists(
    st.tuples(
        st.integers(0, 5),  # index of its container, limited to the number of containers
        st.sampled_from(["file", "file", "url", "directory"]),
        st.sampled_from(STATES),
        st.sampled_from([None, None, None, *STATES]),
        st.integers(0, 12),  # 0 means hidden
        st.sampled_from(["Alpha", "beta", "GAMMA", "delta 1", "Epsilon"]),
    ),
    max_size=14,
)
ASKED = st.fixed_dictionaries(
    {
        "states": st.none() | st.lists(st.sampled_from(sorted(Status)), max_size=4),
        "text": st.none() | st.sampled_from(["a", "TA", "1", "zzz"]),
        "kinds": st.none() | st.lists(st.sampled_from(["file", "directory", "url"]), max_size=2),
        "order": st.sampled_from(list(Order)),
        "reverse": st.booleans(),
        "inside": st.none() | st.integers(0, 5),
        "size": st.integers(1, 6),
    }
)


class Reference:
    """The same lists in plain Python, derived from items and the statuses of their owners."""

    def __init__(self, rig: Rig, base: Base, rows: list[Any]) -> None:
        self.items: list[ItemWithStatus] = []
        holders = [0]
        for place, kind, document, source, hidden, name in rows:
            parent = holders[min(place, len(holders) - 1)]
            kind_ = ItemKind(kind)
            upload = Upload(f"{name} {len(self.items)}", kind=kind_, parent=parent, source="x" if source else None)
            (reply,) = rig.library.adder.add(base, [upload], AddOptions(index=False))
            assert reply.item is not None
            owners = [
                (str(reply.item), None if kind_ is ItemKind.DIRECTORY else document),
                (f"source:{reply.item}", source),
            ]
            change(
                rig,
                f"UPDATE library_items SET size = {len(self.items) % 3}, changed_at = {len(self.items) % 4} "  # noqa: S608
                f"WHERE id = {reply.item}",
                *(
                    "INSERT INTO owners (base, owner, generation, status, created_at) "  # noqa: S608
                    f"VALUES ('{base.id}', '{owner}', 1, '{status}', 0)"
                    for owner, status in owners
                    if status
                ),
            )
            if not hidden and kind_ is not ItemKind.DIRECTORY:
                change(rig, f"UPDATE library_items SET deleting = 1 WHERE id = {reply.item}")  # noqa: S608
                continue
            with rig.store.database.reading() as tx:
                (item,) = read_items(tx, [reply.item])
            self.items.append(ItemWithStatus(item, owners[0][1], source))
            holders += [reply.item] if item.is_container else []
        self.holders = holders

    def status(self, one: ItemWithStatus) -> Status:
        if not one.item.is_container:
            return one.status
        tree, ids_ = [one], {one.item.id}
        for other in self.items:  # parents come before children
            if other.item.parent in ids_:
                tree.append(other)
                ids_.add(other.item.id)
        return derive_tree_status(tree)

    def list(self, parent: int | None, asked: dict[str, Any]) -> list[int]:
        found = [
            one
            for one in self.items
            if (parent is None or one.item.parent == parent)
            and (asked["states"] is None or self.status(one) in asked["states"])
            and (asked["kinds"] is None or one.item.kind in asked["kinds"])
            and fold_name(asked["text"] or "") in fold_name(one.item.name)
        ]
        keys = {
            Order.ACTIVE: lambda one: (
                {S.INDEXING: 0, S.QUEUED: 0, S.FAILED: 1}.get(self.status(one), 2),
                -one.item.id,
            ),
            Order.NAME: lambda one: (fold_name(one.item.name), one.item.id),
            Order.SIZE: lambda one: (-one.item.size, -one.item.id),
            Order.CHANGED: lambda one: (-one.item.changed_at, -one.item.id),
        }
        ordered = sorted(found, key=keys[asked["order"]])  # type: ignore[arg-type,unused-ignore]
        return [one.item.id for one in (ordered[::-1] if asked["reverse"] else ordered)]


@pytest.mark.parametrize("limit", [MAX_COUNT, 3])
def test_every_list_equals_a_plain_python_reference(rig: Rig, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    numbers = itertools.count()
    shelves = rig.library.document_queries
    monkeypatch.setattr(lists, "MAX_COUNT", limit)  # pages keep their numbers

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(rows=ITEMS, questions=st.lists(ASKED, min_size=4, max_size=4))
    def compare(rows: list[Any], questions: list[dict[str, Any]]) -> None:
        base = rig.library.catalog.create_base(f"base {next(numbers)}", BaseSettings())
        reference = Reference(rig, base, rows)
        audit_standings(rig)
        every = {one.item.id: reference.status(one) for one in reference.items}
        assert {one.id: one.status for one in shelves.statuses(base, every)} == every
        for asked in questions:
            asked["reverse"] = asked["reverse"] and asked["order"] is not Order.ACTIVE
            inside = asked.pop("inside")
            parent = None if inside is None else reference.holders[min(inside, len(reference.holders) - 1)]
            wanted = reference.list(parent, asked)
            filter_ = DocumentFilter(parent=parent, states=asked["states"], kinds=asked["kinds"], text=asked["text"])
            order = {"order": asked["order"], "reverse": asked["reverse"]}
            by_number: list[int] = []
            by_cursor: list[int] = []
            cursor = None
            for page in range(1, 20):
                numbered = shelves.list(base, filter_, page=page, **order)
                by_number += ids(numbered)
                assert numbered.total is not None
                if numbered.total_is_exact:
                    assert numbered.total == len(wanted), asked
                else:
                    assert limit <= numbered.total <= len(wanted), asked
                if page == 1 or cursor is not None:
                    more = shelves.list(base, filter_, cursor=cursor, **order)
                    by_cursor, cursor = by_cursor + ids(more), more.next_cursor
                if not numbered.items:
                    break
            assert by_number == by_cursor == wanted, asked

    compare()


def test_a_page_of_a_hundred_times_as_many_documents_costs_at_most_twice_as_much(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_COUNT", 50)
    shelves, catalogue = rig.library.document_queries, rig.library.catalog
    few, many = catalogue.create_base("few", BaseSettings()), catalogue.create_base("many", BaseSettings())
    fill(rig, few, 100)
    fill(rig, many, 10_000)
    if rig.store.database.engine.dialect.name == "postgresql":
        with rig.store.database.autocommit() as tx:
            tx.run_sql("VACUUM ANALYZE")
    ways: list[dict[str, Any]] = [
        {},
        {"filter_": DocumentFilter(parent=0)},
        *({"order": order} for order in Order if order is not Order.ACTIVE),
    ]
    with counting_reads(rig.store.database) as cost:
        for how in ways:
            for base in (few, many):
                assert len(shelves.list(base, **how).items) == 50
            costs = [cost(partial(shelves.list, base, **how)) for base in (few, many)]
            assert 0 < costs[1] <= 2 * costs[0], (how, costs)


def test_a_folder_with_thousands_of_documents_has_the_right_status(rig: Rig) -> None:
    holder = folder(rig, "folder")
    fill(rig, rig.base, 3_000, parent=holder)
    page = rig.library.document_queries.list(rig.base, DocumentFilter(parent=0))
    assert [(row.id, row.status, row.searchable) for row in page.items] == [(holder, S.QUEUED, True)]
    rig.library.operations.request(rig.base, [holder], Action.CANCEL)
    (one,) = rig.library.document_queries.statuses(rig.base, [holder])
    assert one.status is S.DEGRADED
