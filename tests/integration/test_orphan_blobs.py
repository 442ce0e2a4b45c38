"""Garbage collection removes files and recipes that no row uses, and keeps those about to be used."""

from __future__ import annotations

import io
import os
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog import file_statements, orphan_blobs, repository, repository_statements
from holdfast.catalog.file_records import FileRecords
from holdfast.catalog.orphan_blobs import OrphanBlobCollector
from holdfast.documents import add as adding
from holdfast.engine.states import Operation, Status
from holdfast.errors import StoreError
from holdfast.llm.offline import OfflineProvider
from tests.support.audit import Manifest, Meanwhile, audit_quiet, changed
from tests.support.foreign_index import install
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.catalog.repository import Recipe
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
DAY = timedelta(days=1)


class Changing(OfflineProvider):
    """Offline embeddings; a test can change the model version."""

    name = "first"

    @property
    def version(self) -> str:
        return self.name


@pytest.fixture
def provider() -> Changing:
    return Changing()


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, provider: Changing) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, provider, indexes=("vector", "fulltext"))
    yield rig
    rig.close()


def orphan(rig: Rig, content: bytes = b"nobody's") -> str:
    """Write a blob like an upload that is killed before it commits its row."""
    with rig.library.blobs.write_batch() as put:
        return put(io.BytesIO(content)).name


def files(rig: Rig) -> list[str]:
    return sorted(path.name for path in rig.folder.rglob("*") if path.is_file())


def age(rig: Rig, clock: FakeClock, name: str, old: timedelta) -> None:
    """Set the age of a file, relative to the clock of the test."""
    path = rig.folder / name if name.endswith(".part") else rig.path(name)
    at = clock.now() / 1_000_000 - old.total_seconds()
    os.utime(path, (at, at))


def test_an_old_file_that_no_row_names_is_removed(rig: Rig, clock: FakeClock) -> None:
    rig.index("whales.md", WHALES)
    (named,) = files(rig)
    left = orphan(rig)
    for name in (named, left):
        age(rig, clock, name, DAY - timedelta(seconds=1))
    assert rig.library.orphan_blobs.sweep(500) == 0
    assert files(rig) == sorted([named, left])
    clock.advance(timedelta(seconds=2))
    assert rig.library.orphan_blobs.sweep(500) == 1
    assert files(rig) == [named]
    rig.work()
    rig.sweep()
    audit_quiet(rig)


def test_an_old_unfinished_file_is_removed(rig: Rig, clock: FakeClock) -> None:
    rig.folder.mkdir(exist_ok=True)
    for name, old in (("new.part", timedelta()), ("old.part", 2 * DAY)):
        (rig.folder / name).write_bytes(b"half")
        age(rig, clock, name, old)
    assert rig.library.orphan_blobs.sweep(500) == 1
    assert files(rig) == ["new.part"]


def test_files_are_checked_in_bounded_batches_until_all_are_done(rig: Rig, clock: FakeClock) -> None:
    left = [orphan(rig, str(number).encode()) for number in range(25)]
    for name in left:
        age(rig, clock, name, 2 * DAY)
    gone = []
    for _ in range(4):
        before = len(files(rig))
        rig.library.orphan_blobs.sweep(10)
        gone.append(before - len(files(rig)))
    assert gone == [10, 10, 5, 0]


def test_an_upload_whose_file_was_swept_is_refused_and_can_be_repeated(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = rig.store.admit_with

    def late(write: Any) -> Any:
        clock.jump(365 * DAY)  # an administrator changes the clock: every file appears old
        assert rig.library.orphan_blobs.sweep(500) == 1
        return admit(write)

    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "admit_with", late)
        with pytest.raises(StoreError, match="Add the file again"):
            rig.put("whales.md", WHALES)
    assert (files(rig), Manifest(rig).blobs) == ([], [])
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS
    rig.sweep()
    audit_quiet(rig)


