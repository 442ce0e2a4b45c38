"""Folder scans on a real file system: which files are found, which are skipped and why, and which are never opened."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.clock import Moment
from holdfast.errors import Permanent, Transient, WorkError
from holdfast.sources import folder
from holdfast.sources.folder import FolderRules, FoundFile, Skipped, Stamp, open_found, scan

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = FolderRules(use_default_ignores=False, use_gitignore=False)


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            target.mkdir()
        else:
            target.write_text(path)


def pass_a_tick(path: Path, scratch: Path) -> None:
    """Wait until the clock of the file system has moved since the file was written."""
    scratch.touch()
    while scratch.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        scratch.touch()


def found(root: Path, rules: FolderRules = FolderRules()) -> list[str]:  # noqa: B008 - frozen
    return [one.path for one in scan(root, rules) if isinstance(one, FoundFile)]


def skipped(root: Path, rules: FolderRules = FolderRules()) -> dict[str, str]:  # noqa: B008 - frozen
    return {one.path: str(one.reason) for one in scan(root, rules) if isinstance(one, Skipped)}


def content(root: Path, relative: str) -> bytes:
    with open_found(root, relative) as opened:
        return opened.read()


def refused(act: Callable[[], object], code: str, error: type[WorkError] = Permanent) -> WorkError:
    with pytest.raises(WorkError) as caught:
        act()
    assert (type(caught.value), caught.value.code) == (error, code)
    return caught.value


class TestScan:
    def test_every_file_is_found_once_in_order_with_its_stamp(self, tmp_path: Path) -> None:
        plant(tmp_path, "b/z.md", "b/a.md", "a.md", "b.md", "c/d/e/f.md", "empty/")
        assert found(tmp_path) == ["a.md", "b/a.md", "b/z.md", "b.md", "c/d/e/f.md"]
        first = next(one for one in scan(tmp_path) if isinstance(one, FoundFile))
        status = (tmp_path / "a.md").stat()
        assert first.stamp == Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def test_a_stamp_changes_with_its_file_even_if_size_and_mtime_are_restored(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        plant(root, "a.md")
        (before,) = scan(root)
        status = (root / "a.md").stat()
        pass_a_tick(root / "a.md", tmp_path / "scratch")
        (root / "a.md").write_text("A.md")
        os.utime(root / "a.md", ns=(status.st_atime_ns, status.st_mtime_ns))
        (after,) = scan(root)
        assert isinstance(before, FoundFile)
        assert isinstance(after, FoundFile)
        assert before.stamp[:2] == after.stamp[:2]
        assert before.stamp != after.stamp

    def test_a_fresh_stamp_may_still_hide_a_change(self) -> None:
        second = 1_000_000_000
        stamp = Stamp(1, 100 * second, 101 * second, 7)
        assert not stamp.settled(Moment(102_000_000))
        assert stamp.settled(Moment(104_000_000))

    def test_skipped_entries_are_reported_with_the_reason(self, tmp_path: Path) -> None:
        plant(tmp_path, ".git/config", "node_modules/x/y.js", "a/__pycache__/m.pyc", ".hidden", "a/n.txt~", "a/ok.md")
        assert found(tmp_path) == ["a/ok.md"]
        assert skipped(tmp_path) == dict.fromkeys(
            [".git", ".hidden", "a/__pycache__", "a/n.txt~", "node_modules"], "ignored"
        )

    def test_patterns_in_ignore_files_and_settings_are_applied(self, tmp_path: Path) -> None:
        plant(tmp_path, "a.log", "b/a.log", "b/keep.log", "b/c.md", "d.md", ".notes/e.md", ".git/HEAD")
        (tmp_path / ".gitignore").write_text("*.log\n")
        (tmp_path / "b/.gitignore").write_text("!keep.log\nc.md\n")
        assert found(tmp_path) == ["b/keep.log", "d.md"]
        (tmp_path / "b/.holdfastignore").write_text("!c.md\n")
        assert found(tmp_path, FolderRules(patterns=("d.*", "!.notes/", "!.git/"))) == [
            ".notes/e.md",
            "b/c.md",
            "b/keep.log",
        ]
        assert found(tmp_path, FolderRules(use_gitignore=False)) == ["a.log", "b/a.log", "b/c.md", "b/keep.log", "d.md"]

    def test_an_ignore_file_that_is_a_link_or_a_pipe_is_not_used(self, tmp_path: Path) -> None:
        plant(tmp_path, "in/a.md", "rules")
        (tmp_path / "rules").write_text("*.md")
        (tmp_path / "in/.gitignore").symlink_to(tmp_path / "rules")
        os.mkfifo(tmp_path / "in/.holdfastignore")
        assert found(tmp_path / "in") == ["a.md"]

    def test_a_folder_with_an_unreadable_ignore_file_is_skipped(self, tmp_path: Path) -> None:
        plant(tmp_path, "a/secret.md", "b.md")
        (tmp_path / "a/.gitignore").write_bytes(b"#" * (folder.IGNORE_FILE_BYTES + 1))
        assert found(tmp_path) == ["b.md"]
        assert skipped(tmp_path) == {"a": "unreadable"}

    def test_sockets_and_pipes_are_never_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.mkfifo(tmp_path / "pipe.md")
        monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket.md")
            assert skipped(tmp_path) == {"pipe.md": "special", "socket.md": "special"}
            refused(lambda: content(tmp_path, "socket.md"), "not_a_file")
        refused(lambda: content(tmp_path, "pipe.md"), "not_a_file")  # a pipe would block until there is a writer
        refused(lambda: content(Path("/dev"), "null"), "not_a_file")

    def test_names_that_are_not_valid_text_are_reported_and_unusual_names_are_found(self, tmp_path: Path) -> None:
        plant(tmp_path, "\u202egnp.md", "a\nb.md", "é.md", "x" * 252 + ".md", "a\\b.md")
        with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.md"), "wb"):  # noqa: PTH118, PTH123 - a Path cannot hold this name
            pass
        assert set(found(tmp_path)) == {"\u202egnp.md", "a\nb.md", "é.md", "x" * 252 + ".md", "a\\b.md"}
        assert skipped(tmp_path) == {"caf\\xe9.md": "bad_name"}
        for name in found(tmp_path):
            assert content(tmp_path, name)

    def test_an_unreadable_folder_is_reported_and_does_not_stop_the_scan(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plant(tmp_path, "a.md", "locked/b.md", "z.md")
        real = os.open

        def locked(path: Any, *args: Any, **kwargs: Any) -> int:
            if path == "locked":
                raise PermissionError(path)
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", locked)
        assert found(tmp_path) == ["a.md", "z.md"]
        (gap,) = (one for one in scan(tmp_path) if isinstance(one, Skipped))
        assert (gap.path, gap.reason, gap.unseen) == ("locked", "unreadable", True)

    def test_a_scan_stops_at_its_limits_and_reports_it(self, tmp_path: Path) -> None:
        plant(tmp_path, "a/b/c/d.md", "a/x.md", "b.md", "c.md")
        *_, last = scan(tmp_path, FolderRules(files=2))
        assert isinstance(last, Skipped)
        assert (last.path, last.reason, last.unseen) == ("b.md", "too_many", True)
        assert len(found(tmp_path, FolderRules(files=2))) == 2
        assert skipped(tmp_path, FolderRules(depth=2)) == {"a/b": "too_deep"}
        assert not any(one.unseen for one in scan(tmp_path) if isinstance(one, Skipped))

    def test_a_missing_folder_is_an_error_and_not_an_empty_folder(self, tmp_path: Path) -> None:
        plant(tmp_path, "file")
        missing = refused(lambda: list(scan(tmp_path / "gone")), "folder_missing", Transient)
        assert str(missing).startswith(f"The folder '{tmp_path / 'gone'}' does not exist: ")
        wrong = refused(lambda: list(scan(tmp_path / "file")), "not_a_folder")
        assert f"'{tmp_path / 'file'}' is not a folder." in str(wrong)
        refused(lambda: list(scan(tmp_path / "a\0b")), "not_a_folder")

    def test_file_descriptors_are_closed_even_if_a_scan_is_interrupted(self, tmp_path: Path) -> None:
        plant(tmp_path, "a/b/c/d.md", "a/b/c/e.md")
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted the same way twice
        scanning = scan(tmp_path)
        next(iter(scanning))
        scanning.close()  # type: ignore[attr-defined]
        list(scan(tmp_path))
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - see above

    def test_scanning_ten_thousand_files_takes_little_longer_than_listing_them(self, tmp_path: Path) -> None:
        for number in range(100):
            place = tmp_path / str(number)
            place.mkdir()
            for other in range(100):
                os.close(os.open(place / f"{other}.md", os.O_CREAT | os.O_WRONLY))
        (tmp_path / ".gitignore").write_text("\n".join(f"*.{number}" for number in range(100)))

        def bare() -> int:
            return sum(bool((Path(at) / name).stat()) for at, _, names in os.walk(tmp_path) for name in names)

        def taken(act: Callable[[], object]) -> float:
            began = time.process_time()
            act()
            return time.process_time() - began

        assert len(found(tmp_path)) == 10_000
        assert min(taken(lambda: found(tmp_path)) for _ in range(3)) < 5 * min(taken(bare) for _ in range(3)) + 0.1


class TestLinks:
    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        plant(tmp_path, "root/a.md", "outside/secret.md")
        (tmp_path / "root/link.md").symlink_to("a.md")
        (tmp_path / "root/way").symlink_to(tmp_path / "outside")
        (tmp_path / "root/loop").symlink_to(".")
        assert found(tmp_path / "root") == ["a.md"]
        assert skipped(tmp_path / "root") == {"link.md": "link", "loop": "link", "way": "link"}

    def test_only_links_to_files_inside_the_folder_are_followed_if_enabled(self, tmp_path: Path) -> None:
        plant(tmp_path, "root/deep/a.md", "root/.git/config", "outside/secret.md", "root2/secret.md")
        root = tmp_path / "root"
        for name, target in {
            "inside.md": "deep/a.md",
            "twice.md": "inside.md",
            "outside.md": "../outside/secret.md",
            "beside.md": "../root2/secret.md",
            "git.md": ".git/config",
            "broken.md": "nowhere",
            "self.md": "self.md",
            "folder": "deep",
            "up": "..",
        }.items():
            (root / name).symlink_to(target)
        rules = FolderRules(follow_links=True)
        followed = {one.path: one.real_path for one in scan(root, rules) if isinstance(one, FoundFile)}
        assert followed == {"deep/a.md": "deep/a.md", "inside.md": "deep/a.md", "twice.md": "deep/a.md"}
        assert skipped(root, rules) == {
            ".git": "ignored",
            "beside.md": "link_outside",
            "broken.md": "link_outside",
            "folder": "link",
            "git.md": "link_outside",
            "outside.md": "link_outside",
            "self.md": "link",
            "up": "link_outside",
        }
        assert content(root, followed["twice.md"]) == b"root/deep/a.md"

    def test_a_folder_replaced_by_a_link_during_a_scan_is_not_entered(self, tmp_path: Path) -> None:
        plant(tmp_path, "root/a.md", "root/b/c.md", "outside/secret.md")
        scanning = iter(scan(tmp_path / "root"))
        assert isinstance(next(scanning), FoundFile)
        shutil.rmtree(tmp_path / "root/b")
        (tmp_path / "root/b").symlink_to(tmp_path / "outside")
        assert [(one.path, type(one)) for one in scanning] == [("b", Skipped)]


class TestOpening:
    @pytest.mark.parametrize(
        "relative",
        ["../outside.md", "a/../../outside.md", "/etc/passwd", "", ".", "..", "a//b.md", "./a.md", "a/", "a\0.md"],
    )
    def test_a_path_outside_the_root_is_refused(self, tmp_path: Path, relative: str) -> None:
        plant(tmp_path, "root/a.md", "outside.md", "root/a/b.md" if relative.startswith("a/") else "root/x")
        refused(lambda: content(tmp_path / "root", relative), "outside_folder")

    @pytest.mark.parametrize("relative", ["gone.md", "gone/a.md", "a.md/b", "x" * 300, "\ud800.md", "caf\udce9.md"])
    def test_a_missing_file_is_reported_as_missing(self, tmp_path: Path, relative: str) -> None:
        plant(tmp_path, "a.md")
        refused(lambda: content(tmp_path, relative), "file_missing")

    def test_no_link_is_followed(self, tmp_path: Path) -> None:
        plant(tmp_path, "root/deep/a.md", "outside/secret.md")
        (tmp_path / "root/link.md").symlink_to("deep/a.md")
        (tmp_path / "root/way").symlink_to(tmp_path / "outside")
        refused(lambda: content(tmp_path / "root", "link.md"), "not_a_file")
        refused(lambda: content(tmp_path / "root", "way/secret.md"), "outside_folder")
        refused(lambda: content(tmp_path / "root", "deep"), "not_a_file")

    @pytest.mark.parametrize("swapped", ["a.md", "deep"])
    def test_a_file_or_folder_replaced_by_a_link_just_before_opening_is_not_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
    ) -> None:
        plant(tmp_path, "root/deep/a.md", "outside/a.md")
        real = os.open

        def racing(path: Any, *args: Any, **kwargs: Any) -> int:
            if path == swapped:
                place = tmp_path / ("root/deep/a.md" if swapped == "a.md" else "root/deep")
                place.rename(tmp_path / "away")
                place.symlink_to(tmp_path / ("outside/a.md" if swapped == "a.md" else "outside"))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", racing)
        with pytest.raises(Permanent):
            content(tmp_path / "root", "deep/a.md")

    def test_a_file_replaced_by_a_pipe_just_before_opening_does_not_block(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plant(tmp_path, "a.md")
        real = os.open

        def racing(path: Any, *args: Any, **kwargs: Any) -> int:
            if path == "a.md":
                (tmp_path / "a.md").unlink()
                os.mkfifo(tmp_path / "a.md")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", racing)
        refused(lambda: content(tmp_path, "a.md"), "not_a_file")

    @pytest.mark.parametrize("text", ["longer than before", "B.md"])
    def test_a_file_that_changes_while_it_is_read_is_reported(self, tmp_path: Path, text: str) -> None:
        plant(tmp_path, "a.md")
        status = (tmp_path / "a.md").stat()
        pass_a_tick(tmp_path / "a.md", tmp_path / "scratch")

        def read_and_write() -> None:
            with open_found(tmp_path, "a.md") as opened:
                assert opened.read(1) == b"a"
                (tmp_path / "a.md").write_text(text)
                os.utime(tmp_path / "a.md", ns=(status.st_atime_ns, status.st_mtime_ns))
                assert opened.read(100)

        refused(read_and_write, "file_changed", Transient)
        assert content(tmp_path, "a.md") == text.encode()

    def test_an_error_of_the_caller_is_passed_on_unchanged(self, tmp_path: Path) -> None:
        plant(tmp_path, "a.md")
        with pytest.raises(OSError, match="disk full"), open_found(tmp_path, "a.md"):
            raise OSError("disk full")


PARTS = st.lists(
    st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[^b]", "\\*", "\\a", ".t", "*.t", "[a-c]", "[[:alpha:]]", "[",
                     "]", " ", "\\ ", "é", "-", "[]a]", "{a,b}", "#", "!", "[/]", "\\"]),
    min_size=1, max_size=3,
).map("".join)  # fmt: skip
PATTERNS = st.builds(
    lambda keeps, anchored, parts, only: keeps + anchored + "/".join(parts) + only,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(PARTS | st.just("**"), min_size=1, max_size=3),
    st.sampled_from(["", "", "/", " "]),
)
NAMES = st.sampled_from(["a", "b", "ab", "a.t", "b.t", "[a]", "a b", "é", "-", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    return place


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
class TestGit:
    @settings(max_examples=150)
    @given(
        paths=st.sets(PATHS, min_size=3, max_size=12),
        top=st.lists(PATTERNS, max_size=4),
        deep=st.lists(PATTERNS, max_size=3),
    )
    def test_exactly_the_files_that_git_ignores_are_ignored(
        self, repository: Path, paths: set[str], top: list[str], deep: list[str]
    ) -> None:
        root = repository / "tree"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        planted = set()
        for path in sorted(paths):
            target = root / path
            if not target.exists() and all(not parent.is_file() for parent in target.parents):
                plant(root, path)
                planted.add(path)
        (root / ".gitignore").write_text("\n".join(top))
        if (root / "a").is_dir():
            (root / "a/.gitignore").write_text("\n".join(deep))
        asked = subprocess.run(
            ["git", "-C", str(root), "check-ignore", "--no-index", "-z", "--stdin"],
            input="\0".join(sorted(planted)).encode(),
            capture_output=True,
            check=False,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
        )
        ignored = set(asked.stdout.decode().split("\0")) - {""}
        here = {path for path in found(root, FolderRules(use_default_ignores=False)) if not path.endswith(".gitignore")}
        assert here == planted - ignored
