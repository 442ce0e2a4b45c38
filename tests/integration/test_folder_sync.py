"""Folder sync: the preview writes nothing, sync and watch apply changes, and the quota of the base is respected."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import pytest

from holdfast.catalog.repository import BaseSettings, ItemKind, OnDuplicate
from holdfast.documents.folders import SyncPreview
from holdfast.documents.requests import Upload
from holdfast.engine.admission import Verdict
from holdfast.engine.states import Status
from holdfast.errors import BadRequest, BadSettings, Transient
from tests.support.audit import audit_quiet
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

NOTHING = SyncPreview(added=[], changed=[], removed=[], unchanged=2, skipped={})


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**settings: object) -> Rig:
        made.append(Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",), **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make: Callable[..., Rig]) -> Rig:
    return make()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    root = tmp_path / "books"
    write(root / "whales.md", "# Whales\n\nThe blue whale eats krill.\n")
    write(root / "deep" / "stones.md", "# Stones\n\nGranite is hard.\n")
    return root


def write(path: Path, text: str, age: float = 3600) -> None:
    """Write a file with an old modification time, so that its stamp counts as settled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age, time.time() - age))


def sync(rig: Rig, root: Path) -> int:
    reply = rig.library.folder_sync.sync(rig.base, root)
    assert reply.item is not None
    rig.work()
    return reply.item


def names(rig: Rig, item: int) -> set[str]:
    return {one.item.name for one in rig.library.items.tree(rig.base, item)}


def test_a_preview_lists_what_a_sync_would_add_change_and_remove_and_writes_nothing(rig: Rig, books: Path) -> None:
    seen = rig.library.folder_sync.preview(rig.base, books)
    assert (seen.added, seen.changed, seen.removed) == (["deep/stones.md", "whales.md"], [], [])
    assert rig.children(rig.base) == []

    sync(rig, books)
    assert replace(rig.library.folder_sync.preview(rig.base, books), skipped={}) == NOTHING

    write(books / "whales.md", "# Whales\n\nThe humpback sings.\n")
    write(books / "new.md", "# New\n\nSomething.\n")
    (books / "deep" / "stones.md").unlink()
    before = rig.store.events()
    seen = rig.library.folder_sync.preview(rig.base, books)
    assert (seen.added, seen.changed, seen.removed, seen.unchanged) == (
        ["new.md"],
        ["whales.md"],
        ["deep/stones.md"],
        0,
    )
    assert rig.store.events() == before
    assert {hit.name for hit in rig.find("granite")} == {"stones.md"}

    item = sync(rig, books)
    assert names(rig, item) == {"books", "whales.md", "new.md"}
    assert replace(rig.library.folder_sync.preview(rig.base, books), skipped={}) == NOTHING


def test_a_preview_shows_a_touched_file_with_equal_content_as_unchanged(rig: Rig, books: Path) -> None:
    sync(rig, books)
    write(books / "whales.md", (books / "whales.md").read_text(), age=1800)
    seen = rig.library.folder_sync.preview(rig.base, books)
    assert (seen.changed, seen.unchanged) == ([], 2)


def test_a_folder_is_one_item_whichever_path_leads_to_it(rig: Rig, books: Path, tmp_path: Path) -> None:
    item = sync(rig, books)
    (tmp_path / "link").symlink_to(books)
    assert sync(rig, tmp_path / "link") == item
    assert sync(rig, books / "deep" / "..") == item
    assert [one.id for one in rig.children(rig.base)] == [item]


