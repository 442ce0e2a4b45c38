"""Watching real folders: changes are reported, ticks come regularly, and a recreated folder is watched again."""

from __future__ import annotations

import errno
import shutil
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import watchfiles

from holdfast.sources import watch as watching
from holdfast.sources.folder import FolderRules
from holdfast.sources.watch import WatchEvent, watch
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEVER = timedelta(days=1)
OFTEN = timedelta(milliseconds=10)


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Stop a watch that reports nothing, so that the test fails instead of hanging."""
    monkeypatch.setattr(watching, "QUIET_MS", 30)
    monkeypatch.setattr(watching, "POLL_MS", 60)
    event = threading.Event()
    timer = threading.Timer(PATIENCE_SECONDS, event.set)
    timer.start()
    yield event
    timer.cancel()
    timer.join()


def until_changed(stirs: Iterator[WatchEvent]) -> None:
    assert WatchEvent.CHANGED in iter(stirs), "the watch ended"


def test_the_watch_is_active_when_the_first_tick_comes(tmp_path: Path, stop: threading.Event) -> None:
    stirs = watch(tmp_path, stop=stop, every=NEVER)
    assert next(stirs) == WatchEvent.TICK
    (tmp_path / "a.md").write_text("new")
    assert next(stirs) == WatchEvent.CHANGED


def test_changes_of_any_kind_in_nested_folders_are_reported(tmp_path: Path, stop: threading.Event) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.md").write_text("old")
    stirs = watch(tmp_path, stop=stop, every=NEVER)
    next(stirs)
    (tmp_path / "a/b/c.md").write_text("new")
    until_changed(stirs)
    (tmp_path / "a/b/c.md").rename(tmp_path / "a/d.md")
    until_changed(stirs)
    (tmp_path / "a/d.md").unlink()
    until_changed(stirs)


def test_a_thousand_simultaneous_changes_are_combined_into_few_events(tmp_path: Path, stop: threading.Event) -> None:
    stirs = watch(tmp_path, stop=stop, every=NEVER)
    next(stirs)
    for number in range(1000):
        (tmp_path / f"{number}.md").write_text("new")
    until_changed(stirs)
    stop.set()
    assert len(list(stirs)) < 20


def test_ticks_come_without_any_change(tmp_path: Path, stop: threading.Event) -> None:
    stirs = watch(tmp_path, stop=stop, every=OFTEN)
    assert [next(stirs) for _ in range(3)] == [WatchEvent.TICK] * 3


@pytest.mark.parametrize("every", [NEVER, timedelta()])
def test_a_watch_ends_when_it_is_stopped(tmp_path: Path, stop: threading.Event, every: timedelta) -> None:
    stirs = watch(tmp_path, stop=stop, every=every)
    next(stirs)
    stop.set()
    assert list(stirs) == []


def test_a_root_that_is_removed_and_recreated_is_watched_again(tmp_path: Path, stop: threading.Event) -> None:
    root = tmp_path / "root"
    root.mkdir()
    stirs = watch(root, stop=stop, every=NEVER)
    next(stirs)
    shutil.rmtree(root)
    until_changed(stirs)
    root.mkdir()
    until_changed(stirs)
    assert next(stirs) == WatchEvent.TICK  # the new watch is active
    (root / "a.md").write_text("new")
    until_changed(stirs)


def test_the_watch_waits_for_a_root_that_does_not_exist_yet(tmp_path: Path, stop: threading.Event) -> None:
    stirs = watch(tmp_path / "later", stop=stop, every=NEVER)
    assert next(stirs) == WatchEvent.TICK
    (tmp_path / "later").mkdir()
    until_changed(stirs)


def test_a_new_folder_at_the_path_of_the_root_is_watched(tmp_path: Path, stop: threading.Event) -> None:
    root = tmp_path / "root"
    root.mkdir()
    stirs = watch(root, stop=stop, every=NEVER)
    next(stirs)
    root.rename(tmp_path / "away")
    root.mkdir()
    until_changed(stirs)
    while next(stirs) != WatchEvent.TICK:
        pass
    (root / "a.md").write_text("new")
    until_changed(stirs)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no more watches"), RuntimeError("lost count")])
def test_ticks_continue_if_the_system_cannot_watch(
    tmp_path: Path, stop: threading.Event, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tried = []

    def failing(*_: Any, **__: Any) -> Iterator[Any]:
        tried.append(1)
        raise error

    monkeypatch.setattr(watchfiles, "watch", failing)
    stirs = watch(tmp_path, stop=stop, every=OFTEN)
    assert [next(stirs) for _ in range(3)] == [WatchEvent.TICK] * 3
    assert len(tried) == 3


def test_a_failed_watch_is_not_retried_at_every_poll(
    tmp_path: Path, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    glances: list[int] = []
    real = watching._identity

    def failing(*_: Any, **__: Any) -> Iterator[Any]:
        tried.append(1)
        raise OSError(errno.ENOSPC, "no more watches")

    def counting(root: Path) -> tuple[int, int] | None:
        glances.append(1)
        if len(glances) > 5:
            stop.set()
        return real(root)

    monkeypatch.setattr(watchfiles, "watch", failing)
    monkeypatch.setattr(watching, "_identity", counting)
    assert list(watch(tmp_path, stop=stop, every=NEVER)) == [WatchEvent.TICK]
    assert len(tried) == 1


def test_ticks_continue_without_the_watchfiles_package(
    tmp_path: Path, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    stirs = watch(tmp_path, stop=stop, every=OFTEN)
    assert [next(stirs) for _ in range(2)] == [WatchEvent.TICK] * 2


@pytest.mark.parametrize(
    ("path", "matters"),
    [
        ("a.md", True),
        ("", True),
        ("deep/er/a.md", True),
        (".git/index", False),
        ("deep/.git/index", False),
        ("node_modules/x/y.js", False),
        (".a.md.swp", False),
        ("a.md~", False),
        ("drafts/a.md", False),
        ("caf\udce9.md", True),
    ],
)
def test_changes_of_ignored_paths_are_not_reported(tmp_path: Path, path: str, matters: bool) -> None:
    ignoring = FolderRules(patterns=("drafts/",)).ignore_rules
    assert watching._is_relevant(tmp_path, f"{tmp_path}/{path}", ignoring) is matters


def test_changes_of_always_ignored_paths_are_never_reported(tmp_path: Path) -> None:
    assert not watching._is_relevant(
        tmp_path, f"{tmp_path}/a/.git/index", FolderRules(use_default_ignores=False).ignore_rules
    )
