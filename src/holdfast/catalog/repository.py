"""What there is: bases with their settings, the tree of items, and the recipes by which their indexes are made."""

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
from holdfast.content.languages import LANGUAGES
from holdfast.engine import Event, Fault
from holdfast.engine.store import record_events, write_quota
from holdfast.errors import BadSettings, NameTaken
from holdfast.wellformed import MAX_STORED_DEPTH, find_json_flaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import Ticket
    from holdfast.errors import WorkError

    Location = tuple[int, str]  # the container, 0 for none, and the name in it

ID_LIMIT = 2**63  # no database counts as far
MAX_NUMBER_DIGITS = 18  # digits of a number that every database takes
FOLDED_LENGTH = 500  # characters of a name that lists look at; PostgreSQL refuses longer ones in an index
DEFAULT_INDEXES = ("vector", "fulltext")  # what a base has unless it says otherwise
AUTO = "auto"  # the endpoint of the settings, if there is one; else this machine embeds, and nobody speaks
OFFLINE = "offline"  # this machine embeds, although there is an endpoint
NO_CHAT = "none"  # no language model is ever asked
SHOWN_TIMES = range(253_402_300_800_000_000)  # microseconds: from 1970 to the year 9999
DAMAGED = {"code": "document_damaged"}  # in place of a reason that cannot be read
EMBEDDING_CHOICES = (AUTO, OFFLINE)
CHAT_CHOICES = (AUTO, NO_CHAT)


class ItemKind(StrEnum):
    """What an item is."""

    FILE = "file"  # bytes that somebody uploaded, or that a directory holds
    NOTE = "note"  # text that somebody wrote here
    URL = "url"  # a page that is fetched
    DIRECTORY = "directory"  # a folder, with what it holds below it
    SITEMAP = "sitemap"  # a list of pages, with the pages below it


CONTAINERS = frozenset({ItemKind.DIRECTORY, ItemKind.SITEMAP})