def test_without_the_refusal_a_row_would_name_a_missing_file(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = rig.store.admit_with

    def late(write: Any) -> Any:
        clock.jump(365 * DAY)
        rig.library.orphan_blobs.sweep(500)
        return admit(write)

    monkeypatch.setattr(rig.store, "admit_with", late)
    for refusal in ("refuse_condemned", "release_file_records"):
        monkeypatch.setattr(adding, refusal, lambda *_: None)
    rig.put("whales.md", WHALES)
    assert files(rig) != Manifest(rig).blobs


def test_the_sweep_waits_for_a_row_that_is_being_written(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper has found the file without a row. The upload then writes its row before the sweeper checks again."""
    check = orphan_blobs.refuse_condemned
    sweeping: list[Meanwhile] = []

    def between(tx: Any, names: Any) -> None:
        check(tx, names)
        clock.jump(365 * DAY)
        sweeping.append(
            Meanwhile(
                rig.store.database,
                lambda: OrphanBlobCollector(rig.store.database, rig.library.file_records, clock).sweep(500),
            )
        )

    with monkeypatch.context() as patch:
        patch.setattr(adding, "refuse_condemned", between)
        rig.put("whales.md", WHALES)
    assert sweeping[0].waits
    sweeping[0].end()
    assert files(rig) == Manifest(rig).blobs != []
    rig.work()
    assert rig.owner("whales.md").status is Status.SUCCESS


@pytest.mark.parametrize("guard", ["lock", "second look"])
def test_without_the_lock_or_the_second_check_that_file_would_be_removed(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    if guard == "lock" and rig.store.database.engine.dialect.name == "sqlite":
        pytest.skip("all who write take turns")
    check = orphan_blobs.refuse_condemned
    sweeping: list[Meanwhile] = []
    unnamed = orphan_blobs._unnamed

    def between(tx: Any, names: Any) -> None:
        check(tx, names)
        clock.jump(365 * DAY)
        sweeping.append(
            Meanwhile(
                rig.store.database,
                lambda: OrphanBlobCollector(rig.store.database, rig.library.file_records, clock).sweep(500),
            )
        )

    if guard == "lock":
        lock = "LOCK_ALL_BASES = select(bases.c.id).order_by(bases.c.id).with_for_update(key_share=True)"
        monkeypatch.setattr(
            orphan_blobs, "sql", changed(file_statements, {lock: lock.replace(".with_for_update(key_share=True)", "")})
        )
    else:
        looks: list[int] = []

        def first_only(tx: Any, names: Any) -> list[str]:
            looks.append(1)
            return unnamed(tx, names) if len(looks) == 1 else list(names)

        monkeypatch.setattr(orphan_blobs, "_unnamed", first_only)
    monkeypatch.setattr(adding, "refuse_condemned", between)
    # A file of an earlier version has no file record.
    monkeypatch.setattr(FileRecords, "remove_due_files", lambda *_: 0)
    rig.put("whales.md", WHALES)
    sweeping[0].end()
    assert files(rig) != Manifest(rig).blobs


NEEDED = "_unneeded = and_(recipes.c.id == int_param('recipe'), _unserved, _idle)"
BLIND = "_unneeded = and_(recipes.c.id == int_param('recipe'))"


def recipes(rig: Rig, kind: str = "vector") -> list[Recipe]:
    return rig.library.catalog.recipes(rig.base.key, kind)


def go_round(rig: Rig, times: int = 1) -> None:
    """Run the maintenance of all indexes once, from the first to the last."""
    for _ in range(times):
        rig.library.indexes._maintenance = iter(())
        rig.library.indexes.maintain(500)
        while next(rig.library.indexes._maintenance, None) is not None:
            pass


def tables(rig: Rig) -> set[str]:
    sqlite = rig.store.database.engine.dialect.name == "sqlite"
    sql = "SELECT name FROM sqlite_master" if sqlite else "SELECT tablename FROM pg_tables"
    with rig.store.database.reading() as tx:
        return {name for (name,) in tx.run_sql(sql)}


def test_the_rows_table_and_record_of_an_unused_recipe_are_removed(
    rig: Rig, clock: FakeClock, provider: Changing
) -> None:
    rig.index("whales.md", WHALES)
    (old,) = recipes(rig)
    provider.name = "second"
    go_round(rig, 3)
    assert len(rig.rows("vector")) == 1  # the row is still served, although its recipe is outdated
    assert rig.ask("whales.md", Operation.FORCE).accepted
    rig.work()
    new, _ = recipes(rig)
    assert len(rig.rows("vector")) == 2
    go_round(rig, 2)
    assert rig.library.indexes["vector"].scan(old, 0, 10) == []
    assert [one.id for one in recipes(rig)] == [new.id, old.id]  # kept for a day, for late workers
    clock.advance(DAY)
    go_round(rig, 2)
    assert [one.id for one in recipes(rig)] == [new.id]
    assert tables(rig) & {f"vector_{old.id}", f"vector_{new.id}"} == {f"vector_{new.id}"}
    assert [hit.name for hit in rig.find("krill", "vector")] == ["whales.md"]
    rig.sweep()
    audit_quiet(rig)


def test_the_current_recipe_stays_although_no_document_uses_it(rig: Rig, clock: FakeClock) -> None:
    rig.index("whales.md", WHALES)
    (recipe,) = recipes(rig)
    rig.delete("whales.md")
    rig.work()
    for _ in range(3):
        go_round(rig)
        clock.advance(DAY)
    assert recipes(rig) == [recipe]


def test_a_recipe_stays_while_its_index_is_being_built(
    rig: Rig, provider: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", WHALES)
    (old,) = recipes(rig)
    rig.ask("whales.md", Operation.FORCE)
    rig.worker.run_next(1)  # builds the content
    provider.name = "second"
    rig.store.database.write(lambda tx: tx.run_sql("UPDATE slots SET recipe = NULL"), durable=False)
    go_round(rig, 3)
    assert recipes(rig) == [old] == live(rig)
    doom_blindly(rig, old, monkeypatch)
    go_round(rig, 3)
    assert (live(rig), len(rig.rows("vector"))) == ([], 1)
    rig.work()
    go_round(rig, 2)
    assert rig.library.indexes["vector"].scan(old, 0, 10) == []
    assert [hit.name for hit in rig.find("krill", "vector")] == ["whales.md"]


def live(rig: Rig) -> list[Recipe]:
    """Return the recipes that may still get new rows."""
    with rig.store.database.reading() as tx:
        ids = {id_ for (id_,) in tx.run_sql("SELECT id FROM library_recipes WHERE doomed_at IS NULL")}
    return [one for one in recipes(rig) if one.id in ids]


def doom_blindly(rig: Rig, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doom a recipe as if the check had run before a worker used it."""
    with monkeypatch.context() as patch:
        patch.setattr(repository, "sql", changed(repository_statements, {NEEDED: BLIND}))
        rig.library.catalog.doom(recipe)


def test_a_build_that_began_before_its_recipe_was_doomed_is_complete(
    rig: Rig, clock: FakeClock, provider: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads the recipe. A check that ran before the worker's claim then dooms the recipe."""
    index = rig.library.indexes["vector"]
    rig.put("whales.md", WHALES)
    rig.worker.run_next(1)
    absent = type(index).absent

    def doom(self: Any, recipe: Recipe, chunks: Any) -> list[int]:
        doom_blindly(rig, recipe, monkeypatch)
        found: list[int] = absent(self, recipe, chunks)
        go_round(rig, 2)  # nothing of it is removed during the build
        return found

    monkeypatch.setattr(type(index), "absent", doom)
    rig.work()
    monkeypatch.undo()
    (recipe,) = recipes(rig)
    assert rig.owner("whales.md").status is Status.SUCCESS
    clock.advance(2 * DAY)
    go_round(rig, 3)
    assert [hit.name for hit in rig.find("krill", "vector")] == ["whales.md"]
    rig.index("stones.md", STONES)  # later work creates its own recipe
    assert [one.spec for one in recipes(rig)] == [recipe.spec] * 2
    assert rig.owner("stones.md").status is Status.SUCCESS


def test_a_late_row_of_a_doomed_recipe_in_an_external_store_is_removed(
    rig: Rig, tmp_path: Path, clock: FakeClock
) -> None:
    outside = install(rig, tmp_path / "outside.db")
    base = rig.library.catalog.create_base("other", repository.BaseSettings(indexes=("outside",)))
    recipe = rig.library.catalog.get_or_create_recipe(base, "outside", {"words": 0})
    go_round(rig, 2)
    assert rig.library.catalog.unused(recipe)
    outside._run("INSERT INTO rows VALUES (?, ?, ?)", recipe.id, 77, "late")
    go_round(rig)
    assert outside.scan(recipe, 0, 10) == []
    clock.advance(DAY)
    go_round(rig)
    assert rig.library.catalog.recipes(base.key, "outside") == []


def test_an_index_whose_maintenance_fails_delays_no_other_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.index("whales.md", WHALES)

    def busy(*_: object) -> None:
        raise StoreError("Another transaction is in the way.")

    for kind in ("vector", "fulltext"):
        monkeypatch.setattr(type(rig.library.indexes[kind]), "tend", busy)
    go_round(rig)
    rig.library.sweep(500)
    rig.sweep()
    audit_quiet(rig)


def test_the_rows_of_an_unused_recipe_are_removed_in_bounded_batches(
    rig: Rig, provider: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("whales.md", "\n\n".join(f"## Part {n}\n\n" + f"Krill {n}. " * 300 for n in range(12)))
    (old,) = recipes(rig)
    provider.name = "second"
    rig.ask("whales.md", Operation.FORCE)
    rig.work()
    go_round(rig)
    index = rig.library.indexes["vector"]
    total = len(index.scan(old, 0, 1000))
    assert total >= 12
    left = [total]
    rig.library.indexes._maintenance = iter(())
    while left[-1]:
        rig.library.indexes.maintain(5)
        left.append(len(index.scan(old, 0, 1000)))
    assert max(before - after for before, after in pairwise(left)) == 5
