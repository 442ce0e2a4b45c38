"""A folder scan never reads our own data and never leaves the allowed roots, by any path or link."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import Permanent
from holdfast.sources.folder import FolderRules, FoundFile, Skipped, open_found, require_allowed, scan
from holdfast.sources.folder_limits import FolderLimits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder that contains documents, our home folder and a database."""
    for name in ("docs/a.md", "home/files/blob", "home/server.json", "db/holdfast.db", "db/holdfast.db-wal", "db/b.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "db" / "holdfast.db-bells").mkdir()
    (tmp_path / "db" / "holdfast.db-bells" / "ring.md").write_text("ring")
    return tmp_path


def rules(place: Path, *roots: Path, links: bool = False) -> FolderRules:
    limits = FolderLimits(
        own_folders=(place / "home", place / "home" / "files", place / "not there"),
        own_files=(place / "db" / "holdfast.db",),
        allowed_roots=roots or None,
    )
    return FolderRules(use_default_ignores=False, use_gitignore=False, follow_links=links, limits=limits)


def found(root: Path, how: FolderRules) -> list[str]:
    return [one.path for one in scan(root, how) if isinstance(one, FoundFile)]


def refused(root: Path, how: FolderRules) -> str:
    for read in (lambda: list(scan(root, how)), lambda: require_allowed(root, how.limits)):
        with pytest.raises(Permanent) as error:
            read()
    return error.value.code


def test_our_own_folders_and_their_contents_are_refused_as_sources(place: Path) -> None:
    (place / "link").symlink_to(place / "home")
    (place / "inside").symlink_to(place / "home" / "files")
    for name in ("home", "home/files", "link", "link/files", "inside", "docs/../home"):
        assert refused(place / name, rules(place)) == "own_data", name


def test_a_scan_of_a_folder_that_contains_our_data_skips_it(place: Path) -> None:
    os.link(place / "db" / "holdfast.db", place / "docs" / "copy.md")
    (place / "docs" / "linked").symlink_to(place / "home")
    (place / "docs" / "page.md").symlink_to(place / "home" / "server.json")
    (place / "docs" / "base.md").symlink_to(place / "db" / "holdfast.db")
    assert found(place, rules(place)) == ["db/b.md", "docs/a.md"]
    assert found(place, rules(place, links=True)) == ["db/b.md", "docs/a.md"]
    skipped = {one.path: one for one in scan(place, rules(place)) if isinstance(one, Skipped)}
    own = {path for path, one in skipped.items() if one.reason == "own_data"}
    assert own == {"db/holdfast.db", "db/holdfast.db-bells", "db/holdfast.db-wal", "docs/copy.md", "home"}
    # None counts as unseen, so a sync deletes items that an earlier version added from there.
    assert not any(one.unseen for one in skipped.values())


@pytest.mark.parametrize("relative", ["home/server.json", "home/files/blob", "db/holdfast.db", "db/holdfast.db-wal"])
def test_our_own_files_are_never_opened(place: Path, relative: str) -> None:
    with pytest.raises(Permanent) as error, open_found(place, relative, rules(place).limits):
        pass
    assert error.value.code == "own_data"
    with open_found(place, "docs/a.md", rules(place).limits) as file:
        assert file.read() == b"docs/a.md"


def test_files_next_to_the_target_of_a_linked_database_are_our_own_too(place: Path) -> None:
    (place / "links").mkdir()
    (place / "links" / "main.db").symlink_to(place / "db" / "holdfast.db")
    limits = FolderLimits(own_files=(place / "links" / "main.db",))
    assert found(place / "db", FolderRules(use_default_ignores=False, limits=limits)) == ["b.md"]
    with pytest.raises(Permanent) as error, open_found(place / "db", "holdfast.db-wal", limits):
        pass
    assert error.value.code == "own_data"


def test_a_scan_stays_below_the_allowed_roots(place: Path) -> None:
    (place / "docs" / "out").symlink_to(place / "db")
    (place / "docs" / "deep").mkdir()
    allowed = rules(place, place / "docs", place / "not there")
    assert found(place / "docs", allowed) == ["a.md"]
    assert found(place / "docs" / "deep", allowed) == []
    for name in ("", "db", "docs/out", "docs/../db"):
        assert refused(place / name, allowed) == "folder_not_allowed", name
    with pytest.raises(Permanent), open_found(place / "db", "b.md", allowed.limits):
        pass
    limits = allowed.limits
    assert limits.is_below_roots(place / "docs" / "gone")
    assert not limits.is_below_roots(place / "docs2")
    assert not limits.is_below_roots(place / "docs" / "out")


def test_a_folder_that_is_replaced_by_a_link_after_the_check_is_refused(place: Path) -> None:
    root = place / "docs"
    require_allowed(root, rules(place, root).limits)
    root.rename(place / "moved")
    root.symlink_to(place / "home")
    assert refused(root, rules(place)) == "own_data"
    root.unlink()
    root.symlink_to(place / "db")
    elsewhere = rules(place, place / "moved")
    assert refused(root, elsewhere) == "folder_not_allowed"


def test_two_unicode_spellings_of_one_name_are_one_file(tmp_path: Path) -> None:
    for name in ("Cafe\u0301.md", "Caf\u00e9.md", "Zoe\u0308.md"):
        (tmp_path / name).write_text(name)
    if len(list(tmp_path.iterdir())) < 3:
        pytest.skip("this file system has one spelling for a name")
    seen = {one.path: str(one.reason) if isinstance(one, Skipped) else "found" for one in scan(tmp_path)}
    assert seen == {"Cafe\u0301.md": "same_name", "Caf\u00e9.md": "found", "Zoe\u0308.md": "found"}
