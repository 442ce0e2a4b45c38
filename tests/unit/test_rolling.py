"""What a document needs when its base wants something else: a table of cases."""

from __future__ import annotations

import pytest

from holdfast.bases.rollout import Need, Standing, Target, need
from holdfast.clock import Moment
from holdfast.engine.slot import JobId
from holdfast.engine.states import SlotState

S = SlotState
TARGET = Target(
    recipes={"content": 1, "vector": 2},
    keeps={"content", "vector", "questions"},
    again=("vector",),
    job=JobId("rollout"),
    since=Moment(100),
)
CONTENT, VECTOR = Standing("content", S.READY, 1, Moment(0), None), Standing("vector", S.READY, 2, Moment(0), None)
OTHER = VECTOR._replace(recipe=9)
LAST = Moment(100)

CASES: dict[str, tuple[list[Standing], Need]] = {
    "it has what is wanted": ([CONTENT, VECTOR], Need()),
    "it was made by something else": ([CONTENT, OTHER], Need(build=("vector",))),
    "its list was made by something else": ([CONTENT._replace(recipe=9), VECTOR], Need(build=("content",))),
    "it was made before recipes were noted": ([CONTENT._replace(recipe=None), VECTOR], Need(build=("content",))),
    "it lacks an index": ([CONTENT], Need(build=("vector",))),
    "it has one that is not wanted": ([CONTENT, VECTOR, VECTOR._replace(kind="graph")], Need(drop=("graph",))),
    "it has one that cannot be built for now": ([CONTENT, VECTOR, VECTOR._replace(kind="questions")], Need()),
    "one that cannot be built for now failed and serves nothing": (
        [CONTENT, VECTOR, Standing("questions", S.FAILED, None, Moment(0), None)],
        Need(drop=("questions",)),
    ),
    "one that cannot be built for now failed and serves what it had": (
        [CONTENT, VECTOR, Standing("questions", S.FAILED, 3, Moment(0), None)],
        Need(),
    ),
    "one that is tried again failed": ([CONTENT, VECTOR._replace(state=S.FAILED)], Need(build=("vector",))),
    "one that is tried again was cancelled": ([CONTENT, VECTOR._replace(state=S.CANCELLED)], Need(build=("vector",))),
    "one that is not affected failed": ([CONTENT._replace(state=S.FAILED), VECTOR], Need()),
    "this rollout asked for it and it failed": (
        [CONTENT, VECTOR._replace(state=S.FAILED, payload="rollout")],
        Need(),
    ),
    "this rollout asked for it and another worker made something else": (
        [CONTENT, OTHER._replace(payload="rollout")],
        Need(),
    ),
    "another rollout asked for it": ([CONTENT, OTHER._replace(payload="before")], Need(build=("vector",))),
    "it is being deleted": ([CONTENT._replace(state=S.DELETING), OTHER._replace(state=S.DELETING)], Need()),
    "what is wanted is still being removed": ([CONTENT, VECTOR._replace(state=S.DELETING)], Need(wait=True)),
    "what is not wanted is being removed": (
        [CONTENT, VECTOR, Standing("graph", S.DELETING, 3, None, None)],
        Need(),
    ),
    "a person stopped it before anything was read": (
        [CONTENT._replace(state=S.CANCELLED, recipe=None)],
        Need(),
    ),
    "it is queued and will be made as is wanted": ([CONTENT, OTHER._replace(state=S.QUEUED)], Need()),
    "it waits for another attempt": ([CONTENT, OTHER._replace(state=S.WAITING)], Need()),
    "it was claimed before the change": (
        [CONTENT, OTHER._replace(state=S.RUNNING, claimed_at=Moment(99))],
        Need(wait=True),
    ),
    "it was claimed after the change": ([CONTENT, OTHER._replace(state=S.RUNNING, claimed_at=LAST)], Need()),
    "it is at work and something else is outdated": (
        [CONTENT._replace(recipe=9), OTHER._replace(state=S.QUEUED)],
        Need(wait=True),
    ),
    "it is at work and has one that is not wanted": (
        [CONTENT._replace(state=S.QUEUED), VECTOR, VECTOR._replace(kind="graph")],
        Need(wait=True),
    ),
    "it is at work and lacks an index": ([CONTENT._replace(state=S.QUEUED)], Need(wait=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_document_needs(case: str) -> None:
    slots, expected = CASES[case]
    assert need(slots, TARGET) == expected
