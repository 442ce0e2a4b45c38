"""A worker measures the calibration of a base and stores it; a search only reads it."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.store import LARGEST_BATCH
from holdfast.search import calibration, calibrator
from holdfast.search import statements as sql
from holdfast.search.calibration import PRIOR_LINK_TRUST
from holdfast.search.calibrator import Calibrator
from holdfast.search.fusion import PRIOR
from holdfast.search.search import Searcher
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.search.calibration import Calibration
    from tests.support.clock import FakeClock

TEXTS = {f"{name}.md": f"# {name}\n\nThe {name} is a long way from here." for name in ("harbour", "island", "reef")}
FAR_AHEAD = 1e9  # seconds


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one with each measurement."""
    measurements: list[int] = []
    measure = Calibrator._measure_weights

    def count(self: Any, *given: Any) -> Any:
        measurements.append(1)
        return measure(self, *given)

    monkeypatch.setattr(Calibrator, "_measure_weights", count)
    return measurements


@pytest.fixture
def filled(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    with closing(Rig(database_url, tmp_path / "blobs", clock, indexes=("vector", "fulltext", "graph"))) as rig:
        for name, text in TEXTS.items():
            rig.put(name, text)
        rig.work()
        yield rig


def open_searcher(rig: Rig) -> Searcher:
    """Return the searcher of a new process, one that has not searched yet."""
    return Searcher(rig.library.store.database, rig.library.indexes)


def refresh_in_new_worker(rig: Rig) -> Calibration:
    """Refresh the calibration in a new process; return what a search in another new process reads."""
    Calibrator(rig.library.store.database, rig.library.indexes, rig.library.catalog).refresh(rig.base)
    return open_searcher(rig).get_calibration(rig.base)


def add_parts(rig: Rig, count: int) -> None:
    for number in range(count):
        rig.put(f"{number}.md", f"# Part {number}\n\nSomething else, number {number}.")
    rig.work()


def change_kept(rig: Rig, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the stored row, as if another process or version had written it."""
    database = rig.library.store.database
    with database.writing(durable=False) as tx:
        ((text,),) = tx.run_sql("SELECT measured FROM library_calibrations")
        kept = json.loads(text)
        change(kept)
        row = (rig.base.id, 3, json.dumps(kept))
        tx.run(sql.SAVE_CALIBRATION, [row])


def test_a_search_never_measures_and_uses_prior_weights_before_the_first_measurement(
    filled: Rig, measured: list[int]
) -> None:
    searcher = open_searcher(filled)
    assert searcher.search(filled.base, "harbour")
    known = searcher.get_calibration(filled.base)
    assert (known.weights["vector"], known.link_trust, known.chunks) == (PRIOR, PRIOR_LINK_TRUST, len(TEXTS))
    assert (measured, filled.count("calibrations")) == ([], 0)


def test_the_clean_up_of_a_worker_measures_a_new_base_once(filled: Rig, measured: list[int]) -> None:
    filled.library.sweep(LARGEST_BATCH)
    filled.library.sweep(LARGEST_BATCH)
    assert (len(measured), filled.count("calibrations")) == (1, 1)
    assert open_searcher(filled).get_calibration(filled.base).measured_chunks == len(TEXTS)


def test_a_new_worker_keeps_the_stored_calibration(filled: Rig, measured: list[int]) -> None:
    first, second = refresh_in_new_worker(filled), refresh_in_new_worker(filled)
    assert len(measured) == 1
    assert first == second


def test_a_worker_checks_a_base_again_after_a_while(
    filled: Rig, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.library.calibrator.refresh_due()
    add_parts(filled, 3 * len(TEXTS))
    filled.library.calibrator.refresh_due()
    assert len(measured) == 1
    later = time.monotonic() + FAR_AHEAD
    monkeypatch.setattr(time, "monotonic", lambda: later)
    filled.library.calibrator.refresh_due()
    assert len(measured) == 2


def test_a_search_uses_a_new_calibration_after_a_while(filled: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = open_searcher(filled)
    assert searcher.get_calibration(filled.base).measured_chunks == 0
    filled.library.calibrator.refresh(filled.base)
    assert searcher.get_calibration(filled.base).measured_chunks == 0, "it is cached"
    later = time.monotonic() + calibration.UNMEASURED_CACHE_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert searcher.get_calibration(filled.base).measured_chunks == len(TEXTS)


def test_a_search_of_one_channel_reads_no_calibration(filled: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(calibration.Calibrations, "get", refuse)
    assert open_searcher(filled).search(filled.base, "harbour", channels=("fulltext",))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda kept: kept.update(version=calibration.VERSION + 1), id="another version"),
        pytest.param(
            lambda kept: kept.update(measured_at=kept["measured_at"] - calibrator.REMEASURE_SECONDS), id="a week old"
        ),
        pytest.param(lambda kept: kept["recipes"].update(vector=0), id="another recipe"),
    ],
)
def test_an_outdated_calibration_is_measured_again(
    filled: Rig, measured: list[int], change: Callable[[dict[str, Any]], object]
) -> None:
    first = refresh_in_new_worker(filled)
    change_kept(filled, change)
    assert refresh_in_new_worker(filled).recipes == first.recipes
    assert len(measured) == 2
    refresh_in_new_worker(filled)
    assert len(measured) == 2, "the new measurement has replaced the old one"


def test_a_base_that_has_doubled_or_halved_is_measured_again(
    filled: Rig, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrator, "SMALL_BASE_CHUNKS", 0)
    refresh_in_new_worker(filled)
    add_parts(filled, 3 * len(TEXTS))
    assert refresh_in_new_worker(filled).measured_chunks == 4 * len(TEXTS)
    assert len(measured) == 2
    filled.delete(*(f"{number}.md" for number in range(3 * len(TEXTS))))
    filled.work()
    while filled.library.sweep(LARGEST_BATCH):
        filled.work()
    assert refresh_in_new_worker(filled).measured_chunks == len(TEXTS)
    assert len(measured) == 3


def test_a_large_base_that_has_grown_a_little_is_only_counted_again(
    filled: Rig, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh_in_new_worker(filled)
    monkeypatch.setattr(calibrator, "SMALL_BASE_CHUNKS", 0)
    add_parts(filled, 1)
    known = refresh_in_new_worker(filled)
    assert (known.chunks, known.measured_chunks, len(measured)) == (len(TEXTS) + 1, len(TEXTS), 1)


def test_a_calibration_is_deleted_with_its_base_and_never_written_again(filled: Rig, measured: list[int]) -> None:
    kept = refresh_in_new_worker(filled)
    assert filled.count("calibrations") == 1
    filled.library.bases.delete(filled.base)
    filled.work()
    while filled.library.sweep(LARGEST_BATCH):
        filled.work()
    assert filled.count("bases") == filled.count("calibrations") == 0
    filled.library.calibrator._save(filled.base, kept)  # as a worker does that began before the delete
    assert filled.count("calibrations") == 0
    assert len(measured) == 1
