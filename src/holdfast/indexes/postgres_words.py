"""Words of chunks on PostgreSQL, as tsvector, ranked by BM25.

PostgreSQL finds words but has no BM25. A query takes one statement: it collects the chunks with the rarest words, until
there are enough candidates, and adds up the score of every word in them. `ts_rank` of a single word depends only on how
often the word occurs, so it gives the frequency without unpacking the words of the chunk.
"""

from __future__ import annotations

import math
import re
import time
import unicodedata
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from holdfast.indexes.base import Found
from holdfast.indexes.fulltext.index import K1, B, StemmingCache, inverse_document_frequency
from holdfast.indexes.postgres import LOCK_TABLE_CREATION, SELECT_TABLE, PostgresRowStore
from holdfast.indexes.recipe_tables import RecipeTables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.content import Term
    from holdfast.db import Database, Transaction

COMPARED = 12_000  # pairs of a word and a chunk that are compared for one query
MIN_CANDIDATES = 2_000  # chunks that are ranked for one query, if so many have a word of it
COUNT_CACHE_SECONDS = 60.0  # how long the number of rows is cached
WORD_CACHE_SECONDS = 600.0  # the same for a word; its weight hardly changes
MAX_CACHED_WORDS = 20_000
MANY_ROWS = 1_000  # in a table with fewer rows, words in most chunks are ranked as well
WORD = re.compile(r"[^\W_]+")
CREATE_TEXT_TABLE = """CREATE TABLE IF NOT EXISTS {table}
    (chunk bigint PRIMARY KEY, words tsvector NOT NULL, length integer NOT NULL)"""
CREATE_WORDS_INDEX = "CREATE INDEX IF NOT EXISTS {table}_words ON {table} USING gin (words)"
CREATE_TEXT_SEARCH_CONFIGURATION = """
DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_ts_config WHERE cfgname = 'holdfast') THEN
    CREATE TEXT SEARCH DICTIONARY holdfast_stem (TEMPLATE = snowball, LANGUAGE = porter);
    CREATE TEXT SEARCH CONFIGURATION holdfast (COPY = simple);
    ALTER TEXT SEARCH CONFIGURATION holdfast ALTER MAPPING
        FOR asciiword, asciihword, hword_asciipart, word, hword, hword_part WITH holdfast_stem;
END IF; END $$"""
# Whether a query is a single word; `ts_rank` does not give the frequency of a prefix or of several words.
SELECT_WORDS = """SELECT query::text, numnode(query) = 1 AND query::text NOT LIKE '%%:*',
        (SELECT count(*) FROM {table} WHERE words @@ query)
    FROM unnest(%s::text[]) WITH ORDINALITY AS term (words, place), to_tsquery('{configuration}', term.words) AS query
    ORDER BY place"""
SELECT_SIZE = "SELECT count(*), avg(length) FROM {table}"
SELECT_PHRASES = """SELECT ARRAY(
        SELECT chunk FROM {table} WHERE words @@ phraseto_tsquery('{configuration}', phrase.words) LIMIT %s)
    FROM unnest(%s::text[]) WITH ORDINALITY AS phrase (words, place) ORDER BY place"""
# The sum keeps the planner from reading the whole table in the order of its key.
SELECT_CANDIDATES = """SELECT chunk, words, length FROM {table}
    WHERE words @@ %(all_of)s::tsquery {chosen} ORDER BY chunk + 0 LIMIT %(most)s"""
SELECT_MORE_CANDIDATES = """SELECT chunk, words, length FROM {table}
    WHERE words @@ %(some_of)s::tsquery AND NOT words @@ %(all_of)s::tsquery {chosen}
    ORDER BY chunk + 0 LIMIT %(room)s"""
