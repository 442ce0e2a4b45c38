"""A real process that is stopped past its lease and wakes up late: nothing it does then may count."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.states import Operation, Outcome
from holdfast.errors import UnknownOwner
from tests.support.processes import make_gate, open_gate, until
from tests.support.scripted_indexer import WHOLE, Fault, all_rows, visible
from tests.support.stores import ONE, request
from tests.support.worker_shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.processes import Program

# Where it is stopped, and which of its writes is refused when it goes on.
LATE = pytest.mark.parametrize(
    ("point", "refused"),
    [
        ("checkpoint", "released"),  # its own clock tells it to stop; it only tries to free the slot
        ("write", "guarded"),  # it has just checked, and writes a row
        ("settling", "completed"),  # all is built, and it commits
    ],
)


@pytest.fixture
def shop(database_url: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(database_url, tmp_path)
    make_gate(tmp_path, "start")
    yield shop
    shop.close()


def refusals(shop: Shop, verb: str) -> int:
    return shop.store.counters()[f"stale_write_rejected.{verb}"]


def wake(late: Program, shop: Shop, refused: str) -> None:
    """Let the late worker go on, and wait for the refusal of its write."""
    before = refusals(shop, refused)
    late.send(signal.SIGCONT)
    until(lambda: refusals(shop, refused) > before, "the late write was not refused")
    assert late.finish() == 0


@LATE
def test_a_worker_that_wakes_up_after_another_has_committed_changes_nothing(
    shop: Shop, point: str, refused: str
) -> None:
    shop.add("doc", slots=ONE)
    with (
        shop.program("looks", Fault(point=point, action="stop")) as late,
        shop.program("looks", Fault(point="start", action="meet")) as other,
    ):
        late.stopped()
        held = shop.store.slot("shelf", "doc", "cards")
        assert (held.state, held.fence, f"/{late.pid}/" in str(held.holder)) == ("running", 1, True)
        open_gate(shop.folder, "start")
        until(shop.quiet, "nobody took the slot over")
        taken = shop.store.slot("shelf", "doc", "cards")
        wake(late, shop, refused)
        assert other.finish() == 0
    slot = shop.store.slot("shelf", "doc", "cards")
    assert slot == taken  # to the last field
    assert f"/{other.pid}/" in shop.events("slot.claimed")[-1]["holder"]
    assert shop.events("slot.claimed")[-1]["fence"] == slot.fence > held.fence
    assert visible(shop.store, slot) == WHOLE
    shop.audit()


@pytest.mark.smoke
def test_a_worker_that_wakes_up_in_another_generation_changes_nothing(shop: Shop) -> None:
    shop.add("doc", slots=ONE)
    first = shop.store.slot("shelf", "doc", "cards").job
    with (
        shop.program("looks", Fault(point="settling", action="stop")) as late,
        shop.program("looks", Fault(point="start", action="meet")) as other,
    ):
        late.stopped()
        changed = request("doc", Operation.CHANGE, slots=ONE, fingerprint="new")
        assert shop.store.admit([changed])[0].generation == 2
        open_gate(shop.folder, "start")
        until(shop.quiet, "the new generation is not built")
        wake(late, shop, "completed")
        assert other.finish() == 0
    slot = shop.store.slot("shelf", "doc", "cards")
    assert (slot.state, slot.built) == ("ready", 2)
    assert visible(shop.store, slot) == WHOLE
    assert shop.store.job(first).outcome is Outcome.SUPERSEDED
    shop.audit()


@pytest.mark.parametrize(("point", "refused"), [("write", "guarded"), ("settling", "completed")])
def test_a_worker_that_wakes_up_after_a_delete_brings_nothing_back(shop: Shop, point: str, refused: str) -> None:
    shop.add("doc", slots=ONE)
    slot = shop.store.slot("shelf", "doc", "cards")
    with (
        shop.program("looks", Fault(point=point, action="stop", nth=1)) as late,
        shop.program("looks", Fault(point="start", action="meet")) as other,
    ):
        late.stopped()
        assert len(all_rows(shop.store, slot)) == (0 if point == "write" else 3)
        assert shop.store.admit([request("doc", Operation.DELETE)])[0].accepted
        open_gate(shop.folder, "start")
        until(shop.quiet, "the document is not removed")
        wake(late, shop, refused)
        assert other.finish() == 0
    with pytest.raises(UnknownOwner):
        shop.store.owner("shelf", "doc")
    assert all_rows(shop.store, slot) == []
    assert [event["owner"] for event in shop.events("slot.completed")] == []
    shop.audit()
