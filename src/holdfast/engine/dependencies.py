"""Dependencies between the slots of one owner: which slots a request rebuilds, and which must wait."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.states import SlotState
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast.engine.slot import Slot


class SlotSpec(NamedTuple):
    """A slot that an owner should have: its kind, and the kind that must be ready first."""

    kind: str
    needs: str | None = None


class SlotScope(StrEnum):
    """Which slots a new generation rebuilds."""

    NONE = "none"
    INCOMPLETE = "lacking"  # not ready, or with missing chunks
    NAMED = "named"  # named by the request
    ALL = "all"


@lru_cache(maxsize=1024)  # thousands of owners have the same specs
def check_specs(specs: tuple[SlotSpec, ...]) -> None:
    """Refuse specs that name a kind twice, need a kind that is not listed, or form a cycle."""
    needs = {spec.kind: spec.needs for spec in specs}
    if len(needs) != len(specs):
        kinds = [spec.kind for spec in specs]
        raise BadRequest("slot_kind_repeated", kind=next(kind for kind in kinds if kinds.count(kind) > 1))
    for kind, step in needs.items():
        seen = {kind}
        below = step
        while below is not None:
            if below not in needs:
                raise BadRequest("slot_dependency_missing", kind=kind, needs=below)
            if below in seen:
                raise BadRequest("slot_dependency_cycle", kinds=", ".join(_find_cycle(below, needs)))
            seen.add(below)
            below = needs[below]


def plan_generation(
    scope: SlotScope, specs: Sequence[SlotSpec], slots: Mapping[str, Slot], named: Collection[str] = ()
) -> Mapping[str, SlotState]:
    """Return the kinds that a new generation rebuilds, each with its first state.

    Rebuilding a slot also rebuilds all slots that need it, because they were built from its old result. A slot that is
    needed and not complete is rebuilt, too. A slot starts `blocked` if the slot it needs is rebuilt.
    """
    if scope is SlotScope.NONE:
        return {}
    if not slots:
        return _initial_states(tuple(specs))
    needs = {spec.kind: spec.needs for spec in specs}
    lacks = {spec.kind for spec in specs if needs_build(spec, slots.get(spec.kind))}
    chosen = {SlotScope.INCOMPLETE: lacks, SlotScope.NAMED: needs.keys() & named}.get(scope, set(needs))
    chosen |= lacks & _collect_needed(chosen, needs)
    chosen |= _collect_dependents(chosen, needs)
    return {kind: SlotState.BLOCKED if needs[kind] in chosen else SlotState.QUEUED for kind in needs if kind in chosen}


@lru_cache(maxsize=1024)
def _initial_states(specs: tuple[SlotSpec, ...]) -> Mapping[str, SlotState]:
    """Return all kinds of a new owner, each with its first state."""
    return {spec.kind: SlotState.BLOCKED if spec.needs else SlotState.QUEUED for spec in specs}


def select_requestable(specs: Sequence[SlotSpec], slots: Iterable[Slot]) -> list[SlotSpec]:
    """Return the specs that can be requested now: without slots that are being removed, and slots that need them."""
    gone = {slot.kind for slot in slots if slot.state is SlotState.DELETING}
    gone |= _collect_dependents(gone, {spec.kind: spec.needs for spec in specs})
    return [spec for spec in specs if spec.kind not in gone]


def select_droppable(kinds: Collection[str], slots: Iterable[Slot]) -> set[str]:
    """Return which of these kinds exist and can be removed: no remaining slot needs them."""
    needs = {slot.kind: slot.needs for slot in slots if slot.state is not SlotState.DELETING}
    going = needs.keys() & kinds
    while needed := {need for kind, need in needs.items() if kind not in going and need in going}:
        going -= needed
    return going


def find_blocked_dependents(kinds: Iterable[str], slots: Iterable[Slot]) -> list[Slot]:
    """Return the blocked slots that need one of these kinds, directly or indirectly."""
    waiting = [slot for slot in slots if slot.state is SlotState.BLOCKED]
    needs = {slot.kind: slot.needs for slot in waiting}
    above = _collect_dependents(set(kinds), needs)
    return [slot for slot in waiting if slot.kind in above]


def needs_build(spec: SlotSpec, slot: Slot | None) -> bool:
    """Return whether a slot is new, incomplete, or depends on another kind than before."""
    return slot is None or not slot.complete or slot.needs != spec.needs


def _find_cycle(start: str, needs: Mapping[str, str | None]) -> list[str]:
    """Return the kinds in the cycle, without those that only lead into it."""
    kinds = [start]
    while (kind := needs[kinds[-1]]) is not None and kind != start:
        kinds.append(kind)
    return sorted(kinds)


def _collect_needed(kinds: set[str], needs: Mapping[str, str | None]) -> set[str]:
    """Return all kinds that these need, directly or indirectly."""
    needed: set[str] = set()
    edge = kinds
    while edge:
        edge = {need for kind in edge if (need := needs.get(kind)) is not None} - needed
        needed |= edge
    return needed


def _collect_dependents(kinds: set[str], needs: Mapping[str, str | None]) -> set[str]:
    """Return all kinds that need one of these, directly or indirectly."""
    dependents: set[str] = set()
    edge = kinds
    while edge:
        edge = {kind for kind, need in needs.items() if need in edge} - dependents - kinds
        dependents |= edge
    return dependents
