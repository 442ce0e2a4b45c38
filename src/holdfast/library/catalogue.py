"""What there is: bases with their settings, documents, and the recipes by which their indexes are made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadSettings
from holdfast.library import statements as sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.slot import Ticket
    from holdfast.stores.database import Database, Transaction

INDEXES = ("vector", "fulltext")  # what a base has unless it says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSettings:
    """How the documents of a base are indexed."""

    indexes: tuple[str, ...] = INDEXES
    chunk_size: int = 512  # tokens, at most
    chunk_overlap: int = 64
    missing_share: float = 0.05  # of a document's chunks may be missing in an index that is served
    tenant: str = ""  # who shares paid answers
    budget_tokens: int | None = None  # that the base may spend; None for no limit

    def __post_init__(self) -> None:
        """Refuse what no document could be indexed with."""
        if not self.indexes:
            raise BadSettings("A base without any index finds nothing; name at least one.")
        if len(set(self.indexes)) != len(self.indexes):
            raise BadSettings(f"An index is named twice in {list(self.indexes)}; name each once.")
        if self.budget_tokens is not None and self.budget_tokens < 0:
            raise BadSettings(f"A budget of {self.budget_tokens} tokens cannot be kept; use 0 or more, or none.")
        if not 0 <= self.missing_share <= 1:
            raise BadSettings(f"The share of chunks that may be missing is from 0 to 1, not {self.missing_share}.")

    def written(self) -> str:
        """Return the settings as they are stored."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def read(cls, text: str) -> BaseSettings:
        """Read stored settings."""
        values = json.loads(text)
        return cls(**{**values, "indexes": tuple(values["indexes"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A collection of documents that are searched together."""

    id: int
    name: str
    settings: BaseSettings = field(default_factory=BaseSettings)

    @property
    def key(self) -> str:
        """Its name in slots and jobs; a later base of the same name has another."""
        return str(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document as it was given."""

    id: int
    base: int
    name: str
    blob: str
    digest: str
    size: int
    metadata: Mapping[str, Any]
    deleting: bool

    @property
    def key(self) -> str:
        """Its name in slots and jobs."""
        return str(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How rows of an index are made: model, settings and version of the code that made them."""

    id: int
    spec: str


class Catalogue:
    """Reads and writes what there is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_base(self, name: str, settings: BaseSettings) -> Base:
        """Create a base."""
        rows = self._database.write(
            lambda tx: tx.run(sql.CREATE_BASE, name=name, settings=settings.written()), durable=True
        )
        return _base(rows[0])

    def find_base(self, name: str) -> Base | None:
        """Find a base by its name."""
        with self._database.reading() as tx:
            rows = tx.run(sql.FIND_BASE, name=name)
        return _base(rows[0]) if rows else None

    def keyed(self, tickets: Sequence[Ticket]) -> tuple[dict[str, Base], dict[str, Document]]:
        """Read the bases and documents that tickets are for, by their names in slots and jobs."""
        with self._database.reading() as tx:
            base_rows = tx.run(sql.READ_BASES, [[int(key)] for key in {ticket.key.base for ticket in tickets}])
            rows = tx.run(sql.READ_DOCUMENTS, [[int(key)] for key in {ticket.key.owner for ticket in tickets}])
        return (
            {base.key: base for base in map(_base, base_rows)},
            {document.key: document for document in map(_document, rows)},
        )

    def documents(self, base: Base, names: Sequence[str]) -> dict[str, Document]:
        """Find documents by their names."""
        with self._database.reading() as tx:
            return named(tx, base, names)

    def recipe(self, base: Base, kind: str, spec: Mapping[str, Any]) -> Recipe:
        """Return the recipe of this specification; it is written down when it is new."""
        text = json.dumps(spec, sort_keys=True, ensure_ascii=False)
        found = next((one for one in self.recipes(base.key, kind) if one.spec == text), None)
        if found is not None:
            return found
        self._database.write(lambda tx: tx.run(sql.KEEP_RECIPE, [[base.key, kind, text]]), durable=True)
        return next(one for one in self.recipes(base.key, kind) if one.spec == text)

    def all_recipes(self) -> list[tuple[str, Recipe]]:
        """Read the recipes of all bases, each with the kind of its index."""
        with self._database.reading() as tx:
            return [(kind, Recipe(id=id_, spec=spec)) for kind, id_, spec in tx.run(sql.ALL_RECIPES)]

    def recipes(self, base: str, kind: str) -> list[Recipe]:
        """Read all recipes that rows of this kind were made by, newest first."""
        with self._database.reading() as tx:
            return [Recipe(id=id_, spec=spec) for id_, spec in tx.run(sql.READ_RECIPES, base=base, kind=kind)]


def named(tx: Transaction, base: Base, names: Sequence[str]) -> dict[str, Document]:
    """Find documents by their names, within a transaction."""
    rows = tx.run(sql.FIND_DOCUMENTS, [[base.id, name] for name in names])
    return {document.name: document for document in map(_document, rows)}


def _base(row: Sequence[Any]) -> Base:
    id_, name, settings, _created = row
    return Base(id=id_, name=name, settings=BaseSettings.read(settings))


def _document(row: Sequence[Any]) -> Document:
    id_, base, name, blob, digest, size, metadata, deleting, _created = row
    return Document(
        id=id_,
        base=base,
        name=name,
        blob=blob,
        digest=digest,
        size=size,
        metadata=json.loads(metadata),
        deleting=bool(deleting),
    )
