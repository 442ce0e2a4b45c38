"""The page of a base with very many documents stays fast."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from holdfast.catalog.repository import BaseSettings
from holdfast.web.site import install_pages
from tests.support.bulk_rows import fill
from tests.support.harness import Rig
from tests.support.http_site import HttpSite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clock import FakeClock

ROUNDS = 100
ENOUGH = 1.8
COUNTS = {"few": 100, "many": 10_000}


def test_the_page_of_a_large_base_is_at_most_twice_as_slow_as_that_of_a_small_one(
    database_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    site = HttpSite(rig, pages=install_pages)
    for name, count in COUNTS.items():
        fill(rig, rig.library.catalog.create_base(name, BaseSettings(indexes=("fulltext",))), count)
    took: dict[str, list[float]] = {name: [] for name in COUNTS}
    for _ in range(ROUNDS):  # the fastest round counts, because other load only makes a round slower
        for name, times in took.items():
            began = perf_counter()
            answer = site.http.get(f"{site.address}/bases/{name}/documents")
            times.append(perf_counter() - began)
            assert answer.text.count("<tr data-id=") == 51  # fifty rows and the template
        if min(took["many"]) < ENOUGH * min(took["few"]):
            break
    site.close()
    rig.close()
    assert min(took["many"]) < 2 * min(took["few"]), took
