"""The queries of the web page return correct jobs, overviews, graphs and details of documents."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.auth.principal import Caller, Scope
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.rules import Rules
from holdfast.engine.slot import Progress
from holdfast.engine.states import Operation, Status
from holdfast.engine.store.base import LeaseRenewal
from holdfast.errors import BadRequest, UnknownBase, UnknownEntity, UnknownItem
from holdfast.indexes.statements import NOTE_MISSING
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.llm.paid_cache import Charge
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.harness import Rig
from tests.support.paid_provider import BROKEN, REFUSED, PaidProvider
from tests.support.processes import until
from tests.support.question_harness import QuestionRig, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

HOUR = timedelta(hours=1)


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    made = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext", "graph"))
    yield made
    made.close()


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as provider:
        yield provider


def seen_by_key(rig: Rig, *bases: str) -> LocalService:
    """Return the service as seen by a key that is limited to the given bases."""
    ids = frozenset(rig.library.catalog.find_base(base).id for base in bases)
    return LocalService(rig.library, Caller(key_id=1, name="key", scope=Scope.READ, bases=ids))


def test_jobs_show_the_names_of_their_documents_and_running_jobs_their_progress(rig: Rig) -> None:
    front = LocalService(rig.library, local_caller())
    whale, stone = rig.put("whale.md", "# Whale"), rig.put("stone.md", "# Stone")
    (ticket,) = rig.store.claim_next(["content"], "worker", 1)
    rig.store.extend(
        [
            LeaseRenewal(
                ticket=ticket, progress=Progress(stage="reading", step=1, steps=2, done=1, total=4), progressed=True
            )
        ]
    )
    listed = {job.document: job for job in front.jobs.list("shelf").items}
    assert {item: job.name for item, job in listed.items()} == {whale.item: "whale.md", stone.item: "stone.md"}
    running = listed[rig.library.items.find(rig.base, "whale.md").id]
    assert running.progress is not None
    assert (running.progress.stage, running.progress.share) == ("reading", 0.125)
    assert listed[stone.item or 0].progress is None
    assert front.jobs.get(str(whale.job)).name == "whale.md"
    assert front.jobs.get(str(whale.job)).progress == running.progress


def test_a_page_of_jobs_reads_all_names_in_one_query(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        rig.put(f"{number}.md", f"# {number}")
    asked: list[int] = []
    names = rig.library.document_queries.names

    def counting(ids: Any) -> dict[int, str]:
        asked.append(len(set(ids)))
        return names(ids)

    monkeypatch.setattr(rig.library.document_queries, "names", counting)
    assert len({job.name for job in LocalService(rig.library, local_caller()).jobs.list("shelf").items}) == 20
    assert asked == [20]


def test_the_jobs_of_a_document_are_listed_with_active_jobs_first(rig: Rig, clock: FakeClock) -> None:
    front = LocalService(rig.library, local_caller())
    rig.put("stone.md", "# Stone")
    whale = rig.put("whale.md", "# Whale").item
    rig.work()
    clock.advance(HOUR)
    assert whale is not None
    front.documents.reindex("shelf", whale)
    found = front.jobs.list("shelf", document=whale)
    assert [(job.state, job.name) for job in found.items] == [("queued", "whale.md"), ("success", "whale.md")]
    assert found.total == 2
    first = front.jobs.list("shelf", document=whale, size=1)
    (behind,) = front.jobs.list("shelf", document=whale, size=1, cursor=first.next_cursor).items
    assert behind.state == "success"
    assert front.jobs.list("shelf", document=whale, states=["success"]).total == 1
    assert front.jobs.list("shelf", document=10**9).items == []
    rig.library.catalog.create_base("attic", BaseSettings())
    assert front.jobs.list("attic", document=whale).items == []
    assert seen_by_key(rig, "attic").jobs.list(document=whale).total == 0
    with pytest.raises(BadRequest, match="Name the base of the document") as refused:
        front.jobs.list(document=whale)
    assert refused.value.subcode == "document_without_base"


def test_jobs_show_the_name_of_a_document_until_it_is_removed(rig: Rig) -> None:
    front = LocalService(rig.library, local_caller())
    rig.index("whale.md", "# Whale")
    rig.delete("whale.md")
    assert {job.name for job in front.jobs.list("shelf").items} == {"whale.md"}
    rig.work()
    rig.library.sweep(100)
    assert {job.name for job in front.jobs.list("shelf").items} == {""}


def test_the_statuses_of_many_documents_include_names_and_kinds(rig: Rig) -> None:
    whale = rig.put("whale.md", "# Whale").item
    (one,) = LocalService(rig.library, local_caller()).documents.statuses("shelf", [whale or 0])
    assert (one.id, one.name, one.kind, one.status) == (whale, "whale.md", "file", "queued")


def test_the_overview_counts_only_the_bases_that_the_caller_may_read(rig: Rig, clock: FakeClock) -> None:
    attic = rig.library.catalog.create_base("attic", BaseSettings(indexes=("fulltext",)))
    rig.put("whale.md", "# Whale")
    rig.put("whale.md", "# Whale")  # a duplicate: no new work
    LocalService(rig.library, local_caller()).documents.note("attic", "n", "text")
    paid = Charge(kind="query", model="m@1", texts=1, tokens_in=5, tokens_out=2, price=0.5)
    rig.library.paid_cache.reserve(rig.base, [(None, paid)])
    rig.library.paid_cache.reserve(attic, [(None, Charge(kind="query", model="m@1", texts=1, tokens_in=9, paid=False))])
    rig.work()
    clock.advance(HOUR)
    rig.put("stone.md", "# Stone")
    every = LocalService(rig.library, local_caller()).overview()
    assert (every.bases, every.documents.documents, every.documents.by_status[Status.SUCCESS]) == (2, 3, 2)
    assert (every.queue.active, every.queue.ended) == ({"queued": 1}, {"success": 2})
    assert (every.tokens_spent, every.tokens_saved, every.price_spent, every.price_saved) == (7, 9, 0.5, None)
    assert every.duplicates == 1
    one = seen_by_key(rig, "attic").overview()
    assert (one.bases, one.documents.documents, one.documents.by_status[Status.QUEUED]) == (1, 1, 0)
    assert (one.queue.active, one.queue.ended, one.queue.oldest_queued) == ({}, {"success": 1}, None)
    assert (one.tokens_spent, one.tokens_saved, one.duplicates) == (0, 9, 0)
    assert sum(bucket.success for bucket in one.series) == 1
    both = seen_by_key(rig, "attic", "shelf").overview()
    assert (both.documents, both.queue, both.series) == (every.documents, every.queue, every.series)
    nobody = LocalService(rig.library, Caller(key_id=1, name="", scope=Scope.READ, bases=frozenset({77}))).overview()
    assert (nobody.bases, nobody.documents.documents, nobody.queue.ended, nobody.workers) == (0, 0, {}, 0)


def test_the_series_counts_ended_jobs_by_time_and_outcome(rig: Rig, clock: FakeClock) -> None:
    front = LocalService(rig.library, local_caller())
    rig.index("a.md", "# A")
    clock.advance(HOUR)
    rig.put("broken.pdf", b"%PDF-1.4 nothing")
    rig.work()
    clock.advance(HOUR - timedelta(seconds=1))
    front.jobs.cancel(str(rig.put("b.md", "# B").job))
    series = front.overview().series
    begins = datetime.fromtimestamp(1_800_000_000, UTC)
    assert [bucket.at for bucket in series] == [begins + (step - 22) * HOUR for step in range(24)]
    assert [(one.success, one.degraded, one.failed, one.cancelled, one.other) for one in series[-2:]] == [
        (1, 0, 0, 0, 0),
        (0, 0, 1, 1, 0),
    ]
    assert all((one.success, one.failed, one.cancelled) == (0, 0, 0) for one in series[:-2])
    shorter = front.overview(hours=1).series
    assert (len(shorter), shorter[1].at - shorter[0].at) == (24, timedelta(minutes=2.5))
    assert sum(one.cancelled for one in shorter) == 1
    clock.advance(30 * HOUR)
    assert sum(one.success + one.failed + one.cancelled for one in front.overview().series) == 0
    for hours in (0, 721):
        with pytest.raises(BadRequest, match="1 to 720 hours"):
            front.overview(hours)


def test_superseded_and_deleted_jobs_are_counted_as_other(rig: Rig) -> None:
    front = LocalService(rig.library, local_caller())
    rig.put("a.md", "# A")
    rig.delete("a.md")
    rig.work()
    assert sum(one.other for one in front.overview().series) == 1


def test_workers_with_a_valid_lease_are_counted_as_working(rig: Rig, clock: FakeClock) -> None:
    rig.library.catalog.create_base("attic", BaseSettings(indexes=("fulltext",)))
    for name in "abc":
        rig.put(f"{name}.md", f"# {name}")
    for holder in ("one", "one", "two"):
        assert rig.store.claim_next(["content"], holder, 1)
    assert LocalService(rig.library, local_caller()).overview().working == 2
    assert seen_by_key(rig, "shelf").overview().working == 2
    assert seen_by_key(rig, "attic").overview().working == 0
    clock.advance(HOUR)
    assert LocalService(rig.library, local_caller()).overview().working == 0


def test_a_worker_is_counted_until_it_unregisters_or_its_registration_expires(rig: Rig, clock: FakeClock) -> None:
    front, lease = LocalService(rig.library, local_caller()), rig.store.rules.lease
    for holder in ("one", "two", "three", "one"):
        rig.store.register_worker(holder)
    assert (front.overview().workers, front.overview().working) == (3, 0)
    rig.store.unregister_worker("two")
    assert front.overview().workers == 2
    clock.advance(lease / 2)
    rig.store.register_worker("three")
    clock.advance(lease / 2)
    assert front.overview().workers == 1  # the first worker was killed without unregistering
    clock.advance(lease * 10)
    rig.store.register_worker("four")
    with rig.store.database.reading() as tx:
        assert tx.run_sql("SELECT holder FROM workers") == [("four",)]  # expired workers leave no rows


def test_a_heartbeat_registers_its_worker_and_unregisters_it_when_it_stops(rig: Rig) -> None:
    heartbeat = Heartbeat(rig.store, SystemClock(), Rules(heartbeat=timedelta(milliseconds=10)), "ann")
    heartbeat.start()
    until(rig.store.count_workers, "the first word of the worker")
    heartbeat.stop()
    assert rig.store.count_workers() == 0


ISLAND = "# Grey Island\n\nGrey Island has a lighthouse. Mara Lund kept the light of Grey Island."
KEEPER = "# Mara Lund\n\nMara Lund was born on Grey Island. She wrote to Tom Reed."
FRIEND = "# Tom Reed\n\nTom Reed sailed with Mara Lund to Port Ellen."


@pytest.fixture
def drawn(rig: Rig) -> Rig:
    for name, text in (("island.md", ISLAND), ("keeper.md", KEEPER), ("friend.md", FRIEND)):
        rig.put(name, text)
    rig.work()
    return rig


def test_the_graph_shows_the_most_mentioned_entities_and_the_edges_between_them(drawn: Rig) -> None:
    view = LocalService(drawn.library, local_caller()).asking.graph("shelf")
    assert (view.nodes[0].key, view.nodes[0].name, view.nodes[0].documents) == ("mara lund", "Mara Lund", 3)
    weights = {(edge.source, edge.target): edge.weight for edge in view.edges}
    assert weights["grey island", "mara lund"] == 2
    assert [edge.weight for edge in view.edges] == sorted(weights.values(), reverse=True)
    keys = {node.key for node in view.nodes}
    assert all(edge.source in keys and edge.target in keys for edge in view.edges)
    assert not view.cut
    cut = LocalService(drawn.library, local_caller()).asking.graph("shelf", limit=2)
    assert ([node.key for node in cut.nodes], cut.cut) == (["mara lund", "grey island"], True)
    assert [(edge.source, edge.target) for edge in cut.edges] == [("grey island", "mara lund")]


def test_the_graph_around_an_entity_shows_neighbours_up_to_the_given_depth(drawn: Rig) -> None:
    asking = LocalService(drawn.library, local_caller()).asking
    near = {node.key for node in asking.graph("shelf", around="port ellen").nodes}
    assert {"port ellen", "tom reed", "mara lund"} <= near
    assert "grey island" not in near
    assert "grey island" in {node.key for node in asking.graph("shelf", around="port ellen", depth=2).nodes}
    cut = asking.graph("shelf", around="port ellen", limit=2)
    assert (len(cut.nodes), "port ellen" in {node.key for node in cut.nodes}, cut.cut) == (2, True, True)
    with pytest.raises(UnknownEntity):
        asking.graph("shelf", around="nobody")
    for limit, depth in ((0, 1), (1001, 1), (1, 0), (1, 4)):
        with pytest.raises(BadRequest):
            asking.graph("shelf", limit=limit, depth=depth)


def test_the_evidence_of_an_edge_lists_the_passages_that_mention_both_entities(drawn: Rig) -> None:
    front = LocalService(drawn.library, local_caller())
    places = front.asking.evidence("shelf", "mara lund", "grey island")
    assert sorted(place.name for place in places) == ["island.md", "keeper.md"]
    for place in places:
        assert front.documents.passage("shelf", place.document, place.chunk).text == place.text
    assert front.asking.evidence("shelf", "grey island", "port ellen") == []
    assert front.asking.evidence("shelf", "grey island", "nobody") == []
    assert len(front.asking.evidence("shelf", "mara lund", "grey island", limit=1)) == 1


def test_a_deleted_document_disappears_from_the_graph_immediately(drawn: Rig) -> None:
    asking = LocalService(drawn.library, local_caller()).asking
    drawn.delete("friend.md")
    view = asking.graph("shelf")
    assert "port ellen" not in {node.key for node in view.nodes}
    assert "Port Ellen" not in repr(view)
    with pytest.raises(UnknownEntity):
        asking.graph("shelf", around="port ellen")
    assert asking.evidence("shelf", "tom reed", "port ellen") == []
    drawn.delete("island.md")
    weights = {(edge.source, edge.target): edge.weight for edge in asking.graph("shelf").edges}
    assert weights["grey island", "mara lund"] == 1


def kept(request: dict[str, Any]) -> str:
    """Return a relation only for texts that contain `kept`."""
    text = request["messages"][-1]["content"]
    entities = [{"name": name, "kind": "thing", "description": "x"} for name in ("Grey Island", "Mara Lund")]
    joined = {"source": "Mara Lund", "target": "Grey Island", "label": "kept", "description": "She kept its light."}
    return json.dumps({"entities": entities, "relations": [joined] if "kept" in text else []})


def test_an_edge_has_the_relation_of_the_model_while_its_source_exists(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    paid.reply = kept
    speaker = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, chat_model=paid.chat_model))
    rig = Rig(database_url, tmp_path / "blobs", clock, speaker=speaker, indexes=("graph",))
    rig.index("keeper.md", KEEPER)
    rig.index("island.md", ISLAND)
    front = LocalService(rig.library, local_caller())
    (edge,) = [one for one in front.asking.graph("shelf").edges if one.kind]
    assert (edge.source, edge.target, edge.kind, edge.weight) == ("grey island", "mara lund", "kept", 2)
    places = front.asking.evidence("shelf", "grey island", "mara lund")
    assert [place.name for place in places] == ["island.md", "keeper.md"], "what states the relation comes first"
    assert [place.name for place in front.asking.evidence("shelf", "grey island", "mara lund", limit=1)] == [
        "island.md"
    ]
    rig.delete("island.md")
    left = {(one.source, one.target): (one.kind, one.weight) for one in front.asking.graph("shelf").edges}
    assert left["grey island", "mara lund"] == ("", 1)
    assert {kind for kind, _ in left.values()} == {""}
    speaker.close()
    rig.close()


def test_a_document_lists_its_entities_by_number_of_mentions(rig: Rig) -> None:
    rig.put("other.md", FRIEND)
    item = rig.put("island.md", ISLAND + "\n\n" + "\n\n".join(f"## Part {n}\n\n{'word ' * 400}" for n in range(2))).item
    rig.work()
    found = LocalService(rig.library, local_caller()).dossiers.entities("shelf", item or 0)
    named = {one.key: (one.name, one.mentions) for one in found}
    assert named["grey island"][0] == "Grey Island"
    assert "port ellen" not in named
    assert [one.mentions for one in found] == sorted((one.mentions for one in found), reverse=True)
    rig.delete("island.md")
    with pytest.raises(UnknownItem):
        LocalService(rig.library, local_caller()).dossiers.entities("shelf", item or 0)


def test_entities_of_missing_chunks_are_neither_listed_nor_drawn(rig: Rig) -> None:
    item = rig.put("island.md", ISLAND).item or 0
    rig.work()
    front = LocalService(rig.library, local_caller())
    (chunk,) = [chunk.chunk for chunk in front.documents.chunks("shelf", item).items]
    slot = rig.slot("island.md", "graph").id
    assert front.dossiers.entities("shelf", item)
    rig.store.database.write(lambda tx: tx.run(NOTE_MISSING, [[slot, chunk, "{}"]]), durable=True)
    assert front.dossiers.entities("shelf", item) == []
    assert front.asking.graph("shelf").nodes == []


def test_the_questions_of_a_document_are_listed_in_pages(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid)
    rig.index("other.md", sections(2, word="squid"))
    rig.index("krill.md", sections(5))
    item = rig.library.items.find(rig.base, "krill.md").id
    dossiers = LocalService(rig.library, local_caller()).dossiers
    first = dossiers.cards("shelf", item, limit=3)
    rest = dossiers.cards("shelf", item, limit=3, cursor=first.next_cursor)
    cards = [*first.items, *rest.items]
    assert [card.question for card in cards] == [f"Which crustacean lives in part {number}?" for number in range(5)]
    assert [card.place for card in cards] == [1, 2, 3, 4, 5]
    assert {(card.document, card.name) for card in cards} == {(item, "krill.md")}
    assert "The krill of part 4" in cards[4].passage
    assert rest.next_cursor is None
    spent = dossiers.usage("shelf", item)
    assert (spent.document, spent.name) == (item, "krill.md")
    assert spent.saved.texts == 2  # the other document shares two of the questions
    assert {one.kind: one.texts for one in spent.kinds_spent}["questions"] == 5
    assert spent.spent.tokens_in > 0
    whole = LocalService(rig.library, local_caller()).accounts.usage("shelf")
    assert spent.spent.tokens_in < whole.spent.tokens_in
    with pytest.raises(BadRequest):
        dossiers.cards("shelf", item, cursor="nonsense")
    rig.close()


def test_missing_chunks_are_listed_for_each_index_as_served(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("vector", "questions"), missing_share=0.2)
    dossiers = LocalService(rig.library, local_caller()).dossiers
    paid.refuses["poison"] = REFUSED
    bad = {4: "The poison of part 4 is one of 20.", 11: "More poison."}
    rig.index("other.md", sections(20, but={3: "Another poison."}, word="squid"))
    rig.index("parts.md", sections(20, but=bad))
    item = rig.library.items.find(rig.base, "parts.md").id

    def named() -> list[tuple[str, int]]:
        return [(one.index, one.ordinal) for one in dossiers.missing("shelf", item)]

    assert named() == [(kind, ordinal) for kind in ("vector", "questions") for ordinal in (4, 11)]
    assert {one.problem.code for one in dossiers.missing("shelf", item)} == {"content_refused"}
    assert [one.ordinal for one in dossiers.missing("shelf", item, limit=3)] == [4, 11, 4]

    new = "## Something new\n\n" + "It was not there before. " * 4
    rig.put("parts.md", sections(20, but=bad).replace("## Part 1\n", f"{new}\n\n## Part 1\n", 1))
    rig.worker.run_next(1)  # the content is built, and both lists contain these chunks
    assert named()[:2] == [("vector", 4), ("vector", 11)], "what is served is the old content"
    rig.work()
    assert named()[:2] == [("vector", 5), ("vector", 12)]

    rig.library.bases.change(rig.base, BaseSettings(indexes=("vector",), chunk_size=48, chunk_overlap=0))
    rig.worker.run_next(1)
    assert rig.slot("parts.md", "questions").state == "deleting"
    assert named() == [("vector", 5), ("vector", 12)], "an index that is dropped serves nothing"
    paid.refuses.clear()
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert named() == []
    rig.delete("parts.md")
    with pytest.raises(UnknownItem):
        named()
    rig.close()


def test_a_missing_chunk_is_shown_without_the_text_that_overlaps_the_chunk_before(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    settings: dict[str, Any] = {"chunk_size": 64, "chunk_overlap": 16, "missing_share": 1.0}
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("vector",), **settings)
    paid.refuses["poison"] = REFUSED
    rig.index("log.md", " ".join(f"Line {n} has {'poison' if n % 9 == 8 else 'nothing'} in it." for n in range(80)))
    front = LocalService(rig.library, local_caller())
    item = rig.library.items.find(rig.base, "log.md").id
    chunks = front.documents.chunks("shelf", item).items
    found = front.dossiers.missing("shelf", item)
    repeated = 0
    for one in found:
        before, chunk = chunks[one.ordinal - 1], chunks[one.ordinal]
        assert (one.chunk, one.start, one.end) == (chunk.chunk, chunk.start, chunk.end)
        repeated += before.end > chunk.start
        assert chunk.text[max(0, before.end - chunk.start) :].strip().startswith(one.text)
    assert repeated
    rig.close()


def test_the_history_of_a_document_lists_requests_attempts_and_outcomes(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    provider = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model))
    rig = Rig(database_url, tmp_path / "blobs", clock, provider, indexes=("vector",))
    front = LocalService(rig.library, local_caller())
    paid.refuses["whale"] = BROKEN
    item = rig.put("whale.md", "# whale", requester="anna").item
    assert item is not None
    rig.work()
    paid.refuses.clear()
    clock.advance(timedelta(days=1))
    rig.work()
    clock.advance(HOUR)
    front.documents.reindex("shelf", item)
    told = [
        (one.what, one.kind, one.generation, one.attempt, one.problem.code if one.problem else None)
        for one in reversed(front.dossiers.history("shelf", item))
    ]
    assert told == [
        ("added", None, None, None, None),
        ("accepted", None, 1, None, None),
        ("claimed", "content", 1, 1, None),
        ("ready", "content", 1, 1, None),
        ("claimed", "vector", 1, 1, None),
        ("postponed", "vector", 1, 1, "provider_busy"),
        ("claimed", "vector", 1, 2, None),
        ("ready", "vector", 1, 2, None),
        ("success", None, 1, None, None),
        ("accepted", None, 2, None, None),
    ]
    history = front.dossiers.history("shelf", item)
    assert [one.at for one in history] == sorted((one.at for one in history), reverse=True)
    assert (history[1].seconds, history[1].operation, history[1].requester) == (86_400.0, "change", "anna")
    assert history[0].operation == "reindex"
    assert [one.what for one in front.dossiers.history("shelf", item, limit=2)] == ["accepted", "success"]
    provider.close()
    rig.close()


def test_a_permanent_failure_has_a_readable_message(rig: Rig) -> None:
    rig.put("broken.pdf", b"%PDF-1.4 nothing")
    rig.work()
    item = rig.library.items.find(rig.base, "broken.pdf").id
    history = LocalService(rig.library, local_caller()).dossiers.history("shelf", item)
    assert (history[0].what, history[0].kind) == ("failed", None)
    assert history[0].problem is not None
    assert len(history[0].problem.message) > 20


def test_a_key_cannot_read_documents_of_other_bases(rig: Rig) -> None:
    rig.library.catalog.create_base("attic", BaseSettings())
    item = rig.put("whale.md", "# Whale").item or 0
    front = seen_by_key(rig, "attic")
    calls: list[Callable[[str], Any]] = [
        lambda base: front.dossiers.entities(base, item),
        lambda base: front.dossiers.cards(base, item),
        lambda base: front.dossiers.missing(base, item),
        lambda base: front.dossiers.usage(base, item),
        lambda base: front.dossiers.history(base, item),
    ]
    for call in calls:
        with pytest.raises(UnknownBase):
            call("shelf")
        with pytest.raises(UnknownItem):
            call("attic")
