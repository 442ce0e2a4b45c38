"""Row stores on PostgreSQL: one table for each recipe, vectors with pgvector, words as tsvector.

PostgreSQL finds words but has no BM25 ranking. So a query collects chunks word by word, rarest word first, until there
are enough candidates, and ranks them here.
"""

from __future__ import annotations

import re
import struct
import time
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import Permanent
from holdfast.indexes.base import Found
from holdfast.indexes.fulltext.index import K1, B, StemmingCache, inverse_document_frequency
from holdfast.indexes.recipe_tables import RecipeTables, TableRowStore
from holdfast.indexes.vector.embedding import require_dimension

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.content import Term
    from holdfast.db import Database, Transaction
    from holdfast.llm import Vector

ADVISORY_LOCK = 0x68666978  # serialises the creation of tables and indexes
MAX_CANDIDATES = 2_000  # chunks that are ranked for one query
COUNT_CACHE_SECONDS = 60.0  # how long counts and means are cached
MAX_EXACT_ROWS = 50_000  # a table with more vectors gets an index
MIN_EF_SEARCH = 100  # candidates of an index search, at least
WORD = re.compile(r"[^\W_]+")
SELECT_TABLE = "SELECT 1 WHERE to_regclass(%s) IS NOT NULL"
LOCK_TABLE_CREATION = f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"
CREATE_HNSW_INDEX = (
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS {table}_near ON {table} USING hnsw (vector vector_cosine_ops)"
)
SELECT_INDEX_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
# A transaction holds this lock while another connection creates or drops the index of a table. A lock of a session
# would be lost behind a pooler in transaction mode.
TRY_LOCK_INDEX = "SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))"
DISABLE_IDLE_TIMEOUT = "SET LOCAL idle_in_transaction_session_timeout = 0"
SELECT_BUILDING = "SELECT 1 FROM pg_stat_progress_create_index WHERE relid = to_regclass(%s)"
# The table stays in the session, where the next transaction, of this process or of another one, finds it empty.
CREATE_INCOMING_TABLE = (
    "CREATE TEMP TABLE IF NOT EXISTS holdfast_incoming (chunk bigint, vector vector) ON COMMIT DELETE ROWS"
)
# It leaves nothing behind: the next recipe of the same transaction uses the same table.
MOVE_INCOMING = """WITH moved AS (DELETE FROM holdfast_incoming RETURNING chunk, vector)
    INSERT INTO {table} SELECT chunk, vector FROM moved ON CONFLICT DO NOTHING"""
CREATE_VECTOR_TABLE = (
    "CREATE TABLE IF NOT EXISTS {table} (chunk bigint PRIMARY KEY, vector vector({dimension}) NOT NULL)"
)
SELECT_COLUMN_DIMENSION = "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'vector'"
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


