"""The list of kinds that schedulers use without opening a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.service.opening import open_library
from holdfast.settings import Settings
from holdfast.wiring import list_kinds

if TYPE_CHECKING:
    from pathlib import Path


def test_every_kind_of_work_has_an_indexer_and_every_indexer_a_kind(tmp_path: Path) -> None:
    library = open_library(Settings(home=str(tmp_path)))
    assert sorted(list_kinds()) == sorted(library.indexers())
    library.store.close()