def test_two_folders_with_the_same_name_are_two_items(rig: Rig, books: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "books"
    write(other / "moon.md", "# Moon\n\nIt is grey.\n")
    assert names(rig, sync(rig, books)) == {"books", "deep", "stones.md", "whales.md"}
    assert names(rig, sync(rig, other)) == {"books (2)", "moon.md"}


def test_a_path_that_is_not_a_folder_is_refused_with_a_reason(rig: Rig, books: Path) -> None:
    for wrong in (books / "whales.md", books / "nowhere"):
        with pytest.raises(BadRequest, match=f"'{wrong}' is not a folder on this machine"):
            rig.library.folder_sync.sync(rig.base, wrong)


def test_two_concurrent_syncs_share_one_job(rig: Rig, books: Path) -> None:
    first, second = (rig.library.folder_sync.sync(rig.base, books) for _ in range(2))
    assert (first.verdict, second.verdict) == (Verdict.ACCEPTED, Verdict.JOINED)
    assert (first.item, first.job) == (second.item, second.job)


def test_a_change_during_a_sync_starts_another_sync(rig: Rig, books: Path) -> None:
    item = sync(rig, books)
    first = rig.library.folder_sync.sync(rig.base, books)
    (ring,) = rig.store.claim_next(["source"], "slow", 1)
    (reply,) = rig.library.operations.refresh(rig.base, [item], source_changed=True)
    assert (reply.verdict, reply.job == first.job) == (Verdict.ACCEPTED, False)
    assert rig.store.job(ring.job).outcome == "superseded"


def test_a_watched_folder_is_synced_immediately_and_after_every_change(rig: Rig, books: Path) -> None:
    stop = threading.Event()
    watching = rig.library.folder_sync.watch(rig.base, books, stop=stop, every=timedelta(seconds=0.2))
    item = next(watching).item
    assert item is not None
    rig.work()
    assert "whales.md" in names(rig, item)
    write(books / "late.md", "# Late\n\nIt came late.\n")
    for _ in watching:
        rig.work()
        if "late.md" in names(rig, item):
            break
    stop.set()
    assert list(watching) == []
    assert "late.md" in names(rig, item)


def add(rig: Rig, *texts: str) -> list[tuple[Verdict, str]]:
    replies = rig.library.adder.add(rig.base, [Upload(f"{text}.md", text.encode()) for text in texts])
    return [(reply.verdict, reply.reason) for reply in replies]


def test_an_upload_beyond_the_quota_of_the_base_stores_nothing(make: Callable[..., Rig], clock: FakeClock) -> None:
    rig = make(jobs_per_day=2)
    held = (Verdict.REJECTED, "quota_exhausted")
    assert [verdict for verdict, _ in add(rig, "one", "two", "three")] == [Verdict.ACCEPTED, Verdict.ACCEPTED, held[0]]
    rig.work()
    assert {item.name for item in rig.children(rig.base)} == {"one.md", "two.md"}
    assert add(rig, "three") == [held]
    clock.advance(timedelta(days=1))
    assert add(rig, "three")[0][0] is Verdict.ACCEPTED
    rig.work()
    rig.sweep()
    audit_quiet(rig)


def test_new_content_beyond_the_quota_is_refused_and_accepted_on_the_next_day(
    make: Callable[..., Rig], clock: FakeClock
) -> None:
    rig = make(jobs_per_day=1, on_duplicate=OnDuplicate.REPLACE)
    add(rig, "whale")
    rig.work()
    changed = Upload("whale.md", b"A completely different sentence about granite.")
    (reply,) = rig.library.adder.add(rig.base, [changed])
    assert (reply.reason, reply.item) == ("quota_exhausted", rig.library.items.find(rig.base, "whale.md").id)
    assert [hit.name for hit in rig.find("whale")] == ["whale.md"]
    clock.advance(timedelta(days=1))
    assert rig.library.adder.add(rig.base, [changed])[0].accepted
    rig.work()
    assert [hit.name for hit in rig.find("granite")] == ["whale.md"]


def test_a_refused_upload_is_recorded_in_the_audit_with_its_owner(rig: Rig) -> None:
    add(rig, "whale")
    rig.library.adder.add(rig.base, [Upload("whale.md", b"other")])
    rig.library.adder.add(rig.base, [Upload("copy.md", b"whale")])
    item = str(rig.library.items.find(rig.base, "whale.md").id)
    assert [(one.owner, one.verdict, one.reason) for one in rig.store.refusals()] == [
        (item, "rejected", "name_taken"),
        (item, "rejected", "content_exists"),
    ]


def test_a_folder_sync_beyond_the_quota_continues_on_the_next_day(
    make: Callable[..., Rig], books: Path, clock: FakeClock
) -> None:
    rig = make(jobs_per_day=2)  # the sync itself counts as one job
    item = sync(rig, books)
    assert len(names(rig, item) & {"whales.md", "stones.md"}) == 1
    assert rig.library.items.status(rig.base, item) is Status.INDEXING
    clock.advance(timedelta(days=1))
    rig.work()
    assert names(rig, item) >= {"whales.md", "stones.md"}
    assert rig.library.items.status(rig.base, item) is Status.SUCCESS


def test_without_auto_index_the_files_of_a_folder_use_no_quota(make: Callable[..., Rig], books: Path) -> None:
    rig = make(jobs_per_day=1, auto_index=False)
    item = sync(rig, books)
    assert names(rig, item) >= {"whales.md", "stones.md"}


def test_the_quota_is_a_setting_of_the_base_that_can_be_changed(make: Callable[..., Rig]) -> None:
    rig = make(jobs_per_day=1)
    add(rig, "one")
    assert add(rig, "two") == [(Verdict.REJECTED, "quota_exhausted")]
    rig.library.bases.change(rig.base, replace(rig.base.settings, jobs_per_day=2))
    assert add(rig, "two")[0][0] is Verdict.ACCEPTED
    assert add(rig, "three") == [(Verdict.REJECTED, "quota_exhausted")]
    rig.library.bases.change(rig.base, replace(rig.base.settings, jobs_per_day=None))
    assert add(rig, "three")[0][0] is Verdict.ACCEPTED


def test_a_quota_of_zero_is_refused() -> None:
    with pytest.raises(BadSettings, match="A quota of 0 jobs per day"):
        BaseSettings(jobs_per_day=0)


def test_a_note_is_an_item_with_a_name_and_text_and_can_be_rewritten(rig: Rig) -> None:
    note = Upload("Shopping", b"Buy krill for the whale.", kind=ItemKind.NOTE)
    (reply,) = rig.library.adder.add(rig.base, [note])
    rig.work()
    assert reply.item is not None
    assert rig.library.items.tree(rig.base, reply.item)[0].item.kind is ItemKind.NOTE
    rig.library.adder.put(rig.base, [note._replace(content=b"Buy granite.")])
    rig.work()
    assert [hit.name for hit in rig.find("granite")] == ["Shopping"]
    assert rig.find("krill") == []


def test_a_folder_source_cannot_be_added_inside_a_synced_folder(rig: Rig, books: Path, tmp_path: Path) -> None:
    item = sync(rig, books)
    other = tmp_path / "other"
    write(other / "a.md", "# A\n\nalpha\n")
    with pytest.raises(BadRequest, match="'books' is synced with a folder on the disk"):
        rig.library.adder.add(rig.base, [Upload("other", kind=ItemKind.DIRECTORY, source=str(other), parent=item)])


def test_an_unavailable_index_does_not_block_the_deletes_of_other_items(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.library.adder.add(rig.base, [Upload("box", kind=ItemKind.DIRECTORY)])
    rig.delete("box")
    rig.work()
    assert rig.count("items") == 1, "it had no slots, so only a sweep removes its row"

    def away(limit: int) -> int:
        raise Transient("store_away", f"The store does not answer ({limit}).")

    sweeper = rig.library.indexes.garbage_collector()
    monkeypatch.setattr(sweeper, "collect", away)
    monkeypatch.setattr(rig.library.indexes, "garbage_collector", lambda: sweeper)
    with pytest.raises(Transient, match="does not answer"):
        rig.library.sweep(100)
    assert rig.count("items") == 0


def test_a_temporarily_unreadable_file_keeps_its_old_content(
    rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(rig, books)
    before = rig.library.items.find(rig.base, "whales.md", rig.library.items.find(rig.base, "books").id)
    write(books / "whales.md", "# Whales\n\nThe humpback sings.\n", age=60)

    def locked(root: Path, relative: str, **_: object) -> NoReturn:
        raise Transient("file_unreadable", f"{root / relative} cannot be read now.")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.documents.folders.open_found", locked)
        item = sync(rig, books)
    kept = rig.library.items.find(rig.base, "whales.md", item)
    assert (kept.blob, kept.digest, kept.problem) == (before.blob, before.digest, None)
    assert len(rig.find("krill")) == 1
    sync(rig, books)
    assert len(rig.find("humpback")) == 1
    assert rig.find("krill") == []
