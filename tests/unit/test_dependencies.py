"""Slots that need each other: what a request raises, what must wait, what makes no sense."""

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
CARDS = SlotSpec("cards", "graph")  # two steps from the content
TREE = (CONTENT, VECTOR, GRAPH, CARDS)


def having(**states: SlotState) -> dict[str, Slot]:
    """Return slots of the tree in these states; what is not named is ready."""
    return {spec.kind: make_slot(states.get(spec.kind, S.READY), spec.kind, needs=spec.needs) for spec in TREE}


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        ((CONTENT, CONTENT), "A kind is named twice in ['content', 'content']; name each kind once."),
        ((VECTOR,), "The slot 'vector' needs 'content', which was not asked for; ask for both."),
        ((CONTENT, CARDS), "The slot 'cards' needs 'graph', which was not asked for; ask for both."),
        ((SlotSpec("a", "a"),), "The slots ['a'] need each other in a circle; break it."),
        (
            (SlotSpec("a", "b"), SlotSpec("b", "c"), SlotSpec("c", "a")),
            "The slots ['a', 'b', 'c'] need each other in a circle; break it.",
        ),
        (
            (SlotSpec("x", "a"), SlotSpec("a", "b"), SlotSpec("b", "a")),
            "need each other in a circle; break it.",
        ),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_a_sentence(specs: tuple[SlotSpec, ...], sentence: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(sentence)):
        check_specs(tuple(specs))


def test_a_circle_names_only_those_who_are_in_it() -> None:
    with pytest.raises(BadRequest, match=re.escape("The slots ['a', 'b'] need")):
        check_specs((SlotSpec("x", "a"), SlotSpec("a", "b"), SlotSpec("b", "a")))


@pytest.mark.parametrize("specs", [(), (CONTENT,), TREE, tuple(reversed(TREE))])
def test_a_wish_that_can_be_met_is_not_refused(specs: tuple[SlotSpec, ...]) -> None:
    check_specs(tuple(specs))
    assert plan_generation(SlotScope.ALL, specs, {}).keys() == {spec.kind for spec in specs}


def test_a_new_owner_starts_with_what_needs_nothing() -> None:
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
def test_a_retry_raises_what_lacks_and_what_was_built_from_it(
    states: dict[str, SlotState], expected: dict[str, SlotState]
) -> None:
    assert plan_generation(SlotScope.INCOMPLETE, TREE, having(**states)) == expected


def test_a_build_that_misses_something_lacks() -> None:
    slots = having() | {"vector": make_slot(S.READY, "vector", missing=1)}
    assert plan_generation(SlotScope.INCOMPLETE, TREE, slots) == {"vector": S.QUEUED}


def test_an_index_that_is_added_is_built_alone() -> None:
    slots = having()
    del slots["graph"], slots["cards"]
    assert plan_generation(SlotScope.INCOMPLETE, (CONTENT, VECTOR, GRAPH), slots) == {"graph": S.QUEUED}


def test_all_means_all_and_none_means_none() -> None:
    assert plan_generation(SlotScope.ALL, TREE, having()).keys() == {spec.kind for spec in TREE}
    assert plan_generation(SlotScope.NONE, TREE, having(content=S.FAILED)) == {}


def test_what_fails_takes_down_what_waits_for_it_near_and_far() -> None:
    slots = having(content=S.FAILED, vector=S.BLOCKED, graph=S.BLOCKED, cards=S.BLOCKED).values()
    assert {slot.key.kind for slot in find_blocked_dependents(["content"], slots)} == {"vector", "graph", "cards"}
    assert {slot.key.kind for slot in find_blocked_dependents(["graph"], slots)} == {"cards"}
    assert find_blocked_dependents(["vector", "cards"], slots) == []


@pytest.mark.parametrize("state", sorted(set(S) - {S.BLOCKED}))
def test_what_does_not_wait_is_not_taken_down(state: SlotState) -> None:
    slots = having(content=S.FAILED, vector=state, graph=S.BLOCKED, cards=state).values()
    assert {slot.key.kind for slot in find_blocked_dependents(["content"], slots)} == {"graph"}


# ---------------------------------------------------------------- any tree

KINDS = ("a", "b", "c", "d", "e")


@st.composite
def forests(draw: st.DrawFn) -> tuple[SlotSpec, ...]:
    """Draw slots that each need an earlier one or nothing, in any order."""
    specs = []
    for position, kind in enumerate(KINDS[: draw(st.integers(1, len(KINDS)))]):
        specs.append(SlotSpec(kind, draw(st.sampled_from([None, *KINDS[:position]]))))
    return tuple(draw(st.permutations(specs)))


def below(kind: str, needs: Mapping[str, str | None]) -> set[str]:
    """Return all that a kind stands on."""
    found = set()
    step = needs[kind]
    while step is not None:
        found.add(step)
        step = needs[step]
    return found


@given(specs=forests(), data=st.data())
def test_what_is_raised_is_closed_and_can_always_start(specs: tuple[SlotSpec, ...], data: st.DataObject) -> None:
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
def test_a_wish_is_refused_exactly_when_it_cannot_be_met(links: list[tuple[str, str | None]]) -> None:
    specs = [SlotSpec(kind, needs) for kind, needs in links]
    # It can be met when, starting from nothing, every kind gets its turn once.
    done: set[str | None] = {None}
    for _ in specs:
        done |= {spec.kind for spec in specs if spec.needs in done}
    can_be_met = len(done) - 1 == len(specs)
    if can_be_met:
        check_specs(tuple(specs))
    else:
        with pytest.raises(BadRequest):
            check_specs(tuple(specs))
