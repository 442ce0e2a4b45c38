"""Real workers are killed or stopped during paid calls: no document is lost, and few calls are paid twice."""

from __future__ import annotations

import fcntl
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from holdfast.catalog.repository import BaseSettings
from holdfast.documents.requests import Upload
from holdfast.engine.states import SlotState, Status
from holdfast.llm.batches import BatchLimits
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store, open_work_notifier
from tests.support.audit import audit, audit_quiet
from tests.support.paid_provider import PaidProvider
from tests.support.processes import Running, process_state, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.engine.store.base import Owner

WORK = (
    "from holdfast.settings import Settings\nfrom holdfast.wiring import make_worker\n"
    "make_worker(Settings.from_environment()).work()"
)
IN_FLIGHT = BatchLimits().concurrency * BatchLimits().texts  # the most texts that are in flight at one time
# Short enough for leases to expire during a test, long enough for a busy machine.
SHORT = {"lease": "1500ms", "heartbeat": "300ms", "period": "300ms", "backoff": "100ms", "backoff_cap": "1s"}


@dataclass
class Desk:
    """A database with documents, seen from outside the workers. The paid vectors come from the fake provider."""

    url: str
    folder: Path
    paid: PaidProvider

    def __post_init__(self) -> None:
        self.settings = {
            "database": self.url,
            "data": str(self.folder),
            "embedding_url": self.paid.url,
            "embedding_model": self.paid.embedding_model,
            "embedding_key": self.paid.key,
        }
        settings = Settings(**self.settings)  # type: ignore[arg-type]
        self._bell = open_work_notifier(self.url)
        self.store = open_configured_store(settings, self._bell)
        self.library = Library(self.store, settings)
        self.base = self.library.catalog.create_base("shelf", BaseSettings(chunk_size=64, chunk_overlap=0))

    def close(self) -> None:
        self.store.close()
        self._bell.close()

    def worker(self, name: str, **more: str) -> Worker:
        return Worker(self.folder.parent / f"{name}.log", self.settings | more)

    def put(self, content: str) -> None:
        assert self.library.adder.put(self.base, [Upload("book.md", content.encode())])[0].accepted

    def owner(self) -> Owner:
        return self.store.owner(self.base.key, self.library.items.find(self.base, "book.md").key)

    def quiet(self) -> bool:
        return self.count("jobs WHERE outcome IS NULL") == 0

    def count(self, what: str) -> int:
        with self.store.database.reading() as tx:
            found: int = tx.run_sql(f"SELECT count(*) FROM {what}")[0][0]  # noqa: S608 - constants of these tests
        return found

    def refused(self) -> int:
        """Return how many writes of late workers were refused."""
        return self.store.counters().get("stale_write_rejected.guarded", 0)

    def at_rest(self) -> bool:
        """Return whether no other process holds a lock. Stopping a process inside a transaction is a different case."""
        database = self.store.database
        if database.engine.dialect.name == "sqlite":
            turn = os.open(str(database.engine.url.database) + "-turn", os.O_RDWR)
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            finally:
                os.close(turn)
            return True
        others = "datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
        with database.engine.connect() as connection:
            busy = connection.execute(text(f"SELECT count(*) FROM pg_stat_activity WHERE {others}"))  # noqa: S608
            return not busy.scalar_one()


class Worker(Running):
    """A worker process with the real wiring."""

    def __init__(self, log: Path, settings: dict[str, str]) -> None:
        super().__init__(["-c", WORK], log, settings)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL

    def stop(self, desk: Desk) -> None:
        """Stop the process at a moment when it holds no lock."""

        def stopped() -> bool:
            self.send(signal.SIGSTOP)
            until(lambda: process_state(self.pid) == "T", "it did not stop")
            if desk.at_rest():
                return True
            self.send(signal.SIGCONT)
            return False

        until(stopped, "it is never at rest")


