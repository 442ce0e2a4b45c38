"""Real worker processes are killed: at every named point, repeatedly, and all at the same time."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.states import SlotState, Status
from tests.support.processes import make_gate, open_gate, process_state, until
from tests.support.scripted_indexer import Fault, hold, journal, passed
from tests.support.worker_shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENTS = [f"doc-{number}" for number in range(3)]
LONG = {"lease": "120s", "heartbeat": "30s", "period": "30s"}


@pytest.fixture
def shop(database_url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(database_url, tmp_path)
    yield shop
    shop.close()


@pytest.mark.parametrize(
    ("mode", "point", "nth"),
    [
        ("rings", "decided", 2),
        ("rings", "received", 2),
        ("rings", "claimed", 2),
        ("looks", "checkpoint", 2),
        ("looks", "write", 5),
        ("looks", "settling", 2),
        ("looks", "settled", 1),  # the content is built, its dependents are not
        ("rings", "done", 2),
    ],
)
def test_a_worker_killed_at_any_point_is_replaced_by_another(shop: Shop, mode: str, point: str, nth: int) -> None:
    shop.add(*DOCUMENTS)
    make_gate(shop.folder, "start")
    with (
        shop.program(mode, Fault(point=point, action="kill", nth=nth)) as victim,
        shop.program(mode, Fault(point="start", action="meet")) as survivor,
    ):
        assert victim.ended() == -signal.SIGKILL
        assert [word for pid, word in journal(shop.folder) if pid == victim.pid][-1] == point
        open_gate(shop.folder, "start")
        if mode == "rings":  # the victim may have built everything, so that nothing is left for the survivor
            until(lambda: (survivor.pid, "listening") in journal(shop.folder), "the survivor does not start")
        until(shop.quiet, "the documents are not built")
        assert survivor.finish() == 0
    shop.audit()
    for owner in DOCUMENTS:
        shop.assert_built_once(owner)


@pytest.mark.smoke
def test_a_document_that_kills_every_worker_fails_and_its_neighbours_succeed(shop: Shop) -> None:
    neighbours = ["doc-0", "doc-1", "doc-2"]
    shop.add("doc-0", "poison", "doc-1", "doc-2")
    with shop.program("serves", Fault(point="build poison", action="kill", nth=0)) as parent:
        until(shop.quiet, "the work does not come to an end")  # the scheduler replaces workers that die
        assert parent.finish() == 0
    assert len(set(passed(shop.folder, "build poison"))) == 4  # four different processes
    content = shop.store.slot("shelf", "poison", "content")
    assert (content.state, content.attempts) == (SlotState.FAILED, 4)
    assert content.error is not None
    assert content.error.code == "attempts_spent"
    assert shop.store.owner("shelf", "poison").status is Status.FAILED
    shop.audit()
    for owner in neighbours:
        shop.assert_built_once(owner)


def test_slots_of_killed_processes_are_claimed_long_before_their_leases_expire(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(shop.folder, "doc-0")
    with shop.program("serves", **LONG) as parent:
        shop.add("doc-0")
        until(lambda: passed(shop.folder, "build doc-0"), "the work has not begun")
        workers = shop.workers(parent)
        os.kill(parent.pid, signal.SIGKILL)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert parent.ended() == -signal.SIGKILL
        until(lambda: not any(map(alive, workers)), "the workers are not dead")
    assert shop.store.slot("shelf", "doc-0", "content").state is SlotState.RUNNING
    (shop.folder / "hold doc-0").unlink()

    killed = shop.store.events()[-1].id
    restart = time.time()
    with shop.program("serves", **LONG) as parent:
        until(shop.quiet, "the document is not built")
        assert parent.finish() == 0
    new = shop.store.events(after=killed)
    expired = [one for one in new if one.event.type == "slot.expired"]
    assert [(one.event.kind, one.event.parsed_data["reason"]) for one in expired] == [("content", "holder_died")]
    claimed = next(one for one in new if one.event.type == "slot.claimed")
    seconds = claimed.at / 1_000_000 - restart
    with capsys.disabled():
        sys.stdout.write(f"\n{shop.name}: first claim {seconds:.2f} s after the restart of everything\n")
    shop.audit()
    shop.assert_built_once("doc-0")


def test_workers_stop_when_their_parent_process_is_killed(shop: Shop) -> None:
    hold(shop.folder, "doc-0")
    with shop.program("serves", **LONG) as parent:
        shop.add("doc-0")
        until(lambda: passed(shop.folder, "build doc-0"), "the work has not begun")
        workers = shop.workers(parent)
        assert len(workers) == 2
        parent.send(signal.SIGKILL)
        assert parent.ended() == -signal.SIGKILL
        until(lambda: not any(map(alive, workers)), "the workers live on")
    slot = shop.store.slot("shelf", "doc-0", "content")
    assert (slot.state, slot.attempts, slot.holder) == (SlotState.QUEUED, 0, None)  # released, not expired
    assert shop.count("slot.released") >= 1  # by both workers, if the second claimed it before it stopped
    assert shop.count("slot.expired") == 0


def alive(pid: int) -> bool:
    return process_state(pid) not in ("", "Z", "X")
