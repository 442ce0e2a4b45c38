"""Reads and writes the rows of all built-in indexes of a database, to copy them to another one.

Vectors are copied as they are, because they may have cost money. Words are made again from the texts, which were copied
before: the two databases store them in different forms. An index of another package keeps its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select

from holdfast.catalog import ChunkLists, recipes
from holdfast.content import segment_text
from holdfast.db import batch
from holdfast.indexes.fulltext.index import open_fulltext_store, to_columns
from holdfast.indexes.questions.pairs import VECTORS_PREFIX, WORDS_PREFIX
from holdfast.indexes.questions.tables import question_pairs
from holdfast.indexes.vector.index import open_vector_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.indexes.fulltext.index import FulltextStore
    from holdfast.indexes.vector.index import VectorStore

IndexRow = tuple[int, bytes | None]  # the key, and the vector
VECTOR, FULLTEXT = "vector", "fulltext"  # prefixes of table names, and the kinds of index
STORES: Mapping[str, tuple[str, ...]] = {  # kind of index -> the prefixes of its row stores
    VECTOR: (VECTOR,),
    FULLTEXT: (FULLTEXT,),
    "questions": (WORDS_PREFIX, VECTORS_PREFIX),
}
VECTORS = frozenset({VECTOR, VECTORS_PREFIX})
SELECT_RECIPES = select(recipes.c.kind, recipes.c.id).order_by(recipes.c.id)
_row = batch(id=int)
SELECT_PAIRS = select(question_pairs.c.id, question_pairs.c.question, question_pairs.c.answer).select_from(
    question_pairs.join(_row, question_pairs.c.id == _row.c.id)
)


class IndexTable(NamedTuple):
    """The row store of one recipe."""

    prefix: str
    recipe: int

    @property
    def has_vectors(self) -> bool:
        return self.prefix in VECTORS

    def __str__(self) -> str:
        return f"{self.prefix}_{self.recipe}"


class IndexRows:
    """The rows of the built-in indexes of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._vectors = {prefix: open_vector_store(database, prefix) for prefix in sorted(VECTORS)}
        self._words = {prefix: open_fulltext_store(database, prefix) for prefix in (FULLTEXT, WORDS_PREFIX)}
        self._chunks = ChunkLists(database)

    def list_tables(self) -> list[IndexTable]:
        """Return the row stores of all recipes, also of those without a row."""
        found = self._database.read(SELECT_RECIPES)
        return [IndexTable(prefix, recipe) for kind, recipe in found for prefix in STORES.get(kind, ())]

    def count(self, table: IndexTable) -> int:
        return self._store(table).count(table.recipe)

    def read(self, table: IndexTable, after: int, limit: int) -> list[IndexRow]:
        """Return the next rows after a key. Rows of words have only their key."""
        if table.has_vectors:
            return list(self._vectors[table.prefix].read_rows(table.recipe, after, limit))
        return [(key, None) for key in self._words[table.prefix].scan(table.recipe, after, limit)]

    def require_vector_support(self, target: Database) -> None:
        """Raise `Permanent` if there are vectors, and the other database cannot store them."""
        if target.engine.dialect.name == "postgresql" and any(
            table.has_vectors and self.count(table) for table in self.list_tables()
        ):
            from holdfast.indexes.postgres import require_pgvector  # noqa: PLC0415 - load only the dialect in use

            target.write(require_pgvector, durable=False)

    def prepare(self, table: IndexTable, rows: Sequence[IndexRow]) -> Callable[[Transaction], None]:
        """Return a function that writes rows in a transaction. Words of texts that are gone are left out."""
        recipe = table.recipe
        if table.has_vectors:
            vectors = {key: vector for key, vector in rows if vector is not None}
            return lambda tx: self._vectors[table.prefix].put(tx, recipe, vectors)
        texts = self._read_texts(table, [key for key, _ in rows])
        return lambda tx: self._words[table.prefix].put(tx, recipe, texts) if texts else None

    def _read_texts(self, table: IndexTable, keys: Sequence[int]) -> dict[int, tuple[str, str]]:
        if table.prefix == FULLTEXT:
            return {piece.chunk: to_columns(piece) for piece in self._chunks.read_texts(keys)}
        pairs = self._database.read(SELECT_PAIRS, [[key] for key in keys])
        return {id_: (segment_text(question), segment_text(answer)) for id_, question, answer in pairs}

    def _store(self, table: IndexTable) -> VectorStore | FulltextStore:
        return self._vectors[table.prefix] if table.has_vectors else self._words[table.prefix]
