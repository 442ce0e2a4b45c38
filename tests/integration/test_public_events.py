"""Real operations emit every event of the catalogue with the documented data, and no other events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.repository import BaseSettings, ItemKind
from holdfast.clock import as_datetime
from holdfast.documents.requests import AddOptions, Upload
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.slot import Progress
from holdfast.engine.states import Operation, Status
from holdfast.engine.store.base import LeaseRenewal
from holdfast.errors import BaseFailed, Permanent
from holdfast.events.log import EventLog
from holdfast.events.public_events import EVENT_TYPES, Cursor, EventFilter
from holdfast.llm.offline import OfflineProvider
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider
from tests.support.question_harness import QuestionRig, sections
from tests.support.scripted_workers import Carrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.events.public_events import PublicEvent
    from holdfast.llm.base import Embeddings
    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
TESTED_ALONE = ("cards.", "webhook.", "job.long_running")
STONES = "# Stones\n\nGranite is hard.\n"


class Embedder(OfflineProvider):
    """Offline embeddings that fail when a test sets `error`."""

    error: Exception | None = None

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = lambda: False) -> Iterator[Embeddings]:
        if self.error is not None:
            raise self.error
        return super().embed_parts(texts, enough)


class Teller:
    """Reads the events since the last call."""

    def __init__(self, rig: Rig) -> None:
        self._log = EventLog(rig.store.database)
        self._place: Cursor = self._log.newest_cursor()

    def news(self) -> list[PublicEvent]:
        found: list[PublicEvent] = []
        more = True
        while more:
            page = self._log.read(self._place)
            found += page.events
            self._place, more = page.cursor, page.has_more
        return found

    def types(self) -> list[str]:
        return [event.type for event in self.news()]


@pytest.fixture
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, embedder: Embedder) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, embedder)
    yield rig
    rig.close()


@pytest.fixture
def teller(rig: Rig) -> Teller:
    return Teller(rig)


def finish(rig: Rig) -> None:
    """Run workers and sweeps until no work is left."""
    rig.work()
    while (
        rig.library.bases.continue_background_work()
        + rig.library.remover.continue_deletes(500)
        + rig.library.operations.refresh_due(500)
    ):
        rig.work()


def one(news: list[PublicEvent], type_: str) -> PublicEvent:
    (found,) = [event for event in news if event.type == type_]
    return found


def test_adding_a_document_emits_an_event_for_each_step(rig: Rig, teller: Teller) -> None:
    reply = rig.put("whales.md", WHALES, requester="ann")
    news = teller.news()
    assert [event.type for event in news] == ["document.added", "job.accepted"]
    added, accepted = news
    assert (added.base, added.document, added.data) == (rig.base.key, reply.item, {"kind": "file", "parent": None})
    assert (accepted.document, accepted.job, accepted.generation) == (reply.item, reply.job, 1)
    assert accepted.data == {
        "operation": "change",
        "cause": "user",
        "requester": "ann",
        "priority": 5,
        "status": "queued",
    }
    rig.work()
    news = teller.news()
    assert sorted(event.type for event in news) == ["document.status", "index.ready", "index.ready", "job.success"]
    assert (news[0].type, news[0].data) == ("document.status", {"status": "indexing"})
    assert {event.kind for event in news} == {None, "vector", "fulltext"}
    assert {(event.document, event.job, event.generation) for event in news} == {(reply.item, reply.job, 1)}
    assert news[-1].data["status"] == "success"
    assert set(news[-1].data["results"]) == {"content", "vector", "fulltext"}


def test_the_last_emitted_status_is_the_current_status(rig: Rig, teller: Teller, embedder: Embedder) -> None:
    """A reader of the log always knows the current status of every document."""
    told: dict[int | None, str] = {}

    def check() -> None:
        told.update({event.document: event.data["status"] for event in teller.news() if "status" in event.data})
        with rig.store.database.reading() as tx:
            rows = tx.run_sql("SELECT owner, status FROM owners")
        assert {int(owner): status for owner, status in rows} == {
            document: status for document, status in told.items() if str(document) in dict(rows)
        }

    rig.put("whales.md", WHALES)
    check()
    rig.put("whales.md", STONES)
    check()
    rig.worker.run_next(1)
    check()
    rig.ask("whales.md", Operation.CANCEL)
    check()
    rig.ask("whales.md", Operation.RETRY)
    rig.work()
    check()
    embedder.error = Permanent("content_refused")
    rig.ask("whales.md", Operation.REINDEX)
    check()
    rig.put("whales.md", "# Whales\n\nThe sperm whale dives.\n")
    check()
    rig.work()
    check()
    assert rig.owner("whales.md").status is Status.DEGRADED
    rig.put("stones.md", b"\0\1\2 no text")
    rig.work()
    check()
    rig.delete("whales.md")
    check()
    finish(rig)
    check()


class Seen:
    """Collects the types of events so far."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self.types: set[str] = set()

    def expect(self, *types: str) -> None:
        """Assert that these events were emitted since the last call."""
        told = set(self._teller.types())
        assert set(types) <= told
        self.types |= told


