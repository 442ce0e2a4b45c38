"""Rules for uploads, and for requests about uploaded documents, that were learnt from other systems."""

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
    """Count everything that an upload can leave behind."""
    files = sum(path.is_file() for path in rig.folder.rglob("*"))
    return {"files": files} | {table: rig.count(table) for table in ("items", "owners", "slots", "jobs")}


def test_a_duplicate_name_is_reported_before_duplicate_content(rig: Rig) -> None:
    whales, stones = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES), Upload("stones.md", STONES)])
    for on_duplicate in (OnDuplicate.REJECT, None):
        terms = AddOptions(on_duplicate=on_duplicate)
        (both,) = rig.library.adder.add(rig.base, [Upload("whales.md", STONES)], terms)
        assert told(both) == (V.REJECTED, "name_taken", whales.item)
        (other,) = rig.library.adder.add(rig.base, [Upload("other.md", STONES)], terms)
        assert told(other) == (V.REJECTED, "content_exists", stones.item)


def test_names_and_contents_are_unique_only_within_a_base(rig: Rig) -> None:
    other = rig.library.bases.create("other", BaseSettings(indexes=("fulltext",)))
    (here,) = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)])
    (there,) = rig.library.adder.add(other, [Upload("whales.md", WHALES)])
    assert here.accepted
    assert there.accepted
    assert here.item != there.item


def test_a_refused_upload_leaves_no_item_file_or_job(rig: Rig) -> None:
    rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)])
    rig.work()
    before = standing(rig)
    refused = rig.library.adder.add(rig.base, [Upload("whales.md", STONES), Upload("copy.md", WHALES)])
    assert [reply.reason for reply in refused] == ["name_taken", "content_exists"]
    (same,) = rig.library.adder.add(rig.base, [Upload("whales.md", WHALES)])
    assert same.reason == "same_content"
    assert standing(rig) == before
    assert rig.library.items.status(rig.base, same.item or 0) is Status.SUCCESS


def test_a_request_joins_the_active_job_and_is_skipped_for_an_indexed_document(rig: Rig) -> None:
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


def test_slots_jobs_and_events_contain_no_text_of_a_document(rig: Rig) -> None:
    (reply,) = rig.library.adder.add(rig.base, [Upload("log.md", b"# Xylograph\n\nA xylograph hung on the wall.\n")])
    with rig.store.database.reading() as tx:
        queued = [tx.run_sql(f"SELECT * FROM {table}") for table in ("slots", "jobs")]  # noqa: S608 - constant table names
    rig.work()
    rig.library.operations.request(rig.base, [reply.item or 0], Action.CANCEL)  # the request is refused and recorded
    with rig.store.database.reading() as tx:
        tables = ("owners", "slots", "jobs", "events", "duplicates")
        kept = [tx.run_sql(f"SELECT * FROM {table}") for table in tables]  # noqa: S608 - constant table names
    assert all(queued)
    assert all(kept)
    assert "xylograph" not in repr([queued, kept]).lower()
    assert len(rig.find("xylograph")) == 1
