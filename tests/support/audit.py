"""Compares every store with the lists of served chunks, and builds SQL statements with one guard removed."""

from __future__ import annotations

import ast
import inspect
import threading
from collections import defaultdict
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import select, text

from holdfast.catalog import tables as library_tables
from holdfast.catalog.repository import item_from_row
from holdfast.catalog.visibility import read_served_chunks
from holdfast.documents.selection import ItemWithStatus
from holdfast.engine.states import Status
from tests.support.processes import until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from holdfast.db import Database
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.wiring import Library


class Stand(Protocol):
    """A database with documents and their indexes, in this process or in workers."""

    store: SqlStore
    library: Library
    folder: Path


class Manifest:
    """The contents of the tables of one database, read in one snapshot."""

    def __init__(self, rig: Stand) -> None:
        self._rig = rig
        with rig.store.database.reading() as tx:
            self.lists: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # (owner, build) -> ordinal -> chunk
            for owner, build, ordinal, chunk in tx.run_sql(
                "SELECT owner_id, build, ordinal, chunk_id FROM library_lists"
            ):
                assert ordinal not in self.lists[owner, build], "two chunks at one place of a list"
                self.lists[owner, build][ordinal] = chunk
            self.builds = {
                (one[0], one[1]): one[2] for one in tx.run_sql("SELECT owner_id, build, settled FROM library_builds")
            }
            self.chunks: dict[int, int] = dict(tx.run_sql("SELECT id, doomed FROM library_chunks"))
            self.slots = tx.run_sql(
                "SELECT slots.id, slots.owner_id, owners.base, kind, state, built, source, missing, recipe "
                "FROM slots JOIN owners ON owners.id = slots.owner_id "
                "WHERE kind NOT IN ('bulk', 'cards', 'merging', 'rollout', 'source')"  # these slots list no chunks
            )
            self.missing: dict[int, set[int]] = defaultdict(set)
            for slot, chunk in tx.run_sql("SELECT slot_id, chunk_id FROM library_missing"):
                self.missing[slot].add(chunk)
            self.uses = tx.run_sql("SELECT memo_id, chunk_id FROM library_memo_uses")
            self.memos = {memo for (memo,) in tx.run_sql("SELECT id FROM library_memos")}
            self.blobs = sorted(blob for (blob,) in tx.run_sql("SELECT blob FROM library_items WHERE blob IS NOT NULL"))
            self.documents = {str(one) for (one,) in tx.run_sql("SELECT id FROM library_items WHERE blob IS NOT NULL")}
            self.owners = {owner for (owner,) in tx.run_sql("SELECT owner FROM owners")}
            self.recipes = tx.run_sql("SELECT base, kind, id FROM library_recipes WHERE kind <> 'content'")

    def rows(self, kind: str, recipe: int) -> list[int]:
        """Return the chunks that have a row in an index, read from the store of the index."""
        found: list[int] = []
        base = next(base for base, _, one in self.recipes if one == recipe)
        (known,) = [one for one in self._rig.library.catalog.recipes(base, kind) if one.id == recipe]
        while more := self._rig.library.indexes[kind].scan(known, found[-1] if found else 0, 1_000):
            found += more
        assert found == sorted(set(found)), "a scan that goes back or names a chunk twice"
        return found


def audit_standings(rig: Stand) -> None:
    """Check at any time: lists show every item that is not deleted, with the status of its owners."""
    with rig.store.database.reading() as tx:
        items = [item_from_row(row) for row in tx.run(select(library_tables.items))]
        owners = {
            (base, owner): Status(one) for base, owner, one in tx.run_sql("SELECT base, owner, status FROM owners")
        }
        listed = dict(tx.run_sql("SELECT item_id, status FROM library_standings"))
    for item in items:
        own = [owners.get((str(item.base), key)) for key in (item.key, item.source_key)]
        if not item.deleting:
            wanted = None if item.is_container else ItemWithStatus(item, *own).status
            assert listed.pop(item.id, "none") == wanted, f"item {item.id} is listed otherwise than it stands"
        elif item.id in listed:  # the item is hidden, but its clean-up is not requested yet
            assert any(own), f"item {item.id} is listed and deleted"
            assert Status.DELETING not in own, f"item {item.id} is listed and being deleted"
            listed.pop(item.id)
    assert listed == {}, "items are listed that are gone"