def test_real_operations_emit_every_event_of_the_catalogue(rig: Rig, teller: Teller, embedder: Embedder) -> None:
    seen = Seen(teller)
    follow_documents(rig, seen)
    follow_bases(rig, seen, embedder)
    assert seen.types == {type_ for type_ in EVENT_TYPES if not type_.startswith(TESTED_ALONE)}


def follow_documents(rig: Rig, seen: Seen) -> None:
    rig.put("whales.md", WHALES)
    seen.expect("document.added", "job.accepted")
    rig.store.reprioritise([rig.owner("whales.md").slots[0].job], 1)
    seen.expect("job.reprioritised")
    rig.put("whales.md", STONES)
    seen.expect("document.changed", "job.superseded")
    rig.ask("whales.md", Operation.CANCEL)
    seen.expect("job.cancelled")
    rig.index("whales.md", WHALES)
    seen.expect("document.status", "index.ready", "job.success")
    for base in (rig.base.key, None):
        rig.store.pause(base)
        rig.store.resume(base)
        seen.expect("queue.paused", "queue.resumed")
    rig.index("empty.txt", b" ")
    seen.expect("job.failed", "index.failed")
    rig.put("stones.md", STONES)
    rig.delete("stones.md")
    seen.expect("document.deleted", "job.deleted")
    finish(rig)
    seen.expect("document.removed")


def follow_bases(rig: Rig, seen: Seen, embedder: Embedder) -> None:
    bases = rig.library.bases
    other = bases.create("other")
    seen.expect("base.created")
    other = bases.rename(other, "another")
    seen.expect("base.renamed")
    embedder.error = Permanent("model_unknown", "The model is gone.")
    rig.index("stones.md", STONES)
    seen.expect("job.degraded", "base.failed")
    with pytest.raises(BaseFailed):
        bases.repair(rig.base)
    seen.expect("base.failed")
    embedder.error = None
    bases.repair(rig.base)
    seen.expect("base.repaired")
    rig.work()
    bases.change(rig.base, replace(bases.read(rig.base).settings, indexes=("fulltext",)))
    finish(rig)
    seen.expect("base.changed", "index.removed")
    bases.clear(rig.base)
    seen.expect("base.cleared")
    rig.library.adder.add(other, [Upload("a.md", b"a")])
    bases.delete(other)
    seen.expect("base.deleted")
    finish(rig)
    seen.expect("base.removed")


def test_cards_emit_events(
    database_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as paid:
        rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid)
        teller = Teller(rig)
        rig.cards.generate(rig.base)
        rig.work()  # cards cannot be made without documents
        failed = one(teller.news(), "cards.failed")
        assert (failed.base, failed.document, failed.owner, failed.data["error"]) == (
            rig.base.key,
            None,
            "cards",
            "no_result",
        )
        rig.index("first.md", sections(3))
        rig.cards.generate(rig.base)
        rig.work()
        assert one(teller.news(), "cards.ready").kind == "cards"
        rig.library.bases.clear(rig.base)
        finish(rig)
        assert "cards.removed" in teller.types()
        rig.close()


