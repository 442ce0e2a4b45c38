"""Bugs that other document indexing systems had do not occur here; docs/rules.md names the systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.repository import ItemKind
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.engine.admission import Verdict
from holdfast.engine.states import Operation, Outcome, SlotState, Status
from holdfast.engine.store.base import Release
from holdfast.indexes.graph.index import MERGING_OWNER
from holdfast.indexes.graph.merging import MERGING, request_merge
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.audit import audit, audit_quiet
from tests.support.harness import Rig
from tests.support.paid_provider import BAD_KEY, PaidProvider
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

    Make = Callable[..., Rig]

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
NO_TEXT = " \n"


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Make]:
    """Make a base with the given indexes; the default is full text, which costs nothing."""
    made: list[Rig] = []

    def make(*indexes: str, **more: Any) -> Rig:
        made.append(Rig(database_url, tmp_path / "blobs", clock, indexes=indexes or ("fulltext",), **more))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def embedder(paid: PaidProvider) -> Iterator[OpenAIProvider]:
    provider = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model))
    yield provider
    provider.close()


def settle(rig: Rig) -> None:
    rig.work()
    for _ in range(50):
        if not rig.library.sweep(100):
            return
        rig.work()
    raise AssertionError("there is always something left to sweep")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_without_text_fails_with_a_reason(make: Make) -> None:
    rig = make()
    reply = rig.put("empty.md", NO_TEXT)
    rig.work()
    assert rig.owner("empty.md").status is Status.FAILED
    assert rig.slot("empty.md", "content").error_code == "no_text"
    assert rig.slot("empty.md", "fulltext").state is SlotState.FAILED
    assert rig.store.job(reply.job or "").outcome is Outcome.FAILED


def test_a_failed_document_can_be_retried_any_number_of_times(make: Make) -> None:
    rig = make()
    jobs = {rig.put("empty.md", NO_TEXT).job}
    rig.work()
    for generation in range(2, 8):  # more often than the attempt limit of one generation
        reply = rig.ask("empty.md", Operation.RETRY)
        assert (reply.verdict, reply.generation) == (Verdict.ACCEPTED, generation)
        jobs.add(reply.job)
        rig.work()
        assert rig.owner("empty.md").status is Status.FAILED
    assert len(jobs) == 7
    assert {rig.store.job(job or "").outcome for job in jobs} == {Outcome.FAILED}


def test_a_failed_index_does_not_affect_the_others_and_is_retried_alone(
    make: Make, paid: PaidProvider, embedder: OpenAIProvider
) -> None:
    rig = make("fulltext", "vector", provider=embedder)
    paid.always(BAD_KEY)
    job = rig.put("whales.md", WHALES).job or ""
    rig.work()
    assert (rig.owner("whales.md").status, rig.store.job(job).outcome) == (Status.DEGRADED, Outcome.DEGRADED)
    assert len(rig.find("krill")) == 1
    paid.always(None)
    assert rig.ask("whales.md", Operation.RETRY).accepted
    rig.work()
    built = {slot.kind: slot.built for slot in rig.owner("whales.md").slots}
    assert built == {"content": 1, "fulltext": 1, "vector": 2}
    assert rig.owner("whales.md").status is Status.SUCCESS
    audit(rig)


def test_cancelling_one_document_of_a_folder_affects_no_other_and_is_not_a_failure(make: Make) -> None:
    rig = make()
    (docs,) = rig.library.adder.add(rig.base, [Upload("docs", kind=ItemKind.DIRECTORY)])
    uploads = [Upload(f"{number}.md", b"krill %d" % number, parent=docs.item or 0) for number in range(3)]
    one, two, three = rig.library.adder.add(rig.base, uploads, AddOptions())
    assert rig.library.operations.request(rig.base, [two.item or 0], Action.CANCEL)[0].accepted
    rig.work()
    assert sorted(hit.document for hit in rig.find("krill")) == [one.item, three.item]
    assert rig.store.job(two.job or "").outcome is Outcome.CANCELLED
    assert rig.library.items.status(rig.base, two.item or 0) is Status.NOT_INDEXED


def test_queued_work_of_a_deleted_document_is_neither_done_nor_paid_for(
    make: Make, paid: PaidProvider, embedder: OpenAIProvider
) -> None:
    rig = make("vector", provider=embedder)
    job = rig.put("whales.md", WHALES).job or ""
    rig.delete("whales.md")
    assert rig.store.job(job).outcome is Outcome.DELETED
    settle(rig)
    assert paid.bill.calls == 0
    assert "slot.completed" not in {one.event.type for one in rig.store.events()}
    assert (rig.count("items"), rig.count("owners"), files(rig.folder)) == (0, 0, [])


def test_a_document_is_deleted_added_and_changed_while_its_neighbour_is_indexed(make: Make) -> None:
    rig = make()
    for number in range(3):
        rig.index(f"{number}.md", f"krill {number}")
    rig.ask("0.md", Operation.FORCE)
    (held,) = rig.store.claim_next(["content"], "somebody", 1)
    assert rig.delete("1.md")[0].accepted
    assert rig.put("2.md", STONES).accepted
    assert rig.put("3.md", "Quartz is common.").accepted
    settle(rig)
    assert [len(rig.find(word)) for word in ("krill", "granite", "quartz")] == [1, 1, 1]
    assert rig.count("items") == 3
    assert rig.slot("0.md", "content").state is SlotState.RUNNING
    rig.store.release([Release(ticket=held)])
    settle(rig)
    audit_quiet(rig)


def test_a_document_whose_update_failed_is_deleted_completely(
    make: Make, paid: PaidProvider, embedder: OpenAIProvider
) -> None:
    rig = make("fulltext", "vector", provider=embedder, chunk_size=48, chunk_overlap=0)
    parts = [f"## Part {number}\n\nThe krill of part {number} drifts. " + "More of it. " * 9 for number in range(8)]
    rig.index("parts.md", "\n\n".join(parts))
    paid.always(BAD_KEY)
    rig.index("parts.md", "\n\n".join(part.replace("krill", "squid") for part in parts))
    paid.always(None)
    assert rig.owner("parts.md").status is Status.DEGRADED
    assert rig.find("krill", "vector")  # one index serves the old list, the other serves the new one
    assert rig.find("squid")
    rig.delete("parts.md")
    settle(rig)
    left = {table: rig.count(table) for table in ("items", "builds", "lists", "chunks", "memos", "slots", "owners")}
    assert left == dict.fromkeys(left, 0)
    assert [rig.rows(kind) for kind in ("fulltext", "vector")] == [[], []]
    audit_quiet(rig)


def test_files_are_read_and_removed_at_the_new_path_after_the_data_folder_was_moved(
    make: Make, tmp_path: Path, clock: FakeClock
) -> None:
    rig = make()
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    moved = rig.folder.rename(tmp_path / "elsewhere")
    numbers = Settings(database=rig.store.database.engine.url.render_as_string(), data=str(moved))
    rig.library, rig.folder = Library(rig.store, numbers, clock=clock), moved
    rig.indexers = rig.library.indexers()
    rig.worker = rig.hire("worker")
    assert rig.ask("whales.md", Operation.REINDEX).accepted
    rig.delete("stones.md")
    settle(rig)
    assert [hit.generation for hit in rig.find("krill")] == [2]
    assert len(files(moved)) == 1
    audit_quiet(rig)


def test_entities_removed_from_a_document_disappear_from_the_graph(make: Make) -> None:
    rig = make("graph")

    def names() -> set[str]:
        return {entity.key for entity in rig.library.graph_queries.list_entities(rig.base, 100)}

    rig.index("people.md", "# Meeting\n\nMara Lindqvist met Olof Palme in Malmö.\n")
    assert "mara lindqvist" in names()
    rig.index("people.md", "# Meeting\n\nAda Lovelace met Olof Palme in Malmö.\n")
    assert "ada lovelace" in names()
    assert "mara lindqvist" not in names()
    settle(rig)
    assert "mara lindqvist" not in names()
    audit_quiet(rig)


def test_a_document_is_complete_while_descriptions_are_still_being_merged(make: Make) -> None:
    rig = make("graph")
    rig.index("one.md", "# Meeting\n\nMara Lindqvist met Olof Palme in Malmö.\n")
    assert request_merge(rig.store, rig.base.key).accepted
    assert rig.store.claim_next([MERGING], "somebody", 1)
    rig.index("two.md", "# Letter\n\nMara Lindqvist wrote to Ada Lovelace.\n")
    assert rig.store.slot(rig.base.key, MERGING_OWNER, MERGING).state is SlotState.RUNNING
    assert {rig.owner(name).status for name in ("one.md", "two.md")} == {Status.SUCCESS}


def test_a_wake_up_is_sent_only_after_its_work_is_committed(
    make: Make, database_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make()
    other = open_test_store(database_url, clock)
    found: list[list[str]] = []

    def look() -> None:
        with other.database.reading() as tx:
            found.append([state for (state,) in tx.run_sql("SELECT state FROM slots WHERE kind = 'content'")])

    monkeypatch.setattr(rig.store, "wake", look)
    rig.put("whales.md", WHALES)
    assert found == [["queued"]]
    rig.work()
    rig.delete("whales.md")
    assert found[-1] == ["deleting"]
    other.close()
