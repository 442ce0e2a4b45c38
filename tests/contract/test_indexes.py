"""The contract of every index, on both databases and in an external store."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.chunk_lists import ChunkLists
from holdfast.catalog.repository import Recipe
from holdfast.documents.requests import Upload
from holdfast.engine.executor import no_failpoint
from holdfast.engine.states import Operation, Status
from holdfast.engine.task import Task
from holdfast.errors import StaleLease
from holdfast.indexes.base import Work
from tests.support.audit import Manifest, audit, audit_quiet
from tests.support.foreign_index import OutsideIndex, install
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.catalog.chunk_lists import ChunkText
    from holdfast.indexes.base import Found, Index
    from tests.support.clock import FakeClock

KINDS = ("vector", "fulltext", "outside")
SAID = (
    "The blue whale eats krill in the cold sea.",
    "Granite is a hard stone of the mountains.",
    "Bread is baked from flour, water and salt.",
    "A violin has four strings and a bow.",
    "Krill swims in swarms, and whales follow the krill.",
    "The river carries sand down to the delta.",
)


class Bench:
    """One index and a document that is being added to it. The test claims the slot and does the work itself."""

    def __init__(self, rig: Rig, kind: str) -> None:
        self.rig = rig
        self.index: Index = rig.library.indexes[kind]
        text = "\n\n".join(f"## Part {number}\n\n{said}" for number, said in enumerate(SAID))
        rig.put("parts.md", text)
        rig.worker.run_next(1)
        (self.ticket,) = rig.store.claim_next((kind,), "hand", 1)
        rig.worker.heartbeat.hold([self.ticket], rig.clock.monotonic())
        self.task = Task(self.ticket, rig.store, rig.worker.heartbeat, no_failpoint)
        self.recipe = rig.library.catalog.get_or_create_recipe(rig.base, kind, self.index.spec(rig.base))
        listed = Manifest(rig).lists[self.ticket.owner, self.ticket.source or 0]
        self.pieces = ChunkLists(rig.store.database).read_texts([listed[ordinal] for ordinal in sorted(listed)])
        self.chunks = sorted(piece.chunk for piece in self.pieces)
        assert len(self.chunks) == len(SAID)

    def work(self, pieces: Sequence[ChunkText], recipe: Recipe | None = None) -> Work:
        return Work(
            task=self.task,
            base=self.rig.base,
            recipe=recipe or self.recipe,
            database=self.rig.store.database,
            pieces=pieces,
        )

    def fill(self, pieces: Sequence[ChunkText] | None = None, recipe: Recipe | None = None) -> None:
        work = self.work(self.pieces if pieces is None else pieces, recipe)
        assert self.index.fill(work) == {}

    def find(self, query: str, limit: int = 100, **more: Any) -> list[Found]:
        return self.index.find(self.recipe, query, limit, **more)

    def scan(self) -> list[int]:
        return self.index.scan(self.recipe, 0, 1_000)

    def chunk(self, word: str) -> int:
        return next(piece.chunk for piece in self.pieces if word in piece.text)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Bench]:
    kind = request.param
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=(kind,), chunk_size=32, chunk_overlap=0)
    if kind == "outside":
        install(rig, tmp_path / "outside.db")
    yield Bench(rig, kind)
    rig.close()


def test_filled_chunks_are_no_longer_absent_and_appear_in_a_scan(bench: Bench) -> None:
    assert bench.index.absent(bench.recipe, bench.chunks) == bench.chunks
    assert bench.scan() == []
    bench.fill(bench.pieces[:2])
    some = sorted(piece.chunk for piece in bench.pieces[:2])
    assert bench.scan() == some
    assert bench.index.absent(bench.recipe, bench.chunks) == [one for one in bench.chunks if one not in some]
    assert bench.index.absent(bench.recipe, [999_999, *some]) == [999_999]
    assert bench.index.absent(bench.recipe, []) == []
    bench.fill()
    assert bench.scan() == bench.chunks
    assert bench.index.absent(bench.recipe, bench.chunks) == []


def test_a_scan_continues_after_the_last_chunk_it_returned(bench: Bench) -> None:
    bench.fill()
    seen: list[int] = []
    while portion := bench.index.scan(bench.recipe, seen[-1] if seen else 0, 2):
        assert len(portion) <= 2
        seen += portion
    assert seen == bench.chunks
    assert bench.index.scan(bench.recipe, bench.chunks[-1], 10) == []


def test_filling_twice_keeps_one_row_for_each_chunk(bench: Bench) -> None:
    bench.fill()
    once = bench.find("krill whale")
    bench.fill()
    assert bench.scan() == bench.chunks
    assert bench.find("krill whale") == once
    assert len({one.chunk for one in once}) == len(once)


def test_a_second_write_of_a_chunk_does_not_replace_the_first(bench: Bench) -> None:
    bench.fill()
    before = bench.find("krill")
    words = bench.find("zeppelin airship")
    bench.fill([piece._replace(headings=(), text="A zeppelin is an airship.") for piece in bench.pieces])
    assert bench.find("krill") == before
    assert bench.find("zeppelin airship") == words


def test_a_drop_removes_rows_and_can_be_repeated(bench: Bench) -> None:
    bench.fill()
    krill = bench.chunk("eats krill")
    for _ in range(2):
        bench.index.drop(bench.recipe, [krill, 999_999])
        assert bench.scan() == [one for one in bench.chunks if one != krill]
        assert krill not in [one.chunk for one in bench.find("krill")]
    assert bench.index.absent(bench.recipe, bench.chunks) == [krill]
    bench.index.drop(bench.recipe, [])
    bench.fill([piece for piece in bench.pieces if piece.chunk == krill])
    assert krill in [one.chunk for one in bench.find("krill")]


def test_a_recipe_without_rows_is_empty(bench: Bench) -> None:
    unknown = Recipe(id=999_999, spec="{}")
    for _ in range(2):
        assert bench.index.absent(unknown, bench.chunks) == bench.chunks
        assert bench.index.find(unknown, "krill", 10) == []
        assert bench.index.find(unknown, "krill", 10, bench.chunks) == []
        assert bench.index.scan(unknown, 0, 10) == []
        bench.index.drop(unknown, bench.chunks)
        bench.fill()  # of another recipe


def test_the_rows_of_different_recipes_are_separate(bench: Bench) -> None:
    other = Recipe(id=bench.recipe.id + 1, spec=bench.recipe.spec)
    bench.fill()
    bench.fill(bench.pieces[:1], other)
    assert bench.index.scan(other, 0, 10) == [bench.pieces[0].chunk]
    assert [one.chunk for one in bench.index.find(other, "krill", 10)] == [bench.pieces[0].chunk]
    bench.index.drop(other, bench.chunks)
    assert bench.index.scan(other, 0, 10) == []
    assert bench.scan() == bench.chunks


def test_the_best_hits_come_first_and_the_limit_is_respected(bench: Bench) -> None:
    bench.fill()
    found = bench.find("krill and whales")
    assert {one.chunk for one in found[:2]} == {bench.chunk("eats krill"), bench.chunk("swims")}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for limit in (1, 2, 3):
        assert bench.find("krill and whales", limit) == found[:limit]


def test_the_same_query_returns_the_same_hits(bench: Bench) -> None:
    bench.fill()
    first = bench.find("stone water strings")
    assert all(bench.find("stone water strings") == first for _ in range(3))


def test_hits_with_equal_scores_are_ordered_by_chunk_at_any_limit(bench: Bench) -> None:
    bench.fill([piece._replace(headings=(), text="krill") for piece in reversed(bench.pieces)])
    for limit in (1, 3, 10):
        assert [one.chunk for one in bench.find("krill", limit)] == bench.chunks[:limit]


def test_a_search_within_named_chunks_returns_only_those_chunks(bench: Bench) -> None:
    bench.fill()
    krill, stone = bench.chunk("eats krill"), bench.chunk("Granite")
    asked = "krill granite stone"
    found = bench.find(asked, within=[krill, stone, 999_999])
    assert {one.chunk for one in found} == {krill, stone}
    alone = bench.find(asked, within=[krill])
    assert [one.chunk for one in alone] == [krill]
    assert [one.chunk for one in bench.find(asked, within=[krill, krill])] == [krill]
    assert bench.find(asked, within=[]) == []
    assert len(bench.find(asked, 1, within=[krill, stone])) == 1


def test_a_query_without_words_finds_nothing_and_raises_no_error(bench: Bench) -> None:
    bench.fill()
    for query in ("", "   ", "\n\t"):
        assert bench.find(query) == []
    for query in ("?!...", '""', "\0", "'"):
        assert bench.find(query) == [] or bench.index.kind == "vector"  # a model may give punctuation a meaning


def test_query_syntax_characters_never_cause_an_error(bench: Bench) -> None:
    bench.fill()
    for query in (
        '"krill',
        "krill*",
        "krill AND",
        "NEAR(krill",
        "OR krill OR",
        "-krill",
        "a:krill",
        "krill & | !",
        "%s krill",
    ):
        assert bench.chunk("swims") in [one.chunk for one in bench.find(query)], query


def test_searches_during_writes_return_consistent_hits(bench: Bench) -> None:
    """Each answer matches the state of the index at some moment."""
    errors: list[BaseException] = []
    ended = threading.Event()

    def search() -> None:
        try:
            while not ended.is_set():
                found = [one.chunk for one in bench.find("krill")]
                assert len(set(found)) == len(found)
                assert set(found) <= set(bench.chunks)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        bench.fill()
        bench.index.drop(bench.recipe, bench.chunks)
    bench.fill()
    ended.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert bench.chunk("eats krill") in [one.chunk for one in bench.find("krill")]


def test_a_late_write_is_refused_or_has_no_visible_effect(bench: Bench) -> None:
    rig = bench.rig
    rig.ask("parts.md", Operation.CANCEL)
    if bench.index.kind == "outside":
        bench.index.fill(bench.work(bench.pieces))  # an external store does not check the fence
    else:
        with pytest.raises(StaleLease):
            bench.index.fill(bench.work(bench.pieces))
        assert bench.scan() == []
    assert rig.find("krill", bench.index.kind) == []
    rig.ask("parts.md", Operation.RETRY)
    rig.clock.advance(timedelta(minutes=3))
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert bench.scan() == bench.chunks
    audit_quiet_after_sweep(rig)


def audit_quiet_after_sweep(rig: Rig) -> None:
    rig.sweep()
    audit_quiet(rig)


@pytest.fixture
def outside(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[tuple[Rig, OutsideIndex]]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext", "outside"), chunk_size=32, chunk_overlap=0)
    yield rig, install(rig, tmp_path / "elsewhere.db")
    rig.close()


def text(*words: str) -> str:
    return "\n\n".join(f"## Part {number}\n\nThe {word} of part {number}." for number, word in enumerate(words))


def test_an_external_store_serves_documents_that_change_and_are_deleted(outside: tuple[Rig, OutsideIndex]) -> None:
    rig, _ = outside
    rig.index("parts.md", text("krill", "stone", "bread"))
    assert [hit.text[-20:] for hit in rig.find("krill", "outside")] == ["The krill of part 0."]
    assert len(rig.find("krill stone bread", "outside")) == 3
    audit(rig)
    before = set(rig.rows("outside"))
    rig.put("parts.md", text("krill", "violin", "bread"))
    while rig.worker.run_next(1):
        (generation,) = {hit.generation for hit in rig.find("krill stone violin", "outside")}
        assert len(rig.find("stone", "outside")) == (generation == 1)
        assert len(rig.find("violin", "outside")) == (generation == 2)
        audit(rig)
    assert len(set(rig.rows("outside")) - before) == 1  # only the changed chunk was written
    audit_quiet_after_sweep(rig)
    assert len(rig.rows("outside")) == 3
    rig.delete("parts.md")
    assert rig.find("krill", "outside") == []
    rig.work()
    assert rig.rows("outside") == []
    audit_quiet_after_sweep(rig)


def test_a_row_written_to_an_external_store_after_a_delete_is_hidden_and_collected(
    outside: tuple[Rig, OutsideIndex],
) -> None:
    rig, index = outside
    rig.index("kept.md", text("krill", "stone"))
    rig.put("gone.md", text("krill", "bread", "violin"))
    late = rig.hire("late")
    written: list[int] = []

    def remove_everything() -> None:
        """Remove everything of the document between the check and the write."""
        if not written:
            written.append(1)
            rig.delete("gone.md")
            rig.clock.advance(timedelta(minutes=3))
            rig.work()
            assert rig.count("items") == 1

    rig.worker.run_next(1)
    index.before_write = remove_everything
    while late.run_next(1):
        pass
    leftovers = set(rig.rows("outside")) - set(Manifest(rig).chunks)
    assert len(leftovers) == 1  # the late write arrived
    assert {hit.name for hit in rig.find("krill", "outside")} == {"kept.md"}
    audit(rig)
    rig.sweep()
    assert leftovers <= set(rig.rows("outside"))  # the lists in the database do not name the leftover row
    scrub(rig, index, limit=1)
    assert set(rig.rows("outside")) == set(Manifest(rig).chunks)
    audit_quiet(rig)


def scrub(rig: Rig, index: Index, limit: int = 500) -> None:
    """Remove orphan rows by scanning the store of the index itself."""
    sweeper = rig.library.indexes.garbage_collector()
    for recipe in rig.library.indexes.recipes(rig.base, index.kind):
        after: int | None = 0
        while after is not None:
            after = sweeper.remove_orphan_rows(index, recipe, after, limit)


def test_garbage_collection_of_an_index_removes_no_row_that_is_needed(outside: tuple[Rig, OutsideIndex]) -> None:
    rig, index = outside
    rig.index("parts.md", text("krill", "stone", "bread"))
    rig.put("parts.md", text("krill", "violin", "bread"))
    rig.worker.run_next(1)
    ticket = rig.store.claim_next(("outside",), "hand", 1)[0]  # in progress: rows are written but not published
    rig.worker.heartbeat.hold([ticket], rig.clock.monotonic())
    recipe = rig.library.indexes.recipes(rig.base, "outside")[0]
    new = max(Manifest(rig).chunks)
    task = Task(ticket, rig.store, rig.worker.heartbeat, no_failpoint)
    pieces = ChunkLists(rig.store.database).read_texts([new])
    index.fill(Work(task=task, base=rig.base, recipe=recipe, database=rig.store.database, pieces=pieces))
    before = {kind: rig.rows(kind) for kind in ("fulltext", "outside")}
    for kind in ("fulltext", "outside"):
        scrub(rig, rig.library.indexes[kind])
    assert {kind: rig.rows(kind) for kind in ("fulltext", "outside")} == before
    assert new in before["outside"]


def test_a_row_written_to_an_external_store_for_an_old_generation_is_hidden(outside: tuple[Rig, OutsideIndex]) -> None:
    rig, index = outside
    rig.put("parts.md", text("krill", "stone", "bread"))
    rig.worker.run_next(1)
    late = rig.hire("late")
    changed: list[int] = []

    def change() -> None:
        if not changed:
            changed.append(1)
            rig.put("parts.md", text("violin"))
            rig.worker.run_next(1)  # the new content
            rig.sweep()  # removes the chunks of the old content while its row is still being written

    index.before_write = change
    while late.run_next(1):
        pass
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert {hit.generation for hit in rig.find("the krill of part", "outside")} == {2}
    assert rig.find("krill", "outside") == []
    audit(rig)
    scrub(rig, index)
    audit_quiet_after_sweep(rig)


def test_a_failing_preparation_does_not_fail_any_document(outside: tuple[Rig, OutsideIndex]) -> None:
    rig, index = outside

    def fail() -> None:
        raise ValueError("a bug of somebody else")

    index.before_prepare = fail
    rig.library.adder.put(rig.base, [Upload(f"{number}.md", b"krill") for number in range(3)])
    rig.work()
    assert {rig.owner(f"{number}.md").status for number in range(3)} == {Status.SUCCESS}
