"""Real worker processes without crashes: stopped under load, several on one database, and orphaned by their program."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.states import Status
from tests.support.processes import ROOT, make_gate, open_gate, until
from tests.support.scripted_indexer import Fault, hold, passed
from tests.support.stores import ONE
from tests.support.timeouts import PATIENCE_SECONDS
from tests.support.worker_shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = {"lease": "120s", "heartbeat": "30s", "period": "30s"}
# Starts workers and raises an error before it stops them.
CARELESS = """
import sys
from pathlib import Path
from holdfast.engine.worker import LocalWorker
from holdfast.engine.schedulers.embedded import EmbeddedScheduler
from holdfast.settings import Settings
from tests.support.scripted_indexer import Workshop
workshop = Workshop(settings=Settings(database=sys.argv[1]), folder=Path(sys.argv[2]))
EmbeddedScheduler(Settings(workers=1)).start(LocalWorker(workshop))
raise RuntimeError("something went wrong")
"""


@pytest.fixture
def shop(database_url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(database_url, tmp_path)
    yield shop
    shop.close()


@pytest.mark.parametrize("mode", ["looks", "rings"])
def test_a_worker_stopped_under_load_releases_all_its_slots(shop: Shop, mode: str) -> None:
    owners = [f"doc-{number:02}" for number in range(20)]
    shop.add(*owners, slots=ONE)
    held = hold(shop.folder, "doc-05")
    make_gate(shop.folder, "start")
    with (
        shop.program(mode, **LONG) as busy,
        shop.program(
            mode, Fault(point="start", action="meet"), **(LONG | {"ring_again": "1s", "period": "1s"})
        ) as other,
    ):
        until(lambda: passed(shop.folder, "build doc-05"), "the worker is not under load")
        assert busy.finish() == 0
        slots = [shop.store.slot("shelf", owner, "cards") for owner in owners]
        assert [(slot.state, slot.attempts) for slot in slots] == [("ready", 1)] * 5 + [("queued", 0)] * 15
        assert {slot.holder for slot in slots} == {None}
        assert shop.count("slot.released") == (15 if mode == "looks" else 2)  # a ring claims 1, 2 and then 4 slots
        held.unlink()
        open_gate(shop.folder, "start")
        until(shop.quiet, "the work is not finished")
        assert other.finish() == 0
    shop.audit()
    for owner in owners:
        shop.assert_built_once(owner)
        assert shop.store.slot("shelf", owner, "cards").attempts == 1
    assert (shop.count("slot.completed"), shop.count("slot.expired")) == (20, 0)


@pytest.mark.smoke
def test_two_concurrent_workers_build_each_document_once(shop: Shop) -> None:
    owners = [f"doc-{number}" for number in range(200)]
    make_gate(shop.folder, "claimed")
    shop.add(*owners, slots=ONE)
    with shop.program("serves", Fault(point="claimed", action="meet"), claim_batch="10", **LONG) as parent:
        # The first claim of each worker waits for that of the other, so that both get some documents.
        until(lambda: len(set(passed(shop.folder, "claimed"))) == 2, "not both workers have claimed")
        open_gate(shop.folder, "claimed")
        until(shop.quiet, "the documents are not built")
        assert parent.finish() == 0
    shop.audit()
    claims = shop.events("slot.claimed")
    assert (len(claims), shop.count("slot.completed"), shop.count("job.success")) == (200, 200, 200)
    assert len({event["holder"] for event in claims}) == 2
    assert {shop.store.owner("shelf", owner).status for owner in owners} == {Status.SUCCESS}
    for owner in owners[::20]:
        shop.assert_built_once(owner)
    assert set(shop.store.counters().values()) == {0}


def test_the_workers_of_a_program_that_fails_stop_with_it(sqlite_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CARELESS, sqlite_url, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "something went wrong" in done.stderr
