"""From bytes to hits on both databases: documents become searchable, change, and are deleted."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.admission import Verdict
from holdfast.engine.states import Operation, Status
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.catalog.repository import Base
    from holdfast.documents.requests import Upload
    from holdfast.engine.slot import BuildResult
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale is the largest animal.\n\n## Food\n\nIt eats krill, tonnes of it.\n"
CHANNELS = ("vector", "fulltext")


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock)
    yield rig
    rig.close()


@pytest.mark.parametrize("kind", CHANNELS)
def test_an_added_document_is_found(rig: Rig, kind: str) -> None:
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS
    rig.index("stones.md", "# Stones\n\nGranite is hard.\n")
    hit = rig.find("what krill does it eat", kind)[0]
    assert (hit.name, hit.generation) == ("whales.md", 1)
    assert WHALES[hit.start : hit.end] == hit.text


def test_adding_the_same_content_again_changes_nothing(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rows = {kind: rig.rows(kind) for kind in CHANNELS}
    answer = rig.put("whales.md", WHALES)
    assert (answer.verdict, answer.reason) == (Verdict.SKIPPED, "same_content")
    assert rig.worker.run_next(100) == 0
    assert {kind: rig.rows(kind) for kind in CHANNELS} == rows
    assert len([file for file in rig.folder.rglob("*") if file.is_file()]) == 1


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_deleted_document_disappears_immediately_and_leaves_no_rows(rig: Rig, kind: str) -> None:
    rig.index("whales.md", WHALES)
    rig.delete("whales.md")
    assert rig.find("krill", kind) == []
    rig.work()
    rig.sweep()
    left = {table: rig.count(table) for table in ("items", "builds", "lists", "chunks", "slots", "owners")}
    assert left == dict.fromkeys(left, 0)
    assert [rig.rows(kind) for kind in CHANNELS] == [[], []]
    assert [file for file in rig.folder.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_search_during_a_change_finds_exactly_one_generation(rig: Rig, kind: str) -> None:
    old = "\n\n".join(f"## Part {n}\n\nThe krill of part {n} is old." for n in range(30))
    new = old.replace("part 7 is old", "part 7 is new").replace("part 20 is old", "part 20 is new")
    rig.index("parts.md", old)
    before = rig.find("krill", kind)
    rig.put("parts.md", new)
    seen = {1: "old", 2: "new"}
    generations = []
    while rig.worker.run_next(1):
        hits = rig.find("krill", kind)
        (generation,) = {hit.generation for hit in hits}
        generations.append(generation)
        assert len({hit.start for hit in hits}) == len(hits)
        text = " ".join(hit.text for hit in hits)
        assert ("part 7 is new" in text) == (seen[generation] == "new")
        assert ("part 20 is old" in text) == (seen[generation] == "old")
    assert generations == sorted(generations)
    assert generations[-1] == 2
    assert len(before) == len(rig.find("krill", kind))


def test_an_edit_keeps_the_rows_of_unchanged_chunks_and_sweeps_the_rest(rig: Rig) -> None:
    old = "\n\n".join(f"## Part {n}\n\n" + f"The krill of part {n} is old. " * 40 for n in range(30))
    rig.index("parts.md", old)
    before = set(rig.rows("vector"))
    rig.index("parts.md", old.replace("of part 7 is", "of part 7 was"))
    after = set(rig.rows("vector"))
    assert before < after
    assert len(after - before) <= 3
    rig.sweep()
    kept = set(rig.rows("vector"))
    assert kept == set(rig.rows("fulltext"))
    assert len(kept & before) >= len(before) - 3
    assert rig.count("chunks") == rig.count("lists") == len(kept)
    assert rig.count("builds") == 1
    assert len(rig.find("krill", "vector")) == len(kept)


def test_a_failed_change_leaves_the_old_content_searchable(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    answer = rig.put("whales.md", b"\n \n")
    assert answer.verdict is Verdict.ACCEPTED
    rig.work()
    assert rig.owner("whales.md").status is Status.DEGRADED
    assert rig.slot("whales.md", "content").error_code == "no_text"
    for kind in CHANNELS:
        assert [hit.generation for hit in rig.find("krill", kind)] == [1]


def test_a_cancelled_change_leaves_the_old_content_searchable(rig: Rig) -> None:
    rig.index("whales.md", WHALES)
    rig.put("whales.md", "# Stones\n\nGranite is hard.\n")
    rig.worker.run_next(1)
    assert rig.ask("whales.md", Operation.CANCEL).accepted
    rig.work()
    rig.sweep()
    for kind in CHANNELS:
        assert [hit.generation for hit in rig.find("krill", kind)] == [1]
        assert rig.find("granite", "fulltext") == []


@pytest.mark.parametrize("kind", ["content", *CHANNELS])
def test_a_batch_that_is_deleted_during_indexing_stops_without_a_warning(
    rig: Rig, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    names = [f"{number}.md" for number in range(5)]
    for name in names:
        rig.put(name, WHALES + name)
    if kind != "content":
        rig.worker.run_next(100)
    begun: list[str] = []
    build = rig.indexers[kind].build

    def late(task: Task) -> BuildResult | None:
        begun.append(task.ticket.key.owner)
        if len(begun) == 1:
            rig.delete(*names)
            rig.clock.advance(timedelta(seconds=1))
        return build(task)

    monkeypatch.setattr(rig.indexers[kind], "build", late)
    rig.work()
    assert len(begun) == 1
    told = [one.getMessage() for one in caplog.records if one.name == "holdfast"]
    assert {one.levelname for one in caplog.records if one.name == "holdfast"} == {"INFO"}
    assert len(told) <= 2, told
    assert rig.count("items") == 0


def test_chinese_is_found_by_a_word_within_a_sentence(rig: Rig) -> None:
    rig.index("鲸.md", "# 鲸\n\n蓝鲸是世界上最大的动物。\n")
    rig.index("石.md", "# 石\n\n花岗岩很硬。\n")
    assert [hit.name for hit in rig.find("最大动物")] == ["鲸.md"]


def test_re_adding_old_bytes_during_a_change_restores_them(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", WHALES)
    adding = rig.library.adder
    look = adding._find_unchanged_digests

    def looked_too_early(base: Base, uploads: Sequence[Upload]) -> dict[tuple[int, str], str]:
        seen = look(base, uploads)
        monkeypatch.setattr(adding, "_find_unchanged_digests", look)
        rig.index("whales.md", "# Stones\n\nGranite is hard.\n")
        return seen

    monkeypatch.setattr(adding, "_find_unchanged_digests", looked_too_early)
    assert rig.put("whales.md", WHALES).accepted
    rig.work()
    assert [hit.generation for hit in rig.find("krill")] == [3]
    assert rig.find("granite") == []
