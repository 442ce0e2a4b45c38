"""A rollout plans for each document what to build, to drop or to wait for."""

from __future__ import annotations

import pytest

from holdfast.bases.rollout import DocumentPlan, DocumentSlot, RolloutTarget, plan_document
from holdfast.clock import Moment
from holdfast.engine.slot import JobId
from holdfast.engine.states import SlotState

S = SlotState
TARGET = RolloutTarget(
    recipes={"content": 1, "vector": 2},
    kept_kinds={"content", "vector", "questions"},
    retry_kinds=("vector",),
    job=JobId("rollout"),
    since=Moment(100),
)
CONTENT, VECTOR = (
    DocumentSlot("content", S.READY, 1, Moment(0), None),
    DocumentSlot("vector", S.READY, 2, Moment(0), None),
)
OTHER = VECTOR._replace(recipe=9)
LAST = Moment(100)

CASES: dict[str, tuple[list[DocumentSlot], DocumentPlan]] = {
    "it has what is wanted": ([CONTENT, VECTOR], DocumentPlan()),
    "it was made by something else": ([CONTENT, OTHER], DocumentPlan(build=("vector",))),
    "its list was made by something else": ([CONTENT._replace(recipe=9), VECTOR], DocumentPlan(build=("content",))),
    "it was made before recipes were noted": (
        [CONTENT._replace(recipe=None), VECTOR],
        DocumentPlan(build=("content",)),
    ),
    "it lacks an index": ([CONTENT], DocumentPlan(build=("vector",))),
    "it has one that is not wanted": ([CONTENT, VECTOR, VECTOR._replace(kind="graph")], DocumentPlan(drop=("graph",))),
    "it has one that cannot be built for now": ([CONTENT, VECTOR, VECTOR._replace(kind="questions")], DocumentPlan()),
    "one that cannot be built for now failed and serves nothing": (
        [CONTENT, VECTOR, DocumentSlot("questions", S.FAILED, None, Moment(0), None)],
        DocumentPlan(drop=("questions",)),
    ),
    "one that cannot be built for now failed and serves what it had": (
        [CONTENT, VECTOR, DocumentSlot("questions", S.FAILED, 3, Moment(0), None)],
        DocumentPlan(),
    ),
    "one that is tried again failed": ([CONTENT, VECTOR._replace(state=S.FAILED)], DocumentPlan(build=("vector",))),
    "one that is tried again was cancelled": (
        [CONTENT, VECTOR._replace(state=S.CANCELLED)],
        DocumentPlan(build=("vector",)),
    ),
    "one that is not affected failed": ([CONTENT._replace(state=S.FAILED), VECTOR], DocumentPlan()),
    "this rollout asked for it and it failed": (
        [CONTENT, VECTOR._replace(state=S.FAILED, payload="rollout")],
        DocumentPlan(),
    ),
    "this rollout asked for it and another worker made something else": (
        [CONTENT, OTHER._replace(payload="rollout")],
        DocumentPlan(),
    ),
    "another rollout asked for it": ([CONTENT, OTHER._replace(payload="before")], DocumentPlan(build=("vector",))),
    "it is being deleted": ([CONTENT._replace(state=S.DELETING), OTHER._replace(state=S.DELETING)], DocumentPlan()),
    "what is wanted is still being removed": ([CONTENT, VECTOR._replace(state=S.DELETING)], DocumentPlan(wait=True)),
    "what is not wanted is being removed": (
        [CONTENT, VECTOR, DocumentSlot("graph", S.DELETING, 3, None, None)],
        DocumentPlan(),
    ),
    "a person stopped it before anything was read": (
        [CONTENT._replace(state=S.CANCELLED, recipe=None)],
        DocumentPlan(),
    ),
    "it is queued and will be made as is wanted": ([CONTENT, OTHER._replace(state=S.QUEUED)], DocumentPlan()),
    "it waits for another attempt": ([CONTENT, OTHER._replace(state=S.WAITING)], DocumentPlan()),
    "it was claimed before the change": (
        [CONTENT, OTHER._replace(state=S.RUNNING, claimed_at=Moment(99))],
        DocumentPlan(wait=True),
    ),
    "it was claimed after the change": ([CONTENT, OTHER._replace(state=S.RUNNING, claimed_at=LAST)], DocumentPlan()),
    "it is at work and something else is outdated": (
        [CONTENT._replace(recipe=9), OTHER._replace(state=S.QUEUED)],
        DocumentPlan(wait=True),
    ),
    "it is at work and has one that is not wanted": (
        [CONTENT._replace(state=S.QUEUED), VECTOR, VECTOR._replace(kind="graph")],
        DocumentPlan(wait=True),
    ),
    "it is at work and lacks an index": ([CONTENT._replace(state=S.QUEUED)], DocumentPlan(wait=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rollout_plans_what_a_document_needs(case: str) -> None:
    slots, expected = CASES[case]
    assert plan_document(slots, TARGET) == expected
