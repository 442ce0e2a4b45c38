"""Indexers that do nothing, at once or after a wait, so that only the mechanism is measured."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from holdfast.clock import SystemClock
from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation
from holdfast.engine.worker import LocalWorker, WorkerParts
from holdfast.wiring import open_configured_store, open_work_notifier

if TYPE_CHECKING:
    from holdfast.engine.task import Task
    from holdfast.settings import Settings


WAIT_SECONDS = 0.02  # as for the answer of a near provider


class Noop:
    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def build(self, task: Task) -> BuildResult:  # noqa: ARG002
        time.sleep(self._seconds)
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Nothing was built."""


def make_worker(settings: Settings) -> LocalWorker:
    return LocalWorker(partial(_open_parts, settings))


def _open_parts(settings: Settings) -> WorkerParts:
    notifier = open_work_notifier(settings.database)
    return WorkerParts(
        store=open_configured_store(settings, notifier),
        notifier=notifier,
        indexers={"noop": Noop(), "wait": Noop(WAIT_SECONDS)},
        clock=SystemClock(),
        rules=settings.rules,
        period=settings.period,
        retention=settings.retention,
        claim_batch=settings.claim_batch,
    )


def request(name: str, kind: str = "noop") -> Request:
    return Request(base="bench", owner=name, operation=Operation.INDEX, slots=(SlotSpec(kind),))
