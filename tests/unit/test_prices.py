"""What tokens cost: every token of a known price, or nothing is said."""

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
        (Price(input_per_million=2.0), 10, 10, None),  # what it wrote has no price
        (Price(output_per_million=2.0), 10, 10, None),
        (Price(output_per_million=2.0), 0, 1_000_000, 2.0),
        (Price(), 10, 0, None),
        (Price(input_per_million=2.0, output_per_million=2.0), 0, 0, None),  # nobody counted
    ],
)
def test_a_price_is_known_if_that_of_every_token_is(price: Price, read: int, written: int, cost: float | None) -> None:
    assert price.cost(read, written) == (None if cost is None else pytest.approx(cost))
