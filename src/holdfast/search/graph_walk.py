"""Walks from the hits of a query along names to other texts: the search channel of the graph.

A question may need a text that shares no word with it, but is mentioned in a text that does. The walk starts at the
best hits of the other channels and at the names in the query, and follows *links*: this text mentions a name that the
other defines, or the reverse; with a language model also: this text mentions an entity, and the other states a relation
of it. Only the best path to a chunk counts, not the sum, so a text does not rise by being mentioned everywhere. Each
step costs a little, and more for frequent names. The walk reads only the neighbourhood of its seeds, whatever the size
of the base.

In some bases texts mention each other all the time, in others only by accident. `measure_link_trust` measures this.
"""

from __future__ import annotations

import math
from enum import Enum
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

STEPS = 3  # reaches the fourth text of a chain
BREADTH = 10  # chunks that each step starts from
MAX_TARGETS = 200  # of one link; a name with more is a topic and not followed
DECAY = 0.8  # share of a score that passes to the next chunk, at most
HALF_TRUST_SHARE = 0.05  # share of mentioned documents that gives a trust of 0.5


class LinkType(Enum):
    """The type of a link; the value is its strength."""

    TITLE = 1.0  # to the chunk with this title or heading
    OPENING = 0.7  # to the chunk that opens with this name and explains it
    RELATED = 0.6  # from a mention of an entity to a chunk with a relation of it
    NAMED = 0.5  # from the chunk with a title to a mention of it
    OPENING_NAMED = 0.35  # from the chunk that opens with a name to a mention of it

    @property
    def backward(self) -> bool:
        """Whether the link leads to mentions of a name, and not to its definition."""
        return self in (LinkType.NAMED, LinkType.OPENING_NAMED, LinkType.RELATED)


class GraphLink(NamedTuple):
    """A name that leads from one chunk, or from the query, to others."""

    link_type: LinkType
    targets: Sequence[int]  # forward: definitions of the name; backward: mentions
    mentions: int  # chunks of the base that mention it


def measure_link_trust(mentioned: int, checked: int) -> float:
    """Return the trust in the links of a base, from 0 to 1.

    Of `checked` documents, `mentioned` have a title, heading or opening that another document mentions. One in twenty
    gives a trust of 0.5, one in five nearly 1.
    """
    share = mentioned / checked if checked > 0 else 0.0
    return share**2 / (share**2 + HALF_TRUST_SHARE**2)


def walk(
    seeds: Mapping[int, float],
    query: Iterable[GraphLink],
    links: Callable[[Sequence[int]], Mapping[int, Sequence[GraphLink]]],
    *,
    chunks: int,
    trusted: float,
) -> list[tuple[int, float]]:
    """Return the chunks that names lead to, best first, with scores from 0 to 1 on the scale of the seeds.

    `seeds` are the fused scores of the other channels, `query` the links of the names in the query, `chunks` the number
    of chunks in the base. `links` is called at most `STEPS` times, for at most `BREADTH` new chunks. A title in the
    query is trusted in any base, other links as far as `trusted`. Only chunks that a link reaches are returned, seeds
    or not.

        walk({7: 0.9}, [], links.find_chunk_links, chunks=1_000, trusted=0.8)
    """
    reached: dict[int, float] = {}
    for link in query:
        believed = 1.0 if link.link_type is LinkType.TITLE else trusted
        _propagate(reached, link, believed * _strength(link, chunks))
    known: dict[int, Sequence[GraphLink]] = {}
    best = sorted(seeds, key=lambda chunk: (-seeds[chunk], chunk))
    for _ in range(STEPS if trusted > 0 else 0):
        # Of the seeds that are not reached, only the best can be among the best of all.
        candidates = [*islice((chunk for chunk in best if chunk not in reached), BREADTH), *reached]
        below = ((-seeds.get(chunk, 0.0) - reached.get(chunk, 0.0), chunk) for chunk in candidates)
        frontier = [(chunk, -strength) for strength, chunk in nsmallest(BREADTH, below)]
        if new := [chunk for chunk, _ in frontier if chunk not in known]:
            found = links(new)
            known.update((chunk, found.get(chunk, ())) for chunk in new)
        if not frontier or frontier[0][1] <= 0:
            break
        passed = DECAY * trusted / frontier[0][1]
        for chunk, strength in frontier:
            for link in known[chunk]:
                if link.link_type.backward or chunk not in link.targets:
                    _propagate(reached, link, passed * strength * _strength(link, chunks), leaving=chunk)
    return sorted(((chunk, score) for chunk, score in reached.items() if score > 0), key=lambda hit: (-hit[1], hit[0]))


def rarity(mentions: int, chunks: int) -> float:
    """Return the weight of a name: 1 if hardly any chunk mentions it, 0 if all do."""
    return max(0.0, 1 - math.log(mentions + 1) / math.log(chunks + 1)) if chunks > 0 else 0.0


def _strength(link: GraphLink, chunks: int) -> float:
    """Return the share of a score that passes along a link to each target.

    Several definitions of a name share it, because at most one is meant. Several mentions may all be meant, but count
    less the more there are.
    """
    if not link.targets or len(link.targets) > MAX_TARGETS:
        return 0.0
    sharing = math.sqrt(len(link.targets)) if link.link_type.backward else len(link.targets)
    return link.link_type.value * rarity(link.mentions, chunks) / sharing


def _propagate(reached: dict[int, float], link: GraphLink, score: float, *, leaving: int | None = None) -> None:
    for target in link.targets:
        if target != leaving and score > reached.get(target, 0.0):
            reached[target] = score
