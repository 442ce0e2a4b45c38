"""Search uses the output of a language model: questions as a channel, relations as links of the graph walk."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.llm.offline import OfflineProvider
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.search.fusion import PRIOR
from holdfast.search.search_run import DEPTH
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider
from tests.support.question_harness import QuestionRig, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

    Make = Callable[..., Rig]

ALL = ("vector", "fulltext", "graph", "questions")
PAIR = re.compile(r"\(\(([^|)]+)\|([^)]+)\)\)")
ENTITY = re.compile(r"\[\[([^]]+)\]\]")
RELATION = re.compile(r"\{([^}>]+)>([^}>]+)>([^}>]+)\}")


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


def speaker_of(notes: dict[str, str]) -> Callable[[dict[str, Any]], str]:
    """Reply from notes about a text: pairs, entities and relations that the words of the text do not show."""

    def speak(request: dict[str, Any]) -> str:
        text = request["messages"][-1]["content"]
        noted = next((note for word, note in notes.items() if word in text), "")
        if "knowledge graph" in request["messages"][0]["content"]:
            return json.dumps(
                {
                    "entities": [{"name": name, "kind": "thing", "description": ""} for name in ENTITY.findall(noted)],
                    "relations": [
                        {"source": source, "target": target, "label": label, "description": ""}
                        for source, label, target in RELATION.findall(noted)
                    ],
                }
            )
        pairs = [{"question": question, "answer": answer} for question, answer in PAIR.findall(noted)]
        return json.dumps({"pairs": pairs})

    return speak


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Make]:
    opened: list[tuple[Rig, OpenAIProvider]] = []

    def make(documents: dict[str, str], notes: dict[str, str], **base: Any) -> Rig:
        paid.reply = speaker_of(notes)
        speaker = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, chat_model=paid.chat_model))
        rig = Rig(
            database_url, tmp_path / "blobs", clock, OfflineProvider(), speaker=speaker, **{"indexes": ALL, **base}
        )
        opened.append((rig, speaker))
        for name, text in documents.items():
            rig.put(name, text)
        rig.work()
        rig.library.calibrator.refresh(rig.base)
        return rig

    yield make
    for rig, speaker in opened:
        speaker.close()
        rig.close()


def names(rig: Rig, query: str, limit: int = 10) -> list[str]:
    return [hit.name for hit in rig.library.searcher.search(rig.base, query, limit)]


FIELDS = {
    f"field-{n}.md": f"# Field {n}\n\nThe soil of field {n} is heavy and holds the rain of many days in spring.\n"
    for n in range(12)
}
ASKED = {f"field {n} is": f"((Which meadow floods in march number {n}?|Field {n} holds the rain.))" for n in range(12)}


def test_hybrid_search_finds_a_chunk_by_a_question_that_shares_no_word_with_it(make: Make) -> None:
    rig = make(FIELDS, ASKED)
    best = rig.library.searcher.search(rig.base, "meadow floods march number 7")[0]
    assert best.name == "field-7.md"
    assert best.channels["questions"].rank == 1
    assert set(rig.library.searcher.compare_channels(rig.base, "meadow")) == {*ALL, "hybrid"}


def test_hits_of_the_questions_channel_also_get_a_vector_score(make: Make) -> None:
    count = DEPTH + 20  # more than the vector channel returns by itself
    texts = {
        f"{n}.md": f"# Field {n}\n\nThe soil of field {n} is heavy and holds the rain of spring.\n"
        for n in range(count)
    }
    notes = {f"field {n} is": f"((Which meadow floods in march?|Field {n} holds the rain.))" for n in range(count)}
    rig = make(texts, notes, indexes=("vector", "questions"))
    found = rig.library.searcher.search(rig.base, "meadow floods march", count)
    assert len(found) > DEPTH
    assert all("vector" in hit.channels for hit in found)


def test_a_deleted_document_is_no_longer_found_by_its_questions(make: Make) -> None:
    rig = make(FIELDS, ASKED)
    rig.delete("field-7.md")
    assert "field-7.md" not in names(rig, "meadow floods march number 7")


@pytest.mark.parametrize("kinds", [("questions",), ("fulltext", "questions"), ("vector", "questions"), ALL])
def test_the_questions_channel_works_with_any_other_channels(make: Make, kinds: tuple[str, ...]) -> None:
    rig = make(FIELDS, ASKED, indexes=kinds)
    assert names(rig, "meadow floods march number 3", 1) == ["field-3.md"]
    weights = rig.calibrate().weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert set(weights) == set(kinds) - {"graph"}


def test_with_paid_embeddings_questions_keep_their_default_weight(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("vector", "fulltext", "questions"))
    rig.index("parts.md", sections(20))
    before = sum(paid.bill.texts.values())
    assert rig.calibrate().weights["questions"] == PRIOR
    assert sum(paid.bill.texts.values()) == before
    assert "krill of part 7" in rig.library.searcher.search(rig.base, "crustacean part 7")[0].text
    rig.close()


COLOURS = ("amber", "beige", "coral", "denim", "ebony", "fawn", "green", "hazel", "ivory", "jade", "khaki", "lilac")
DRAWER = "It is kept in a drawer with others of its kind, is old, and nobody remembers who brought it here. " * 12


def lessons(shift: int) -> tuple[dict[str, str], dict[str, str]]:
    """Write texts with two questions each; the second question is about the same text or, shifted, about another."""
    texts, notes = {}, {}
    for n, colour in enumerate(COLOURS):
        texts[f"{colour}.md"] = f"# Lesson\n\nThis is number {n}a of the collection. {DRAWER}\n"
        other = COLOURS[(n + shift) % len(COLOURS)]
        notes[f"number {n}a of"] = (
            f"((What has the hue {colour} and a lid?|It is kept in a drawer.))"
            f"((Where does the {other} hue fade?|It is kept in a drawer.))"
        )
    return texts, notes


@pytest.mark.parametrize(("shift", "trusted"), [(0, True), (5, False)])
def test_the_weight_of_questions_depends_on_how_well_they_find_their_own_chunk(
    make: Make, shift: int, trusted: bool
) -> None:
    rig = make(*lessons(shift))
    measured = rig.calibrate()
    assert rig.count("pairs") == 2 * len(COLOURS)
    assert (measured.weights["questions"] > PRIOR) is trusted


def test_hybrid_search_is_not_worse_than_the_questions_channel_alone(make: Make) -> None:
    rig = make(*lessons(0))
    asked = {f"{colour}.md": f"which box of {colour} hue" for colour in COLOURS}
    found = {name: rig.library.searcher.compare_channels(rig.base, query) for name, query in asked.items()}
    first = {
        kind: sum(one[kind][0].name == name for name, one in found.items() if one[kind])
        for kind in ("fulltext", "vector", "questions", "hybrid")
    }
    assert first["hybrid"] == max(first.values()) == len(COLOURS)


SEA = {
    "charter.md": "# The Harbour Charter\n\nThe charter of the harbour was signed by Mara Lindqvist in spring.\n",
    "youth.md": "# A youth\n\nShe grew up on a rock with eleven houses, and learned there to mend a sail.\n",
    "ropes.md": "# Ropes\n\nHemp rots and nylon stretches; choose by the load it has to hold.\n",
    "tides.md": "# Tides\n\nWater rises twice a day, later by fifty minutes each time.\n",
    "wells.md": "# Wells\n\nDig in autumn, when the water stands lowest under the meadow.\n",
}
KNOWN = {
    "signed by Mara": "[[Mara Lindqvist]] [[Harbour Charter]] {Mara Lindqvist>signed>Harbour Charter}",
    "grew up on a rock": "[[Mara Lindqvist]] [[Grey Island]] {Mara Lindqvist>grew up on>Grey Island}",
}
GRAPH = ("fulltext", "graph")


def test_only_a_relation_found_by_the_model_leads_to_the_second_text(make: Make) -> None:
    question = "who signed the harbour charter"
    rig = make(SEA, KNOWN, indexes=GRAPH)
    assert names(rig, question)[:2] == ["charter.md", "youth.md"]
    found = rig.library.searcher.compare_channels(rig.base, question)
    assert "youth.md" not in [hit.name for hit in found["fulltext"]]
    assert "youth.md" in [hit.name for hit in found["graph"]]


def test_without_that_relation_the_second_text_is_not_found(make: Make) -> None:
    rig = make(SEA, {**KNOWN, "grew up on a rock": ""}, indexes=GRAPH)
    assert "youth.md" not in names(rig, "who signed the harbour charter")


def test_an_entity_in_the_query_leads_to_the_texts_that_mention_it(make: Make) -> None:
    rig = make(SEA, KNOWN, indexes=GRAPH)
    assert names(rig, "grey island") == ["youth.md", "charter.md"]


def test_an_entity_found_by_the_model_leads_to_the_document_with_that_title(make: Make) -> None:
    island = {"island.md": "# Grey Island\n\nThe lighthouse there is painted white every second year.\n"}
    rig = make({**SEA, **island}, KNOWN, indexes=GRAPH)
    found = rig.library.searcher.search_channel(rig.base, "graph", "mend a sail")
    assert "island.md" in [hit.name for hit in found]


def test_a_relation_of_a_deleted_document_is_not_followed(make: Make) -> None:
    rig = make(SEA, KNOWN, indexes=GRAPH)
    rig.delete("youth.md")
    assert "youth.md" not in names(rig, "who signed the harbour charter")


def test_relations_gain_trust_when_documents_share_them(make: Make) -> None:
    rig = make({name: text for name, text in SEA.items() if name != "charter.md"}, KNOWN, indexes=GRAPH)
    assert rig.calibrate().link_trust == 0.0
    rig.index("charter.md", SEA["charter.md"])
    assert rig.calibrate().link_trust > 0.5
