"""The BM25 cache ranks like FTS5, follows every change, stays within its memory limit, and can be switched off."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from holdfast.content.tokenize import Term, parse_query_terms, segment_text
from holdfast.indexes import search_memory, sqlite
from holdfast.indexes.fulltext import bm25_cache as postings
from holdfast.indexes.fulltext.bm25_cache import BYTES_PER_ENTRY, Postings
from holdfast.indexes.fulltext.index import FulltextIndex
from holdfast.indexes.questions.index import QuestionsIndex
from holdfast.indexes.search_memory import SearchMemory
from holdfast.indexes.sqlite import SqliteFulltextStore
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.db.database import Database
    from tests.support.clock import FakeClock

RECIPE = 7
VOCABULARY = """whale whales whaling krill running run ran harbour Häfen naïve ropes rope tide tides 4th x9
    鯨は海に住む 海流 クジラ the of a and""".split()  # noqa: SIM905 - a list of words reads best as words


@pytest.fixture
def database(tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    store = open_test_store(f"sqlite:///{tmp_path}/words.db", clock)
    yield store.database
    store.close()


def text(chance: Random, most: int = 30) -> str:
    return segment_text(" ".join(chance.choices(VOCABULARY, k=chance.randint(0, most))))


def put(shelf: SqliteFulltextStore, database: Database, chunks: Sequence[int], seed: int = 1) -> None:
    chance = Random(seed)
    texts = {chunk: (text(chance, 4), text(chance)) for chunk in chunks}
    database.write(lambda tx: shelf.put(tx, RECIPE, texts), durable=False)


def queries(count: int = 30) -> Iterator[list[Term]]:
    chance = Random(99)
    for _ in range(count):
        yield parse_query_terms(" ".join(chance.choices(VOCABULARY, k=chance.randint(1, 6))))
    yield parse_query_terms("鯨")  # matches by prefix
    yield parse_query_terms("zeppelin")
    yield []


def assert_same(
    shelf: SqliteFulltextStore, plain: SqliteFulltextStore, within: Sequence[int] | None = None, *, exact: bool = True
) -> None:
    """Assert that cache and FTS5 return the same chunks and scores in the same order, except among equal scores."""
    for query in queries():
        mine, theirs = shelf.find(RECIPE, query, 1_000, within), plain.find(RECIPE, query, 1_000, within)
        assert {one.chunk for one in mine} == {one.chunk for one in theirs}
        if exact:
            scores = {one.chunk: one.score for one in theirs}
            assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], rel=1e-4)
            assert [scores[one.chunk] for one in mine] == pytest.approx([one.score for one in theirs], rel=1e-4)


def made(database: Database) -> tuple[SqliteFulltextStore, SqliteFulltextStore]:
    return SqliteFulltextStore(database), SqliteFulltextStore(database, memory=SearchMemory(0))


@pytest.mark.parametrize("apart", [1, postings.MAX_IDS_PER_CHUNK, 50])
def test_the_cache_ranks_like_fts5(database: Database, apart: int) -> None:
    shelf, plain = made(database)
    put(shelf, database, range(apart, 400 * apart, apart))
    assert_same(shelf, plain)
    assert_same(shelf, plain, within=[5 * apart, 300 * apart, 77 * apart, 1_000 * apart])
    assert_same(shelf, plain, within=[])
    assert shelf._caches
    assert not plain._caches


def test_added_and_removed_chunks_are_visible_immediately_in_any_order(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "CHANGED_SHARE", 10.0)
    shelf, plain = made(database)
    other = SqliteFulltextStore(database)  # simulates another process
    put(other, database, range(100, 300))
    assert_same(shelf, plain)
    first = shelf._caches[RECIPE][1]
    put(other, database, [400, 401, 20, 150], seed=2)  # chunk 150 is in the cache already
    assert_same(shelf, plain, exact=False)
    assert first.added_since == {400, 401, 20}
    other.drop(RECIPE, [120, 400])
    assert_same(shelf, plain, exact=False)
    put(other, database, [120], seed=3)  # the id of a removed chunk is used again
    assert_same(shelf, plain, exact=False)
    assert_same(shelf, plain, within=[120, 401, 130], exact=False)
    assert shelf._caches[RECIPE][1] is first


def test_many_changes_rebuild_the_cache(database: Database) -> None:
    shelf, plain = made(database)
    put(shelf, database, range(100, 300))
    assert_same(shelf, plain)
    put(shelf, database, range(500, 505), seed=2)
    assert_same(shelf, plain, exact=False)
    assert shelf._caches[RECIPE][1].added_since
    put(shelf, database, range(600, 700), seed=3)
    assert_same(shelf, plain)
    assert not shelf._caches[RECIPE][1].added_since


def test_a_reader_of_an_older_snapshot_removes_nothing_for_later_readers(database: Database) -> None:
    shelf, plain = made(database)
    put(shelf, database, range(1, 100))
    query = parse_query_terms("whale krill tide rope run harbour")
    with database.reading() as old:
        assert shelf._tables.exists_committed(old, RECIPE)
        put(shelf, database, [200], seed=4)
        shelf.find(RECIPE, [Term("whale")], 5, None)  # fills the cache, including chunk 200
        words = shelf._refresh_cache(old, RECIPE)  # a reader whose snapshot does not contain chunk 200
        assert words is not None
        tokens = [one for one in shelf._tokenizer.tokenize(query) if one]
        shelf._search_cache(old, RECIPE, words, tokens, limit=10, within=None)
    assert {one.chunk for one in shelf.find(RECIPE, query, 1_000, None)} == {
        one.chunk for one in plain.find(RECIPE, query, 1_000, None)
    }
    assert_same(shelf, plain, exact=False)


def test_the_cache_stays_within_its_memory_limit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SqliteFulltextStore(database, memory=SearchMemory(0))
    shelf = SqliteFulltextStore(database, memory=SearchMemory(700 * BYTES_PER_ENTRY / 2**20))
    put(shelf, database, range(1, 400))
    assert_same(shelf, plain)
    assert shelf._caches[RECIPE][1].size <= 700
    monkeypatch.setattr(search_memory, "KEPT_SECONDS", -1.0)  # no copy stays because it was used just now
    database.write(lambda tx: shelf.put(tx, 8, dict.fromkeys(range(1, 300), ("", "whale"))), durable=False)
    shelf.find(8, [Term("whale")], 5, None)
    assert list(shelf._caches) == [8], "the recipe that was not asked for is forgotten first"


@pytest.mark.parametrize("memory", [0, 60])
def test_the_setting_search_memory_switches_the_cache_on_and_off(tmp_path: Path, clock: FakeClock, memory: int) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/words.db", data=str(tmp_path), search_memory=memory)
    store = open_test_store(settings.database, clock)
    library = Library(store, settings)
    for kind in ("fulltext", "questions"):
        index = library.indexes[kind]
        assert isinstance(index, FulltextIndex | QuestionsIndex)
        shelf = index._store if isinstance(index, FulltextIndex) else index.pairs._words
        assert isinstance(shelf, SqliteFulltextStore)
        assert shelf._memory is library.indexes.search_memory
        assert (shelf._memory.limit == 0) is (memory == 0)
    store.close()


def test_a_recipe_with_too_many_chunks_is_searched_by_fts5(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "MAX_CACHED_CHUNKS", 50)
    shelf, plain = made(database)
    put(shelf, database, range(1, 100))
    assert_same(shelf, plain)
    assert not shelf._caches


def test_a_term_that_fts5_does_not_treat_as_one_word_is_searched_by_fts5(database: Database) -> None:
    shelf, plain = made(database)
    put(shelf, database, range(1, 100))
    strange = [Term("whale"), Term("krill-tide"), Term("")]
    assert shelf._tokenizer.tokenize(strange) == [("whale", "whale"), None, None]
    assert shelf.find(RECIPE, strange[:2], 10, None) == plain.find(RECIPE, strange[:2], 10, None)


@pytest.mark.parametrize("numbers", [[], [0, 0], [1, 127, 128, 300, 16_383, 16_384, 2_000_000, 5]])
def test_lengths_are_read_as_fts5_writes_them(numbers: list[int]) -> None:
    written = b""
    for number in numbers:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(0x80 | (number & 0x7F))
        written += bytes(reversed(groups))
    assert sqlite._parse_varints(written.hex()).tolist() == numbers


def test_a_chunk_outside_the_cache_does_not_change_the_scores_of_its_neighbours() -> None:
    words = Postings(np.array([10, 20, 30]), np.array([5, 5, 5]))
    words.add_word("word", np.array([5, 20, 25, 25, 99]), headed=np.array([True, False, False, True, False]))
    assert [chunk for chunk, _ in words.find(["word"], 5, None)] == [20]


def test_an_empty_cache_finds_nothing() -> None:
    empty = Postings(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    empty.add_word("word", np.array([3, 4, 4]), headed=np.array([True, False, False]))
    assert empty.find(["word"], 5, None) == []
    assert empty.evict_word()
    assert not empty.evict_word()


def test_the_order_in_which_chunks_are_read_does_not_matter() -> None:
    said = [(10, True), (10, False), (30, False), (30, False), (20, True)]
    found = []
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [2, 3, 4, 1, 0]):
        words = Postings(np.array([10, 20, 30]), np.array([5, 6, 7]))
        read = [said[place] for place in order]
        words.add_word("word", np.array([chunk for chunk, _ in read]), headed=np.array([headed for _, headed in read]))
        found.append(words.find(["word"], 5, None))
    assert [chunk for chunk, _ in found[0]] == [10, 20, 30]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("chunks", [3, 40, 5_000])
@pytest.mark.parametrize("limit", [0, 1, 10, 100])
def test_the_highest_scores_are_found_without_a_full_sort(chunks: int, limit: int) -> None:
    chance = Random(chunks + limit)
    sums = np.array([chance.choice([0, 0, 0, 0.5, 1, chance.random()]) for _ in range(chunks)], dtype=np.float32)
    places = postings._highest(sums, limit).tolist()
    best = sorted((place for place in range(chunks) if sums[place] > 0), key=lambda one: (-sums[one], one))
    assert sorted(places, key=lambda one: (-sums[one], one))[:limit] == best[:limit]
