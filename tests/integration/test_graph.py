"""Graph: extraction by rules and by a language model, merged descriptions, and complete removal of deleted text."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import bindparam, update

from holdfast.catalog.tables import bases
from holdfast.documents.requests import Upload
from holdfast.engine.admission import Request, Verdict
from holdfast.engine.states import Operation, Outcome, SlotState, Status
from holdfast.engine.task import Task
from holdfast.indexes.graph import statements as sql
from holdfast.indexes.graph.index import MERGING_OWNER, GraphIndex
from holdfast.indexes.graph.merging import MERGING, request_due_merges, request_merge
from holdfast.llm.offline import OfflineProvider
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.harness import Rig
from tests.support.paid_provider import OUT_OF_QUOTA, PaidProvider
from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Connection

    from holdfast.documents.requests import ItemReply
    from holdfast.engine.admission import AdmissionResult
    from holdfast.engine.slot import BuildResult
    from holdfast.engine.store.base import Job
    from holdfast.indexes.graph.graph_queries import EntityDetails
    from holdfast.llm.base import UnmeteredProvider
    from tests.support.clock import FakeClock

ENTITY = re.compile(r"\[\[([^]|>]+)\|([^]|]+)\|([^]|]+)\]\]")
RELATION = re.compile(r"\{([^}>]+)>([^}>]+)>([^}|]+)\|([^}]+)\}")
BAD = "This is no JSON."
CANARY = "xylograph"


def extracting(prompt: dict[str, Any]) -> bool:
    return "knowledge graph" in prompt["messages"][0]["content"]


def speak(prompt: dict[str, Any]) -> str:
    """Extract the marked entities and relations, or merge descriptions by joining them."""
    text = prompt["messages"][-1]["content"]
    if not extracting(prompt):
        said = [line[2:] for line in text.split("\n") if line.startswith("- ")]
        return json.dumps({"description": f"Of {len(said)}: {' '.join(said)}"})
    return json.dumps(
        {
            "entities": [
                {"name": name, "kind": kind, "description": about} for name, kind, about in ENTITY.findall(text)
            ],
            "relations": [
                {"source": source, "target": target, "label": label, "description": about}
                for source, label, target, about in RELATION.findall(text)
            ],
        }
    )


class GraphRig(Rig):
    """A base with a graph, with or without a language model."""

    def __init__(self, url: str, folder: Path, clock: FakeClock, paid: PaidProvider | None, **base: Any) -> None:
        self.paid = paid
        self.speaker: UnmeteredProvider = OfflineProvider()
        if paid is not None:
            paid.reply = speak
            self.speaker = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, chat_model=paid.chat_model))
        settings = {"indexes": ("graph",), "chunk_size": 64, "chunk_overlap": 0, **base}
        super().__init__(url, folder, clock, speaker=self.speaker, **settings)
        self.portraits = self.library.graph_queries

    def close(self) -> None:
        self.speaker.close()
        super().close()

    @property
    def graph(self) -> GraphIndex:
        index = self.library.indexes["graph"]
        assert isinstance(index, GraphIndex)
        return index

    def put_all(self, texts: dict[str, str]) -> None:
        self.library.adder.put(self.base, [Upload(name, text.encode()) for name, text in texts.items()])
        self.work()

    def merge(self) -> AdmissionResult:
        answer = request_merge(self.store, self.base.key)
        self.work()
        return answer

    def calls(self) -> tuple[int, int]:
        """Count the paid calls as (extractions, merges)."""
        assert self.paid is not None
        prompts = list(self.paid.bill.prompts.elements())
        merges = sum("description of the subject as JSON" in one for one in prompts)
        return len(prompts) - merges, merges

    def about(self, key: str) -> EntityDetails:
        found = self.portraits.describe_entity(self.base, key)
        assert found is not None
        return found

    def seen(self) -> list[str]:
        return sorted(one.key for one in self.portraits.list_entities(self.base, 1_000))

    def shown(self) -> str:
        """Return all text that the graph shows for a base."""
        entities = self.portraits.list_entities(self.base, 1_000)
        keys = [one.key for one in entities]
        return repr(
            [
                entities,
                self.portraits.collect_facts(self.base, keys, 1_000),
                [self.portraits.describe_entity(self.base, key) for key in keys],
                [self.portraits.list_neighbours(self.base, key) for key in keys],
            ]
        )

    def kept(self, word: str) -> list[str]:
        """Return the tables that contain a word."""
        found = []
        with self.store.database.reading() as tx:
            for table, columns in (
                ("names", "key, label, kind, description"),
                ("relations", "source, target, label, description"),
                ("merged", "key, other, description"),
                ("merged_sources", "key, other"),
                ("graph_changes", "key, other"),
                ("memos", "value"),
                ("chunks", "text"),
            ):
                rows = tx.run_sql(f"SELECT {columns} FROM library_{table}")  # noqa: S608 - table names from this test
                if any(word in _readable(cell) for row in rows for cell in row):
                    found.append(table)
        return found

    def somebody_waits(self) -> bool:
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        with self.store.database.reading() as tx:
            return bool(tx.run_sql(waits))

    def passes(self) -> list[Job]:
        return self.store.list_jobs_of_owner(self.store.owner(self.base.key, MERGING_OWNER).id)


def _readable(cell: Any) -> str:
    return bytes(cell).decode() if isinstance(cell, bytes | memoryview) else str(cell)


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as server:
        yield server


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[GraphRig]:
    rig = GraphRig(database_url, tmp_path / "blobs", clock, paid, missing_share=0.5)
    yield rig
    rig.close()


@pytest.fixture
def ruled(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[GraphRig]:
    rig = GraphRig(database_url, tmp_path / "blobs", clock, None)
    yield rig
    rig.close()


WHALES = (
    "# Blue Whale\n\n[[Blue Whale|animal|The largest animal.]] [[Krill|animal|Food of whales.]]\n"
    "{Blue Whale>eats>Krill|Tonnes of it.}\n"
)


def krill(numbers: Sequence[int], *, word: str = "") -> dict[str, str]:
    """Return documents, each with a different description of krill, of whales and of their relation."""
    return {
        f"{n}.md": f"[[Krill|animal|Krill fact {n} {word}.]]\n[[Whale|animal|Whale fact {n} {word}.]]\n"
        f"{{Whale>eats>Krill|On day {n} {word}.}}\n"
        for n in numbers
    }


def test_without_a_model_names_are_neighbours_without_descriptions_or_relations(ruled: GraphRig) -> None:
    ruled.put_all(
        {"a.md": "# Blue Whale\n\nNear Iceland, the Blue Whale meets Ada Lovelace.\n", "b.md": "In Iceland.\n"}
    )
    iceland = next(one for one in ruled.portraits.list_entities(ruled.base) if one.key == "iceland")
    assert (iceland.label, iceland.kind, iceland.documents) == ("Iceland", "", 2)
    beside = ruled.portraits.list_neighbours(ruled.base, "iceland")
    assert {(one.entity.key, one.together, one.labels) for one in beside} == {
        ("blue whale", 1, ()),
        ("ada lovelace", 1, ()),
    }
    assert ruled.portraits.collect_facts(ruled.base, ["iceland", "blue whale"]) == []
    about = ruled.about("iceland")
    assert (about.description, about.relations) == ("", [])
    assert [one.name for one in about.mentions] == ["a.md", "b.md"]
    assert ruled.count("graph_changes") == 0
    ruled.delete("a.md")
    assert ruled.seen() == ["iceland"]


def test_entities_are_found_by_the_beginning_of_their_names(ruled: GraphRig) -> None:
    ruled.put_all({"a.md": "We saw Ada Lovelace, Ada Byron, a_b and Alan Turing.\n"})
    assert [one.key for one in ruled.portraits.list_entities(ruled.base, prefix="Ada")] == ["ada byron", "ada lovelace"]
    assert [one.key for one in ruled.portraits.list_entities(ruled.base, 1, "ada")] == ["ada byron"]
    assert ruled.portraits.list_entities(ruled.base, prefix="%") == ruled.portraits.list_entities(ruled.base)
    assert ruled.portraits.list_entities(ruled.base, prefix="zzz") == []


def test_entities_and_relations_of_a_model_are_joined_with_the_names_found_by_rules(rig: GraphRig) -> None:
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS
    whale = rig.about("blue whale")
    assert (whale.entity.label, whale.entity.kind, whale.entity.documents) == ("Blue Whale", "animal", 1)
    assert (whale.description, whale.merged) == ("The largest animal.", False)
    (eats,) = whale.relations
    assert (eats.keys, eats.kind) == (("blue whale", "krill"), "eats")
    assert eats.sentence == "Blue Whale → eats → Krill: Tonnes of it."
    assert {one.chunk for one in whale.mentions} == set(eats.chunks)
    roles = rig.graph.read_roles(rig.library.indexes.recipes(rig.base, "graph")[0], list(eats.chunks))[eats.chunks[0]]
    assert ("blue whale", "title") in roles  # the chunk with the description is the definition
    (krill,) = [one for one in rig.portraits.list_neighbours(rig.base, "blue whale") if one.entity.key == "krill"]
    assert (krill.together, krill.labels) == (1, ("eats",))
    facts = rig.portraits.collect_facts(rig.base, ["krill", "nobody"])
    assert [one.sentence for one in facts] == [
        "Krill (animal): Food of whales.",
        "Blue Whale → eats → Krill: Tonnes of it.",
    ]
    assert rig.portraits.find_entity_keys(rig.base, "what does the blue whale do with KRILL?") == [
        "blue whale",
        "krill",
    ]


def test_entities_and_relations_of_many_chunks_are_combined(rig: GraphRig) -> None:
    rig.index("one.md", "[[Ada|person|Wrote.]] [[Engine|product|Of brass.]] {Ada>wrote for>Engine|In 1843.}\n")
    rig.index("two.md", "[[ADA|place|Is old.]] [[ENGINE|product|Of iron.]] {ENGINE>made famous>ADA|Later.}\n")
    rig.index("three.md", "[[Ada|person|Wrote.]]\n")
    assert rig.seen() == ["ada", "engine"]
    ada = rig.about("ada")
    assert (ada.entity.label, ada.entity.kind, ada.entity.documents) == ("Ada", "person", 3)
    assert sorted(ada.description.split("\n")) == ["Is old.", "Wrote."]
    (relation,) = ada.relations
    assert relation.keys == ("ada", "engine")
    assert sorted(relation.text.split("\n")) == [
        "Ada → wrote for → Engine: In 1843.",
        "ENGINE → made famous → ADA: Later.",
    ]


def test_a_forced_rebuild_and_an_equal_file_make_no_paid_calls(rig: GraphRig) -> None:
    rig.index("whales.md", WHALES)
    assert rig.calls() == (1, 0)
    rig.ask("whales.md", Operation.FORCE)
    rig.work()
    rig.index("again.md", WHALES)
    assert rig.calls() == (1, 0)
    assert rig.about("krill").entity.documents == 2
    assert rig.about("krill").description == "Food of whales."


def test_an_edit_pays_only_for_changed_chunks(rig: GraphRig) -> None:
    parts = [f"## Part {n}\n\n" + f"[[Thing {n}|concept|It is number {n}.]] " * 4 for n in range(6)]
    rig.index("parts.md", "\n\n".join(parts))
    before, _ = rig.calls()
    assert before >= 6
    parts[3] = parts[3].replace("It is", "It was")
    rig.index("parts.md", "\n\n".join(parts))
    after, _ = rig.calls()
    assert 1 <= after - before <= 2
    assert rig.about("thing 3").description == "It was number 3."
    rig.sweep()
    assert rig.about("thing 3").description == "It was number 3."
    assert rig.kept("It was") == ["names", "memos", "chunks"]
    assert rig.kept("It is number 3") == []


def test_a_bad_answer_is_repaired(rig: GraphRig) -> None:
    answers = iter([BAD])
    assert rig.paid is not None
    rig.paid.reply = lambda prompt: next(answers, None) or speak(prompt)
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS
    assert rig.calls() == (2, 0)
    assert rig.about("krill").description == "Food of whales."


def test_a_chunk_without_a_valid_answer_is_listed_as_missing_and_can_be_retried(rig: GraphRig) -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + f"[[Thing {n}|concept|It is number {n}.]] " * 4 for n in range(6))
    assert rig.paid is not None
    rig.paid.reply = lambda prompt: BAD if "number 3" in prompt["messages"][-1]["content"] else speak(prompt)
    assert rig.index("parts.md", text).status is Status.DEGRADED
    slot = rig.slot("parts.md", "graph")
    (lacked,) = rig.library.document_details.missing(rig.base, rig.library.items.find(rig.base, "parts.md").id)
    assert (slot.missing, lacked.index, lacked.problem.code) == (1, "graph", "bad_answer")
    assert lacked.chunk not in rig.rows("graph")
    assert "thing 3" not in rig.seen()
    assert "thing 2" in rig.seen()
    before, _ = rig.calls()
    rig.paid.reply = speak
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert rig.calls() == (before + 1, 0)
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert rig.about("thing 3").description == "It is number 3."


def test_deleting_a_document_removes_exactly_its_part_of_the_graph(rig: GraphRig) -> None:
    rig.index("whales.md", WHALES)
    rig.index("seals.md", "[[Seal|animal|It dives.]] [[Krill|animal|Small and red.]] {Seal>hunts>Krill|At night.}\n")
    assert rig.about("krill").description == "Food of whales.\nSmall and red."
    rig.delete("whales.md")
    for clean in (None, rig.work, rig.sweep):
        if clean is not None:
            clean()
        assert rig.seen() == ["krill", "seal"]
        assert rig.about("krill").description == "Small and red."
        assert [one.keys for one in rig.about("krill").relations] == [("krill", "seal")]
        assert [one.entity.key for one in rig.portraits.list_neighbours(rig.base, "krill")] == ["seal"]
    assert rig.kept("largest") == []


def test_many_descriptions_are_merged_once_and_again_only_after_a_change(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    assert not rig.about("krill").merged
    assert request_due_merges(rig.store) == 1
    rig.work()
    assert rig.calls() == (10, 3)
    about = rig.about("krill")
    assert about.merged
    assert about.description.startswith("Of 10: Krill fact 0 .")
    assert [(one.merged, one.keys) for one in about.relations] == [(True, ("krill", "whale"))]
    assert next(one.chunks for one in rig.portraits.collect_facts(rig.base, ["krill"])) == tuple(rig.rows("graph"))
    assert rig.count("graph_changes") == 0
    assert request_due_merges(rig.store) == 0
    rig.merge()
    rig.ask("3.md", Operation.FORCE)
    rig.work()
    rig.merge()
    rig.index("same.md", krill([3])["3.md"])
    assert request_due_merges(rig.store) == 1
    rig.work()
    assert rig.calls() == (10, 3)
    account = rig.library.paid_cache.summarize_base(rig.base.key)
    merging = [one.texts for one in (*account.kinds_spent, *account.kinds_saved) if one.kind == MERGING]
    assert merging == [3]  # and requested no further merges
    assert rig.about("krill").merged
    rig.index("new.md", krill([10])["10.md"])
    assert rig.about("krill").merged  # the old description lacks the new fact, but contains only served text
    rig.merge()
    assert rig.calls() == (11, 6)
    assert "Krill fact 10" in rig.about("krill").description
    rig.delete("same.md")  # another document has the same text and was used as the source
    rig.work()
    rig.merge()
    assert rig.about("krill").merged
    assert rig.calls() == (11, 6)


def test_a_lost_merged_description_is_restored_from_the_paid_cache(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    rig.merge()
    before = rig.about("krill")
    # As if the process had been killed before it wrote the result.
    with rig.store.database.writing(durable=False) as tx:
        tx.run_sql("DELETE FROM library_merged_sources")
        tx.run_sql("DELETE FROM library_merged")
        tx.run_sql(
            "INSERT INTO library_graph_changes (recipe, key, other, chunk_id, at) "
            "SELECT recipe, key, '', chunk_id, 0 FROM library_names WHERE key = 'krill'"
        )
    assert not rig.about("krill").merged
    rig.merge()
    assert rig.about("krill").description == before.description
    assert rig.calls() == (10, 3)


def test_no_text_of_a_deleted_document_is_shown_once_the_delete_is_accepted(rig: GraphRig) -> None:
    rig.put_all(krill(range(11)) | krill([99], word=CANARY))
    rig.index("alone.md", f"[[{CANARY} press|product|It is called {CANARY}.]] {{{CANARY} press>prints>Krill|So.}}\n")
    rig.merge()
    assert rig.about("krill").merged
    assert CANARY in rig.about("krill").description
    rig.delete("99.md")
    rig.delete("alone.md")
    for clean in (None, rig.work, rig.sweep):
        if clean is not None:
            clean()
        assert CANARY not in rig.shown()
        assert not rig.about("krill").merged
        assert "Krill fact 4" in rig.about("krill").description
    assert rig.kept(CANARY) == []
    assert request_due_merges(rig.store) == 1
    rig.work()
    assert rig.about("krill").merged
    assert CANARY not in rig.shown()


def test_many_deletes_need_only_one_merge_run(rig: GraphRig) -> None:
    rig.put_all(krill(range(95)))
    rig.merge()
    assert rig.calls() == (95, 3)
    for n in range(85):
        rig.delete(f"{n}.md")
        assert request_due_merges(rig.store) == 0  # no clean-up has run yet
    rig.worker.run_next(50)
    assert request_due_merges(rig.store) == 0  # other clean-ups are still running
    rig.work()
    assert request_due_merges(rig.store) == 1
    assert request_due_merges(rig.store) == 0
    rig.work()
    assert rig.calls() == (95, 6)
    assert len(rig.passes()) == 2
    assert {one.outcome for one in rig.passes()} == {Outcome.SUCCESS}
    about = rig.about("krill")
    assert about.merged
    assert about.description.startswith("Of 10:")
    assert about.entity.documents == 10
    assert rig.count("graph_changes") == 0


def test_a_merged_description_is_dropped_when_few_sources_are_left(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    rig.merge()
    for n in range(5):
        rig.delete(f"{n}.md")
    rig.work()
    rig.merge()
    assert rig.calls() == (10, 3)
    assert not rig.about("krill").merged
    assert rig.count("merged") == rig.count("merged_sources") == 0


def test_a_merge_run_includes_changes_made_while_it_runs(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    assert rig.paid is not None
    answers: list[AdmissionResult | ItemReply] = []
    other = rig.hire("other")

    def meanwhile(prompt: dict[str, Any]) -> str:
        if not extracting(prompt) and not answers:
            answers.append(rig.put("late.md", krill([77])["77.md"]))
            while other.run_next(1):
                pass
            answers.append(request_merge(rig.store, rig.base.key))
        return speak(prompt)

    rig.paid.reply = meanwhile
    rig.merge()
    assert answers[-1].verdict is Verdict.JOINED
    assert rig.store.slot(rig.base.key, MERGING_OWNER, MERGING).state is SlotState.READY
    assert "Krill fact 77" in rig.about("krill").description
    assert rig.about("krill").merged
    assert rig.count("graph_changes") == 0


def test_a_merge_run_includes_changes_made_just_before_it_publishes(
    rig: GraphRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put_all(krill(range(10)))
    answers: list[AdmissionResult | ItemReply] = []
    other = rig.hire("other")
    publish = Task.publish

    def late(task: Task, built: BuildResult) -> AbstractContextManager[Connection]:
        if task.ticket.key.kind == MERGING and not answers:
            rig.put("late.md", krill([77])["77.md"])
            while other.run_next(1):
                pass
            answers.append(request_merge(rig.store, rig.base.key))
        return publish(task, built)

    monkeypatch.setattr(Task, "publish", late)
    rig.merge()
    assert [one.verdict for one in answers] == [Verdict.JOINED]
    assert rig.store.slot(rig.base.key, MERGING_OWNER, MERGING).state is SlotState.READY
    assert "Krill fact 77" in rig.about("krill").description
    assert rig.count("graph_changes") == 0


@pytest.mark.postgres
def test_dropping_a_chunk_waits_for_a_merge_that_uses_it(
    postgres_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = GraphRig(postgres_url, tmp_path / "blobs", clock, paid)
    rig.put_all(krill(range(10)))
    request_merge(rig.store, rig.base.key)
    (ticket,) = rig.store.claim_next((MERGING,), "hand", 1)
    (recipe,) = rig.library.indexes.recipes(rig.base, "graph")
    chunk = rig.rows("graph")[0]
    dropping = threading.Thread(target=rig.graph.drop, args=(recipe, [chunk]))
    with rig.store.guarded(ticket) as connection:
        tx = rig.store.database.wrap_connection(connection)
        dropping.start()
        until(rig.somebody_waits, "the other transaction waits for ours")
        tx.run(sql.INSERT_MERGED, [[recipe.id, "krill", "", "All of it.", "digest"]])
        tx.run(sql.INSERT_MERGED_SOURCES, [[recipe.id, "krill", "", chunk]])
    dropping.join()
    assert rig.count("merged") == rig.count("merged_sources") == 0
    rig.close()


def test_a_merge_run_leaves_the_changes_of_an_unpublished_document_for_the_next_run(rig: GraphRig) -> None:
    rig.put_all(krill(range(8)))
    rig.put("late.md", krill([77])["77.md"])
    rig.worker.run_next(1)
    reached: list[str] = []

    def stop(point: str) -> None:
        if point == "settling" and not reached:
            reached.append(point)
            assert rig.count("graph_changes") == 27
            assert request_merge(rig.store, rig.base.key).accepted
            while rig.worker.run_next(1):
                pass
            assert rig.count("graph_changes") == 3

    late = rig.hire("late")
    late._failpoint = stop
    late.run_next(1)
    assert reached
    assert rig.calls() == (9, 0)
    assert request_due_merges(rig.store) == 1
    rig.work()
    assert rig.calls() == (9, 3)
    assert "Krill fact 77" in rig.about("krill").description


def test_a_failed_merge_run_is_requested_again_only_after_a_change(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    assert rig.paid is not None
    rig.paid.always(OUT_OF_QUOTA)
    assert request_due_merges(rig.store) == 1
    rig.work()
    assert rig.store.slot(rig.base.key, MERGING_OWNER, MERGING).error_code == "quota_exhausted"
    assert "Krill fact 4" in rig.about("krill").description
    rig.clock.advance(timedelta(hours=1))
    assert request_due_merges(rig.store) == 0
    rig.paid.always(None)
    rig.index("new.md", krill([10])["10.md"])
    assert request_due_merges(rig.store) == 1
    rig.work()
    assert rig.about("krill").merged
    assert rig.calls() == (11, 3)


def test_a_merge_run_that_would_exceed_the_budget_pays_nothing(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    settings = replace(rig.base.settings, budget_tokens=1).to_json()
    with rig.store.database.writing(durable=False) as tx:
        tx.run(update(bases).values(settings=bindparam("settings")), settings=settings)
    rig.merge()
    assert rig.store.slot(rig.base.key, MERGING_OWNER, MERGING).error_code == "budget_spent"
    assert rig.calls() == (10, 0)
    assert "Krill fact 4" in rig.about("krill").description


def test_a_base_with_chat_switched_off_merges_no_earlier_extractions(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    rig.base = rig.library.bases.change(rig.base, replace(rig.base.settings, chat="none")).base
    assert request_due_merges(rig.store) == 1
    worker = rig.hire("merging")
    worker.indexers = {MERGING: rig.indexers[MERGING]}
    assert worker.run_next(1) == 1
    assert rig.calls() == (10, 0)
    assert "Krill fact 4" in rig.about("krill").description
    rig.work()
    assert rig.calls() == (10, 0)


def test_deleting_the_merge_slot_of_a_base_deletes_its_merged_descriptions(rig: GraphRig) -> None:
    rig.put_all(krill(range(10)))
    rig.merge()
    rig.store.admit([Request(base=rig.base.key, owner=MERGING_OWNER, operation=Operation.DELETE)])
    rig.work()
    assert [rig.count(table) for table in ("merged", "merged_sources", "graph_changes")] == [0, 0, 0]
    assert not rig.about("krill").merged