def audit(rig: Stand) -> None:
    """Check at any time: search shows exactly the served chunks, without gaps and duplicates (I2, I3)."""
    audit_standings(rig)
    manifest = Manifest(rig)
    for slot, owner, base, kind, state, built, source, missing, recipe in manifest.slots:
        if kind == "content" or not built or state == "deleting":
            continue
        listed = manifest.lists[owner, source]
        assert sorted(listed) == list(range(len(listed))), f"the list of {kind} {owner} has a gap"
        assert len(set(listed.values())) == len(listed), f"the list of {kind} {owner} names a chunk twice"
        lacks = manifest.missing[slot]
        assert len(lacks) == missing, f"{kind} {owner} lacks {len(lacks)} chunks and says {missing}"
        assert lacks <= set(listed.values()), f"{kind} {owner} lacks what it does not list"
        with rig.store.database.reading() as tx:
            shown = read_served_chunks(tx, base, kind, recipe, sorted(manifest.chunks))
        whole = set(listed.values()) - lacks
        assert {one for one in shown if one in set(listed.values())} == whole, f"{kind} {owner} shows something else"
        assert whole <= set(manifest.rows(kind, recipe)), f"{kind} {owner} has no row for what it shows"


def audit_quiet(rig: Stand) -> None:
    """Check after all jobs and garbage collection: every store contains exactly the listed chunks (I17)."""
    audit(rig)
    manifest = Manifest(rig)
    shown = {(owner, source) for _, owner, _, _, _, _, source, _, _ in manifest.slots if source is not None}
    assert set(manifest.builds) == shown, "builds that nobody shows, or that are not there"
    assert {build for build, chunks in manifest.lists.items() if chunks} <= shown, "lists that nobody shows"
    listed = {chunk for chunks in manifest.lists.values() for chunk in chunks.values()}
    assert manifest.chunks == dict.fromkeys(listed, 0), "chunks that no list names, or that are doomed"
    for base, kind, recipe in manifest.recipes:
        rows = set(manifest.rows(kind, recipe))
        assert rows <= listed, f"rows in {kind} of {base} that belong to nothing"
    for slot, chunks in manifest.missing.items():
        assert slot in {one[0] for one in manifest.slots} or not chunks, "missing chunks of a slot that is gone"
    assert {chunk for _, chunk in manifest.uses} <= listed, "uses of memos by chunks that are gone"
    assert {memo for memo, _ in manifest.uses} == manifest.memos, "memos that nobody uses"
    owners = {owner for owner in manifest.owners if owner.isdigit()}  # the other owners are bases
    assert owners == manifest.documents, "documents without slots, or slots without a document"
    files = sorted(path.name for path in rig.folder.rglob("*") if path.is_file())
    assert files == manifest.blobs, "files that no document names, or that are not there"
    building = [owner for owner, _ in manifest.builds]
    alone = {settled for (owner, _), settled in manifest.builds.items() if building.count(owner) == 1}
    assert alone <= {1}, "builds that would be looked at for ever"
    assert rig.library.doctor.check(deep=True) == [], "the doctor finds what is not there"


def changed(statements: ModuleType, replacements: Mapping[str, str]) -> ModuleType:
    """Load a copy of a module of statements in which some texts are replaced. Each text must occur exactly once.

    The texts must be written as `ast.unparse` writes them: each statement on one line, with single quotes.
    """
    source = ast.unparse(ast.parse(inspect.getsource(statements)))
    for old, new in replacements.items():
        assert source.count(old) == 1, f"{source.count(old)} times in the statements: {old}"
        source = source.replace(old, new)
    made = ModuleType(statements.__name__)
    exec(compile(source, str(statements.__file__), "exec"), made.__dict__)  # noqa: S102 - our own module with one change
    return made


class Meanwhile:
    """Runs work in a thread until it ends or waits for a database lock. `end` waits until it has ended."""

    def __init__(self, database: Database, work: Callable[[], object]) -> None:
        self._database = database
        self._work = work
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until(lambda: not self._thread.is_alive() or self._blocked(), "it neither ended nor waits")
        self.waits = self._thread.is_alive()

    def end(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - `end` raises it
            self._errors.append(error)

    def _blocked(self) -> bool:
        database = self._database
        if database.engine.dialect.name == "sqlite":
            return bool(database.dialect._writers._waiting)  # type: ignore[attr-defined]
        with database.engine.connect() as connection:
            waiting = text(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool(connection.execute(waiting).scalar_one())