class OnDuplicate(StrEnum):
    """What becomes of something whose name or content is there already."""

    REJECT = "reject"
    REPLACE = "replace"  # the old item gets the new content
    RENAME = "rename"  # both are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSettings:
    """How the documents of a base are indexed."""

    indexes: tuple[str, ...] = DEFAULT_INDEXES
    chunk_size: int = 512  # tokens, at most
    chunk_overlap: int = 64
    missing_share: float = 0.05  # of a document's chunks may be missing in an index that is served
    tenant: str = ""  # who shares paid answers
    budget_tokens: int | None = None  # that the base may spend; None for no limit
    jobs_per_day: int | None = None  # that may be started from midnight to midnight UTC; None for no limit
    auto_index: bool = True  # what is added is indexed at once
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    embedding: str = AUTO  # who embeds: see EMBEDDINGS
    chat: str = AUTO  # which language model is asked: see CHATS
    languages: tuple[str, ...] = ()  # of its documents, by ISO 639-1; none: any

    def __post_init__(self) -> None:
        """Refuse what no document could be indexed with."""
        if not self.indexes:
            raise BadSettings("A base without any index finds nothing; name at least one.", "no_indexes")
        if len(set(self.indexes)) != len(self.indexes):
            raise BadSettings(f"An index is named twice in {list(self.indexes)}; name each once.")
        if self.budget_tokens is not None and self.budget_tokens < 0:
            raise BadSettings(
                f"A budget of {self.budget_tokens} tokens cannot be kept; use 0 or more, or none.", "budget_below_zero"
            )
        if self.jobs_per_day is not None and not 1 <= self.jobs_per_day < 2**31:
            raise BadSettings(
                f"A quota of {self.jobs_per_day} jobs a day cannot be kept; use 1 or more, or none, or pause the base.",
                "quota_below_one",
            )
        if not 0 <= self.missing_share <= 1:
            raise BadSettings(
                f"The share of chunks that may be missing is from 0 to 1, not {self.missing_share}.",
                "share_out_of_range",
            )
        self._check_providers()

    def _check_providers(self) -> None:
        """Refuse providers and languages that nobody knows."""
        if self.embedding not in EMBEDDING_CHOICES:
            raise BadSettings(f"A base embeds by {' or '.join(EMBEDDING_CHOICES)}, not by {self.embedding!r}.")
        if self.chat not in CHAT_CHOICES:
            raise BadSettings(f"The language model of a base is {' or '.join(CHAT_CHOICES)}, not {self.chat!r}.")
        for code in self.languages:
            if code not in LANGUAGES:
                raise BadSettings(
                    f"There is no language {code!r}; languages are named by two small letters, as in de, en or ja.",
                    "language_unknown",
                    language=code,
                )

    def to_json(self) -> str:
        """Return the settings as they are stored."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> BaseSettings:
        """Read stored settings; what only a newer version knows is left alone."""
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in json.loads(text).items() if name in known}
        on_duplicate = OnDuplicate(values.get("on_duplicate", OnDuplicate.REJECT))
        lists = {name: tuple(values[name]) for name in ("indexes", "languages") if name in values}
        return cls(**{**values, **lists, "on_duplicate": on_duplicate})


class BaseStatus(StrEnum):
    """How a base stands."""

    READY = "ready"
    FAILED = "failed"  # nothing can be indexed there until it is repaired
    DELETING = "deleting"  # hidden; what is left of it goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A collection of items that are searched together."""

    id: int
    name: str
    settings: BaseSettings = field(default_factory=BaseSettings)
    problem: Fault | None = None  # why nothing can be indexed
    deleting: bool = False

    @property
    def key(self) -> str:
        """Its name in slots and jobs; a later base of the same name has another."""
        return str(self.id)

    @property
    def status(self) -> BaseStatus:
        """How it stands."""
        if self.deleting:
            return BaseStatus.DELETING
        return BaseStatus.READY if self.problem is None else BaseStatus.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One place in the tree of a base."""

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
    seen: str | None  # how the source looked
    every: int | None
    problem: Fault | None
    deleting: bool
    created_at: Moment
    changed_at: Moment  # its content or metadata
    local: bool = False  # a folder that the local user named, not a key
    damage: str | None = None  # the column whose stored value cannot be shown; it is read as empty

    @property
    def key(self) -> str:
        """Its name in slots and jobs: those of its content and indexes."""
        return str(self.id)

    @property
    def source_key(self) -> str:
        """The name in slots and jobs of what looks at its source."""
        return f"{SOURCE_PREFIX}{self.id}"

    @property
    def is_container(self) -> bool:
        """Other items may stand below it."""
        return self.kind in CONTAINERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How rows of an index are made: model, settings and version of the code that made them."""

    id: int
    spec: str


def spec_text(spec: Mapping[str, Any]) -> str:
    """Return a specification as it is kept and compared."""
    return json.dumps(spec, sort_keys=True, ensure_ascii=False)


