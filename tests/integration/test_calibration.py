"""The calibration of a large base is stored in the database, so that a new process does not measure it again."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import StoreError
from holdfast.search import calibration
from holdfast.search import statements as sql
from holdfast.search.search import Searcher
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.search.calibration import Calibration
    from tests.support.clock import FakeClock

TEXTS = {f"{name}.md": f"# {name}\n\nThe {name} is a long way from here." for name in ("harbour", "island", "reef")}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make small bases store their calibration too; return a list that grows by one with each measurement."""
    monkeypatch.setattr(calibration, "KEPT_FROM_CHUNKS", 1)
    measurements: list[int] = []
    measure = calibration.CalibrationCache._measure_weights

    def count(self: Any, *given: Any) -> Any:
        measurements.append(1)
        return measure(self, *given)

    monkeypatch.setattr(calibration.CalibrationCache, "_measure_weights", count)
    return measurements


@pytest.fixture
def filled(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    with closing(Rig(database_url, tmp_path / "blobs", clock, indexes=("vector", "fulltext", "graph"))) as rig:
        for name, text in TEXTS.items():
            rig.put(name, text)
        rig.work()
        yield rig


def calibrate_in_new_process(rig: Rig) -> Calibration:
    """Return the calibration that a new process reads, one that has not searched yet."""
    return Searcher(rig.library.store.database, rig.library.indexes).get_calibration(rig.base)


def change_kept(rig: Rig, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the stored row, as if another process or version had written it."""
    database = rig.library.store.database
    with database.writing(durable=False) as tx:
        ((text,),) = tx.run_sql("SELECT measured FROM library_calibrations")
        kept = json.loads(text)
        change(kept)
        row = (rig.base.id, 3, json.dumps(kept))
        tx.run(sql.SAVE_CALIBRATION, [row])


def test_a_new_process_uses_the_stored_calibration(filled: Rig, measured: list[int]) -> None:
    first, second = calibrate_in_new_process(filled), calibrate_in_new_process(filled)
    assert len(measured) == 1
    assert (second.weights, second.link_trust, second.measured_chunks) == (
        first.weights,
        first.link_trust,
        first.measured_chunks,
    )


def test_a_small_base_is_measured_by_each_process(
    filled: Rig, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "KEPT_FROM_CHUNKS", 1_000)
    calibrate_in_new_process(filled)
    calibrate_in_new_process(filled)
    assert (len(measured), filled.count("calibrations")) == (2, 0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda kept: kept.update(version=calibration.VERSION + 1), id="another version"),
        pytest.param(lambda kept: kept.update(at=kept["at"] - calibration.REMEASURE_SECONDS), id="a week old"),
        pytest.param(lambda kept: kept["recipes"].update(vector=0), id="another recipe"),
    ],
)
def test_an_outdated_calibration_is_measured_again(
    filled: Rig, measured: list[int], change: Callable[[dict[str, Any]], object]
) -> None:
    first = calibrate_in_new_process(filled)
    change_kept(filled, change)
    assert calibrate_in_new_process(filled).recipes == first.recipes
    assert len(measured) == 2
    calibrate_in_new_process(filled)
    assert len(measured) == 2, "the new measurement has replaced the old one"


def test_a_base_that_has_doubled_is_measured_again(filled: Rig, measured: list[int]) -> None:
    calibrate_in_new_process(filled)
    for number in range(3 * len(TEXTS)):
        filled.put(f"{number}.md", f"# Part {number}\n\nSomething else, number {number}.")
    filled.work()
    assert calibrate_in_new_process(filled).measured_chunks == 4 * len(TEXTS)
    assert len(measured) == 2


def test_a_search_succeeds_if_its_calibration_cannot_be_stored(
    filled: Rig, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError("The disk is full.")

    searcher = Searcher(filled.library.store.database, filled.library.indexes)
    monkeypatch.setattr(filled.library.store.database, "write", refuse)
    assert searcher.search(filled.base, "harbour")
    assert len(measured) == 1


def test_a_calibration_is_deleted_with_its_base_and_never_written_again(filled: Rig, measured: list[int]) -> None:
    searcher = Searcher(filled.library.store.database, filled.library.indexes)
    kept = searcher.get_calibration(filled.base)
    assert filled.count("calibrations") == 1
    filled.library.bases.delete(filled.base)
    filled.work()
    while filled.library.sweep(LARGEST_BATCH):
        filled.work()
    assert filled.count("bases") == filled.count("calibrations") == 0
    searcher._calibrations._save(filled.base, kept)  # as a search does that began before the delete
    assert filled.count("calibrations") == 0
    assert len(measured) == 1
