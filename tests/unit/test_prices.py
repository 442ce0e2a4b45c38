"""A cost is known only if every token has a price."""

from __future__ import annotations

import pytest

from holdfast.llm.prices import Price


@pytest.mark.parametrize(
    ("price", "read", "written", "cost"),
    [
        (Price(input_per_million=2.0), 1_000_000, 0, 2.0),
        (Price(input_per_million=0.02), 500, 0, 0.00001),
        (Price(input_per_million=2.0, output_per_million=8.0), 500_000, 250_000, 3.0),
        (Price(input_per_million=0.0, output_per_million=0.0), 10, 10, 0.0),
        (Price(input_per_million=2.0), 10, 10, None),  # output tokens have no price
        (Price(output_per_million=2.0), 10, 10, None),
        (Price(output_per_million=2.0), 0, 1_000_000, 2.0),
        (Price(), 10, 0, None),
        (Price(input_per_million=2.0, output_per_million=2.0), 0, 0, None),  # no tokens were counted
    ],
)
def test_a_cost_is_known_only_if_every_token_has_a_price(
    price: Price, read: int, written: int, cost: float | None
) -> None:
    assert price.cost(read, written) == (None if cost is None else pytest.approx(cost))
