"""Hybrid search finds texts through all channels, reports each channel, and never shows hidden documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog import visibility as serving
from holdfast.catalog.repository import BaseSettings
from holdfast.indexes.vector import vector_cache
from holdfast.indexes.vector.index import VectorIndex
from holdfast.llm.offline import OfflineProvider
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

ALL = ("vector", "fulltext", "graph")
SEA = {
    "charter.md": "# The Harbour Charter\n\nThe charter of the harbour was signed by Mara Lindqvist in spring.\n",
    "mara.md": "# Mara Lindqvist\n\nShe grew up on Grey Island and learned to sail there.\n",
    "island.md": "# Grey Island\n\nA rock with eleven houses, a lighthouse, and a shop that opens on Tuesdays.\n",
    "ropes.md": "# Ropes\n\nHemp rots and nylon stretches; choose by the load it has to hold.\n",
    "tides.md": "# Tides\n\nWater rises twice a day, later by fifty minutes each time.\n",
}


@pytest.fixture
def open_rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., Rig]]:
    opened: list[Rig] = []

    def make(documents: dict[str, str], **base: Any) -> Rig:
        rig = Rig(database_url, tmp_path / "blobs", clock, **{"indexes": ALL, **base})
        opened.append(rig)
        for name, text in documents.items():
            rig.put(name, text)
        rig.work()
        rig.library.calibrator.refresh(rig.base)
        return rig

    yield make
    for rig in opened:
        rig.close()


def names(rig: Rig, query: str, limit: int = 10) -> list[str]:
    return [hit.name for hit in rig.library.searcher.search(rig.base, query, limit)]


def test_a_text_without_a_word_of_the_query_is_found_through_a_linking_name(
    open_rig: Callable[..., Rig],
) -> None:
    rig = open_rig(SEA)
    assert "mara.md" in names(rig, "who signed the harbour charter", 2)
    assert "island.md" in names(rig, "who signed the harbour charter", 3)


def test_each_hit_has_its_rank_in_every_channel(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig(SEA)
    best = rig.library.searcher.search(rig.base, "nylon rope and its load")[0]
    assert best.name == "ropes.md"
    assert best.channels["fulltext"].rank == 1
    assert best.channels["vector"].rank >= 1
    assert best.score > 0
    assert SEA["ropes.md"][best.start : best.end] == best.text


def test_the_order_of_adding_documents_does_not_change_results(
    open_rig: Callable[..., Rig],
) -> None:
    rig = open_rig(SEA)
    queries = ("who signed the harbour charter", "Grey Island", "tides")
    forward = [names(rig, query) for query in queries]
    for name in SEA:
        rig.delete(name)
    rig.work()
    rig.sweep()
    for name in reversed(SEA):
        rig.put(name, SEA[name])
    rig.work()
    rig.library.searcher.clear_caches()
    assert [names(rig, query) for query in queries] == forward


@pytest.mark.parametrize("kinds", [("vector",), ("fulltext",), ("fulltext", "graph"), ("vector", "fulltext")])
def test_search_uses_the_indexes_of_the_base(open_rig: Callable[..., Rig], kinds: tuple[str, ...]) -> None:
    rig = open_rig(SEA, indexes=kinds)
    assert names(rig, "nylon rope load", 1) == ["ropes.md"]
    assert set(rig.library.searcher.compare_channels(rig.base, "nylon rope load")) == {*kinds, "hybrid"}


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        '"',
        "'; DROP TABLE library_chunks; --",
        "a AND OR NOT (",
        "col:*",
        "\0",
        "🙂",
        "%s %(x)s",
        "鯨",
        "NEAR(a b)",
    ],
)
def test_unusual_queries_raise_no_error(open_rig: Callable[..., Rig], query: str) -> None:
    rig = open_rig(SEA)
    rig.library.searcher.compare_channels(rig.base, query)
    assert len(names(rig, "nylon rope load")) > 0


def test_a_search_in_an_empty_base_returns_no_hits(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig({})
    assert names(rig, "anything") == []


def test_another_base_is_never_searched(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig(SEA)
    other = rig.library.catalog.create_base("other", BaseSettings(indexes=ALL))
    assert rig.library.searcher.search(other, "nylon rope load") == []
    assert {
        kind: hits for kind, hits in rig.library.searcher.compare_channels(other, "Grey Island").items() if hits
    } == {}


def test_hits_never_mix_two_generations_of_a_document(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig(SEA)
    rig.put("ropes.md", "# Ropes\n\nSteel wire does not stretch and does not rot, but it rusts under load.\n")
    seen: list[int] = []
    while rig.worker.run_next(1):
        hits = [hit for hit in rig.library.searcher.search(rig.base, "rope load stretch") if hit.name == "ropes.md"]
        generations = {hit.generation for hit in hits}
        assert len(generations) == 1
        seen += generations
    assert seen == sorted(seen)
    assert set(seen) == {1, 2}


def test_a_deleted_document_is_found_by_no_channel(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig(SEA)
    assert "island.md" in names(rig, "Grey Island lighthouse")
    rig.delete("island.md")
    for hits in rig.library.searcher.compare_channels(rig.base, "Grey Island lighthouse").values():
        assert "island.md" not in [hit.name for hit in hits]


def test_search_with_cached_chunk_owners_finds_the_same_as_without(
    open_rig: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "RELOAD_THRESHOLD", 1)
    rig = open_rig(SEA)
    other = Library(rig.store, Settings(data=str(tmp_path / "blobs"))).searcher  # receives no notification of changes

    def found() -> set[str]:
        shown = set()
        for query in ("Grey Island lighthouse", "who signed the harbour charter", "rope load knot"):
            remembering = other.compare_channels(rig.base, query)
            with monkeypatch.context() as forgetful:
                forgetful.setattr(other, "_owners", None)
                assert other.compare_channels(rig.base, query) == remembering
            shown |= {hit.name for hits in remembering.values() for hit in hits}
        return shown

    assert found() == set(SEA)
    rig.delete("island.md")
    assert found() == SEA.keys() - {"island.md"}
    rig.put("ropes.md", "# Ropes\n\nSteel wire does not stretch and does not rot, but it rusts under load.\n")
    while rig.worker.run_next(1):
        assert found() == SEA.keys() - {"island.md"}
    rig.sweep()
    assert found() == SEA.keys() - {"island.md"}
    for number in range(4):  # the first ones are few enough to be read one by one
        rig.index(f"knot-{number}.md", f"# Knot {number}\n\nA knot number {number} holds its load.\n")
        assert found() == {*SEA, *(f"knot-{one}.md" for one in range(number + 1))} - {"island.md"}


def test_a_search_within_documents_finds_no_others(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig(SEA)
    question = "who signed the harbour charter"
    ids = {name: rig.library.items.find(rig.base, name).id for name in SEA}
    found = rig.library.searcher.search(rig.base, question, documents=[ids["mara.md"], ids["tides.md"]])
    assert found
    assert {hit.name for hit in found} <= {"mara.md", "tides.md"}
    assert rig.library.searcher.search(rig.base, question, documents=[]) == []
    assert rig.library.searcher.search(rig.base, question, documents=[987_654]) == []


def test_a_query_is_not_compared_with_vectors_of_another_model(open_rig: Callable[..., Rig], tmp_path: Path) -> None:
    class Renamed(OfflineProvider):
        version = "another"

    rig = open_rig(SEA, provider=Renamed())
    other = Library(rig.store, Settings(data=str(tmp_path / "blobs")))
    found = other.searcher.compare_channels(rig.base, "nylon rope load")
    assert "vector" not in found
    assert {one.channel: one.code for one in found["hybrid"].notices} == {"vector": "embedding_model_gone"}
    assert found["hybrid"][0].name == "ropes.md"
    assert rig.library.searcher.compare_channels(rig.base, "nylon rope load")["vector"]


@pytest.mark.parametrize("chosen", [{"fulltext"}, {"vector"}, {"graph"}, {"fulltext", "vector"}, {"vector", "graph"}])
def test_a_search_with_selected_channels_uses_no_others(open_rig: Callable[..., Rig], chosen: set[str]) -> None:
    rig = open_rig(SEA)
    found = rig.library.searcher.search(rig.base, "Grey Island lighthouse", channels=chosen)
    assert found
    assert {kind for hit in found for kind in hit.channels} == chosen


def test_compressed_vectors_give_the_same_hits_with_the_same_scores(
    open_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"{name}.md": f"# Part {name}\n\nThe soil of field {name} holds rain number {name}." for name in range(40)}
    rig = open_rig({**SEA, **texts}, indexes=("vector",))
    before = rig.library.searcher.search(rig.base, "sail", 9)
    index = rig.library.indexes["vector"]
    assert isinstance(index, VectorIndex)
    index.__dict__.pop("_store")  # as in a new process
    monkeypatch.setattr(vector_cache, "MAX_EXACT_ROWS", 10)
    after = rig.library.searcher.search(rig.base, "sail", 9)
    assert [hit.name for hit in after] == [hit.name for hit in before]
    assert [hit.channels["vector"].score for hit in after] == pytest.approx(
        [hit.channels["vector"].score for hit in before], abs=1e-5
    )
    rig.delete(before[0].name)
    assert before[0].name not in names(rig, "sail")
