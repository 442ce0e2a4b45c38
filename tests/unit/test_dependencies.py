"""A request raises the right slots, blocks those that need another, and is refused if its needs cannot be met."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.dependencies import SlotScope, SlotSpec, check_specs, find_blocked_dependents, plan_generation
from holdfast.engine.states import SlotState
from holdfast.errors import BadRequest
from tests.unit.slot_factory import make_slot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.slot import Slot

S = SlotState
CONTENT, VECTOR, GRAPH = SlotSpec("content"), SlotSpec("vector", "content"), SlotSpec("graph", "content")
CARDS = SlotSpec("cards", "graph")  # two steps away from the content
TREE = (CONTENT, VECTOR, GRAPH, CARDS)


def having(**states: SlotState) -> dict[str, Slot]:
    """Return the slots of the tree in these states. Slots that are not named are ready."""
    return {spec.kind: make_slot(states.get(spec.kind, S.READY), spec.kind, needs=spec.needs) for spec in TREE}


@pytest.mark.parametrize(
    ("specs", "code", "sentence"),
    [
        ((CONTENT, CONTENT), "slot_kind_repeated", "The request lists the slot 'content' twice. List each slot once."),
        (
            (VECTOR,),
            "slot_dependency_missing",
            "The slot 'vector' needs the slot 'content', which the request does not list. List both.",
        ),
        ((CONTENT, CARDS), "slot_dependency_missing", "The slot 'cards' needs the slot 'graph', which"),
        ((SlotSpec("a", "a"),), "slot_dependency_cycle", "The dependencies of the slots 'a' form a cycle"),
        (
            (SlotSpec("a", "b"), SlotSpec("b", "c"), SlotSpec("c", "a")),
            "slot_dependency_cycle",
            "The dependencies of the slots 'a, b, c' form a cycle",
        ),
        (
            (SlotSpec("x", "a"), SlotSpec("a", "b"), SlotSpec("b", "a")),
            "slot_dependency_cycle",
            "form a cycle, so none of them can start. Remove one of the dependencies.",
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_an_explanation(
    specs: tuple[SlotSpec, ...], code: str, sentence: str
) -> None:
    with pytest.raises(BadRequest, match=re.escape(sentence)) as refused:
        check_specs(tuple(specs))
    assert refused.value.subcode == code


def test_the_error_for_a_cycle_names_only_the_slots_in_the_cycle() -> None:
    with pytest.raises(BadRequest, match="slots 'a, b' form a cycle"):
        check_specs((SlotSpec("x", "a"), SlotSpec("a", "b"), SlotSpec("b", "a")))


@pytest.mark.parametrize("specs", [(), (CONTENT,), TREE, tuple(reversed(TREE))])
def test_a_request_that_can_be_met_is_accepted(specs: tuple[SlotSpec, ...]) -> None:
    check_specs(tuple(specs))
    assert plan_generation(SlotScope.ALL, specs, {}).keys() == {spec.kind for spec in specs}


def test_the_slots_of_a_new_owner_are_queued_if_they_need_nothing_and_blocked_otherwise() -> None:
    assert plan_generation(SlotScope.INCOMPLETE, TREE, {}) == {
        "content": S.QUEUED,
        "vector": S.BLOCKED,
        "graph": S.BLOCKED,
        "cards": S.BLOCKED,
    }


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, {}),
        ({"vector": S.FAILED}, {"vector": S.QUEUED}),
        ({"cards": S.CANCELLED}, {"cards": S.QUEUED}),
        ({"graph": S.FAILED}, {"graph": S.QUEUED, "cards": S.BLOCKED}),
        ({"vector": S.FAILED, "cards": S.FAILED}, {"vector": S.QUEUED, "cards": S.QUEUED}),
        ({"content": S.FAILED}, {"content": S.QUEUED, "vector": S.BLOCKED, "graph": S.BLOCKED, "cards": S.BLOCKED}),
        ({"vector": S.RUNNING}, {"vector": S.QUEUED}),
    ],
)
def test_a_retry_raises_incomplete_slots_and_all_slots_that_depend_on_them(
    states: dict[str, SlotState], expected: dict[str, SlotState]
) -> None:
    assert plan_generation(SlotScope.INCOMPLETE, TREE, having(**states)) == expected


def test_a_build_with_missing_parts_is_incomplete() -> None:
    slots = having() | {"vector": make_slot(S.READY, "vector", missing=1)}
    assert plan_generation(SlotScope.INCOMPLETE, TREE, slots) == {"vector": S.QUEUED}


def test_a_new_index_is_built_without_rebuilding_the_others() -> None:
    slots = having()
    del slots["graph"], slots["cards"]
    assert plan_generation(SlotScope.INCOMPLETE, (CONTENT, VECTOR, GRAPH), slots) == {"graph": S.QUEUED}


def test_the_scope_all_raises_every_slot_and_the_scope_none_raises_no_slot() -> None:
    assert plan_generation(SlotScope.ALL, TREE, having()).keys() == {spec.kind for spec in TREE}
    assert plan_generation(SlotScope.NONE, TREE, having(content=S.FAILED)) == {}


def test_a_failed_slot_fails_all_blocked_slots_that_depend_on_it_directly_or_indirectly() -> None:
    slots = having(content=S.FAILED, vector=S.BLOCKED, graph=S.BLOCKED, cards=S.BLOCKED).values()
    assert {slot.key.kind for slot in find_blocked_dependents(["content"], slots)} == {"vector", "graph", "cards"}
    assert {slot.key.kind for slot in find_blocked_dependents(["graph"], slots)} == {"cards"}
    assert find_blocked_dependents(["vector", "cards"], slots) == []


@pytest.mark.parametrize("state", sorted(set(S) - {S.BLOCKED}))
def test_a_slot_that_is_not_blocked_does_not_fail_with_its_dependency(state: SlotState) -> None:
    slots = having(content=S.FAILED, vector=state, graph=S.BLOCKED, cards=state).values()
    assert {slot.key.kind for slot in find_blocked_dependents(["content"], slots)} == {"graph"}


KINDS = ("a", "b", "c", "d", "e")


@st.composite
def forests(draw: st.DrawFn) -> tuple[SlotSpec, ...]:
    """Draw slots, each of which needs an earlier one or nothing, in any order."""
    specs = []
    for position, kind in enumerate(KINDS[: draw(st.integers(1, len(KINDS)))]):
        specs.append(SlotSpec(kind, draw(st.sampled_from([None, *KINDS[:position]]))))
    return tuple(draw(st.permutations(specs)))


def below(kind: str, needs: Mapping[str, str | None]) -> set[str]:
    """Return all kinds that a kind depends on, directly or indirectly."""
    found = set()
    step = needs[kind]
    while step is not None:
        found.add(step)
        step = needs[step]
    return found


@given(specs=forests(), data=st.data())
def test_a_plan_raises_all_dependents_and_queues_at_least_one_slot(
    specs: tuple[SlotSpec, ...], data: st.DataObject
) -> None:
    check_specs(tuple(specs))
    needs = {spec.kind: spec.needs for spec in specs}
    slots = {
        kind: make_slot(data.draw(st.sampled_from(sorted(S))), kind, missing=data.draw(st.integers(0, 1)), needs=need)
        for kind, need in needs.items()
        if data.draw(st.booleans())
    }
    lacking = {kind for kind in needs if kind not in slots or not slots[kind].complete}
    states = plan_generation(SlotScope.INCOMPLETE, specs, slots)
    assert states.keys() == {kind for kind in needs if (below(kind, needs) | {kind}) & lacking}
    for kind, state in states.items():
        assert state is (S.BLOCKED if needs[kind] in states else S.QUEUED)
    assert not states or S.QUEUED in states.values()


@given(links=st.lists(st.tuples(st.sampled_from(KINDS), st.none() | st.sampled_from(KINDS)), max_size=5))
def test_a_request_is_refused_exactly_when_its_needs_cannot_be_met(links: list[tuple[str, str | None]]) -> None:
    specs = [SlotSpec(kind, needs) for kind, needs in links]
    # It can be met if each kind can be built once, starting with the kinds that need nothing.
    done: set[str | None] = {None}
    for _ in specs:
        done |= {spec.kind for spec in specs if spec.needs in done}
    can_be_met = len(done) - 1 == len(specs)
    if can_be_met:
        check_specs(tuple(specs))
    else:
        with pytest.raises(BadRequest):
            check_specs(tuple(specs))
