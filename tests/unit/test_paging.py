"""Long lists are split into batches."""

from __future__ import annotations

from holdfast.paging import batched


def test_batches_keep_the_order_and_the_last_one_is_shorter() -> None:
    assert list(batched(range(5), 2)) == [[0, 1], [2, 3], [4]]


def test_an_empty_list_yields_no_batch() -> None:
    assert list(batched([], 2)) == []