@pytest.fixture
def desk(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as paid:
        desk = Desk(database_url, tmp_path / "blobs", paid)
        yield desk
        desk.close()


def book(sections: int, word: str = "krill", *, edited: int | None = None) -> str:
    """Return a text with this many chunks."""
    return "\n\n".join(
        f"## Section {number}\n\nThe {'granite' if number == edited else word} of section {number}. "
        + f"Padding {number}. " * 5
        for number in range(sections)
    )


@pytest.mark.smoke
def test_a_worker_killed_while_embedding_wastes_only_the_calls_in_flight(desk: Desk) -> None:
    paid = desk.paid
    desk.put(book(1_500))
    paid.stall(0.15)  # seconds that each call takes
    with desk.worker("first") as first:
        until(lambda: paid.bill.calls >= 8 and desk.count("library_memos") >= IN_FLIGHT, "it is not in the middle")
        first.kill()
    chunks, kept = desk.count("library_chunks"), desk.count("library_memos")
    assert IN_FLIGHT <= kept < chunks == 1_500
    slot = desk.owner().slot("vector")
    assert slot is not None
    assert (slot.state, slot.built) == (SlotState.RUNNING, 0)
    assert desk.library.searcher.search_channel(desk.base, "vector", "krill") == []  # an unfinished index is not served
    paid.release()
    with desk.worker("second") as second:
        until(desk.quiet, "the document is not indexed")
        assert second.finish() == 0
    assert desk.owner().status is Status.SUCCESS
    assert len(paid.bill.texts) == chunks == desk.count("library_memos")
    assert sum(paid.bill.texts.values()) <= chunks + IN_FLIGHT
    expired = [one.event for one in desk.store.events(limit=10_000) if one.event.type == "slot.expired"]
    assert [event.parsed_data["reason"] for event in expired] == ["holder_died"] * len(expired)
    assert "vector" in [event.kind for event in expired]
    sweep(desk)
    audit_quiet(desk)


def test_a_worker_stopped_past_its_lease_changes_nothing_when_it_continues(desk: Desk) -> None:
    paid = desk.paid
    desk.put(book(600))
    paid.stall()
    with desk.worker("late", **SHORT) as late:
        paid.await_calls(BatchLimits().concurrency)
        late.stop(desk)
        until(lambda: desk.owner().slot("fulltext") is not None, "it has no slots")
        desk.put(book(600, edited=10))
        paid.release()  # the answers stay in the sockets of the stopped worker
        with desk.worker("other", **SHORT) as other:
            until(desk.quiet, "the new generation is not indexed")
            assert other.finish() == 0
        before = desk.owner()
        assert (before.status, {slot.built for slot in before.slots}) == (Status.SUCCESS, {2})
        rows = rows_of(desk)
        refused = desk.refused()
        late.send(signal.SIGCONT)
        until(lambda: desk.refused() > refused, "the late row was not refused")
        assert late.finish() == 0
    assert desk.owner() == before  # every field is equal
    assert rows_of(desk) == rows
    assert_new(desk)
    audit(desk)
    sweep(desk)
    assert_new(desk)
    audit_quiet(desk)
    assert sum(paid.bill.texts.values()) <= len(paid.bill.texts) + IN_FLIGHT  # both workers may have paid for these


def rows_of(desk: Desk) -> dict[str, list[int]]:
    return {
        kind: desk.library.indexes[kind].scan(recipe, 0, 100_000)
        for kind in ("vector", "fulltext")
        for recipe in desk.library.indexes.recipes(desk.base, kind)
    }


def assert_new(desk: Desk) -> None:
    """Check that search finds only the new generation, and all of it."""
    for kind in ("vector", "fulltext"):
        hits = desk.library.searcher.search_channel(desk.base, kind, "section", 1_000)
        assert {hit.generation for hit in hits} == {2}
        said = [hit.text for hit in hits]
        assert len(said) == len(set(said)) == 600
        assert not [one for one in said if "krill of section 10." in one]
        assert [one for one in said if "granite of section 10." in one]


def sweep(desk: Desk) -> None:
    sweeper = desk.library.indexes.garbage_collector()
    while sweeper.collect():
        pass