class Catalog:
    """Reads and writes what there is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_base(self, name: str, settings: BaseSettings, problem: Fault | None = None) -> Base:
        """Create a base; of many who want the same name one gets it. With a problem it is not open yet."""

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

    def find_base(self, name: str) -> Base | None:
        """Find a base by its name."""
        with self._database.reading() as tx:
            found = tx.run(sql.FIND_BASE, name=name)
        return base_from_row(found[0]) if found else None

    def base(self, id_: int) -> Base | None:
        """Read a base, as long as anything of it is left."""
        with self._database.reading() as tx:
            return read_base(tx, id_)

    def bases(self) -> list[Base]:
        """Read all bases, by name."""
        with self._database.reading() as tx:
            return [base_from_row(row) for row in tx.run(sql.LIST_BASES)]

    def read_for_tickets(self, tickets: Sequence[Ticket]) -> tuple[dict[str, Base], dict[str, Item]]:
        """Read the bases and items that tickets are for, by their names in slots and jobs."""
        owners = {ticket.key.owner: int(ticket.key.owner.removeprefix(SOURCE_PREFIX)) for ticket in tickets}
        with self._database.reading() as tx:
            bases = read_bases(tx, {int(ticket.key.base) for ticket in tickets})
            found = {item.id: item for item in read_items(tx, set(owners.values()))}
        return (
            {base.key: base for base in bases},
            {key: found[id_] for key, id_ in owners.items() if id_ in found},
        )

    def find_items(self, base: Base, places: Sequence[Location]) -> dict[Location, Item]:
        """Find items by where they stand."""
        with self._database.reading() as tx:
            return read_items_by_location(tx, base, places)

    def get_or_create_recipe(self, base: Base, kind: str, spec: Mapping[str, Any]) -> Recipe:
        """Return the recipe of this specification; it is written down when it is new."""
        text = spec_text(spec)
        found = self._live(base, kind, text)
        if found is not None:
            return found
        self._database.write(lambda tx: tx.run(sql.INSERT_RECIPE, [[base.key, kind, text]]), durable=True)
        return self._live(base, kind, text) or self.get_or_create_recipe(
            base, kind, spec
        )  # again, if it was doomed meanwhile

    def _live(self, base: Base, kind: str, text: str) -> Recipe | None:
        """Find the recipe of a specification by which rows are made."""
        with self._database.reading() as tx:
            found = tx.run(sql.LIVE_RECIPES, base=base.key, kind=kind)
        return next((Recipe(id=id_, spec=spec) for id_, spec in found if spec == text), None)

    def doom(self, recipe: Recipe) -> None:
        """Let nothing more be made by a recipe, unless it is served or its index is at work in its base."""
        self._database.write(lambda tx: tx.run(sql.DOOM_RECIPE, recipe=recipe.id), durable=True)

    def unused(self, recipe: Recipe, since: timedelta = timedelta()) -> bool:
        """Tell whether a recipe is doomed, for so long at least, and serves nobody: then it never will."""
        with self._database.reading() as tx:
            return bool(tx.run(sql.UNUSED_RECIPE, recipe=recipe.id, since=micros(since)))

    def remove_recipe(self, recipe: Recipe) -> None:
        """Remove a recipe that is not used."""
        self._database.write(lambda tx: tx.run(sql.REMOVE_RECIPE, recipe=recipe.id, since=0), durable=True)

    def all_recipes(self) -> list[tuple[str, str, Recipe]]:
        """Read the recipes of all bases, each with its base and the kind of its index."""
        with self._database.reading() as tx:
            return [(base, kind, Recipe(id=id_, spec=spec)) for base, kind, id_, spec in tx.run(sql.ALL_RECIPES)]

    def recipes_of(self, base: str) -> list[tuple[str, Recipe]]:
        """Read the recipes of a base, each with the kind of its index."""
        with self._database.reading() as tx:
            return [
                (kind, Recipe(id=id_, spec=spec)) for kind, id_, spec in tx.run(sql.READ_RECIPES_OF_BASE, base=base)
            ]

    def recipe_exists(self, recipe: Recipe) -> bool:
        """Tell whether a recipe is still there."""
        with self._database.reading() as tx:
            return bool(tx.run(sql.SELECT_RECIPE_ID, recipe=recipe.id))

    def recipes(self, base: str, kind: str) -> list[Recipe]:
        """Read all recipes that rows of this kind were made by, newest first."""
        with self._database.reading() as tx:
            return read_recipes(tx, base, kind)


def read_bases(tx: Transaction, ids: Iterable[int]) -> list[Base]:
    """Read bases, deleted ones too, as long as anything of them is left."""
    return [base_from_row(row) for row in tx.run(sql.READ_BASES, [[id_] for id_ in ids])]


def read_base(tx: Transaction, id_: int) -> Base | None:
    """Read one base in a transaction."""
    return next(iter(read_bases(tx, [id_])), None)


def lock_base(tx: Transaction, id_: int) -> Base | None:
    """Read a base and keep others from changing or locking it until the transaction ends."""
    return next((base_from_row(row) for row in tx.run(sql.LOCK_BASE, id=id_)), None)


def slots_of_documents(tx: Transaction, documents: Iterable[int]) -> list[tuple[Any, ...]]:
    """Read the slots of documents: document, kind, state, recipe, when it was claimed, payload of its job."""
    return tx.run(sql.SLOTS_OF_DOCUMENTS, [[document] for document in documents])


def read_recipes(tx: Transaction, base: str, kind: str) -> list[Recipe]:
    """Read all recipes that rows of this kind were made by, newest first."""
    return [Recipe(id=id_, spec=spec) for id_, spec in tx.run(sql.READ_RECIPES, base=base, kind=kind)]


def recipe_spec(tx: Transaction, recipe: int) -> str | None:
    """Read the specification of a recipe; None if it is gone."""
    return next((spec for (spec,) in tx.run(sql.READ_RECIPE_SPEC, recipe=recipe)), None)


def read_items(tx: Transaction, ids: Iterable[int]) -> list[Item]:
    """Read items, deleted ones too."""
    return [item_from_row(row) for row in tx.run(sql.READ_ITEMS, [[id_] for id_ in ids if 0 < id_ < ID_LIMIT])]


def read_items_by_location(tx: Transaction, base: Base, places: Sequence[Location]) -> dict[Location, Item]:
    """Find items by where they stand, in a transaction."""
    found = tx.run(sql.FIND_ITEMS, [[base.id, parent, name] for parent, name in places])
    return {(item.parent, item.name): item for item in map(item_from_row, found)}


def base_from_row(row: Sequence[Any]) -> Base:
    """Return the base that a row tells of."""
    id_, name, settings, problem, deleting, _created = row
    return Base(
        id=id_,
        name=name,
        settings=BaseSettings.from_json(settings),
        problem=fault_from_json(problem) if problem else None,
        deleting=bool(deleting),
    )


def item_from_row(row: Sequence[Any]) -> Item:
    """Return the item that a row tells of.

    A value that cannot be shown (written by an older version, or by another program) is read as empty and noted as
    damage, so that one such row spoils no list and can still be deleted.
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
        problem=_fault(fault if fault and columns["problem"] else DAMAGED) if problem else None,
        deleting=bool(deleting),
        created_at=created_at if columns["created_at"] else Moment(0),
        changed_at=changed_at if columns["changed_at"] else Moment(0),
        local=bool(local),
        damage=next((name for name, sound in columns.items() if not sound), None),
    )


