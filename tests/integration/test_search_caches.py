"""Copies in memory follow the database: what is added later is found, and what is removed is forgotten."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.store import LARGEST_BATCH
from holdfast.indexes.graph import definitions
from holdfast.indexes.graph.index import GraphIndex
from holdfast.search import graph_links
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

SEA = {
    "charter.md": "# The Harbour Charter\n\nThe charter was signed by Mara Lindqvist in spring.\n",
    "mara.md": "# Mara Lindqvist\n\nShe grew up on Grey Island and learned to sail there.\n",
    **{f"rope-{n}.md": f"# Rope {n}\n\nHemp rots and nylon stretches; it holds {n} tons.\n" for n in range(9)},
}
ISLAND = "# Grey Island\n\nA rock with eleven houses and a shop that opens on Tuesdays.\n"
QUESTION = "who signed the harbour charter"


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    with closing(Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext", "graph"))) as opened:
        for name, text in SEA.items():
            opened.put(name, text)
        opened.work()
        opened.library.calibrator.refresh(opened.base)
        yield opened


def names(rig: Rig, query: str, channel: str) -> list[str]:
    return [hit.name for hit in rig.library.searcher.search_channel(rig.base, channel, query)]


def pass_seconds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    later = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: later)


def test_a_word_is_found_in_a_document_that_was_added_after_a_search_for_it(rig: Rig) -> None:
    assert names(rig, "lighthouse", "fulltext") == []
    rig.index("light.md", "# Light\n\nThe lighthouse is white.\n")
    assert names(rig, "lighthouse", "fulltext") == ["light.md"]
    rig.index("lamp.md", "# Lamp\n\nThe lamp of the lighthouse turns.\n")
    assert set(names(rig, "lighthouse", "fulltext")) == {"light.md", "lamp.md"}


def test_a_name_that_is_defined_after_a_search_is_followed_at_once(rig: Rig) -> None:
    assert "island.md" not in names(rig, QUESTION, "graph")
    rig.index("island.md", ISLAND)
    assert "island.md" in names(rig, QUESTION, "graph")


def test_a_name_that_another_process_has_removed_is_forgotten_after_a_while(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,) = rig.library.indexes.recipes(rig.base, "graph")
    reader = GraphIndex(rig.library.tools)
    assert reader.load_definitions(recipe).count("mara lindqvist") == 1
    rig.delete("mara.md")
    rig.work()
    while rig.library.sweep(LARGEST_BATCH):
        rig.work()
    assert "mara.md" not in names(rig, QUESTION, "graph")
    pass_seconds(monkeypatch, definitions.COUNT_CACHE_SECONDS + 1)
    assert reader.load_definitions(recipe).count("mara lindqvist") == 0


def test_a_new_mention_of_a_known_name_is_followed_after_a_while(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "Mara Lindqvist"
    assert "boat.md" not in names(rig, question, "graph")
    rig.index("boat.md", "# A boat\n\nThe wood was bought by mara lindqvist.\n")
    pass_seconds(monkeypatch, graph_links.CACHE_SECONDS + 1)
    assert "boat.md" in names(rig, question, "graph")
