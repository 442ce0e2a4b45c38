"""Fixtures that start a server for each test of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.harness import Rig
from tests.support.http_site import HttpSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock


@pytest.fixture
def open_site(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., HttpSite]]:
    """Return a function that starts servers, all on the same database."""
    opened: list[HttpSite] = []

    def open_site(*, needs_key: bool = False, indexes: tuple[str, ...] = ("fulltext",), **settings: Any) -> HttpSite:
        rig = Rig(database_url, tmp_path / "blobs", clock, indexes=indexes, settings=settings)
        opened.append(HttpSite(rig, needs_key=needs_key, **settings))
        return opened[-1]

    yield open_site
    for site in opened:
        site.close()
        site.rig.close()


@pytest.fixture
def site(open_site: Callable[..., HttpSite]) -> HttpSite:
    """Start a server that requires no key."""
    return open_site()
