"""Rules of uploading, and of asking for what was uploaded, that other systems have learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.catalog.repository import BaseSettings, OnDuplicate
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.engine.admission import Verdict
from holdfast.engine.states import Status
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.documents.requests import ItemReply
    from tests.support.clock import FakeClock

WHALES = b"# Whales\n\nThe blue whale eats krill.\n"
STONES = b"# Stones\n\nGranite is hard.\n"
V = Verdict


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


def told(reply: ItemReply) -> tuple[Verdict, str, int | None]:
    return reply.verdict, reply.reason, reply.item


def standing(rig: Rig) -> dict[str, int]:
    """Count what an upload can leave behind."""
    files = sum(path.is_file() for path in rig.folder.rglob("*"))
    return {"files": files} | {table: rig.count(table) for table in ("items", "owners", "slots", "jobs")}


def test_a_name_that_is_taken_is_told_before_a_content_that_is_there(rig: Rig) -> None:
    whales, stones = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES), Upload("stones.md", STONES)])
    for on_duplicate in (OnDuplicate.REJECT, None):
        terms = AddOptions(on_duplicate=on_duplicate)
        (both,) = rig.library.adder.add(rig.base, [Upload("whales.md", STONES)], terms)
        assert told(both) == (V.REJECTED, "name_taken", whales.item)
        (other,) = rig.library.adder.add(rig.base, [Upload("other.md", STONES)], terms)
        assert told(other) == (V.REJECTED, "content_exists", stones.item)


def test_a_name_and_a_content_are_taken_within_their_base_only(rig: Rig) -> None:
    other = rig.library.bases.create("other", BaseSettings(indexes=("fulltext",)))
    (here,) = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)])
    (there,) = rig.library.adder.add(other, [Upload("whales.md", WHALES)])
    assert here.accepted
    assert there.accepted
    assert here.item != there.item


def test_a_refused_upload_leaves_no_item_no_file_and_no_work(rig: Rig) -> None:
    rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)])
    rig.work()
    before = standing(rig)
    refused = rig.library.adder.add(rig.base, [Upload("whales.md", STONES), Upload("copy.md", WHALES)])
    assert [reply.reason for reply in refused] == ["name_taken", "content_exists"]
    (same,) = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)])
    assert same.reason == "same_content"
    assert standing(rig) == before
    assert rig.library.items.status(rig.base, same.item or 0) is Status.SUCCESS


def test_asking_for_what_is_at_work_names_its_job_and_for_what_is_done_is_skipped(rig: Rig) -> None:
    (kept,) = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)], AddOptions(index=False))
    assert kept.item is not None
    item = kept.item

    def index() -> ItemReply:
        return rig.library.operations.request(rig.base, [item], Action.INDEX)[0]

    asked = index()
    assert told(asked) == (V.ACCEPTED, "not_complete", item)
    queued = index()
    assert (told(queued), queued.job, queued.status) == (
        (V.JOINED, "already_in_progress", item),
        asked.job,
        Status.QUEUED,
    )
    rig.worker.run_next(1)
    running = index()
    assert (running.verdict, running.job, running.status) == (V.JOINED, asked.job, Status.INDEXING)
    rig.work()
    done = index()
    assert (told(done), done.status) == ((V.SKIPPED, "already_indexed", item), Status.SUCCESS)
    assert rig.store.owner(rig.base.key, str(item)).generation == 1


def test_no_word_of_a_document_travels_with_its_work(rig: Rig) -> None:
    (reply,) = rig.library.adder.add(rig.base, [Upload("log.md", b"# Xylograph\n\nA xylograph hung on the wall.\n")])
    with rig.store.database.reading() as tx:
        queued = [tx.run_sql(f"SELECT * FROM {table}") for table in ("slots", "jobs")]  # noqa: S608 - constant table names
    rig.work()
    rig.library.operations.request(rig.base, [reply.item or 0], Action.CANCEL)  # is refused, and recorded
    with rig.store.database.reading() as tx:
        tables = ("owners", "slots", "jobs", "events", "duplicates")
        kept = [tx.run_sql(f"SELECT * FROM {table}") for table in tables]  # noqa: S608 - constant table names
    assert all(queued)
    assert all(kept)
    assert "xylograph" not in repr([queued, kept]).lower()
    assert len(rig.find("xylograph")) == 1
