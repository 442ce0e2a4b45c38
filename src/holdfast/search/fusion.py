"""Fuses the results of all channels into one ranking, weighted by how useful each channel is on this base.

Ranks alone cannot be added: the tenth hit of a weak channel would count as much as that of a strong one. So scores are
added, each scaled from the floor of its channel (0) to its best hit (1). The weights are not constant. `calibrate`
derives them from questions with known answers, made of the headings and sentences of the base: a useless embedding
model ends near zero, a strong one dominates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FULLTEXT, VECTOR, QUESTIONS, GRAPH, HYBRID = "fulltext", "vector", "questions", "graph", "hybrid"
PRIOR = 0.25  # share of a further channel before calibration
PRIOR_ERROR = 0.3  # the prior counts as one observation with this standard error
MAX_TARGET_RANK = 10  # a sample counts only if a channel ranks its target this high
SHARES = tuple(step / 20 for step in range(20))  # that calibration compares: 0 to 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelResult:
    """The hits of one channel for a query."""

    name: str
    hits: Sequence[tuple[int, float]]  # chunk and score, best first, each chunk once
    floor: float = 0.0  # the neutral score: 0 for BM25, the mean over the base for a similarity
    others: Mapping[int, float] = field(default_factory=dict)  # scores of chunks that only other channels found

    @property
    def found_anything(self) -> bool:
        """Whether the best hit is above the floor."""
        return bool(self.hits) and self.hits[0][1] > self.floor


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelScore:
    """The score and rank of a hit in one channel; rank 0 if the channel scored it without finding it."""

    score: float
    rank: int


class FusedHit(NamedTuple):
    """A chunk in the fused ranking."""

    chunk: int
    score: float
    channels: Mapping[str, ChannelScore]  # by channel


class CalibrationSample(NamedTuple):
    """A question made from the base: the result of each channel, and the chunk that it should find."""

    target: int
    channels: Sequence[ChannelResult]


class Ranking:
    """All found chunks with scores from 0 to 1.

    Iterate to get them in order, best first; most callers need only the first few. Ties are decided by the best rank,
    then by the chunk.
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
        """Return the ranking with one more channel whose scores are already on the same scale, such as a walk."""
        scores = dict(self.scores)
        for chunk, score in channel.hits:
            scores[chunk] = scores.get(chunk, 0.0) + score
        return Ranking(scores, [*self._channels, channel])


def fuse(channels: Iterable[ChannelResult], weights: Mapping[str, float]) -> Ranking:
    """Fuse the results of channels.

    A channel without hits above its floor changes nothing. A single channel keeps its order. The order of channels does
    not matter.
    """
    useful = sorted((channel for channel in channels if channel.found_anything), key=lambda channel: channel.name)
    trusted = [max(weights.get(channel.name, 0.0), 0.0) for channel in useful]
    total = math.fsum(trusted)
    scores: dict[int, float] = {}
    for channel, trust in zip(useful, trusted, strict=True):
        weight = trust / total if total else 1 / len(useful)
        for chunk, score in _normalize_scores(channel).items():
            scores[chunk] = scores.get(chunk, 0.0) + weight * score
    return Ranking(scores, useful)


def calibrate(samples: Sequence[CalibrationSample], names: Sequence[str]) -> dict[str, float]:
    """Return the weight of each channel; the sum is 1. The first channel is the baseline.

    Each further channel gets the share that ranks the targets highest together with the channels before it. Shares
    between which the samples cannot decide are averaged with the prior, so few samples change little.
    """
    weights: dict[str, float] = {}
    for name in names:
        weights = add_channel(weights, name, samples)
    return weights


def add_channel(weights: Mapping[str, float], name: str, samples: Sequence[CalibrationSample]) -> dict[str, float]:
    """Return the weights with one more channel, with the share that the samples give it."""
    if not weights:
        return {name: 1.0}
    share = _share(samples, weights, name)
    return {channel: weight * (1 - share) for channel, weight in weights.items()} | {name: share}


def _share(samples: Sequence[CalibrationSample], weights: Mapping[str, float], name: str) -> float:
    """Return the mean share of a channel, with each share weighted by its likelihood under the samples."""
    curves = [_gains(sample, weights, name) for sample in samples]
    curves = [curve for curve in curves if curve]
    if not curves:
        return PRIOR
    means = [sum(gains) / len(curves) for gains in zip(*curves, strict=True)]
    best = max(range(len(SHARES)), key=means.__getitem__)
    likely = []
    for position, share in enumerate(SHARES):
        doubt = ((share - PRIOR) / PRIOR_ERROR) ** 2
        losses = [curve[best] - curve[position] for curve in curves]
        if loss := means[best] - means[position]:
            spread = sum((single - loss) ** 2 for single in losses) / len(losses) ** 2
            doubt += loss**2 / max(spread, 1e-12)
        likely.append(math.exp(-doubt / 2))
    return sum(share * weight for share, weight in zip(SHARES, likely, strict=True)) / sum(likely)


def _gains(sample: CalibrationSample, weights: Mapping[str, float], name: str) -> list[float]:
    """Return the quality of the target rank for each share of the channel; empty if no channel finds the target."""
    measured = {channel.name: _normalize_scores(channel) for channel in sample.channels if channel.found_anything}
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
        above = sum((1 - share) * others + share * score > limit for others, score in pairs)
        gains.append(1 / math.log2(2 + above))
    return gains


def _ranks_target_high(scores: Mapping[int, float], target: int) -> bool:
    return target in scores and sum(score > scores[target] for score in scores.values()) < MAX_TARGET_RANK


def _normalize_scores(channel: ChannelResult) -> dict[int, float]:
    """Return scores from 0 at the floor or below to 1 at the best hit."""
    floor, best = channel.floor, channel.hits[0][1]
    known = [*channel.others.items(), *channel.hits]
    return {
        chunk: 1.0 if score >= best else 0.0 if score <= floor else (score - floor) / (best - floor)
        for chunk, score in known
    }


def _scores_and_ranks(channel: ChannelResult) -> dict[int, tuple[float, int]]:
    found = {chunk: (score, 0) for chunk, score in channel.others.items()}
    found.update((chunk, (score, rank)) for rank, (chunk, score) in enumerate(channel.hits, start=1))
    return found