def stored_map(text: str) -> dict[str, Any] | None:
    """Read a map that is stored as JSON; None if it is not one, or cannot be shown."""
    try:
        read = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return read if isinstance(read, dict) and find_json_flaw(read, deepest=MAX_STORED_DEPTH) is None else None


def fold_name(name: str) -> str:
    """Return a name, or a part of one, as lists are ordered and looked through: whatever its case."""
    return normalize("NFC", name.casefold())[:FOLDED_LENGTH]


def parse_number(text: str) -> int | None:
    """Return the number that a text is; None for any other text, and for numbers that no row has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_NUMBER_DIGITS else None


def parse_item_id(owner: str) -> int | None:
    """Return the item that an owner of slots belongs to; None for those of a base itself."""
    return parse_number(owner.removeprefix(SOURCE_PREFIX))


def base_event(what: str, base: Base) -> Event:
    """Tell of a base: its name now, and why nothing can be indexed there."""
    told = {"error": base.problem.code} if base.problem else {}
    return Event(f"base.{what}", base.key, "", data=json.dumps(told))


def item_removed_event(base: int, item: int) -> Event:
    """Tell that nothing of an item is left."""
    return Event("document.removed", str(base), str(item))


def fault_to_json(fault: Fault | WorkError) -> str:
    """Return a fault as the database stores it."""
    return json.dumps({"code": fault.code, **fault.params}, ensure_ascii=False)


def fault_from_json(text: str) -> Fault:
    """Read a stored reason."""
    return _fault(json.loads(text))


def _fault(told: Mapping[str, Any]) -> Fault:
    return Fault(told["code"], {name: value for name, value in told.items() if name != "code"})
