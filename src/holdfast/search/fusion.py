"""Makes one ranking of what the channels found, each trusted as far as it has earned it on this very base.

Ranks alone cannot be added up: a weak channel's tenth hit would weigh as much as a strong channel's. So scores are
added, each measured on its channel's own scale, from what chance gives to its best hit. How far a channel is trusted
is not a constant. `calibrate` asks the base questions whose answer is known, made of its own headings and sentences,
and weighs each channel by how much it helps to find them: a useless embedding model ends near nothing, a strong one
leads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FULLTEXT, VECTOR, QUESTIONS, GRAPH, HYBRID = "fulltext", "vector", "questions", "graph", "hybrid"
PRIOR = 0.25  # share of a channel beside the first, before anything was measured
PRIOR_ERROR = 0.3  # how far the prior may be wrong: it counts as one observation with this error
MAX_TARGET_RANK = 10  # a sample counts if somebody ranks its target this high; else it is no question, only noise
SHARES = tuple(step / 20 for step in range(20))  # that calibration tries: none, and up to 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelResult:
    """What one channel found for a query."""

    name: str
    hits: Sequence[tuple[int, float]]  # chunk and score, best first, each chunk once
    floor: float = 0.0  # the score that means nothing: 0 for BM25, the mean over the base for a similarity
    others: Mapping[int, float] = field(default_factory=dict)  # scores of chunks that only other channels found

    @property
    def found_anything(self) -> bool:
        """Tell whether it found anything better than nothing."""
        return bool(self.hits) and self.hits[0][1] > self.floor


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelScore:
    """Where one channel has a hit; rank 0 if it scored it without having found it."""

    score: float
    rank: int


class FusedHit(NamedTuple):
    """A chunk in the joint ranking."""

    chunk: int
    score: float
    channels: Mapping[str, ChannelScore]  # by name, of every channel that knows it


class CalibrationSample(NamedTuple):
    """A question made of the base itself: what each channel found, and the chunk that the question was taken from."""

    target: int
    channels: Sequence[ChannelResult]


class Ranking:
    """Every chunk found, with scores from 0 to 1.

    Most are only counted and never shown, so whoever wants them in order, best first, iterates, and stops when there
    are enough. Equal scores are decided by the best rank, then by the chunk.
    """

    def __init__(self, scores: Mapping[int, float], channels: Sequence[ChannelResult]) -> None:
        self.scores = scores
        self._channels = channels

    def __iter__(self) -> Iterator[FusedHit]:
        known = {channel.name: _scores_and_ranks(channel) for channel in self._channels}
        ranks: dict[int, float] = {}
        for channel in self._channels:
            for rank, (chunk, _) in enumerate(channel.hits, start=1):
                if rank < ranks.get(chunk, math.inf):
                    ranks[chunk] = rank
        for _, _, chunk in sorted((-score, ranks.get(chunk, math.inf), chunk) for chunk, score in self.scores.items()):
            channels = {
                name: ChannelScore(score=found[chunk][0], rank=found[chunk][1])
                for name, found in known.items()
                if chunk in found
            }
            yield FusedHit(chunk, self.scores[chunk], channels)

    def add(self, channel: ChannelResult) -> Ranking:
        """Return the ranking with a channel whose scores are on its scale already, as those of a walk are."""
        scores = dict(self.scores)
        for chunk, score in channel.hits:
            scores[chunk] = scores.get(chunk, 0.0) + score
        return Ranking(scores, [*self._channels, channel])


def fuse(channels: Iterable[ChannelResult], weights: Mapping[str, float]) -> Ranking:
    """Make one ranking of what channels found.

    A channel that found nothing, or nothing better than its floor, changes nothing. One channel alone keeps its order.
    The order of the channels does not matter.
    """
    speaking = sorted((one for one in channels if one.found_anything), key=lambda one: one.name)
    trusted = [max(weights.get(one.name, 0.0), 0.0) for one in speaking]
    total = math.fsum(trusted)
    scores: dict[int, float] = {}
    for one, trust in zip(speaking, trusted, strict=True):
        weight = trust / total if total else 1 / len(speaking)
        for chunk, score in _normalize_scores(one).items():
            scores[chunk] = scores.get(chunk, 0.0) + weight * score
    return Ranking(scores, speaking)


def calibrate(samples: Sequence[CalibrationSample], names: Sequence[str]) -> dict[str, float]:
    """Return the weight of each channel, the first of which is the one to beat; they add up to 1.

    Each further channel gets the share that helps most, beside those before it, to rank targets high. Shares between
    which the samples cannot decide are averaged, together with the prior, so few samples change little.
    """
    weights: dict[str, float] = {}
    for name in names:
        weights = add_channel(weights, name, samples)
    return weights


def add_channel(weights: Mapping[str, float], name: str, samples: Sequence[CalibrationSample]) -> dict[str, float]:
    """Return the weights with one more channel, which gets the share that the samples give it beside the others."""
    if not weights:
        return {name: 1.0}
    share = _share(samples, weights, name)
    return {one: weight * (1 - share) for one, weight in weights.items()} | {name: share}


def _share(samples: Sequence[CalibrationSample], weights: Mapping[str, float], name: str) -> float:
    """Return the share of a channel beside the others, as its mean over all shares, each as likely as samples say."""
    curves = [_gains(one, weights, name) for one in samples]
    curves = [curve for curve in curves if curve]
    if not curves:
        return PRIOR
    means = [sum(gains) / len(curves) for gains in zip(*curves, strict=True)]
    best = max(range(len(SHARES)), key=means.__getitem__)
    likely = []
    for place, share in enumerate(SHARES):
        doubt = ((share - PRIOR) / PRIOR_ERROR) ** 2
        losses = [curve[best] - curve[place] for curve in curves]
        if loss := means[best] - means[place]:
            spread = sum((one - loss) ** 2 for one in losses) / len(losses) ** 2
            doubt += loss**2 / max(spread, 1e-12)
        likely.append(math.exp(-doubt / 2))
    return sum(share * weight for share, weight in zip(SHARES, likely, strict=True)) / sum(likely)


def _gains(sample: CalibrationSample, weights: Mapping[str, float], name: str) -> list[float]:
    """Return how well the target stands for each share of the channel; nothing if nobody answers the question."""
    measured = {one.name: _normalize_scores(one) for one in sample.channels if one.found_anything}
    rest: dict[int, float] = {}
    for known, weight in weights.items():
        for chunk, score in measured.get(known, {}).items():
            rest[chunk] = rest.get(chunk, 0.0) + weight * score
    own = measured.get(name, {})
    if not (_ranks_target_high(rest, sample.target) or _ranks_target_high(own, sample.target)):
        return []
    pairs = [(rest.get(chunk, 0.0), own.get(chunk, 0.0)) for chunk in rest.keys() | own.keys()]
    first, second = rest.get(sample.target, 0.0), own.get(sample.target, 0.0)
    gains = []
    for share in SHARES:
        limit = (1 - share) * first + share * second
        above = sum((1 - share) * one + share * other > limit for one, other in pairs)
        gains.append(1 / math.log2(2 + above))
    return gains


def _ranks_target_high(scores: Mapping[int, float], target: int) -> bool:
    return target in scores and sum(score > scores[target] for score in scores.values()) < MAX_TARGET_RANK


def _normalize_scores(channel: ChannelResult) -> dict[int, float]:
    """Return the scores of a channel that speaks, from 0 for its floor and below to 1 for its best hit."""
    floor, best = channel.floor, channel.hits[0][1]
    known = [*channel.others.items(), *channel.hits]
    return {
        chunk: 1.0 if score >= best else 0.0 if score <= floor else (score - floor) / (best - floor)
        for chunk, score in known
    }


def _scores_and_ranks(channel: ChannelResult) -> dict[int, tuple[float, int]]:
    """Return the score and rank of all that a channel knows."""
    found = {chunk: (score, 0) for chunk, score in channel.others.items()}
    found.update((chunk, (score, rank)) for rank, (chunk, score) in enumerate(channel.hits, start=1))
    return found
