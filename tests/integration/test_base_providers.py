"""Embedding model, chat model and languages are settings of each base; each test proves one rule about them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast.bases.rollout import RETRY_AFTER
from holdfast.catalog.repository import BaseSettings
from holdfast.cli.bases import parse_settings
from holdfast.documents.requests import Upload
from holdfast.engine.states import SlotState, Status
from holdfast.engine.store.base import LARGEST_BATCH, Release
from holdfast.errors import BadRequest, BadSettings
from holdfast.indexes.base import NotEnabled
from holdfast.indexes.fulltext.index import FulltextIndex
from holdfast.indexes.graph.extraction import RECIPE as EXTRACTION
from holdfast.indexes.questions.index import QuestionsIndex
from holdfast.indexes.questions.prompt import RECIPE as QUESTIONS
from holdfast.indexes.vector.index import VectorIndex
from holdfast.llm.offline import OfflineProvider
from holdfast.search import calibration_questions as sampling
from holdfast.search.answer_generation import AnswerOutcome
from holdfast.search.answers import Answer
from holdfast.search.search_run import SearchRun
from holdfast.service.bases import replace_settings
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.audit import audit_quiet
from tests.support.harness import Rig
from tests.support.paid_provider import BROKEN, PaidProvider
from tests.support.question_harness import QuestionRig, crustaceans, sections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.catalog.repository import Base
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
OFFLINE_SPEC = {"model": f"{OfflineProvider.embedding_model}@{OfflineProvider().version}", "dimension": 256}


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[QuestionRig]:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("vector", "fulltext"))
    yield rig
    rig.close()


def change(rig: Rig, **settings: Any) -> Any:
    """Change settings of the base, store the changed base in the rig, and return the rollout."""
    bases = rig.library.bases
    changed = bases.change(rig.base, replace(bases.read(rig.base).settings, **settings))
    rig.base = changed.base
    return changed.rollout


def specs(rig: Rig, name: str) -> dict[str, Any]:
    """Return the recipe of each slot of a document."""
    known = {recipe.id: recipe.spec for _, recipe in rig.library.catalog.recipes_of(rig.base.key)}
    return {slot.kind: json.loads(known[slot.recipe]) for slot in rig.owner(name).slots if slot.recipe is not None}


def built(rig: Rig, name: str) -> dict[str, int]:
    return {slot.kind: slot.built for slot in rig.owner(name).slots}


def named(rig: Rig, query: str, kind: str) -> set[str]:
    return {hit.name for hit in rig.find(query, kind)}


def sweep(rig: Rig) -> None:
    """Run the sweep and the worker until no work is left."""
    rig.work()
    while rig.library.sweep(LARGEST_BATCH):
        rig.work()
    rig.work()


def test_an_offline_base_pays_nothing_while_another_one_pays(rig: QuestionRig, paid: PaidProvider) -> None:
    offline = rig.library.bases.create("offline", BaseSettings(embedding="offline"))
    rig.library.adder.put(offline, [Upload("whales.md", WHALES.encode()), Upload("stones.md", STONES.encode())])
    rig.work()
    search = rig.library.searcher
    assert search.search_channel(offline, "vector", "whale")[0].name == "whales.md"
    assert (paid.bill.calls, rig.library.paid_cache.summarize_base(offline.key).kinds_spent) == (0, [])
    assert rig.library.paid_cache.summarize_base(offline.key).kinds_saved == []
    rig.index("whales.md", WHALES)
    assert (sum(paid.bill.texts.values()), specs(rig, "whales.md")["vector"]["model"]) == (1, "embedder@1")
    assert search.search(offline, "whale")
    assert sum(paid.bill.texts.values()) == 1
    assert search.search(rig.base, "whale")
    assert paid.bill.texts["whale"] == sum(paid.bill.texts.values()) - 1 == 1  # calibration makes no paid calls


def test_an_offline_base_is_indexed_and_searched_while_the_endpoint_is_down(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    change(rig, embedding="offline")
    paid.always(BROKEN)
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS
    assert named(rig, "whale", "vector") == {"whales.md"}
    assert rig.library.searcher.search(rig.base, "whale")
    assert rig.library.bases.read(rig.base).problem is None
    assert paid.bill.calls == 0


def test_switching_a_base_offline_and_back_keeps_it_searchable_and_pays_for_no_text_twice(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    rig.put("whales.md", WHALES)
    rig.put("stones.md", STONES)
    rig.work()
    assert change(rig, embedding="offline").accepted
    assert named(rig, "whale", "vector") == {"whales.md", "stones.md"}
    while len({str(specs(rig, name)["vector"]) for name in ("whales.md", "stones.md")}) == 1:
        assert rig.worker.run_next(1)
    assert len(recipes_served(rig)) == 2
    # Each document is searched with the model of its own vectors.
    assert named(rig, "rock", "vector") == {"whales.md", "stones.md"}
    assert paid.bill.texts["rock"] == 1
    rig.library.searcher.search(rig.base, "whale")
    rig.work()
    assert specs(rig, "whales.md")["vector"].items() >= OFFLINE_SPEC.items()
    assert (built(rig, "whales.md")["vector"], built(rig, "whales.md")["fulltext"]) == (2, 1)
    sweep(rig)
    calls = paid.bill.calls
    assert named(rig, "ocean animal", "vector") == {"whales.md", "stones.md"}
    assert paid.bill.calls == calls
    texts = Counter(paid.bill.texts)
    assert change(rig, embedding="auto").accepted
    assert named(rig, "another ocean animal", "vector") == {"whales.md", "stones.md"}
    sweep(rig)
    assert paid.bill.texts == texts  # every text was in the paid cache
    assert specs(rig, "stones.md")["vector"]["model"] == "embedder@1"
    audit_quiet(rig)


def recipes_served(rig: Rig) -> list[Any]:
    with rig.store.database.shared_reading() as tx:
        return SearchRun(tx, rig.library.indexes, rig.base, "").recipes("vector")


def test_auto_and_offline_are_the_same_without_an_endpoint(database_url: str, tmp_path: Path, clock: FakeClock) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock)
    rig.index("whales.md", WHALES)
    assert change(rig, embedding="offline", chat="none") is None
    rig.close()


def test_vectors_computed_by_one_provider_are_not_published_for_another(rig: QuestionRig) -> None:
    rig.put("whales.md", WHALES)
    rig.put("stones.md", STONES)
    rig.worker.indexers = {kind: rig.indexers[kind] for kind in ("content", "fulltext")}
    rig.work()
    first = rig.hire("first")
    tickets = rig.store.claim_next(("vector",), "first", 10)
    first.heartbeat.hold(tickets, rig.clock.monotonic())
    rig.indexers["vector"].begin([first._make_task(ticket) for ticket in tickets])  # type: ignore[attr-defined]
    first.heartbeat.stop_renewing(tickets)
    rig.store.release([Release(ticket=ticket, refund=True) for ticket in tickets])
    change(rig, embedding="offline")
    rig.worker.indexers = rig.indexers
    rig.work(batch=1)
    index = rig.library.indexes["vector"]
    assert isinstance(index, VectorIndex)
    assert [index._store.dimension(recipe.id) for recipe in recipes_served(rig)] == [256]


def test_a_base_without_its_embedding_endpoint_is_still_searched_by_full_text(rig: QuestionRig, tmp_path: Path) -> None:
    rig.index("whales.md", f"{WHALES}\nIt swims far and wide. It sings to others. It is very large indeed.\n")
    url = rig.store.database.engine.url.render_as_string(hide_password=False)
    alone = Library(rig.store, Settings(database=url, data=str(tmp_path / "blobs")), clock=rig.clock)
    found = alone.searcher.search(rig.base, "krill")
    assert [hit.name for hit in found] == ["whales.md"]
    assert {one.channel: one.code for one in found.notices} == {"vector": "embedding_model_gone"}


def test_offline_vectors_serve_until_those_of_a_new_endpoint_are_built(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock)
    rig.index("whales.md", WHALES)
    endpoint = {"embedding_url": paid.url, "embedding_model": paid.embedding_model, "embedding_key": paid.key}
    numbers = Settings(database=database_url, data=str(tmp_path / "blobs"), **endpoint)  # type: ignore[arg-type]
    rig.library = Library(rig.store, numbers, clock=clock)
    assert named(rig, "ocean animal", "vector") == {"whales.md"}
    assert paid.bill.calls == 0
    rig.indexers = rig.library.indexers()
    rig.worker = rig.hire("worker")
    sweep(rig)
    assert named(rig, "ocean animal", "vector") == {"whales.md"}
    assert paid.bill.texts["ocean animal"] == 1
    rig.close()


def test_a_failed_base_is_repaired_by_going_offline(rig: QuestionRig, paid: PaidProvider) -> None:
    paid.embedding_model = "another"
    rig.index("whales.md", WHALES)
    assert rig.library.bases.read(rig.base).problem is not None
    change(rig, embedding="offline")
    calls = paid.bill.calls
    rig.base = rig.library.bases.repair(rig.base).base
    rig.work()
    assert (rig.owner("whales.md").status, rig.base.problem, paid.bill.calls) == (Status.SUCCESS, None, calls)


ALL = ("vector", "fulltext", "graph", "questions")
PARTS = sections(3)


def test_a_base_without_a_chat_model_has_a_rule_based_graph_and_no_questions(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    change(rig, indexes=ALL, chat="none")
    reason = rig.library.bases.not_enabled(rig.base)["questions"]
    assert (reason.code, reason.subcode) == ("not_enabled", "questions_without_chat")
    assert str(reason) == (
        "A language model writes the questions, and this base uses none. Allow the language model in the settings of "
        "the base."
    )
    owner = rig.index("parts.md", PARTS)
    assert (owner.status, owner.slot("questions")) == (Status.SUCCESS, None)
    assert "model" not in specs(rig, "parts.md")["graph"]
    rig.library.sweep(LARGEST_BATCH)
    rig.work()
    reply = rig.library.answerer.ask(rig.base, "Where is krill?")
    assert reply.outcome is AnswerOutcome.NO_LANGUAGE_MODEL
    *_, last = rig.library.answerer.stream(rig.base, "Where is krill?")
    assert isinstance(last, Answer)
    assert last.outcome is AnswerOutcome.NO_LANGUAGE_MODEL
    assert reply.citations
    assert sum(paid.bill.prompts.values()) == 0


def test_switching_chat_off_keeps_the_questions_and_switching_it_on_again_costs_nothing(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    change(rig, indexes=ALL)
    paid.reply = either
    rig.index("parts.md", PARTS)
    asked = Counter(paid.bill.prompts)
    assert asked
    assert change(rig, chat="none").accepted
    rig.work()
    assert "model" not in specs(rig, "parts.md")["graph"]
    assert len(rig.find("crustacean", "questions")) == 3
    assert rig.owner("parts.md").status is Status.SUCCESS
    rig.library.answerer.ask(rig.base, "Where is krill?")
    assert change(rig, chat="auto").accepted
    rig.work()
    assert specs(rig, "parts.md")["graph"]["model"] == "speaker"
    assert paid.bill.prompts == asked
    sweep(rig)
    audit_quiet(rig)


def either(request: dict[str, Any]) -> str:
    """Reply with questions, or with an empty graph."""
    if "pairs" in json.dumps(request):
        return crustaceans(request)
    return json.dumps({"entities": [], "relations": []})


def test_the_reason_of_a_plug_in_keeps_its_own_code_and_message(
    rig: QuestionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: QuestionsIndex, __: Base) -> None:
        raise NotEnabled("plot_without_soil", "The plot has no soil. Add some.", plot="7")

    change(rig, indexes=("fulltext", "questions"))
    rig.put("parts.md", PARTS)
    monkeypatch.setattr(QuestionsIndex, "spec", refuse)
    rig.work()
    error = rig.slot("parts.md", "questions").error
    assert error is not None
    assert (error.code, error.params) == (
        "plot_without_soil",
        {"message": "The plot has no soil. Add some.", "plot": "7"},
    )


def test_questions_that_were_queued_when_chat_was_switched_off_are_dropped(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    change(rig, indexes=("fulltext", "questions"))
    rig.put("parts.md", PARTS)
    change(rig, chat="none")
    rig.work()
    slot = rig.slot("parts.md", "questions")
    assert (slot.state, slot.error and slot.error.code) == (SlotState.FAILED, "questions_without_chat")
    rig.clock.advance(RETRY_AFTER)
    rig.work()
    assert rig.owner("parts.md").slot("questions") is None
    assert rig.owner("parts.md").status is Status.SUCCESS
    rig.clock.advance(RETRY_AFTER)
    rig.work()
    assert rig.library.bases.read_rollout_slot(rig.base).state is SlotState.READY  # type: ignore[union-attr]
    assert paid.bill.calls == 0
    change(rig, chat="auto")
    rig.work()
    assert len(rig.find("crustacean", "questions")) == 3


def test_searching_kept_questions_costs_nothing_in_a_base_that_went_offline(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    change(rig, indexes=("vector", "fulltext", "questions"), chunk_size=256)
    said = " ".join(f"The krill of part {part} is one of the many parts." for part in range(4))
    rig.index("parts.md", f"# Parts\n\n{said} {'Padding without end. ' * 25}")
    # Calibration uses chunks with several questions, so there must be some.
    assert rig.count("pairs") > rig.count("question_chunks")
    change(rig, chat="none", embedding="offline")
    rig.work()
    calls = paid.bill.calls
    found = rig.library.searcher.search(rig.base, "Which crustacean lives in part 2?")
    assert "part 2" in found[0].text
    assert "questions" in found[0].channels
    assert paid.bill.calls == calls


class Told(NamedTuple):
    """A query, and the documents it finds by whole words and by English stems."""

    asked: str
    whole: set[str]
    stemmed: set[str]


HAU, HAUS = "Der Hau liegt im Wald.", "Das Haus liegt am See."
ASKED = (
    Told("Hau", {"hau.md"}, {"hau.md", "haus.md"}),
    Told("Haus", {"haus.md"}, {"hau.md", "haus.md"}),
    Told("HÄUS", {"haus.md"}, {"hau.md", "haus.md"}),
    Told("liegt", {"hau.md", "haus.md"}, {"hau.md", "haus.md"}),
)


@pytest.mark.parametrize("memory", [0, 60])
def test_a_german_base_does_not_use_english_stemming(
    database_url: str, tmp_path: Path, clock: FakeClock, memory: int
) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock, settings={"search_memory": memory}, indexes=("fulltext",))
    german = rig.library.bases.create("german", BaseSettings(indexes=("fulltext",), languages=("de",)))
    for base in (rig.base, german):
        rig.library.adder.put(base, [Upload("hau.md", HAU.encode()), Upload("haus.md", HAUS.encode())])
    rig.work()
    for told in ASKED:
        assert found(rig, rig.base, told.asked) == told.stemmed
        assert found(rig, german, told.asked) == told.whole
    index = rig.library.indexes["fulltext"]
    assert isinstance(index, FulltextIndex)
    for base, count in ((rig.base, 2), (german, 1)):
        phrases = index.find_phrases(rig.library.indexes.recipes(base, "fulltext")[0], ["der hau", "hau liegt"], 9)
        assert [len(chunks) for chunks in phrases.values()] == [1, count]
    rig.close()


def found(rig: Rig, base: Base, query: str) -> set[str]:
    return {hit.name for hit in rig.library.searcher.search_channel(base, "fulltext", query)}


def test_changed_languages_rebuild_only_full_text_and_only_if_stemming_changes(rig: QuestionRig) -> None:
    change(rig, indexes=("vector", "fulltext", "graph", "questions"))
    rig.index("haus.md", HAUS)
    before = built(rig, "haus.md")
    assert change(rig, languages=("en", "de")) is None
    assert change(rig, languages=("de", "ja")).accepted
    assert found(rig, rig.base, "Hau") == {"haus.md"}  # the old rows still serve, and the query is stemmed as they were
    rig.work()
    assert built(rig, "haus.md") == {**before, "fulltext": 2}
    assert (found(rig, rig.base, "Hau"), found(rig, rig.base, "haus")) == (set(), {"haus.md"})
    assert change(rig, languages=("fr",)) is None
    assert change(rig, languages=()).accepted
    rig.work()
    assert found(rig, rig.base, "Hau") == {"haus.md"}


def test_calibration_uses_the_stemming_of_the_base(
    database_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    scratch = sampling._index_in_memory

    def watched(texts: Any, *, stemmed: bool = True) -> Any:
        seen.append(stemmed)
        return scratch(texts, stemmed=stemmed)

    monkeypatch.setattr(sampling, "_index_in_memory", watched)
    rig = Rig(database_url, tmp_path / "blobs", clock, languages=("de",))
    rig.index("haus.md", f"# Haus\n\n{HAUS} {HAU} Und der See ist sehr tief und kalt.\n")
    rig.calibrate()
    assert seen
    assert not any(seen)
    rig.close()


def test_japanese_text_is_indexed_by_pairs_of_characters(rig: QuestionRig) -> None:
    change(rig, languages=("ja",), indexes=("fulltext",))
    rig.index("whales.md", "鯨は海に住む。")
    assert (found(rig, rig.base, "海に"), found(rig, rig.base, "住"), found(rig, rig.base, "海住")) == (
        {"whales.md"},
        {"whales.md"},
        set(),
    )


def test_default_settings_produce_the_same_recipes_as_before(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    """An upgrade must not rebuild existing databases: the default recipes stay byte for byte the same."""
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=ALL)
    written = rig.library.indexes.specs(rig.base)
    assert written == {
        "content": '{"overlap": 0, "size": 48, "version": 2}',
        "fulltext": '{"words": 1}',
        "graph": f'{{"extraction": "{EXTRACTION}", "model": "speaker", "rules": 1, "version": "1"}}',
        "questions": '{"dimension": null, "embedding": "embedder@1", "model": "speaker@1", '
        f'"questions": "{QUESTIONS}", "words": 1}}',
        "vector": '{"dimension": null, "model": "embedder@1", "version": 1}',
    }
    assert BaseSettings.from_json('{"indexes": ["vector"]}') == BaseSettings(indexes=("vector",))
    rig.close()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"embedding": "cloud"}, "'cloud' is not a value of the setting 'embedding'. Choose from: auto, offline"),
        ({"chat": "off"}, "'off' is not a value of the setting 'chat'. Choose from: auto, none"),
        ({"languages": ["de", "jp"]}, "The language 'jp' is not supported"),
        ({"languages": ["DE"]}, "The language 'DE' is not supported"),
        ({"languages": "german"}, "The language 'g' is not supported"),
    ],
)
def test_an_unknown_provider_or_language_is_refused_with_a_reason(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(why)):
        replace_settings(BaseSettings(), settings)


def test_languages_that_are_not_a_list_of_texts_are_refused() -> None:
    for languages in (None, [["de"]]):
        with pytest.raises(BadRequest, match="The settings of the base are not valid: ") as refused:
            replace_settings(BaseSettings(), {"languages": languages})
        assert refused.value.subcode == "base_settings_not_valid"


def test_providers_and_languages_can_be_set_on_the_command_line() -> None:
    given = parse_settings(["chat=none", "embedding=offline", "languages=de, fr", "budget_tokens=none"])
    assert given == {"chat": "none", "embedding": "offline", "languages": ["de", "fr"], "budget_tokens": None}
    assert replace_settings(BaseSettings(), given).languages == ("de", "fr")
    assert parse_settings(["languages="]) == {"languages": []}


def test_settings_survive_a_round_trip_through_json() -> None:
    settings = BaseSettings(embedding="offline", chat="none", languages=("de", "en"))
    assert BaseSettings.from_json(settings.to_json()) == settings
