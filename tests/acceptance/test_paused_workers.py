"""A real worker process is stopped past its lease and continues later: none of its late writes takes effect."""

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

# The point at which the worker is stopped, and the write that is refused when it continues.
LATE = pytest.mark.parametrize(
    ("point", "refused"),
    [
        ("checkpoint", "released"),  # the worker sees that its lease has expired and only tries to release the slot
        ("write", "guarded"),  # the worker has just checked its lease and writes a row
        ("settling", "completed"),  # the worker has built everything and commits
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
    """Continue the late worker and wait until its write is refused."""
    before = refusals(shop, refused)
    late.send(signal.SIGCONT)
    until(lambda: refusals(shop, refused) > before, "the late write was not refused")
    assert late.finish() == 0


@LATE
def test_a_worker_that_continues_after_another_has_committed_changes_nothing(
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
    assert slot == taken  # every field is equal
    assert f"/{other.pid}/" in shop.events("slot.claimed")[-1]["holder"]
    assert shop.events("slot.claimed")[-1]["fence"] == slot.fence > held.fence
    assert visible(shop.store, slot) == WHOLE
    shop.audit()


@pytest.mark.smoke
def test_a_worker_that_continues_in_a_newer_generation_changes_nothing(shop: Shop) -> None:
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
def test_a_worker_that_continues_after_a_delete_restores_nothing(shop: Shop, point: str, refused: str) -> None:
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
