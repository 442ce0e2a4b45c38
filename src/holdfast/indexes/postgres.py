"""Row stores on PostgreSQL: one table for each recipe, vectors with pgvector; words are in `indexes.postgres_words`."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import Permanent
from holdfast.indexes.base import Found
from holdfast.indexes.recipe_tables import RecipeTables, TableRowStore
from holdfast.indexes.vector.embedding import require_dimension

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.llm import Vector

ADVISORY_LOCK = 0x68666978  # serialises the creation of tables and indexes
COUNT_CACHE_SECONDS = 60.0  # how long a mean is cached
MAX_EXACT_ROWS = 50_000  # a table with more vectors gets an index
MIN_EF_SEARCH = 100  # candidates of an index search, at least
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
                nearest = f"{table} ORDER BY vector <=> %s::vector LIMIT %s"
                values: list[Any] = [vector, vector, 2 * limit, limit]
            else:
                nearest = table + (" OFFSET 0" if within is None else " WHERE chunk = ANY(%s) OFFSET 0")
                values = [vector, *([] if within is None else [list(within)]), limit]
            rows = tx.run_sql(
                f"SELECT chunk, 1 - distance FROM (SELECT chunk, vector <=> %s::vector AS distance FROM {nearest}) "
                "AS nearest WHERE distance < 'NaN' ORDER BY distance, chunk LIMIT %s",
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
