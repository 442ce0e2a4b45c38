"""Reads and writes bases with their settings, the tree of items, and recipes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from holdfast.catalog import repository_statements as sql
from holdfast.catalog.conditions import SOURCE_PREFIX
from holdfast.clock import Moment, micros
from holdfast.content import LANGUAGES
from holdfast.engine import Event, Fault
from holdfast.engine.store import make_storable, record_events, write_quota
from holdfast.errors import BadSettings, NameTaken, UnknownBase
from holdfast.wellformed import MAX_STORED_DEPTH, find_json_flaw, to_nfc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import Ticket
    from holdfast.errors import WorkError

    Location = tuple[int, str]  # parent id (0: none) and name

ID_LIMIT = 2**63  # ids are below this on both databases
LARGEST_QUOTA = 2**31 - 1  # jobs per day
MAX_NUMBER_DIGITS = 18  # both databases store numbers of this length
FOLDED_LENGTH = 500  # characters of a name that lists sort and filter by; PostgreSQL refuses longer index keys
DEFAULT_INDEXES = ("vector", "fulltext")
AUTO = "auto"  # the configured endpoint; without one, offline embeddings and no language model
OFFLINE = "offline"  # offline embeddings, even if an endpoint is configured
NO_CHAT = "none"  # no language model, even if one is configured
SHOWN_TIMES = range(253_402_300_800_000_000)  # microseconds: from 1970 to the year 9999
EMBEDDING_CHOICES = (AUTO, OFFLINE)
CHAT_CHOICES = (AUTO, NO_CHAT)


class ItemKind(StrEnum):
    """The kind of an item."""

    FILE = "file"  # uploaded, or found in a directory
    NOTE = "note"  # text that a user wrote
    URL = "url"  # a web page
    DIRECTORY = "directory"  # a folder; its files are below it
    SITEMAP = "sitemap"  # a sitemap; its pages are below it


CONTAINERS = frozenset({ItemKind.DIRECTORY, ItemKind.SITEMAP})


class OnDuplicate(StrEnum):
    """What to do with an upload whose name or content already exists."""

    REJECT = "reject"
    REPLACE = "replace"  # the existing item gets the new content
    RENAME = "rename"  # both are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSettings:
    """The settings of a base."""

    indexes: tuple[str, ...] = DEFAULT_INDEXES
    chunk_size: int = 512  # tokens, at most
    chunk_overlap: int = 64
    missing_share: float = 0.05  # the share of a document's chunks that may be missing in a served index
    tenant: str = ""  # bases with the same tenant share paid answers
    budget_tokens: int | None = None  # that the base may spend; None: no limit
    jobs_per_day: int | None = None  # started from midnight to midnight UTC; None: no limit
    auto_index: bool = True  # index new documents at once
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    embedding: str = AUTO  # one of EMBEDDING_CHOICES
    chat: str = AUTO  # one of CHAT_CHOICES
    languages: tuple[str, ...] = ()  # of its documents, as ISO 639-1 codes; empty: any

    def __post_init__(self) -> None:
        if not self.indexes:
            raise BadSettings("no_indexes")
        for kind in self.indexes:
            if self.indexes.count(kind) > 1:
                raise BadSettings("index_twice", index=kind)
        if self.budget_tokens is not None and self.budget_tokens < 0:
            raise BadSettings("budget_below_zero", budget=self.budget_tokens)
        if self.jobs_per_day is not None and not 1 <= self.jobs_per_day <= LARGEST_QUOTA:
            raise BadSettings("quota_below_one", quota=self.jobs_per_day, largest=LARGEST_QUOTA)
        if not 0 <= self.missing_share <= 1:
            raise BadSettings("share_out_of_range", share=self.missing_share)
        self._check_providers()

    def _check_providers(self) -> None:
        if self.embedding not in EMBEDDING_CHOICES:
            raise BadSettings("embedding_choice", value=self.embedding, choices=", ".join(EMBEDDING_CHOICES))
        if self.chat not in CHAT_CHOICES:
            raise BadSettings("chat_choice", value=self.chat, choices=", ".join(CHAT_CHOICES))
        for code in self.languages:
            if code not in LANGUAGES:
                raise BadSettings("language_unknown", language=code)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> BaseSettings:
        """Read stored settings; names that only a newer version knows are ignored."""
        known = {setting.name for setting in fields(cls)}
        values = {name: value for name, value in json.loads(text).items() if name in known}
        on_duplicate = OnDuplicate(values.get("on_duplicate", OnDuplicate.REJECT))
        lists = {name: tuple(values[name]) for name in ("indexes", "languages") if name in values}
        return cls(**{**values, **lists, "on_duplicate": on_duplicate})


class BaseStatus(StrEnum):
    """The status of a base."""

    READY = "ready"
    FAILED = "failed"  # refuses to build until it is repaired
    DELETING = "deleting"  # hidden; its data is being removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A collection of documents that are searched together."""

    id: int
    name: str
    settings: BaseSettings = field(default_factory=BaseSettings)
    problem: Fault | None = None  # why nothing can be indexed
    deleting: bool = False

    @property
    def key(self) -> str:
        """Its key in slots and jobs. A later base of the same name has another key."""
        return str(self.id)

    @property
    def status(self) -> BaseStatus:
        if self.deleting:
            return BaseStatus.DELETING
        return BaseStatus.READY if self.problem is None else BaseStatus.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A file, note or page of a base, or a container of others."""

    id: int
    base: int
    parent: int  # 0: none
    kind: ItemKind
    name: str
    blob: str | None
    digest: str | None
    size: int
    metadata: Mapping[str, Any]
    source: str | None  # an address or a path
    seen: str | None  # state of the source at the last read, such as a stamp or HTTP validators
    every: int | None  # seconds between two reads of the source
    problem: Fault | None
    deleting: bool
    created_at: Moment
    changed_at: Moment  # when its content or metadata changed
    local: bool = False  # a folder named by the local user, not by a caller with a key
    damage: str | None = None  # the column whose stored value cannot be displayed

    @property
    def key(self) -> str:
        """The owner of the slots of its content and indexes."""
        return str(self.id)

    @property
    def source_key(self) -> str:
        """The owner of its slot `source`."""
        return f"{SOURCE_PREFIX}{self.id}"

    @property
    def is_container(self) -> bool:
        return self.kind in CONTAINERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The model, settings and code version behind the rows of an index."""

    id: int
    spec: str


