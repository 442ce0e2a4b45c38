"""The power fails at any moment: what a user was told stays true. `tests/powercut` has the parts.

A real server is recorded once. From the recording, many disks are built that a power cut can leave, and the product
opens each of them.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StateConflict, StoreClosed
from holdfast.moving import MoveOptions
from holdfast.service.opening import open_library, settings_for
from holdfast.wiring import opening_move
from tests.powercut.disk import Disk
from tests.powercut.recording import RecorderUnavailable, Recording, compile_recorder
from tests.powercut.run import cut, read_tree, record
from tests.support.processes import ROOT
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.powercut.workload import History

MOVE_CUTS = 20
Recorded = tuple[Recording, "History"]

# Syncs that are left out, by the path of the file or folder. Each must be missed.
IGNORED: dict[str, Callable[[str], bool]] = {
    "of the database": lambda path: path.startswith("/home/holdfast.db"),  # as with synchronous=OFF
    "of files": lambda path: path.startswith("/home/files") and path.endswith(".part"),
    "of the folders of files": lambda path: path.startswith("/home/files") and not path.endswith(".part"),
}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Leave out the log of hundreds of starts."""
    caplog.set_level(logging.CRITICAL, "holdfast")


@pytest.fixture(scope="module", autouse=True)
def compiler(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the tests where the recorder cannot be compiled; with CI=true that is an error."""
    try:
        compile_recorder(tmp_path_factory.mktemp("recorder"))
    except RecorderUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A recording of a short run."""
    folder = tmp_path_factory.mktemp("powercut") / "recording"
    recording, history = record(folder, seed=1, steps=6)
    yield recording, history
    recording.close()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.smoke
def test_nothing_that_a_user_was_told_is_lost_when_the_power_fails(recorded: Recorded) -> None:
    report = cut(*recorded, seed=1, cuts=6)
    assert report.violations == []
    assert (report.cuts, report.requests > 0) == (6, True)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_nothing_that_a_user_was_told_is_lost_in_longer_runs(tmp_path: Path, seed: int) -> None:
    recording, history = record(tmp_path / "recording", seed, steps=20)
    report = cut(recording, history, seed=seed, cuts=50)
    recording.close()
    assert report.violations == []


@pytest.mark.smoke
@pytest.mark.parametrize("missing", IGNORED)
def test_a_missing_sync_is_noticed(recorded: Recorded, missing: str) -> None:
    report = cut(*recorded, seed=1, cuts=100, ignore=IGNORED[missing], stop_at_first=True)
    assert len(report.violations) == 1


def test_a_seed_replays(recorded: Recorded) -> None:
    reports = [cut(*recorded, seed=5, cuts=30, ignore=IGNORED["of the database"], stop_at_first=True) for _ in range(2)]
    first, second = (report.violations[0].split("\n")[0] for report in reports)
    assert first == second


def run_recorded(recording: Recording, *arguments: str) -> None:
    """Run a command of Holdfast on the recorded disk, and wait until it has ended."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast.cli", "--home", str(recording.root / "home"), *arguments]
    subprocess.run(
        command,
        env=clean | recording.environment(),
        cwd=ROOT,
        check=True,
        timeout=PATIENCE_SECONDS,
        capture_output=True,
    )


@pytest.mark.smoke
def test_an_archive_and_a_backup_survive_once_the_command_has_ended(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "recording")
    root = recording.root
    (tmp_path / "note.md").write_text("# Sea\n\nKrill.")
    run_recorded(recording, "add", str(tmp_path / "note.md"))
    run_recorded(recording, "backup", str(root / "backups" / "monday"))
    run_recorded(recording, "export", "default", str(root / "sea.zip"))
    disk = Disk(root)
    for one in recording.records():
        disk.apply(one)
    recording.close()
    written = {path: data for path, data in read_tree(root).items() if path.startswith(("/sea.zip", "/backups"))}
    disk.cut(tmp_path / "left", None)
    left = read_tree(tmp_path / "left")
    assert {path: left.get(path) for path in written} == written
    assert {"/sea.zip", "/backups/monday/manifest.json"} <= written.keys()


def test_a_move_continues_after_a_power_cut_at_any_moment(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "recording")
    root, names = recording.root, [f"{number}.md" for number in range(5)]
    for name in names:
        (tmp_path / name).write_text(f"# {name}\n\nKrill of {name}.")
    run_recorded(recording, "add", *(str(tmp_path / name) for name in names))
    began = recording.position
    ends = [f"sqlite:///{root / 'home' / name}" for name in ("holdfast.db", "moved.db")]
    files = str(root / "home" / "moved")
    run_recorded(recording, "move", *ends, "--blobs", files, "--yes")
    run_recorded(recording, "move", *ends, "--blobs", files, "--yes", "--finish")
    records = list(recording.records())
    recording.close()
    disk, dice, applied = Disk(root), random.Random(7), 0
    root.rename(root.with_name("recorded"))  # the cut disks take its place, because a move knows its addresses
    during = [number for number, one in enumerate(records) if one.position > began]
    for end in [*sorted(dice.sample(during, MOVE_CUTS)), during[-1]]:
        for one in records[applied : end + 1]:
            disk.apply(one)
        applied = end + 1
        disk.cut(root, dice)
        assert finish_move(root / "home", ends, files) == names, f"the cut after record {end}"
        shutil.rmtree(root)


def finish_move(home: Path, ends: list[str], files: str) -> list[str]:
    """Run the commands of a move again, and return the documents that the target then has."""
    settings = settings_for(home)
    with opening_move(settings, *ends, files=files, options=MoveOptions(), report=lambda *_: None) as move:
        for step in (move.run, move.finish):
            with suppress(StateConflict, StoreClosed):  # it was done before the cut
                step()
    library = open_library(replace(settings, database=ends[1], data=files))
    try:
        base = library.catalog.find_base("default")
        items = [library.items.find(base, name) for name in sorted(f"{number}.md" for number in range(5))]
        assert library.doctor.check(deep=True) == []
        assert library.blobs.find_missing([str(item.blob) for item in items]) == set()
        return [item.name for item in items]
    finally:
        library.store.close()