# MATERIALIZED converts each word once, and the offset computes each frequency once: the planner would repeat both.
FIND = """WITH term AS MATERIALIZED (SELECT query::tsquery, single, weight FROM unnest(
        %(queries)s::text[], %(single)s::boolean[], %(weights)s::float8[]) AS given (query, single, weight)),
    candidate AS ({candidates}),
    occurrence AS (SELECT chunk, length, weight, CASE
        WHEN single THEN width_bucket(ts_rank('{{1, 1, 1, 1}}', words, query)::float8, %(steps)s::float8[])
            + width_bucket(ts_rank('{{0, 0, 0, 1}}', words, query)::float8, %(steps)s::float8[])
        ELSE (SELECT sum(CASE weight WHEN 'A' THEN 2 ELSE 1 END) FROM unnest(words) AS word,
            unnest(word.weights) AS weight WHERE array_to_tsvector(ARRAY[word.lexeme]) @@ query)
        END AS times FROM candidate JOIN term ON words @@ query OFFSET 0)
    SELECT chunk, sum(weight * times * {k1_and_1} / (times + {k1} * (1 - {b} + {b} * length / %(usual)s))) AS score
    FROM occurrence GROUP BY chunk ORDER BY score DESC, chunk LIMIT %(limit)s"""
MAX_POSITIONS = 255  # of a word in a tsvector


def _rank_steps() -> list[float]:
    """Return the values of `ts_rank` from which on a word occurs once, twice, and so on.

    The rank of a word that occurs n times with weight 1 is the sum of 1/i² for i up to n, divided by its limit. With
    weight 0 in the text, only occurrences in headings count; they come first.
    """
    sums = list(accumulate(1 / n**2 for n in range(1, MAX_POSITIONS + 1)))
    return [(low + high) / 2 / (math.pi**2 / 6) for low, high in zip([0.0, *sums], sums, strict=False)]


RANK_STEPS = _rank_steps()


class Word(NamedTuple):
    """A word of a query as PostgreSQL knows it."""

    query: str  # a tsquery; empty if nothing is left of the word
    single: bool  # neither a prefix nor several words
    chunks: int  # with the word


