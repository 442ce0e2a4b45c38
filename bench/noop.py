"""An indexer that does nothing, so that only the mechanism is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.slot import BuildResult
from holdfast.engine.states import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.task import Indexer, Task


class Noop:
    def build(self, task: Task) -> BuildResult:  # noqa: ARG002
        return BuildResult()

    def remove(self, task: Task) -> None:
        """Nothing was built."""


def indexers() -> Mapping[str, Indexer]:
    return {"noop": Noop()}


def request(name: str) -> Request:
    return Request(base="bench", owner=name, operation=Operation.INDEX, slots=(SlotSpec("noop"),))
