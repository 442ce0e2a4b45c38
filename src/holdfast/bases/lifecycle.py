"""The life of a base: made, renamed, set otherwise, failed and repaired, emptied, deleted.

Settings take effect at once for what comes; what is there is brought along by the slot `rollout`. Deleting closes the
base in one transaction: from then on nothing of it is shown, nothing can be added, and its name is free. What is left
goes in bounded transactions that any process may go on with, and the row of the base goes last.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, NamedTuple

from holdfast.bases import rollout
from holdfast.bases import statements as sql
from holdfast.bases.cards import CARDS
from holdfast.bases.rollout import ROLLOUT
from holdfast.catalog import BaseSettings, base_event, base_from_row
from holdfast.content.chunking import ChunkingRules
from holdfast.documents import lock_open_base, require_open
from holdfast.engine import Operation, Request, SlotState
from holdfast.engine.store import LARGEST_BATCH, make_storable, record_events, write_quota
from holdfast.errors import (
    BadRequest,
    BadSettings,
    BaseFailed,
    HoldfastError,
    NameTaken,
    StateConflict,
    UnknownBase,
    UnknownOwner,
    UnknownSlot,
    WorkError,
)
from holdfast.indexes import CONTENT
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.catalog import Base, Catalog, Recipe
    from holdfast.db import Transaction
    from holdfast.documents import DocumentRemover
    from holdfast.engine import AdmissionResult, Fault, Slot
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import IndexRegistry, NotEnabled

log = logging.getLogger("holdfast")

LONGEST_NAME = 200
RESTORING = "being_restored"  # the problem of a base that an archive is read into


class BaseChange(NamedTuple):
    """A base as it is now, and the rollout that brings its documents along; None where nothing needs to be done."""

    base: Base
    rollout: AdmissionResult | None


class Bases:
    """The bases of one database."""

    def __init__(self, store: SqlStore, catalogue: Catalog, indexes: IndexRegistry, removing: DocumentRemover) -> None:
        self._store = store
        self._catalog = catalogue
        self._indexes = indexes
        self._remover = removing
        self._compared = False  # whether what is served was compared with what this process would make

    # ------------------------------------------------------------ making and looking

    def create(self, name: str, settings: BaseSettings | None = None, problem: Fault | None = None) -> Base:
        """Create a base; of many who want the same name at once one gets it. With a problem it is not open yet."""
        wanted = settings or BaseSettings()
        spelled = _checked_name(name)
        self._check(wanted)
        return self._catalog.create_base(spelled, wanted, problem)

    def list(self) -> list[Base]:
        """Read all bases, by name."""
        return self._catalog.bases()

    def find(self, name: str) -> Base:
        """Find a base by its name."""
        base = self._catalog.find_base(to_nfc(name)) if make_storable(name) == name else None
        if base is None:
            raise UnknownBase(name)
        return base

    def read(self, base: Base) -> Base:
        """Read a base as it is now: name, settings, problem."""
        return require_open(self._catalog.base(base.id), base.name)

    def not_enabled(self, base: Base) -> dict[str, NotEnabled]:
        """Return the indexes that the base wants and cannot have here, each with the reason."""
        return self._indexes.check_enabled(base)[1]

    def read_rollout_slot(self, base: Base) -> Slot | None:
        """Return how far the documents are brought along; None if that was never needed."""
        try:
            return self._store.slot(base.key, ROLLOUT, ROLLOUT)
        except (UnknownOwner, UnknownSlot):
            return None

    # ------------------------------------------------------------ changing

    def rename(self, base: Base, name: str) -> Base:
        """Give a base another name."""
        wanted = _checked_name(name)

        def write(tx: Transaction) -> Base:
            now = lock_open_base(tx, base, building=False)
            return now if now.name == wanted else _rename(tx, base, wanted)

        return self._store.database.write(write, durable=True)

    def change(self, base: Base, settings: BaseSettings, *, name: str | None = None, requester: str = "") -> BaseChange:
        """Set a base otherwise; its documents follow in the background, and what they have is served until then.

        With a name it is also renamed, in the same transaction: both happen or neither. In a base that has failed
        nothing follows before it is repaired.
        """
        wanted = None if name is None else _checked_name(name)
        self._check(settings)
        changed = base

        def write(tx: Transaction) -> list[Request]:
            nonlocal changed
            before = lock_open_base(tx, base, building=False)
            if wanted is not None and wanted != before.name:
                _rename(tx, before, wanted)
            stored = tx.run(sql.STORED_SETTINGS, id=base.id)[0][0]
            text = json.dumps({**json.loads(stored), **json.loads(settings.to_json())}, ensure_ascii=False)
            changed = base_from_row(tx.run(sql.WRITE_SETTINGS, id=base.id, settings=text)[0])
            record_events(tx, [base_event("changed", changed)])
            if before.settings.jobs_per_day != settings.jobs_per_day:
                write_quota(tx, base.key, settings.jobs_per_day)
            old, new = self._indexes.specs(before), self._indexes.specs(changed)
            same = old == new and set(before.settings.indexes) == set(settings.indexes)
            if same or changed.problem is not None:
                return []
            affected = {kind for kind, spec in new.items() if old.get(kind) != spec}
            return [self._build_rollout_request(tx, changed, affected, requester)]

        answers = self._store.admit_with(write)
        return BaseChange(changed, answers[0] if answers else None)

    def repair(self, base: Base, *, requester: str = "") -> BaseChange:
        """Try again what made a base fail; if it works now, build what is missing, also what failed before.

        The provider is asked once. If it still cannot be used the base stays failed, with the new reason.
        """
        now = self.read(base)
        if now.problem is not None and now.problem.code == RESTORING:
            raise StateConflict(RESTORING, f"Nothing can repair {base.name!r}: {now.problem.params['message']}")
        self._probe(now)
        mended = base

        def write(tx: Transaction) -> list[Request]:
            nonlocal mended
            lock_open_base(tx, base, building=False)
            mended = base_from_row(tx.run(sql.CLEAR_BASE_PROBLEM, id=base.id)[0])
            record_events(tx, [base_event("repaired", mended)])
            return [self._build_rollout_request(tx, mended, self._indexes.specs(mended), requester)]

        answers = self._store.admit_with(write)
        return BaseChange(mended, answers[0])

    def _probe(self, base: Base) -> None:
        """Ask each index that can be asked whether it could be built now."""
        specs = self._indexes.specs(base)
        for kind in self._indexes.check_enabled(base)[0]:
            probe = getattr(self._indexes[kind], "probe", None)
            if probe is None:
                continue
            try:
                probe(base, self._catalog.get_or_create_recipe(base, kind, json.loads(specs[kind])))
            except WorkError as error:
                self._catalog.fail_base(base.key, error, replace=True)
                raise BaseFailed(base.name, str(error)) from error

    def _build_rollout_request(self, tx: Transaction, base: Base, again: Collection[str], requester: str) -> Request:
        """Ask for a rollout; what an unfinished one would have tried again, this one does."""
        unfinished = {
            kind
            for _, state, payload in tx.run(sql.READ_SLOTS_OF_OWNER, base=base.key, owner=ROLLOUT)
            if state != SlotState.READY
            for kind in json.loads(payload or "[]")
        }
        return rollout.request(base, self._indexes.specs(base), {*again, *unfinished}, requester)

    # ------------------------------------------------------------ emptying and deleting

    def clear(self, base: Base, *, requester: str = "") -> None:
        """Delete all items of a base, and its cards; name and settings stay."""
        self._remover.clear(base, [CARDS], requester=requester)

    def delete(self, base: Base, *, requester: str = "") -> None:
        """Delete a base with all that is in it: from now on it is found nowhere, and its name is free."""

        def close(tx: Transaction) -> None:
            now = lock_open_base(tx, base, building=False)
            tx.run(sql.CLOSE_BASE, id=base.id)
            record_events(tx, [base_event("deleted", now)])

        self._store.database.write(close, durable=True)
        while self._hide_and_request_clean_up(base, LARGEST_BATCH, requester):
            pass

    def continue_background_work(self, limit: int = LARGEST_BATCH) -> int:
        """Go on with deleted bases, and bring along what another version or model made; return how much it was."""
        with self._store.database.reading() as tx:
            closed = [base_from_row(row) for row in tx.run(sql.CLOSED_BASES)]
        done = 0
        for base in closed:
            try:
                done += self._hide_and_request_clean_up(base, limit) or self._remove(base, limit)
            except HoldfastError:  # it is tried again in the next round, and holds up no other base
                log.exception("base.not_removed base=%d", base.id)
        return done + self._roll_out_outdated_bases()

    def _hide_and_request_clean_up(self, base: Base, limit: int, requester: str = "") -> int:
        """Hide items of a closed base, and then ask for the clean-up of what has slots; return how much it was."""
        hidden = self._store.database.write(
            lambda tx: tx.run(sql.HIDE_ITEMS, base_id=base.id, limit=limit), durable=True
        )
        if hidden:
            return len(hidden)
        with self._store.database.reading() as tx:
            owners = tx.run(sql.OWNERS_OF_BASE, base=base.key, limit=limit)
        self._store.admit([
            Request(base=key, owner=owner, operation=Operation.DELETE, cause="base", requester=requester)
            for key, owner in owners
        ])  # fmt: skip
        return len(owners)

    def _remove(self, base: Base, limit: int) -> int:
        """Remove what is left of a closed base when all its items are gone: recipes with their tables, the row last."""
        with self._store.database.reading() as tx:
            if not tx.run(sql.SELECT_EMPTY_BASE, id=base.id):
                return 0
        for kind, recipe in self._catalog.recipes_of(base.key):
            self._remove_recipe(kind, recipe, limit)

        def remove(tx: Transaction) -> int:
            gone = tx.run(sql.REMOVE_BASE, id=base.id)
            if gone:
                tx.run(sql.REMOVE_PAUSE, base=base.key)
                tx.run(sql.REMOVE_QUOTA, base=base.key)
                record_events(tx, [base_event("removed", base)])
            return len(gone)

        return self._store.database.write(remove, durable=True)

    def _remove_recipe(self, kind: str, recipe: Recipe, limit: int) -> None:
        """Remove a recipe with all that was made by it; that of a package that is not installed here is left."""
        if kind in self._indexes.kinds:
            index = self._indexes[kind]
            while chunks := index.scan(recipe, 0, limit):
                index.drop(recipe, chunks)
            index.forget(recipe)
        elif kind != CONTENT:
            return
        self._store.database.write(lambda tx: tx.run(sql.REMOVE_LAST_RECIPE, recipe=recipe.id), durable=True)

    # ------------------------------------------------------------ what changed while nobody was here

    def _roll_out_outdated_bases(self) -> int:
        """Once in a process: bring along the documents that another model or version made; return how many bases."""
        if self._compared:
            return 0
        self._compared = True
        return sum(self._roll_out_if_outdated(base) for base in self._catalog.bases() if base.problem is None)

    def _roll_out_if_outdated(self, base: Base) -> bool:
        def write(tx: Transaction) -> list[Request]:
            now = lock_open_base(tx, base, building=True)
            specs = self._indexes.specs(now)
            asked = tx.run(sql.READ_SLOTS_OF_OWNER, base=now.key, owner=ROLLOUT)
            if any((mark or "").partition(":")[0] == rollout.digest(specs, now) for mark, _, _ in asked):
                return []  # whatever is left of it was left on purpose
            used = tx.run(sql.USED_RECIPES, base=now.key)
            other = {kind for kind, spec in used if specs.get(kind, spec) != spec}
            dropped = {kind for kind, _ in used} - {CONTENT, *now.settings.indexes}
            return [self._build_rollout_request(tx, now, other, "")] if other or dropped else []

        try:
            return bool(self._store.admit_with(write))
        except (UnknownBase, BaseFailed):
            return False

    def _check(self, settings: BaseSettings) -> None:
        """Refuse settings that no document could be indexed with here."""
        ChunkingRules(size=settings.chunk_size, overlap=settings.chunk_overlap)
        unknown = [kind for kind in settings.indexes if kind not in self._indexes.kinds]
        if unknown:
            raise BadSettings(f"There is no index {unknown[0]!r}; there are {', '.join(self._indexes.kinds)}.")


def _rename(tx: Transaction, base: Base, name: str) -> Base:
    """Give a base another name, unless another base has it."""
    if tx.run(sql.SELECT_BASE_WITH_SAME_NAME, id=base.id, name=name):
        raise NameTaken(name)
    renamed = base_from_row(tx.run(sql.RENAME_BASE, id=base.id, name=name)[0])
    record_events(tx, [base_event("renamed", renamed)])
    return renamed


def _checked_name(given: str) -> str:
    """Return the name of a base in the spelling under which it is stored, if it can have this name."""
    name = to_nfc(given)
    if (
        not name.strip()
        or len(name) > LONGEST_NAME
        or make_storable(name) != name
        or "/" in name
        or name in {".", ".."}
    ):
        raise BadRequest(
            f"A base needs a name of 1 to {LONGEST_NAME} characters that can be part of an address: without slashes, "
            "zero bytes and halves of characters.",
            "base_name",
            longest=LONGEST_NAME,
        )
    return name
