"""The contract of every scheduler, built in or third-party: those that push rings and those whose workers poll."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.db.notify import PipeListener
from holdfast.engine.loop import Loop
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.schedulers.base import make_scheduler
from holdfast.engine.states import Operation, SlotState, Status
from holdfast.engine.worker import LocalWorker
from holdfast.errors import BadSettings, UnknownOwner
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_scheduler, open_work_notifier
from tests.support import threads
from tests.support.processes import make_gate, open_gate, until
from tests.support.scripted_indexer import KINDS, WHOLE, Fault, Workshop, hold, make_rows_table, passed, visible
from tests.support.stores import ONE, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.db.notify import Notifier
    from holdfast.engine.schedulers.base import Scheduler, Worker
    from holdfast.engine.slot import Ring
    from holdfast.engine.store.sql_store import SqlStore

WORKERS = 2
CARRIED = [("inline", "sqlite"), ("threads", "sqlite"), ("embedded", "sqlite")]
FAR = pytest.param(("embedded", "postgres"), marks=pytest.mark.postgres, id="embedded-postgres")
everywhere = pytest.mark.parametrize("yard", [*CARRIED, FAR], indirect=True, ids="-".join)


class Watched:
    """Wraps a scheduler and counts the outstanding rings each time it carries some."""

    def __init__(self, carrying: Scheduler, store: SqlStore) -> None:
        self.under_way: list[int] = []  # number of rings sent and not answered, at each carry
        self._carrying = carrying
        self._store = store

    def start(self, crew: Worker) -> None:
        self._carrying.start(crew)

    @property
    def needs_rings(self) -> bool:
        return self._carrying.needs_rings

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:
        return self._carrying.room(kind, outstanding)

    def carry(self, rings: Sequence[Ring]) -> None:
        self.under_way.append(self._store.count_outstanding_rings("cards"))
        self._carrying.carry(rings)

    def stop(self) -> None:
        self._carrying.stop()


@dataclass(kw_only=True)
class Yard:
    """A scheduler, a worker and a reconciler on one database. `begin` may be called again after `halt`."""

    settings: Settings
    folder: Path
    store: SqlStore
    bell: Notifier
    faults: tuple[Fault, ...] = ()
    _watched: list[Watched] = field(default_factory=list)
    _ends: list[tuple[Loop, threading.Thread, LocalWorker]] = field(default_factory=list)

    @property
    def carrying(self) -> Watched:
        return self._watched[-1]

    @property
    def pushes(self) -> bool:
        return self.settings.scheduler != "embedded"

    def begin(self, *, tend: bool = True) -> None:
        """Start the scheduler and a reconciler. With `tend=False` the reconciler does nothing."""
        crew = LocalWorker(Workshop(settings=self.settings, folder=self.folder, faults=self.faults))
        self._watched.append(Watched(open_scheduler(self.settings), self.store))
        self.carrying.start(crew)
        tending = Reconciler(self.store, self.carrying, KINDS, self.settings.rules)
        listener = self.bell.listen() if self.pushes else PipeListener()
        loop = Loop("reconciler", tending.reconcile if tend else lambda: None, listener, self.settings.period)
        self._ends.append((loop, loop.start(), crew))

    def halt(self) -> None:
        """Stop the reconciler first, then the scheduler, then close the rest."""
        loop, thread, crew = self._ends.pop()
        loop.stop()
        self.carrying.stop()
        thread.join()
        loop._listener.close()
        crew.close()

    def close(self) -> None:
        while self._ends:
            self.halt()
        self.store.close()
        self.bell.close()

    def add(self, *owners: str, priority: int = 5) -> None:
        for owner in owners:
            assert self.store.admit([request(owner, slots=ONE, priority=priority)])[0].accepted

    def rings(self) -> list[Ring]:
        """Mark all queued slots as rung, as a reconciler does, but send nothing."""
        return self.store.ring(self.store.find_unrung(["cards"], 100).slots)

    def built(self, *owners: str) -> bool:
        return all(self.status(owner) is Status.SUCCESS for owner in owners)

    def status(self, owner: str) -> Status:
        return self.store.owner("shelf", owner).status

    def events(self, verb: str) -> list[str]:
        """Return the owners of the slots that had this event, in order."""
        return [one.event.owner for one in self.store.events(limit=10_000) if one.event.type == f"slot.{verb}"]

    def rows(self, owner: str) -> list[int]:
        return visible(self.store, self.store.slot("shelf", owner, "cards"))


@pytest.fixture(params=CARRIED, ids="-".join)
def yard(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    name, database = request.param
    installed = tmp_path / "installed"
    installed.mkdir()
    threads.publish(installed)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    settings = Settings(
        database=request.getfixturevalue(f"{database}_url"),
        scheduler=name,
        workers=WORKERS,
        claim_batch=1,
        period=timedelta(minutes=10),  # long, because only the test of a lost ring needs the periodic check
    )
    bell = open_work_notifier(settings.database)
    store = open_configured_store(settings, bell)
    make_rows_table(store)
    yard = Yard(settings=settings, folder=tmp_path, store=store, bell=bell)
    yield yard
    for held in tmp_path.glob("hold *"):  # a failed test may leave its work blocked
        held.unlink()
    yard.close()


@everywhere
def test_an_admitted_document_is_built_and_a_deleted_one_removed(yard: Yard) -> None:
    yard.begin()
    yard.add("doc")
    until(lambda: yard.built("doc"), "the document is not built")
    assert yard.rows("doc") == WHOLE
    yard.store.admit([request("doc", Operation.DELETE)])
    until(lambda: yard.events("forgotten") == ["doc"], "the document is not removed")
    with pytest.raises(UnknownOwner):
        yard.status("doc")


@everywhere
def test_a_failed_attempt_is_retried_when_it_is_due_and_not_only_after_the_period(yard: Yard) -> None:
    # The backoff is longer than a worker polls after a failure, and much shorter than the period of ten minutes.
    yard.settings = replace(yard.settings, backoff=timedelta(seconds=3))
    yard.faults = (Fault(point="build doc", action="fail"),)
    yard.begin()
    yard.add("doc")
    until(lambda: yard.built("doc"), "the document is not tried again")
    assert yard.events("postponed").count("doc") >= 1


def test_a_ring_carried_twice_is_built_once(yard: Yard) -> None:
    yard.begin(tend=False)
    yard.add("doc")
    rings = yard.rings()
    yard.carrying.carry([*rings, *rings])
    yard.carrying.carry(rings)
    until(lambda: yard.built("doc"), "the document is not built")
    if yard.pushes:
        until(lambda: len(passed(yard.folder, "received")) == 3, "the rings did not all arrive")
    yard.halt()
    assert yard.events("claimed") == ["doc"]
    assert yard.rows("doc") == WHOLE


def test_a_lost_ring_is_sent_again(yard: Yard) -> None:
    yard.add("doc")
    lost = yard.rings()
    assert [ring.slot for ring in lost] == [yard.store.slot("shelf", "doc", "cards").id]
    assert yard.rings() == []  # the slot counts as rung, so it is not rung again yet
    yard.settings = replace(yard.settings, period=timedelta(milliseconds=100), ring_again=timedelta(seconds=1))
    yard.store.rules = yard.settings.rules
    yard.begin()
    until(lambda: yard.built("doc"), "the document is not built")
    if yard.pushes:
        first, again = _times(yard, "admitted"), _times(yard, "claimed")
        assert again[0] - first[0] >= 1_000_000  # microseconds: not before `ring_again` has passed


def test_outstanding_rings_never_exceed_the_room_of_the_scheduler(yard: Yard) -> None:
    owners = [f"doc-{number}" for number in range(12)]
    yard.add(*owners)
    yard.begin()
    until(lambda: yard.built(*owners), "a document is not built")
    room = yard.carrying.room("cards", lambda: 0)
    assert yard.carrying.needs_rings is yard.pushes
    if yard.pushes:
        assert room == WORKERS * yard.settings.rings_per_worker
        assert max(yard.carrying.under_way) == room
    else:
        assert not any(yard.carrying.under_way)
    assert sorted(yard.events("completed")) == sorted(owners)


def test_priorities_apply_in_any_order_of_arrival(yard: Yard) -> None:
    later = [f"later-{number}" for number in range(8)]
    urgent = [f"urgent-{number}" for number in range(8)]
    yard.add(*later, priority=9)
    yard.add(*urgent, priority=0)
    yard.begin()
    until(lambda: yard.built(*later, *urgent), "a document is not built")
    claimed = yard.events("claimed")
    # Two workers may claim two slots in a different order than they were rung.
    last_urgent = max(claimed.index(owner) for owner in urgent)
    overtaking = [owner for owner in claimed[:last_urgent] if owner in later]
    assert len(overtaking) < WORKERS
    assert claimed[0] in urgent


def test_an_urgent_slot_is_claimed_before_every_slot_that_is_not_yet_rung(yard: Yard) -> None:
    make_gate(yard.folder, "build later-0")
    yard.faults = (Fault(point="build later-0", action="meet"),)
    later = [f"later-{number}" for number in range(12)]
    yard.settings = replace(yard.settings, workers=1)
    yard.add(*later, priority=9)
    yard.begin()
    until(lambda: passed(yard.folder, "build later-0"), "nothing has begun")
    yard.add("urgent", priority=0)
    open_gate(yard.folder, "build later-0")
    until(lambda: yard.built(*later, "urgent"), "a document is not built")
    before = yard.events("claimed").index("urgent")
    room = yard.carrying.room("cards", lambda: 0)
    assert before <= 1 + room  # one claimed slot, and the rings already sent


@everywhere
def test_a_stop_releases_running_slots_and_another_start_finishes_them(yard: Yard) -> None:
    held = hold(yard.folder, "doc")
    yard.begin()
    yard.add("doc")
    until(lambda: passed(yard.folder, "build doc"), "the work has not begun")
    assert yard.store.slot("shelf", "doc", "cards").attempts == 1
    stopping = threading.Thread(target=yard.halt, daemon=True)
    stopping.start()
    until(lambda: not stopping.is_alive(), "it waits for the work instead of stopping it")
    slot = yard.store.slot("shelf", "doc", "cards")
    assert (slot.state, slot.attempts, slot.holder) == (SlotState.QUEUED, 0, None)
    # The other worker may claim the slot once more before it receives its stop signal, and release it again.
    assert set(yard.events("released")) == {"doc"}

    held.unlink()
    yard.begin()
    until(lambda: yard.built("doc"), "the document is not built")
    assert yard.rows("doc") == WHOLE
    assert yard.store.slot("shelf", "doc", "cards").attempts == 1
    assert yard.events("expired") == []


def test_an_unknown_scheduler_is_refused_with_a_list_of_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadSettings, match=r"HOLDFAST_SCHEDULER is 'threads', .* Choose from: celery, embedded, inline"):
        make_scheduler(Settings(scheduler="threads"))
    threads.publish(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert isinstance(make_scheduler(Settings(scheduler="threads")), threads.ThreadScheduler)
    with pytest.raises(BadSettings, match=r"'celeri', .* Choose from: celery, embedded, inline, threads\."):
        make_scheduler(Settings(scheduler="celeri"))


def _times(yard: Yard, verb: str) -> list[int]:
    return [one.at for one in yard.store.events() if one.event.type == f"slot.{verb}"]
