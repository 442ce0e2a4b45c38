"""The faults that the engine stores itself: a code and parameters, which every language can show completely."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.engine.problems import describe_fault
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.slot import Fault
from holdfast.engine.store.base import Failure
from holdfast.errors import StoreFull
from holdfast.messages import UNKNOWN_VALUE, translations_for
from holdfast.web.render import Formatter
from tests.support.scripted_workers import KINDS, Carrier, raises, worker
from tests.support.stores import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.slot import BuildResult
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.engine.task import Task
    from tests.support.clock import FakeClock


def shown(store: SqlStore, kind: str = "content") -> tuple[str, str]:
    """Return the fault of a slot in English and in Chinese."""
    problem = describe_fault(store.slot("shelf", "doc", kind).error)
    assert problem is not None
    chinese = Formatter(translations_for("zh")).explain(problem)
    assert UNKNOWN_VALUE not in problem.message + chinese
    return problem.message, chinese


def no_result(_: Task) -> BuildResult | None:
    return None


@pytest.mark.parametrize(
    ("build", "fault", "texts"),
    [
        (
            no_result,
            Fault("no_result"),
            (
                (
                    "The indexer returned no result. This is a defect of the indexer. Report it to the author of the "
                    "indexer."
                ),
                "索引程序没有返回结果",
            ),
        ),
        (
            raises(KeyError("left")),
            Fault("unexpected", {"type": "KeyError", "detail": "'left'"}),
            (
                (
                    "An unexpected error ended the attempt: KeyError ('left'). The log of the worker contains the "
                    "traceback."
                ),
                "KeyError",
            ),
        ),
        (
            raises(StoreFull(place="TMPDIR")),
            Fault("disk_full", {"place": "TMPDIR"}),
            ("The disk is full. Nothing was written. Free some space for 'TMPDIR', then try again.", "「TMPDIR」"),
        ),
        (
            raises(StoreFull("disk_full_partway", done=100, place="TMPDIR")),
            Fault("disk_full", {"done": "100", "place": "TMPDIR"}),
            ("The disk is full. Nothing was written. Free some space for 'TMPDIR', then try again.", "「TMPDIR」"),
        ),
    ],
    ids=["no_result", "unexpected", "disk_full", "disk_full_partway"],
)
def test_a_failed_attempt_stores_a_code_with_parameters(
    store: SqlStore,
    clock: FakeClock,
    build: Callable[[Task], BuildResult | None],
    fault: Fault,
    texts: tuple[str, str],
) -> None:
    store.admit([request()])
    worker(store, clock, build).run_next(1)
    assert store.slot("shelf", "doc", "content").error == fault
    english, chinese = shown(store)
    assert english == texts[0]
    assert texts[1] in chinese


def test_a_slot_without_attempts_left_and_its_dependents_explain_why_they_failed(
    store: SqlStore, clock: FakeClock
) -> None:
    store.admit([request()])
    for _ in range(store.rules.retry.max_attempts):
        store.claim_next(KINDS, "worker", 1)
        clock.advance(store.rules.lease)
    Reconciler(store, Carrier(), KINDS, store.rules, dead=lambda _: False).reconcile()
    english, chinese = shown(store)
    assert english == "All 4 attempts failed, the last one with the error 'worker_lost'. Fix the cause, then retry."
    assert "4 次" in chinese
    assert "「worker_lost」" in chinese
    english, chinese = shown(store, "vector")
    assert english == (
        "Not built, because 'content', from which it is built, failed. Fix the cause of that failure, then retry."
    )
    assert "「文本与分块」" in chinese


def test_a_fault_that_an_earlier_version_stored_with_its_message_shows_the_message(store: SqlStore) -> None:
    store.admit([request()])
    (ticket,) = store.claim_next(KINDS, "worker", 1)
    message = "The disk is full. Nothing was written; free some space and try again."
    store.fail([Failure(ticket=ticket, fault=Fault("disk_full", {"message": message}))])
    problem = describe_fault(store.slot("shelf", "doc", "content").error)
    assert problem is not None
    assert (problem.code, problem.message, problem.params) == ("disk_full", message, {})