class PostgresFulltextStore(PostgresRowStore):
    """The words of each chunk with their positions, and its length in words."""

    def __init__(self, database: Database, prefix: str = "fulltext") -> None:
        super().__init__(
            database,
            RecipeTables(
                prefix,
                SELECT_TABLE,
                [LOCK_TABLE_CREATION, CREATE_TEXT_TABLE, CREATE_WORDS_INDEX, CREATE_TEXT_SEARCH_CONFIGURATION],
            ),
        )
        self._stemmed = StemmingCache()
        self._sizes: dict[int, tuple[float, int, float]] = {}
        self._words: dict[tuple[int, Term], tuple[float, Word]] = {}

    def put(self, tx: Transaction, recipe: int, texts: Mapping[int, tuple[str, str]]) -> None:
        table = self._tables.ensure_table(tx, recipe)
        rows = []
        for chunk, parts in texts.items():
            headings, body = (WORD.findall(_strip_accents(part)) for part in parts)
            rows.append((chunk, " ".join(headings), " ".join(body), len(headings) + len(body)))
        configuration = self._configuration(tx, recipe)
        tx.run_sql_many(
            f"INSERT INTO {table} SELECT %s, setweight(to_tsvector('{configuration}', %s), 'A') || "
            f"to_tsvector('{configuration}', %s), %s ON CONFLICT DO NOTHING",
            rows,
        )

    def find(self, recipe: int, query: Sequence[Term], limit: int, within: Sequence[int] | None) -> list[Found]:
        with self._database.reading() as tx:
            if not query or not self._tables.exists_committed(tx, recipe):
                return []
            rows, length = self._read_size(tx, recipe)
            found = {word.query: word for word in self._read_words(tx, recipe, query) if word.chunks}
            words = _drop_common_words(sorted(found.values(), key=lambda word: word.chunks), rows)
            return self._rank(tx, recipe, words, size=(rows, length), limit=limit, within=within) if words else []

    def find_phrases(self, recipe: int, phrases: Sequence[Sequence[str]], limit: int) -> list[Sequence[int]]:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return [[] for _ in phrases]
            texts = [" ".join(WORD.findall(_strip_accents(" ".join(words)))) for words in phrases]
            sql = SELECT_PHRASES.format(table=self._tables.name(recipe), configuration=self._configuration(tx, recipe))
            return [chunks for (chunks,) in tx.run_sql(sql, [limit, texts])]

    def _rank(
        self,
        tx: Transaction,
        recipe: int,
        rarest_first: Sequence[Word],
        *,
        size: tuple[int, float],
        limit: int,
        within: Sequence[int] | None,
    ) -> list[Found]:
        """Rank the chunks with the rarest words by all words."""
        rows, length = size
        most = max(MIN_CANDIDATES, COMPARED // len(rarest_first))
        sums = accumulate(word.chunks for word in rarest_first)
        whole = max(1, sum(total <= most for total in sums))
        room = most - sum(word.chunks for word in rarest_first[:whole])
        parts = [SELECT_CANDIDATES, *([SELECT_MORE_CANDIDATES] if room > 0 and whole < len(rarest_first) else [])]
        values = {
            "queries": [word.query for word in rarest_first],
            "single": [word.single for word in rarest_first],
            "weights": [inverse_document_frequency(word.chunks, rows) for word in rarest_first],
            "all_of": " | ".join(f"({word.query})" for word in rarest_first[:whole]),
            "some_of": rarest_first[min(whole, len(rarest_first) - 1)].query,
            "most": most,
            "room": room,
            "usual": length,
            "steps": RANK_STEPS,
            "limit": limit,
            "within": None if within is None else list(within),
        }
        chosen = "" if within is None else "AND chunk = ANY(%(within)s)"
        selected = [part.format(table=self._tables.name(recipe), chosen=chosen) for part in parts]
        candidates = " UNION ALL ".join(f"({part})" for part in selected)
        sql = FIND.format(candidates=candidates, k1=K1, k1_and_1=K1 + 1, b=B)
        return [Found(chunk, float(score)) for chunk, score in tx.run_sql(sql, values)]

    def _read_words(self, tx: Transaction, recipe: int, query: Sequence[Term]) -> list[Word]:
        """Return the words of a query; cached for a while, unless no chunk has the word."""
        now = time.monotonic()
        cache = self._words
        new = [term for term in query if now > cache.get((recipe, term), (0.0,))[0]]
        if new:
            texts = [
                " & ".join(f"'{word}'{':*' if term.prefix else ''}" for word in WORD.findall(_strip_accents(term.text)))
                for term in new
            ]
            sql = SELECT_WORDS.format(table=self._tables.name(recipe), configuration=self._configuration(tx, recipe))
            if len(cache) + len(new) > MAX_CACHED_WORDS:
                cache.clear()
            for term, row in zip(new, tx.run_sql(sql, [texts]), strict=True):
                word = Word(*row)
                cache[recipe, term] = (now + WORD_CACHE_SECONDS if word.chunks else 0.0, word)
        return [cache[recipe, term][1] for term in query]

    def _configuration(self, tx: Transaction, recipe: int) -> str:
        """Return the text search configuration of a recipe: with stemming or without."""
        return "holdfast" if self._stemmed(tx, recipe) else "simple"

    def _read_size(self, tx: Transaction, recipe: int) -> tuple[int, float]:
        """Return the number of rows and their mean length; cached for a minute."""
        known = self._sizes.get(recipe)
        if known is None or time.monotonic() > known[0] + COUNT_CACHE_SECONDS:
            ((rows, length),) = tx.run_sql(SELECT_SIZE.format(table=self._tables.name(recipe)))
            known = self._sizes[recipe] = (time.monotonic(), rows, float(length or 1))
        return known[1], max(known[2], 1.0)


def _drop_common_words(words: Sequence[Word], rows: int) -> Sequence[Word]:
    """Remove words that more than half of the chunks contain: they weigh nothing and cost most."""
    if rows < MANY_ROWS:
        return words
    return [word for word in words if 2 * word.chunks <= rows] or words


def _strip_accents(text: str) -> str:
    """Remove accents, as FTS5 does."""
    if text.isascii():
        return text
    return "".join(
        character for character in unicodedata.normalize("NFKD", text) if not unicodedata.combining(character)
    )
