"""The walk follows names over several steps with falling scores, prefers rare names and ignores hubs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.search.graph_walk import (
    BREADTH,
    MAX_TARGETS,
    STEPS,
    GraphLink,
    LinkType,
    measure_link_trust,
    rarity,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

CHUNKS = 1000


class Web:
    """Serves links by chunk and records which chunks were requested."""

    def __init__(self, ties: Mapping[int, Sequence[GraphLink]]) -> None:
        self.known = ties
        self.asked: list[list[int]] = []

    def __call__(self, chunks: Sequence[int]) -> Mapping[int, Sequence[GraphLink]]:
        self.asked.append(list(chunks))
        return {chunk: self.known[chunk] for chunk in chunks if chunk in self.known}


def title(*targets: int, heard: int = 1) -> GraphLink:
    return GraphLink(LinkType.TITLE, targets, heard)


def reached(
    seeds: dict[int, float], ties: dict[int, list[GraphLink]], query: Sequence[GraphLink] = (), trusted: float = 1.0
) -> dict[int, float]:
    return dict(walk(seeds, query, Web(ties), chunks=CHUNKS, trusted=trusted))


def test_the_walk_follows_names_for_three_steps_with_falling_scores() -> None:
    found = reached({1: 1.0}, {1: [title(2)], 2: [title(3)], 3: [title(4)], 4: [title(5)]})
    assert list(found) == [2, 3, 4]
    assert 1 > found[2] > found[3] > found[4] > 0


def test_a_chunk_that_no_link_reaches_is_not_returned() -> None:
    assert reached({1: 1.0, 2: 0.9}, {1: [title(2)]}).keys() == {2}
    assert reached({1: 1.0}, {}) == {}
    assert reached({}, {}) == {}


def test_a_seed_with_a_higher_score_passes_on_a_higher_score() -> None:
    found = reached({1: 1.0, 2: 0.5}, {1: [title(3)], 2: [title(4)]})
    assert found[3] == pytest.approx(2 * found[4])


def test_a_rare_name_passes_on_a_higher_score_than_a_common_one() -> None:
    found = reached({1: 1.0}, {1: [title(2, heard=1), title(3, heard=100), title(4, heard=CHUNKS)]})
    assert found[2] > found[3] > 0
    assert 4 not in found


def test_a_name_with_several_definitions_splits_its_score_and_a_hub_is_ignored() -> None:
    found = reached({1: 1.0}, {1: [title(2), title(3, 4), title(*range(10, 11 + MAX_TARGETS))]})
    assert found[2] == pytest.approx(2 * found[3])
    assert found.keys() == {2, 3, 4}


def test_many_paths_count_no_more_than_the_best() -> None:
    one = reached({1: 1.0, 2: 0.8, 3: 0.8}, {1: [title(9)]})
    all_of_them = reached({1: 1.0, 2: 0.8, 3: 0.8}, {1: [title(9)], 2: [title(9)], 3: [title(9)]})
    assert one[9] == all_of_them[9]


def test_links_are_weighted_by_their_type() -> None:
    ties = [GraphLink(via, (place,), 1) for place, via in enumerate(LinkType, start=2)]
    found = reached({1: 1.0}, {1: ties})
    assert list(found) == [2, 3, 4, 5, 6]


def test_a_chunk_that_defines_a_name_does_not_follow_it() -> None:
    assert reached({1: 1.0}, {1: [title(1, 2)]}) == {}
    assert reached({1: 1.0}, {1: [GraphLink(LinkType.NAMED, (1, 2), 1)]}).keys() == {2}


def test_all_chunks_of_a_relation_are_reached_and_each_scores_higher_if_they_are_fewer() -> None:
    few = reached({1: 1.0}, {1: [GraphLink(LinkType.RELATED, (1, 2, 3), 3)]})
    many = reached({1: 1.0}, {1: [GraphLink(LinkType.RELATED, tuple(range(1, 51)), 3)]})
    assert few.keys() == {2, 3}
    assert few[2] == few[3] > many[2] > 0


def test_a_title_in_the_query_always_counts_and_other_names_count_by_the_trust_in_links() -> None:
    query = [title(7), GraphLink(LinkType.OPENING, (8,), 1)]
    assert reached({}, {}, query, trusted=0.0).keys() == {7}
    assert reached({}, {}, query, trusted=0.5)[8] < reached({}, {}, query, trusted=1.0)[8]


def test_a_title_in_the_query_is_a_seed() -> None:
    assert reached({}, {7: [title(8)]}, [title(7)]).keys() == {7, 8}


def test_without_trust_in_links_none_are_requested() -> None:
    web = Web({1: [title(2)]})
    assert walk({1: 1.0}, [], web, chunks=CHUNKS, trusted=0.0) == []
    assert web.asked == []


def test_only_links_of_the_best_chunks_are_requested_and_none_twice() -> None:
    web = Web({chunk: [title(chunk + 1)] for chunk in range(500)})
    walk({chunk: 1 - chunk / 1000 for chunk in range(400)}, [], web, chunks=CHUNKS, trusted=1.0)
    asked = [chunk for chunks in web.asked for chunk in chunks]
    assert len(asked) == len(set(asked)) <= STEPS * BREADTH
    assert web.asked[0] == list(range(BREADTH))


@given(
    st.dictionaries(st.integers(0, 9), st.floats(0, 1), max_size=6),
    st.dictionaries(
        st.integers(0, 9),
        st.lists(
            st.builds(
                GraphLink,
                st.sampled_from(LinkType),
                st.lists(st.integers(0, 9), unique=True, max_size=4),
                st.integers(0, 2000),
            ),
            max_size=3,
        ),
    ),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_the_order_of_input_does_not_change_the_result_and_scores_stay_within_bounds(
    seeds: dict[int, float], ties: dict[int, list[GraphLink]], trusted: float, random: Random
) -> None:
    found = walk(seeds, ties.get(0, []), Web(ties), chunks=CHUNKS, trusted=trusted)
    shuffled = list(seeds.items())
    random.shuffle(shuffled)
    turned = {chunk: [tie._replace(targets=tie.targets[::-1]) for tie in some[::-1]] for chunk, some in ties.items()}
    assert found == walk(dict(shuffled), turned.get(0, []), Web(turned), chunks=CHUNKS, trusted=trusted)
    assert all(0 < score <= 1 for _, score in found)


@pytest.mark.parametrize(("named", "asked", "low", "high"), [(0, 0, 0, 0), (0, 9, 0, 0), (5, 100, 0.49, 0.51)])
def test_trust_is_half_where_one_document_in_twenty_is_named(named: int, asked: int, low: float, high: float) -> None:
    assert low <= measure_link_trust(named, asked) <= high


def test_trust_rises_with_the_share_of_named_documents() -> None:
    assert (
        measure_link_trust(1, 100)
        < 0.1
        < measure_link_trust(3, 100)
        < measure_link_trust(10, 100)
        < 0.9
        < measure_link_trust(30, 100)
        < measure_link_trust(100, 100)
        < 1
    )


@pytest.mark.parametrize(("heard", "chunks", "expected"), [(0, 100, 1.0), (100, 100, 0.0), (200, 100, 0.0), (0, 0, 0)])
def test_rarity_is_between_zero_and_one(heard: int, chunks: int, expected: float) -> None:
    assert rarity(heard, chunks) == pytest.approx(expected)
