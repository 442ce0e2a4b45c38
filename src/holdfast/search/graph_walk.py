"""Walks from what a query found to what those texts name: the graph's own evidence.

A question may need a text that shares no word with it: the one that the text it does find names. So the walk starts
at the best hits of the other channels and at the names in the query, and goes along *ties*: this text names what that
one defines, or the other way round; where a language model has read them, this text speaks of an entity, and that one
states how it is related to another. Of all paths to a chunk the best one counts, not their sum, so a text is not
carried up by being named everywhere; each step costs a little, and more the more often a name is heard. Only the
neighbourhood of the seeds is ever asked for, whatever the size of the base.

In some bases texts name each other all the time, in others only by accident. `trust` measures which it is.
"""

from __future__ import annotations

import math
from enum import Enum
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

STEPS = 3  # so that the fourth text of a chain is reached from the first
BREADTH = 10  # chunks that a step goes out from
MAX_TARGETS = 200  # chunks behind one tie; more are no tie but a topic, and are not followed
DECAY = 0.8  # of what a chunk has, this much at most goes on to the next
HALF_TRUST_SHARE = 0.05  # share of documents named by another at which their ties are trusted by half


class LinkType(Enum):
    """What a tie goes along, and how much of it is believed."""

    TITLE = 1.0  # from a text to what has this title or heading
    OPENING = 0.7  # from a text to what opens with this name and explains it
    RELATED = 0.6  # from a text that speaks of an entity to one that states how it is related to another
    NAMED = 0.5  # from what has a title to a text that names it
    OPENING_NAMED = 0.35  # from what opens with a name to a text that names it

    @property
    def backward(self) -> bool:
        """Tell whether it goes to those who speak of a name, and not to those who define it."""
        return self in (LinkType.NAMED, LinkType.OPENING_NAMED, LinkType.RELATED)


class GraphLink(NamedTuple):
    """A name that leads from one chunk, or from the query, to others."""

    link_type: LinkType
    targets: Sequence[int]  # forward: the chunks that define the name; backward: those that speak of it
    mentions: int  # how many chunks of the base name it


def measure_link_trust(named: int, asked: int) -> float:
    """Return how far the ties of a base lead anywhere, from 0 to 1.

    Of `asked` documents, `named` have a title, heading or opening that some other document names. Where one in twenty
    does, ties are believed by half; where one in five does, nearly altogether.
    """
    share = named / asked if asked > 0 else 0.0
    return share**2 / (share**2 + HALF_TRUST_SHARE**2)


def walk(
    seeds: Mapping[int, float],
    query: Iterable[GraphLink],
    ties: Callable[[Sequence[int]], Mapping[int, Sequence[GraphLink]]],
    *,
    chunks: int,
    trusted: float,
) -> list[tuple[int, float]]:
    """Return the chunks that names lead to, best first, with what reaches them: from 0 to 1, on the scale of the seeds.

    `seeds` are the fused scores of the other channels, `query` the ties of the names in the query, `chunks` how many
    the base has. `ties` is asked at most `STEPS` times, for at most `BREADTH` chunks it was not asked for before.
    A title in the query is believed in any base; all other ties as far as `trusted` says. What is not reached by any
    name is not returned, whether it is a seed or not.
    """
    reached: dict[int, float] = {}
    for tie in query:
        believed = 1.0 if tie.link_type is LinkType.TITLE else trusted
        _propagate(reached, tie, believed * _strength(tie, chunks))
    known: dict[int, Sequence[GraphLink]] = {}
    best = sorted(seeds, key=lambda chunk: (-seeds[chunk], chunk))
    for _ in range(STEPS if trusted > 0 else 0):
        # Of the seeds that are not reached, no others than the best can be among the best of all.
        some = [*islice((chunk for chunk in best if chunk not in reached), BREADTH), *reached]
        below = ((-seeds.get(chunk, 0.0) - reached.get(chunk, 0.0), chunk) for chunk in some)
        front = [(chunk, -strength) for strength, chunk in nsmallest(BREADTH, below)]
        if new := [chunk for chunk, _ in front if chunk not in known]:
            found = ties(new)
            known.update((chunk, found.get(chunk, ())) for chunk in new)
        if not front or front[0][1] <= 0:
            break
        passed = DECAY * trusted / front[0][1]
        for chunk, strength in front:
            for tie in known[chunk]:
                if tie.link_type.backward or chunk not in tie.targets:  # who defines a name need not be led away by it
                    _propagate(reached, tie, passed * strength * _strength(tie, chunks), leaving=chunk)
    return sorted(((chunk, score) for chunk, score in reached.items() if score > 0), key=lambda one: (-one[1], one[0]))


def rarity(heard: int, chunks: int) -> float:
    """Return how much a name says: 1 if hardly any chunk names it, 0 if all do."""
    return max(0.0, 1 - math.log(heard + 1) / math.log(chunks + 1)) if chunks > 0 else 0.0


def _strength(tie: GraphLink, chunks: int) -> float:
    """Return what of one chunk goes along a tie to each target.

    Several that define the same name share it, for at most one of them is meant; several that name the same may all be
    meant, but say less the more they are.
    """
    if not tie.targets or len(tie.targets) > MAX_TARGETS:
        return 0.0
    sharing = math.sqrt(len(tie.targets)) if tie.link_type.backward else len(tie.targets)
    return tie.link_type.value * rarity(tie.mentions, chunks) / sharing


def _propagate(reached: dict[int, float], tie: GraphLink, score: float, *, leaving: int | None = None) -> None:
    for target in tie.targets:
        if target != leaving and score > reached.get(target, 0.0):
            reached[target] = score