class PostgresRowStore(TableRowStore):
    """A row store on PostgreSQL."""

    placeholder = "%s"

    def _select_existing(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> set[int]:
        sql = f"SELECT chunk FROM {self._tables.name(recipe)} WHERE chunk = ANY(%s)"
        return {chunk for (chunk,) in tx.run_sql(sql, [list(chunks)])}

    def _delete(self, tx: Transaction, recipe: int, chunks: Sequence[int]) -> None:
        tx.run_sql(f"DELETE FROM {self._tables.name(recipe)} WHERE chunk = ANY(%s)", [list(chunks)])


class PostgresVectorStore(PostgresRowStore):
    """Vectors in pgvector, compared by cosine."""

    def __init__(self, database: Database, prefix: str = "vector") -> None:
        super().__init__(database, RecipeTables(prefix, SELECT_TABLE, [LOCK_TABLE_CREATION, CREATE_VECTOR_TABLE]))
        self._mean_vectors: dict[int, tuple[float, Any]] = {}
        self._indexed_recipes: set[int] = set()  # recipes with a valid index

    def put(self, tx: Transaction, recipe: int, vectors: Mapping[int, bytes]) -> None:
        """Write vectors of chunks that have none yet, by binary COPY."""
        require_pgvector(tx)
        dimension = len(next(iter(vectors.values()))) // 4
        table = self._tables.ensure_table(tx, recipe, dimension=dimension)
        stored = self._read_dimension(tx, recipe)
        if stored is not None:  # another process may have written the first vectors since these were requested
            require_dimension(dimension, stored)
        elif tx.run_sql(SELECT_COLUMN_DIMENSION, [table]) != [(dimension,)]:
            tx.run_sql(f"ALTER TABLE {table} ALTER COLUMN vector TYPE vector({dimension})")
        tx.run_sql(CREATE_INCOMING_TABLE)
        tx.copy_in("COPY holdfast_incoming (chunk, vector) FROM STDIN WITH (FORMAT BINARY)", _encode_copy_rows(vectors))
        tx.run_sql(MOVE_INCOMING.format(table=table))

    def dimension(self, recipe: int) -> int | None:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return None
            return self._read_dimension(tx, recipe)

    def _read_dimension(self, tx: Transaction, recipe: int) -> int | None:
        rows = tx.run_sql(f"SELECT vector_dims(vector) FROM {self._tables.name(recipe)} LIMIT 1")
        return rows[0][0] if rows else None

    def find(self, recipe: int, query: Vector, limit: int, within: Sequence[int] | None) -> list[Found]:
        """Return the nearest chunks; a zero vector is near to nothing.

        A small table is compared row by row. In a large table the HNSW index proposes twice as many rows as wanted, and
        those are compared.
        """
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return []
            table = self._tables.name(recipe)
            vector = "[" + ",".join(map(str, query.tolist())) + "]"
            if within is None and self._has_index(tx, recipe):
                tx.run_sql(
                    "SELECT set_config('hnsw.ef_search', %s, true)", [str(min(max(MIN_EF_SEARCH, 2 * limit), 1000))]
                )
                nearest = f"SELECT chunk, vector FROM {table} ORDER BY vector <=> %s::vector LIMIT %s"
                values: list[Any] = [vector, vector, 2 * limit, limit]
            else:
                nearest = f"SELECT chunk, vector FROM {table}" + ("" if within is None else " WHERE chunk = ANY(%s)")
                values = [vector, *([] if within is None else [list(within)]), limit]
            rows = tx.run_sql(
                f"SELECT chunk, 1 - (vector <=> %s::vector) AS near FROM ({nearest}) AS nearest "
                "WHERE vector_norm(vector) > 0 ORDER BY near DESC, chunk LIMIT %s",
                values,
            )
        return [Found(*row) for row in rows]

    def read_rows(self, recipe: int, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Read the binary form of pgvector: two numbers of two bytes, then the vector in big-endian order."""
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return []
            table = self._tables.name(recipe)
            sql = f"SELECT chunk, vector_send(vector) FROM {table} WHERE chunk > %s ORDER BY chunk LIMIT %s"
            rows = tx.run_sql(sql, [after, limit])
        return [(chunk, np.frombuffer(sent, ">f4", offset=4).astype(np.float32).tobytes()) for chunk, sent in rows]

    def tend(self, recipe: int) -> None:
        """Create the HNSW index of a large table; others read and write meanwhile."""
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe) or self._has_index(tx, recipe):
                return
            ((rows,),) = tx.run_sql(f"SELECT count(*) FROM {self._tables.name(recipe)}")
        if rows > MAX_EXACT_ROWS:
            self._create_index(self._tables.name(recipe))

    def _create_index(self, table: str) -> None:
        """Create the index, unless another session does; first drop an invalid index that a crash has left.

        An index under construction is invalid as well. Only the holder of the lock builds, and the server lists a
        build whose client has died.
        """
        with self._database.writing(durable=False) as lock:
            if lock.run_sql(TRY_LOCK_INDEX, [ADVISORY_LOCK, table]) != [(True,)]:
                return
            if lock.run_sql(SELECT_BUILDING, [table]):
                return
            # This statement also ends the snapshot of the one before it. CREATE INDEX would wait for that snapshot.
            lock.run_sql(DISABLE_IDLE_TIMEOUT)
            with self._database.autocommit() as tx:
                if tx.run_sql(SELECT_INDEX_VALID, [f"{table}_near"]) == [(False,)]:
                    tx.run_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {table}_near")
                tx.run_sql(CREATE_HNSW_INDEX.format(table=table))

    def _has_index(self, tx: Transaction, recipe: int) -> bool:
        """Return whether a valid index exists."""
        if recipe not in self._indexed_recipes and tx.run_sql(
            SELECT_INDEX_VALID, [f"{self._tables.name(recipe)}_near"]
        ) == [(True,)]:
            self._indexed_recipes.add(recipe)
        return recipe in self._indexed_recipes

    def scores(self, recipe: int, query: Vector, chunks: Sequence[int]) -> tuple[dict[int, float], float]:
        found = {hit.chunk: hit.score for hit in self.find(recipe, query, len(chunks), chunks)}
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return {}, 0.0
            known = self._mean_vectors.get(recipe)
            if known is None or time.monotonic() > known[0] + COUNT_CACHE_SECONDS:
                sql = f"SELECT avg(l2_normalize(vector))::text FROM {self._tables.name(recipe)}"
                ((text,),) = tx.run_sql(sql)
                middle = np.fromstring(text.strip("[]"), sep=",") if text else np.zeros(len(query))
                known = self._mean_vectors[recipe] = (time.monotonic(), middle)
        norm = float(np.linalg.norm(query))
        return found, float(known[1] @ query) / norm if norm else 0.0

    def read_vectors(self, recipe: int, chunks: Sequence[int]) -> dict[int, Vector]:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return {}
            sql = f"SELECT chunk, l2_normalize(vector)::real[] FROM {self._tables.name(recipe)} WHERE chunk = ANY(%s)"
            return {chunk: np.array(numbers, dtype=np.float32) for chunk, numbers in tx.run_sql(sql, [list(chunks)])}


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
            table = self._tables.name(recipe)
            configuration = self._configuration(tx, recipe)
            words = [_to_tsquery(tx, term, configuration) for term in query]
            known = [word for word in dict.fromkeys(words) if word]
            rows, length = self._read_size(tx, recipe)
            counts = {word: tx.run_sql(_count_statement(table), [word])[0][0] for word in known}
            weights = {word: inverse_document_frequency(count, rows) for word, count in counts.items() if count}
            candidates = self._find_candidates(tx, table, sorted(weights, key=counts.__getitem__), within)
            scores: dict[int, float] = dict.fromkeys(candidates, 0.0)
            for word, weight in weights.items():
                for chunk, times, size in tx.run_sql(_term_frequency_statement(table), [word, word, list(candidates)]):
                    frequency = float(times)
                    scores[chunk] += weight * frequency * (K1 + 1) / (frequency + K1 * (1 - B + B * size / length))
        best = sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
        return [Found(chunk, score) for chunk, score in best[:limit]]

    def find_phrases(self, recipe: int, phrases: Sequence[Sequence[str]], limit: int) -> list[Sequence[int]]:
        with self._database.reading() as tx:
            if not self._tables.exists_committed(tx, recipe):
                return [[] for _ in phrases]
            texts = [" ".join(WORD.findall(_strip_accents(" ".join(words)))) for words in phrases]
            sql = _phrases_statement(self._tables.name(recipe), self._configuration(tx, recipe))
            return [chunks for (chunks,) in tx.run_sql(sql, [limit, texts])]

    def _configuration(self, tx: Transaction, recipe: int) -> str:
        """Return the text search configuration of a recipe: with stemming or without."""
        return "holdfast" if self._stemmed(tx, recipe) else "simple"

    def _find_candidates(
        self, tx: Transaction, table: str, rarest_first: Iterable[str], within: Sequence[int] | None
    ) -> dict[int, None]:
        """Collect chunks with the words, rarest word first, until there are enough."""
        found: dict[int, None] = {}
        chosen = "" if within is None else "AND chunk = ANY(%s)"
        for word in rarest_first:
            room = MAX_CANDIDATES - len(found)
            if room <= 0:
                break
            values = [word, *([] if within is None else [list(within)]), room]
            sql = f"SELECT chunk FROM {table} WHERE words @@ %s::tsquery {chosen} ORDER BY chunk LIMIT %s"
            found |= dict.fromkeys(chunk for (chunk,) in tx.run_sql(sql, values))
        return found

    def _read_size(self, tx: Transaction, recipe: int) -> tuple[int, float]:
        """Return the number of rows and their mean length; cached for a minute."""
        known = self._sizes.get(recipe)
        if known is None or time.monotonic() > known[0] + COUNT_CACHE_SECONDS:
            ((rows, length),) = tx.run_sql(f"SELECT count(*), avg(length) FROM {self._tables.name(recipe)}")
            known = self._sizes[recipe] = (time.monotonic(), rows, float(length or 1))
        return known[1], max(known[2], 1.0)


def _to_tsquery(tx: Transaction, term: Term, configuration: str) -> str:
    """Return a term as tsquery text, with the configuration that indexed the words."""
    words = " & ".join(f"'{word}'{':*' if term.prefix else ''}" for word in WORD.findall(_strip_accents(term.text)))
    return str(tx.run_sql(f"SELECT to_tsquery('{configuration}', %s)::text", [words])[0][0]) if words else ""


def _phrases_statement(table: str, configuration: str) -> str:
    """Return a statement for the chunks with each of several phrases, in the given order."""
    return (
        f"SELECT ARRAY(SELECT chunk FROM {table} WHERE words @@ phraseto_tsquery('{configuration}', phrase.words) "
        "LIMIT %s) FROM unnest(%s::text[]) WITH ORDINALITY AS phrase (words, place) ORDER BY place"
    )


def _count_statement(table: str) -> str:
    return f"SELECT count(*) FROM {table} WHERE words @@ %s::tsquery"


def _term_frequency_statement(table: str) -> str:
    """Return a statement for the frequency of a word in each candidate; a heading counts twice."""
    return (
        "SELECT chunk, (SELECT sum(CASE weight WHEN 'A' THEN 2 ELSE 1 END) FROM unnest(words) AS word, "
        "unnest(word.weights) AS weight WHERE array_to_tsvector(ARRAY[word.lexeme]) @@ %s::tsquery), length "
        f"FROM {table} WHERE words @@ %s::tsquery AND chunk = ANY(%s)"
    )


def _strip_accents(text: str) -> str:
    """Remove accents, as FTS5 does."""
    if text.isascii():
        return text
    return "".join(
        character for character in unicodedata.normalize("NFKD", text) if not unicodedata.combining(character)
    )


def _encode_copy_rows(vectors: Mapping[int, bytes]) -> Iterable[bytes]:
    """Encode rows in the binary COPY format; pgvector expects big-endian numbers."""
    yield b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
    for chunk, vector in vectors.items():
        numbers = np.frombuffer(vector, dtype=np.float32)
        yield struct.pack(">hiqihh", 2, 8, chunk, 4 + len(vector), len(numbers), 0) + numbers.astype(">f4").tobytes()
    yield struct.pack(">h", -1)


def require_pgvector(tx: Transaction) -> None:
    if tx.run_sql("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        return
    if not tx.run_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
        raise Permanent("pgvector_missing")
    tx.run_sql(LOCK_TABLE_CREATION)
    tx.run_sql("CREATE EXTENSION IF NOT EXISTS vector")
