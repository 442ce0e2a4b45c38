"""An indexer that does nothing, so that only the mechanism is measured."""

from __future__ import annotations

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


class Noop:
    def build(self, task: Task) -> BuildResult:  # noqa: ARG002
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
        indexers={"noop": Noop()},
        clock=SystemClock(),
        rules=settings.rules,
        period=settings.period,
        retention=settings.retention,
        claim_batch=settings.claim_batch,
    )


def request(name: str) -> Request:
    return Request(base="bench", owner=name, operation=Operation.INDEX, slots=(SlotSpec("noop"),))