def spec_text(spec: Mapping[str, Any]) -> str:
    """Return a specification as stored; equal specifications give equal texts."""
    return json.dumps(spec, sort_keys=True, ensure_ascii=False)


class Catalog:
    """The repository of bases, items and recipes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_base(self, name: str, settings: BaseSettings, problem: Fault | None = None) -> Base:
        """Create a base, or raise `NameTaken`. A base with a `problem` refuses work until the problem is cleared."""

        def work(tx: Transaction) -> Base:
            made = tx.run(sql.CREATE_BASE, [[name, settings.to_json(), problem and fault_to_json(problem)]])
            if not made:
                raise NameTaken(name)
            base = base_from_row(made[0])
            write_quota(tx, base.key, settings.jobs_per_day)
            record_events(tx, [base_event("created", base)])
            return base

        return self._database.write(work, durable=True)

    def fail_base(self, key: str, error: WorkError, *, replace: bool = False) -> None:
        """Record why nothing can be indexed in a base.

        The first reason stays until the base is repaired. With `replace` only a base that has failed gets this reason.
        """
        statement = sql.UPDATE_BASE_PROBLEM if replace else sql.FAIL_BASE

        def fail(tx: Transaction) -> None:
            failed = tx.run(statement, id=int(key), problem=fault_to_json(error))
            record_events(tx, [base_event("failed", base_from_row(row)) for row in failed])

        self._database.write(fail, durable=True)

    def find_base(self, name: str) -> Base:
        """Return the base with this name, or raise `UnknownBase`."""
        if make_storable(name) != name:
            raise UnknownBase(name)
        with self._database.reading() as tx:
            found = tx.run(sql.FIND_BASE, name=to_nfc(name))
        if not found:
            raise UnknownBase(name)
        return base_from_row(found[0])

    def base(self, id_: int) -> Base | None:
        """Read a base, also while it is being deleted."""
        with self._database.reading() as tx:
            return read_base(tx, id_)

    def bases(self) -> list[Base]:
        """Read all bases that are not being deleted, ordered by name."""
        with self._database.reading() as tx:
            return [base_from_row(row) for row in tx.run(sql.LIST_BASES)]

    def read_for_tickets(self, tickets: Sequence[Ticket]) -> tuple[dict[str, Base], dict[str, Item]]:
        """Read the bases and items of tickets, by their keys."""
        owners = {ticket.key.owner: int(ticket.key.owner.removeprefix(SOURCE_PREFIX)) for ticket in tickets}
        with self._database.reading() as tx:
            bases = read_bases(tx, {int(ticket.key.base) for ticket in tickets})
            found = {item.id: item for item in read_items(tx, set(owners.values()))}
        return (
            {base.key: base for base in bases},
            {key: found[id_] for key, id_ in owners.items() if id_ in found},
        )

    def find_items(self, base: Base, places: Sequence[Location]) -> dict[Location, Item]:
        with self._database.reading() as tx:
            return read_items_by_location(tx, base, places)

    def get_or_create_recipe(self, base: Base, kind: str, spec: Mapping[str, Any]) -> Recipe:
        """Return the live recipe of a specification; create it if there is none."""
        text = spec_text(spec)
        found = self._live(base, kind, text)
        if found is not None:
            return found
        self._database.write(lambda tx: tx.run(sql.INSERT_RECIPE, [[base.key, kind, text]]), durable=True)
        # If it was doomed in the meantime, create another one.
        return self._live(base, kind, text) or self.get_or_create_recipe(base, kind, spec)

    def _live(self, base: Base, kind: str, text: str) -> Recipe | None:
        with self._database.reading() as tx:
            found = tx.run(sql.LIVE_RECIPES, base=base.key, kind=kind)
        return next((Recipe(id=id_, spec=spec) for id_, spec in found if spec == text), None)

    def doom(self, recipe: Recipe) -> None:
        """Mark a recipe as no longer usable, unless a slot serves it or its index is being built in its base."""
        self._database.write(lambda tx: tx.run(sql.DOOM_RECIPE, recipe=recipe.id), durable=True)

    def unused(self, recipe: Recipe, since: timedelta = timedelta()) -> bool:
        """Return whether a recipe was doomed at least `since` ago and no slot serves it. Then no slot ever will."""
        with self._database.reading() as tx:
            return bool(tx.run(sql.UNUSED_RECIPE, recipe=recipe.id, since=micros(since)))

    def remove_recipe(self, recipe: Recipe) -> None:
        """Remove a recipe if it is doomed and unused."""
        self._database.write(lambda tx: tx.run(sql.REMOVE_RECIPE, recipe=recipe.id, since=0), durable=True)

    def all_recipes(self) -> list[tuple[str, str, Recipe]]:
        """Return base, index kind and recipe, for all bases."""
        with self._database.reading() as tx:
            return [(base, kind, Recipe(id=id_, spec=spec)) for base, kind, id_, spec in tx.run(sql.ALL_RECIPES)]

    def recipes_of(self, base: str) -> list[tuple[str, Recipe]]:
        """Return index kind and recipe, for one base."""
        with self._database.reading() as tx:
            return [
                (kind, Recipe(id=id_, spec=spec)) for kind, id_, spec in tx.run(sql.READ_RECIPES_OF_BASE, base=base)
            ]

    def recipe_exists(self, recipe: Recipe) -> bool:
        with self._database.reading() as tx:
            return bool(tx.run(sql.SELECT_RECIPE_ID, recipe=recipe.id))

    def recipes(self, base: str, kind: str) -> list[Recipe]:
        with self._database.reading() as tx:
            return read_recipes(tx, base, kind)


def read_bases(tx: Transaction, ids: Iterable[int]) -> list[Base]:
    """Read bases, also those being deleted."""
    return [base_from_row(row) for row in tx.run(sql.READ_BASES, [[id_] for id_ in ids])]


def read_base(tx: Transaction, id_: int) -> Base | None:
    return next(iter(read_bases(tx, [id_])), None)


def lock_base(tx: Transaction, id_: int) -> Base | None:
    """Read a base and lock it until the transaction ends."""
    return next((base_from_row(row) for row in tx.run(sql.LOCK_BASE, id=id_)), None)


def slots_of_documents(tx: Transaction, documents: Iterable[int]) -> list[tuple[Any, ...]]:
    """Return document, kind, state, recipe, claim time and job payload of each slot of these documents."""
    return tx.run(sql.SLOTS_OF_DOCUMENTS, [[document] for document in documents])


def read_recipes(tx: Transaction, base: str, kind: str) -> list[Recipe]:
    """Read all recipes of an index in a base, newest first."""
    return [Recipe(id=id_, spec=spec) for id_, spec in tx.run(sql.READ_RECIPES, base=base, kind=kind)]


def recipe_spec(tx: Transaction, recipe: int) -> str | None:
    return next((spec for (spec,) in tx.run(sql.READ_RECIPE_SPEC, recipe=recipe)), None)


def read_items(tx: Transaction, ids: Iterable[int]) -> list[Item]:
    """Read items, also those being deleted."""
    return [item_from_row(row) for row in tx.run(sql.READ_ITEMS, [[id_] for id_ in ids if 0 < id_ < ID_LIMIT])]


def read_items_by_location(tx: Transaction, base: Base, places: Sequence[Location]) -> dict[Location, Item]:
    """Find visible items by parent and name."""
    found = tx.run(sql.FIND_ITEMS, [[base.id, parent, name] for parent, name in places])
    return {(item.parent, item.name): item for item in map(item_from_row, found)}


def base_from_row(row: Sequence[Any]) -> Base:
    id_, name, settings, problem, deleting, _created = row
    return Base(
        id=id_,
        name=name,
        settings=BaseSettings.from_json(settings),
        problem=fault_from_json(problem) if problem else None,
        deleting=bool(deleting),
    )


def item_from_row(row: Sequence[Any]) -> Item:
    """Return an item from a row of the table.

    A value that cannot be displayed (written by an older version or another program) is read as empty and reported in
    `damage`. So one damaged row does not break a list, and can still be deleted.
    """
    (
        id_, base, parent, kind, name, blob, digest, size, metadata, source, seen, every, _look_at, problem, deleting,
        created_at, changed_at, _folded, local,
    ) = row  # fmt: skip
    known, fault = stored_map(metadata), stored_map(problem) if problem else {}
    columns = {
        "metadata": known is not None,
        "problem": fault is not None and (not problem or isinstance(fault.get("code"), str)),
        "created_at": created_at in SHOWN_TIMES,
        "changed_at": changed_at in SHOWN_TIMES,
    }
    return Item(
        id=id_,
        base=base,
        parent=parent,
        kind=ItemKind(kind),
        name=name,
        blob=blob,
        digest=digest,
        size=size,
        metadata=known or {},
        source=source,
        seen=seen,
        every=every,
        problem=(_fault(fault) if fault and columns["problem"] else _make_damage_fault(id_)) if problem else None,
        deleting=bool(deleting),
        created_at=created_at if columns["created_at"] else Moment(0),
        changed_at=changed_at if columns["changed_at"] else Moment(0),
        local=bool(local),
        damage=next((name for name, sound in columns.items() if not sound), None),
    )


def stored_map(text: str) -> dict[str, Any] | None:
    """Parse a stored JSON object; None if it is not an object or cannot be displayed."""
    try:
        read = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return read if isinstance(read, dict) and find_json_flaw(read, deepest=MAX_STORED_DEPTH) is None else None


def fold_name(name: str) -> str:
    """Return a name, or a part of one, as lists sort and filter it: case-insensitively."""
    return normalize("NFC", name.casefold())[:FOLDED_LENGTH]


def parse_number(text: str) -> int | None:
    """Parse a non-negative number; None for other texts and for numbers that no database stores."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_NUMBER_DIGITS else None


def parse_item_id(owner: str) -> int | None:
    """Return the id of the item that an owner belongs to; None for owners of a base itself."""
    return parse_number(owner.removeprefix(SOURCE_PREFIX))


def base_event(what: str, base: Base) -> Event:
    """Return an event about a base, with the code of its problem."""
    data = {"error": base.problem.code} if base.problem else {}
    return Event(f"base.{what}", base.key, "", data=json.dumps(data))


def item_removed_event(base: int, item: int) -> Event:
    """Return the event for an item whose last row was removed."""
    return Event("document.removed", str(base), str(item))


def fault_to_json(fault: Fault | WorkError) -> str:
    return json.dumps({"code": fault.code, **fault.params}, ensure_ascii=False)


def fault_from_json(text: str) -> Fault:
    return _fault(json.loads(text))


def _make_damage_fault(item: int) -> Fault:
    """Return the fault that replaces a stored one that cannot be read."""
    return Fault("document_damaged", {"document": str(item), "column": "problem"})


def _fault(values: Mapping[str, Any]) -> Fault:
    return Fault(values["code"], {name: value for name, value in values.items() if name != "code"})
