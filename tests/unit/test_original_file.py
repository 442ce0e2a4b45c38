"""A download serves the one range that a request names, and the whole file for anything else."""

from __future__ import annotations

import pytest

from holdfast.api.original_file import parse_range


@pytest.mark.parametrize(
    ("header", "positions"),
    [
        ("bytes=0-3", range(4)),
        ("bytes=2-", range(2, 10)),
        ("bytes=2-99", range(2, 10)),
        ("bytes=-3", range(7, 10)),
        ("bytes=-99", range(10)),
        ("bytes=10-", range(0)),
        ("bytes=-0", range(0)),
        ("", None),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("bytes=0-1,4-5", None),
        ("lines=1-2", None),
        ("bytes=٣-", None),
        (f"bytes={10**30}-", None),
    ],
)
def test_a_range_is_read_from_the_header(header: str, positions: range | None) -> None:
    assert parse_range(header, 10) == positions
