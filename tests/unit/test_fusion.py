"""Fusion joins channels by score, and calibration weights each channel by how well it finds known chunks."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.search.fusion import PRIOR, CalibrationSample, ChannelResult, ChannelScore, calibrate, fuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.search.fusion import FusedHit

BOTH = {"fulltext": 0.75, "vector": 0.25}
SCORES = st.dictionaries(st.integers(0, 20), st.floats(-1, 30, allow_nan=False), max_size=12)


def channel(name: str, scores: dict[int, float], floor: float = 0.0, **more: dict[int, float]) -> ChannelResult:
    hits = sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
    return ChannelResult(name=name, hits=hits, floor=floor, **more)


def order(fused: Iterable[FusedHit]) -> list[int]:
    return [one.chunk for one in fused]


def test_scores_are_normalised_between_the_floor_and_the_best_hit() -> None:
    text = channel("fulltext", {1: 20.0, 2: 10.0})
    vector = channel("vector", {2: 0.9, 3: 0.5}, floor=0.4, others={1: 0.2})
    fused = fuse([text, vector], BOTH)
    assert [(one.chunk, round(one.score, 3)) for one in fused] == [(1, 0.75), (2, 0.625), (3, 0.05)]


def test_each_hit_keeps_its_score_and_rank_in_every_channel() -> None:
    text = channel("fulltext", {1: 20.0, 2: 10.0})
    vector = channel("vector", {2: 0.9}, others={1: 0.2})
    by_chunk = {one.chunk: one.channels for one in fuse([text, vector], BOTH)}
    assert by_chunk[1] == {"fulltext": ChannelScore(score=20.0, rank=1), "vector": ChannelScore(score=0.2, rank=0)}
    assert by_chunk[2] == {"fulltext": ChannelScore(score=10.0, rank=2), "vector": ChannelScore(score=0.9, rank=1)}


def test_a_hit_in_two_channels_beats_a_slightly_better_hit_in_one() -> None:
    text = channel("fulltext", {1: 10.0, 2: 9.5})
    vector = channel("vector", {2: 0.9, 3: 0.89})
    assert order(fuse([text, vector], BOTH))[0] == 2


@given(SCORES, st.floats(-2, 30), st.sampled_from([{}, {"one": 0.0}, {"one": 0.3}]))
def test_one_channel_alone_keeps_its_order(scores: dict[int, float], floor: float, weights: dict[str, float]) -> None:
    one = channel("one", scores, floor)
    assert order(fuse([one], weights)) == ([chunk for chunk, _ in one.hits] if one.found_anything else [])


@given(SCORES, SCORES, st.sampled_from([{}, {5: 0.0}, {5: -1.0, 6: -2.0}]))
def test_a_channel_without_hits_above_its_floor_changes_nothing(
    text: dict[int, float], vector: dict[int, float], silent: dict[int, float]
) -> None:
    channels = [channel("fulltext", text), channel("vector", vector)]
    weights = BOTH | {"questions": 9.0}
    assert list(fuse([*channels, channel("questions", silent)], weights)) == list(fuse(channels, weights))


@given(SCORES, SCORES)
def test_a_channel_with_weight_zero_does_not_reorder_the_hits_of_others(
    text: dict[int, float], vector: dict[int, float]
) -> None:
    channels = [channel("fulltext", text), channel("vector", vector)]
    fused = fuse(channels, {"fulltext": 1.0})
    if channels[0].found_anything:
        found = dict(channels[0].hits)
        trusted = [one.score for one in fused if one.chunk in found]
        assert trusted == [one.score for one in fuse(channels[:1], {"fulltext": 1.0})]


@given(SCORES, SCORES, SCORES)
def test_the_order_of_channels_does_not_matter_and_scores_stay_within_bounds(
    text: dict[int, float], vector: dict[int, float], other: dict[int, float]
) -> None:
    channels = [channel("fulltext", text), channel("vector", vector), channel("other", other)]
    weights = {"fulltext": 0.5, "vector": 0.3, "other": 0.2}
    fused = list(fuse(channels, weights))
    assert fused == list(fuse(channels[::-1], weights))
    assert all(0 <= one.score <= 1 + 1e-9 for one in fused)


def test_an_added_channel_uses_the_same_scale() -> None:
    fused = fuse([channel("fulltext", {1: 10.0, 2: 8.0})], BOTH)
    joined = list(fused.add(channel("graph", {2: 0.5, 3: 0.4})))
    assert [(one.chunk, one.score) for one in joined] == [(2, 1.3), (1, 1.0), (3, 0.4)]
    assert joined[0].channels == {"fulltext": ChannelScore(score=8.0, rank=2), "graph": ChannelScore(score=0.5, rank=1)}
    assert list(fused.add(channel("graph", {}))) == list(fused)


def samples(count: int, **skill: float) -> list[CalibrationSample]:
    """Make questions that each channel answers with noise. The target gets the skill of the channel as a bonus."""
    random = Random(7)
    made = []
    for _ in range(count):
        channels = []
        for name, more in skill.items():
            scores = {chunk: random.gauss(0, 1) + (more if chunk == 0 else 0) for chunk in range(60)}
            channels.append(channel(name, scores))
        made.append(CalibrationSample(0, channels))
    return made


def weight(count: int, text: float, vector: float) -> float:
    return calibrate(samples(count, fulltext=text, vector=vector), ["fulltext", "vector"])["vector"]


def test_a_useless_channel_gets_almost_no_weight_and_a_strong_one_gets_the_most() -> None:
    useless, weak, equal, strong = (weight(200, 3.0, skill) for skill in (0.0, 1.5, 3.0, 6.0))
    assert useless < 0.15
    assert useless < weak < equal < strong
    assert 0.35 < equal < 0.6
    assert strong > 0.6


def test_few_samples_change_little() -> None:
    assert calibrate([], ["fulltext", "vector"]) == {"fulltext": 1 - PRIOR, "vector": PRIOR}
    assert abs(weight(3, 3.0, 6.0) - PRIOR) < abs(weight(200, 3.0, 6.0) - PRIOR)


def test_weights_add_up_and_name_every_channel() -> None:
    weights = calibrate(samples(60, fulltext=3.0, vector=2.0, questions=2.0), ["fulltext", "vector", "questions"])
    assert list(weights) == ["fulltext", "vector", "questions"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert calibrate([], ["vector"]) == {"vector": 1.0}
    assert calibrate([], []) == {}


def test_a_question_that_no_channel_answers_does_not_change_the_weights() -> None:
    unmeasured = calibrate([], ["fulltext", "vector"])
    lost = [CalibrationSample(99, one.channels) for one in samples(50, fulltext=3.0, vector=0.0)]
    vague = samples(80, fulltext=-9.0, vector=-5.0)  # both channels rank the target last
    assert calibrate(lost, ["fulltext", "vector"]) == unmeasured
    assert calibrate(vague, ["fulltext", "vector"]) == unmeasured


def test_calibrated_fusion_is_not_worse_than_its_best_channel() -> None:
    for skill in (0.0, 1.5, 6.0):
        measured, asked = samples(200, fulltext=3.0, vector=skill)[:100], samples(200, fulltext=3.0, vector=skill)[100:]
        weights = calibrate(measured, ["fulltext", "vector"])
        alone = [sum(order(fuse([one.channels[place]], weights))[0] == 0 for one in asked) for place in (0, 1)]
        joined = sum(order(fuse(one.channels, weights))[0] == 0 for one in asked)
        assert joined >= max(alone) - 2, "two in a hundred are chance"