def test_deleting_a_folder_emits_an_event_for_every_document_below_it(rig: Rig, teller: Teller) -> None:
    (folder,) = rig.library.adder.add(rig.base, [Upload("folder", kind=ItemKind.DIRECTORY)], AddOptions(index=False))
    assert folder.item is not None
    replies = rig.library.adder.add(
        rig.base, [Upload(f"{n}.md", f"text {n}".encode(), parent=folder.item) for n in range(3)]
    )
    added = [event for event in teller.news() if event.type == "document.added"]
    assert [event.data["parent"] for event in added] == [None, folder.item, folder.item, folder.item]
    rig.library.remover.delete(rig.base, [folder.item])
    everything = {folder.item, *(reply.item for reply in replies)}
    assert {event.document for event in teller.news() if event.type == "document.deleted"} == everything
    finish(rig)
    removed = [event.document for event in teller.news() if event.type == "document.removed"]
    assert sorted(filter(None, removed)) == sorted(filter(None, everything))  # each exactly once


def test_the_event_of_an_unreadable_document_has_the_reason(rig: Rig, teller: Teller) -> None:
    def refuse() -> Any:
        raise Permanent("file_changed", "It changed while it was read.")

    rig.library.adder.add(rig.base, [Upload("a.md", refuse)])
    assert one(teller.news(), "document.added").data["error"] == "file_changed"


def test_the_event_of_an_incomplete_index_counts_missing_chunks(rig: Rig, teller: Teller) -> None:
    from holdfast.engine.slot import BuildResult  # noqa: PLC0415 - beside its only use
    from holdfast.engine.store.base import Completion  # noqa: PLC0415

    rig.put("whales.md", WHALES)
    rig.worker.run_next(1)
    teller.news()
    for ticket in rig.store.claim_next(["vector"], "by hand", 1):
        rig.store.complete([Completion(ticket=ticket, built=BuildResult(missing=2))])
    assert one(teller.news(), "index.ready").data["missing"] == 2


def test_events_never_contain_the_text_or_name_of_a_document(rig: Rig, teller: Teller) -> None:
    rig.index("secret-name.md", "# Secret title\n\nSecret text.\n")
    rig.index("secret-name.md", "# Secret title\n\nMore secret text.\n")
    rig.delete("secret-name.md")
    finish(rig)
    news = teller.news()
    assert news
    assert "secret" not in repr([event.to_dict() for event in news]).lower()


def test_a_refused_request_emits_no_event(rig: Rig, teller: Teller) -> None:
    rig.index("whales.md", WHALES)
    teller.news()
    rig.put("whales.md", WHALES)
    rig.ask("whales.md", Operation.INDEX)
    with pytest.raises(Exception, match="shelf"):
        rig.library.bases.create("shelf", BaseSettings())
    assert teller.news() == []


def test_a_filter_by_base_returns_no_events_of_other_bases(rig: Rig) -> None:
    log = EventLog(rig.store.database)
    other = rig.library.bases.create("other")
    rig.index("whales.md", WHALES)
    rig.library.adder.put(other, [Upload("stones.md", STONES.encode())])
    rig.work()
    mine = log.read(None, 10_000, only=EventFilter(bases=frozenset({other.key}))).events
    assert mine
    assert {event.base for event in mine} == {other.key}
    theirs = {rig.library.items.find(rig.base, "whales.md").id}
    assert not theirs & {event.document for event in mine}


def test_work_that_runs_for_long_emits_an_event_with_its_stage_and_worker(
    rig: Rig, teller: Teller, clock: FakeClock
) -> None:
    reply = rig.put("whales.md", WHALES)
    (ticket,) = rig.store.claim_next(("content",), "reader", 1)
    since = as_datetime(clock.now()).isoformat(timespec="milliseconds")
    reconciler = Reconciler(rig.store, Carrier(), ("content",), rig.store.rules, dead=lambda _: False)
    teller.news()
    for minute in range(60):
        clock.advance(timedelta(minutes=1))
        rig.store.extend(
            [LeaseRenewal(ticket=ticket, progress=Progress(stage="reading", done=minute), progressed=True)]
        )
        reconciler.reconcile()
    (event,) = teller.news()
    assert (event.type, event.document, event.job, event.kind) == ("job.long_running", reply.item, reply.job, "content")
    assert event.data == {"since": since, "stage": "reading", "holder": "reader"}
