"""Slots of one owner that need each other: what a request raises, and what must wait."""

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
    """A slot an owner wants: its kind, and the kind that must be ready before it."""

    kind: str
    needs: str | None = None


class SlotScope(StrEnum):
    """Which slots a new generation concerns."""

    NONE = "none"
    INCOMPLETE = "lacking"  # those that are not ready or miss something
    NAMED = "named"  # those that the request names
    ALL = "all"


@lru_cache(maxsize=1024)  # thousands of owners wish for the same
def check_specs(specs: tuple[SlotSpec, ...]) -> None:
    """Refuse a wish list that names a kind twice, needs a kind it lacks, or goes in circles."""
    needs = {spec.kind: spec.needs for spec in specs}
    if len(needs) != len(specs):
        raise BadRequest(f"A kind is named twice in {[spec.kind for spec in specs]}; name each kind once.")
    for kind, step in needs.items():
        seen = {kind}
        below = step
        while below is not None:
            if below not in needs:
                raise BadRequest(f"The slot {kind!r} needs {below!r}, which was not asked for; ask for both.")
            if below in seen:
                raise BadRequest(f"The slots {_find_cycle(below, needs)} need each other in a circle; break it.")
            seen.add(below)
            below = needs[below]


def plan_generation(
    scope: SlotScope, specs: Sequence[SlotSpec], slots: Mapping[str, Slot], named: Collection[str] = ()
) -> Mapping[str, SlotState]:
    """Return the kinds a new generation concerns, each with the state it starts in.

    What is raised raises all that needs it, since that was built from what is now old; what is needed and not
    complete is raised with it. A slot starts `blocked` when what it needs is raised too.
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
    """Return all kinds of a new owner, each with the state it starts in."""
    return {spec.kind: SlotState.BLOCKED if spec.needs else SlotState.QUEUED for spec in specs}


def select_requestable(specs: Sequence[SlotSpec], slots: Iterable[Slot]) -> list[SlotSpec]:
    """Return what can be asked for now: not what is just being removed, nor what would need it."""
    gone = {slot.kind for slot in slots if slot.state is SlotState.DELETING}
    gone |= _collect_dependents(gone, {spec.kind: spec.needs for spec in specs})
    return [spec for spec in specs if spec.kind not in gone]


def select_droppable(kinds: Collection[str], slots: Iterable[Slot]) -> set[str]:
    """Return those of the kinds that are there and can go: nothing that stays needs them."""
    needs = {slot.kind: slot.needs for slot in slots if slot.state is not SlotState.DELETING}
    going = needs.keys() & kinds
    while needed := {need for kind, need in needs.items() if kind not in going and need in going}:
        going -= needed
    return going


def find_blocked_dependents(kinds: Iterable[str], slots: Iterable[Slot]) -> list[Slot]:
    """Return the blocked slots that need one of these kinds, near and far."""
    waiting = [slot for slot in slots if slot.state is SlotState.BLOCKED]
    needs = {slot.kind: slot.needs for slot in waiting}
    above = _collect_dependents(set(kinds), needs)
    return [slot for slot in waiting if slot.kind in above]


def needs_build(spec: SlotSpec, slot: Slot | None) -> bool:
    """Tell whether a slot must be built: it is new, not complete, or was built from something else."""
    return slot is None or not slot.complete or slot.needs != spec.needs


def _find_cycle(start: str, needs: Mapping[str, str | None]) -> list[str]:
    """Name those who are in the circle, and not those who only lead into it."""
    kinds = [start]
    while (kind := needs[kinds[-1]]) is not None and kind != start:
        kinds.append(kind)
    return sorted(kinds)


def _collect_needed(kinds: set[str], needs: Mapping[str, str | None]) -> set[str]:
    """Return all kinds that these need, directly or through others."""
    found: set[str] = set()
    edge = kinds
    while edge:
        edge = {need for kind in edge if (need := needs.get(kind)) is not None} - found
        found |= edge
    return found


def _collect_dependents(kinds: set[str], needs: Mapping[str, str | None]) -> set[str]:
    """Return all kinds that need one of these, directly or through others."""
    found: set[str] = set()
    edge = kinds
    while edge:
        edge = {kind for kind, need in needs.items() if need in edge} - found - kinds
        found |= edge
    return found
