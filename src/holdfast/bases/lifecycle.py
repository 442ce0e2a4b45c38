"""Creates, renames, changes, repairs, clears and deletes bases.

Changed settings apply at once to new documents; the slot `rollout` applies them to existing ones. A delete closes the
base in one transaction: from then on it is hidden, nothing can be added, and its name is free. Its data is removed in
bounded transactions, which any process can continue. The row of the base is removed last.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, NamedTuple

from holdfast.bases import rollout
from holdfast.bases import statements as sql
from holdfast.bases.removal import request_removal
from holdfast.bases.slots import CARDS, ROLLOUT
from holdfast.catalog import BaseSettings, base_event, base_from_row
from holdfast.content import ChunkingRules
from holdfast.documents import RequestOptions, lock_open_base, require_open
from holdfast.engine import Operation, Request, SlotState
from holdfast.engine.store import LARGEST_BATCH, make_storable, record_events, write_quota
from holdfast.errors import (
    RESTORING,
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
from holdfast.indexes import CONTENT, Probed
from holdfast.wellformed import to_nfc

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.catalog import Base, Catalog, Recipe
    from holdfast.db import Transaction
    from holdfast.documents import BulkOperations
    from holdfast.engine import AdmissionResult, BulkResult, Fault, JobId, Slot
    from holdfast.engine.store import SqlStore
    from holdfast.indexes import IndexRegistry, NotEnabled

log = logging.getLogger("holdfast")

LONGEST_NAME = 200
SHOWN_NAME_CHARACTERS = 100  # of an invalid name, in the error


class BaseChange(NamedTuple):
    """The changed base, and the admitted rollout; None if its documents need no rollout."""

    base: Base
    rollout: AdmissionResult | None


class Bases:
    def __init__(self, store: SqlStore, catalog: Catalog, indexes: IndexRegistry, bulk: BulkOperations) -> None:
        self._store = store
        self._catalog = catalog
        self._indexes = indexes
        self._bulk = bulk
        self._compared = False  # whether this process has compared the served recipes with its own

    def create(self, name: str, settings: BaseSettings | None = None, problem: Fault | None = None) -> Base:
        """Create a base, or raise `NameTaken`. A base with a `problem` refuses work until the problem is cleared."""
        wanted = settings or BaseSettings()
        normalised = _checked_name(name)
        self._check(wanted)
        return self._catalog.create_base(normalised, wanted, problem)

    def read(self, base: Base) -> Base:
        """Return the current state of a base, or raise `UnknownBase`."""
        return require_open(self._catalog.base(base.id), base.name)

    def not_enabled(self, base: Base) -> dict[str, NotEnabled]:
        """Return the indexes of the base that cannot run here, each with the reason."""
        return self._indexes.check_enabled(base)[1]

    def read_rollout_slot(self, base: Base) -> Slot | None:
        """Return the slot `rollout`; None if the base never had one."""
        try:
            return self._store.slot(base.key, ROLLOUT, ROLLOUT)
        except (UnknownOwner, UnknownSlot):
            return None

    def cancel_rollout(self, base: str, job: JobId, requester: str = "") -> AdmissionResult:
        """Cancel a rollout, and the builds that it requested and that are not finished.

        Documents that are built serve the new settings; the others keep serving the old ones.
        """
        (result,) = self._store.cancel_jobs([job], requester)
        while True:
            with self._store.database.reading() as tx:
                requested = [one for (one,) in tx.run(sql.READ_REQUESTED, base=base, job=job, limit=LARGEST_BATCH)]
            cancelled = self._store.cancel_jobs(requested, requester)
            if not any(one.accepted for one in cancelled):
                return result

    def rename(self, base: Base, name: str) -> Base:
        wanted = _checked_name(name)

        def write(tx: Transaction) -> Base:
            now = lock_open_base(tx, base, building=False)
            return now if now.name == wanted else _rename(tx, base, wanted)

        return self._store.database.write(write, durable=True)

    def change(self, base: Base, settings: BaseSettings, *, name: str | None = None, requester: str = "") -> BaseChange:
        """Change the settings of a base, and its name in the same transaction.

        The documents follow in the background; the old content stays served until then. In a failed base they follow
        after a repair.
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
        """Probe the providers of a failed base once; if they work, open the base and build missing and failed indexes.

        If they still fail, the base stays failed with the new reason, and `BaseFailed` is raised.
        """
        now = self.read(base)
        if now.problem is not None and now.problem.code == RESTORING:
            raise StateConflict(RESTORING, base=now.name)
        self._probe(now)
        repaired = base

        def write(tx: Transaction) -> list[Request]:
            nonlocal repaired
            lock_open_base(tx, base, building=False)
            repaired = base_from_row(tx.run(sql.CLEAR_BASE_PROBLEM, id=base.id)[0])
            record_events(tx, [base_event("repaired", repaired)])
            return [self._build_rollout_request(tx, repaired, self._indexes.specs(repaired), requester)]

        answers = self._store.admit_with(write)
        return BaseChange(repaired, answers[0])

    def _probe(self, base: Base) -> None:
        """Call the probe of each enabled index that has one; record and raise the first failure."""
        specs = self._indexes.specs(base)
        for kind in self._indexes.check_enabled(base)[0]:
            index = self._indexes[kind]
            if not isinstance(index, Probed):
                continue
            try:
                index.probe(base, self._catalog.get_or_create_recipe(base, kind, json.loads(specs[kind])))
            except WorkError as error:
                self._catalog.fail_base(base.key, error, replace=True)
                raise BaseFailed(base.name, error) from error

    def _build_rollout_request(
        self, tx: Transaction, base: Base, retry_kinds: Collection[str], requester: str
    ) -> Request:
        """Return the request for a rollout. It also retries the kinds that an unfinished rollout would have retried."""
        unfinished = {
            kind
            for _, state, payload in tx.run(sql.READ_SLOTS_OF_OWNER, base=base.key, owner=ROLLOUT)
            if state != SlotState.READY
            for kind in json.loads(payload or "[]")
        }
        return rollout.request(base, self._indexes.specs(base), {*retry_kinds, *unfinished}, requester)

    def clear(self, base: Base, *, requester: str = "") -> BulkResult:
        """Delete all items and cards of a base, or start the job that does; name and settings stay."""
        return self._bulk.clear(base, [CARDS], RequestOptions(requester=requester))

    def delete(self, base: Base, *, requester: str = "") -> AdmissionResult:
        """Delete a base with everything in it: it is hidden at once, and its name is free. A job removes its data."""

        def close(tx: Transaction) -> list[Request]:
            now = lock_open_base(tx, base, building=False)
            tx.run(sql.CLOSE_BASE, id=base.id)
            record_events(tx, [base_event("deleted", now)])
            ((found,),) = tx.run(sql.COUNT_ITEMS, base_id=base.id)
            return [request_removal(now, found, requester)]

        return self._store.admit_with(close)[0]

    def count_items(self, key: str) -> int:
        """Count the items of a base, also those that are being deleted."""
        with self._store.database.reading() as tx:
            ((found,),) = tx.run(sql.COUNT_ITEMS, base_id=int(key))
        return int(found)

    def continue_background_work(self, limit: int = LARGEST_BATCH) -> int:
        """Continue to remove deleted bases, and roll out outdated ones; return the amount of work done."""
        with self._store.database.reading() as tx:
            closed = [base_from_row(row) for row in tx.run(sql.CLOSED_BASES)]
        done = 0
        for base in closed:
            try:
                done += self.hide_and_request_clean_up(base, limit) or self.remove_empty(base, limit)
            except HoldfastError:  # retried in the next round; the other bases continue
                log.exception("base.not_removed base=%d", base.id)
        return done + self._roll_out_outdated_bases()

    def hide_and_request_clean_up(self, base: Base, limit: int) -> int:
        """Hide items of a closed base, then request the clean-up of its owners; return how many."""
        hidden = self._store.database.write(
            lambda tx: tx.run(sql.HIDE_ITEMS, base_id=base.id, limit=limit), durable=True
        )
        if hidden:
            return len(hidden)
        with self._store.database.reading() as tx:
            owners = tx.run(sql.OWNERS_OF_BASE, base=base.key, limit=limit)
        self._store.admit([
            Request(base=key, owner=owner, operation=Operation.DELETE, cause="base") for key, owner in owners
        ])  # fmt: skip
        return len(owners)

    def remove_empty(self, base: Base, limit: int) -> int:
        """Remove a closed base without items: its recipes with their tables, then its row; return how many bases."""
        with self._store.database.reading() as tx:
            if not tx.run(sql.SELECT_EMPTY_BASE, id=base.id):
                return 0
        for kind, recipe in self._catalog.recipes_of(base.key):
            self._remove_recipe(kind, recipe, limit)

        def remove(tx: Transaction) -> int:
            gone = tx.run(sql.REMOVE_BASE, id=base.id)
            if gone:
                tx.run(sql.REMOVE_CALIBRATION, id=base.id)
                tx.run(sql.REMOVE_PAUSE, base=base.key)
                tx.run(sql.REMOVE_QUOTA, base=base.key)
                record_events(tx, [base_event("removed", base)])
            return len(gone)

        return self._store.database.write(remove, durable=True)

    def _remove_recipe(self, kind: str, recipe: Recipe, limit: int) -> None:
        """Remove a recipe with all its rows, unless the package of its index is not installed here."""
        if kind in self._indexes.kinds:
            index = self._indexes[kind]
            while chunks := index.scan(recipe, 0, limit):
                index.drop(recipe, chunks)
            index.forget(recipe)
        elif kind != CONTENT:
            return
        self._store.database.write(lambda tx: tx.run(sql.REMOVE_LAST_RECIPE, recipe=recipe.id), durable=True)

    def _roll_out_outdated_bases(self) -> int:
        """Roll out bases with documents of another model or version, once per process; return how many."""
        if self._compared:
            return 0
        self._compared = True
        return sum(self._roll_out_if_outdated(base) for base in self._catalog.bases() if base.problem is None)

    def _roll_out_if_outdated(self, base: Base) -> bool:
        def write(tx: Transaction) -> list[Request]:
            now = lock_open_base(tx, base, building=True)
            specs = self._indexes.specs(now)
            requested = tx.run(sql.READ_SLOTS_OF_OWNER, base=now.key, owner=ROLLOUT)
            if any((mark or "").partition(":")[0] == rollout.digest(specs, now) for mark, _, _ in requested):
                return []  # this rollout was already requested
            used = tx.run(sql.USED_RECIPES, base=now.key)
            outdated = {kind for kind, spec in used if specs.get(kind, spec) != spec}
            dropped = {kind for kind, _ in used} - {CONTENT, *now.settings.indexes}
            return [self._build_rollout_request(tx, now, outdated, "")] if outdated or dropped else []

        try:
            return bool(self._store.admit_with(write))
        except (UnknownBase, BaseFailed):
            return False

    def _check(self, settings: BaseSettings) -> None:
        """Raise `BadSettings` for settings that cannot work here."""
        ChunkingRules(size=settings.chunk_size, overlap=settings.chunk_overlap)
        unknown = [kind for kind in settings.indexes if kind not in self._indexes.kinds]
        if unknown:
            raise BadSettings("index_unknown", index=unknown[0], indexes=", ".join(self._indexes.kinds))


def _rename(tx: Transaction, base: Base, name: str) -> Base:
    """Rename a base, or raise `NameTaken`."""
    if tx.run(sql.SELECT_BASE_WITH_SAME_NAME, id=base.id, name=name):
        raise NameTaken(name)
    renamed = base_from_row(tx.run(sql.RENAME_BASE, id=base.id, name=name)[0])
    record_events(tx, [base_event("renamed", renamed)])
    return renamed


def _checked_name(given: str) -> str:
    """Return the normalised name of a base, or raise `BadRequest`."""
    name = to_nfc(given)
    if (
        not name.strip()
        or len(name) > LONGEST_NAME
        or make_storable(name) != name
        or "/" in name
        or name in {".", ".."}
    ):
        raise BadRequest("base_name", name=make_storable(name[:SHOWN_NAME_CHARACTERS]), longest=LONGEST_NAME)
    return name
