"""The model of a disk that the power cuts use: what a sync covers, and what a cut can leave."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.powercut.disk import Disk
from tests.powercut.recording import Kind, Record

if TYPE_CHECKING:
    from pathlib import Path

FILE, OTHER, FOLDER = 11, 12, 13
SECTORS = 4
CONTENT = b"".join(bytes([number]) * 512 for number in range(1, SECTORS + 1))


class Script:
    """Applies records to a disk, and cuts the power."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        self.inode = self.root.stat().st_ino
        self.disk = Disk(self.root)
        self._folder = folder
        self._numbers = count()

    def do(
        self, kind: Kind, inode: int, path: str = "", target: str = "", *, data: bytes = b"", offset: int = 0
    ) -> None:
        full = [f"{self.root}/{one}" if one else "" for one in (path, target)]
        self.disk.apply(Record(next(self._numbers), kind, inode, offset, full[0], full[1], data))

    def left(self, dice: random.Random | None = None) -> dict[str, bytes]:
        """Return the files after a cut; without dice, only what was synced."""
        folder = self._folder / f"cut-{next(self._numbers)}"
        self.disk.cut(folder, dice)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def all_left(self) -> list[dict[str, bytes]]:
        """Return what many cuts leave."""
        return [self.left(random.Random(seed)) for seed in range(200)]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_a_sync_of_a_file_covers_its_content_but_not_its_name(script: Script) -> None:
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.WRITE, FILE, data=b"krill")
    script.do(Kind.SYNC, FILE)
    assert script.left() == {}
    assert {one.get("a") for one in script.all_left()} == {None, b"krill"}
    script.do(Kind.SYNC, script.inode)
    assert script.left() == {"a": b"krill"}
    assert {one.get("a") for one in script.all_left()} == {b"krill"}


def test_a_sync_of_a_folder_covers_names_but_not_content(script: Script) -> None:
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.SYNC, script.inode)
    script.do(Kind.WRITE, FILE, data=b"krill")
    assert script.left() == {"a": b""}
    assert b"krill" in [one["a"] for one in script.all_left()]


def test_a_rename_is_durable_when_its_new_folder_is_synced(script: Script) -> None:
    script.do(Kind.MKDIR, FOLDER, "f")
    script.do(Kind.SYNC, script.inode)
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.RENAME, FILE, "a", "f/b")
    assert {tuple(one) for one in script.all_left()} == {(), ("a",), ("f/b",)}  # never both
    script.do(Kind.SYNC, FOLDER)
    assert {tuple(one) for one in script.all_left()} == {("f/b",)}


def test_a_removed_file_can_come_back_until_its_folder_is_synced(script: Script) -> None:
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.SYNC, script.inode)
    script.do(Kind.REMOVE, FILE, "a")
    assert {tuple(one) for one in script.all_left()} == {(), ("a",)}
    script.do(Kind.SYNC, script.inode)
    assert {tuple(one) for one in script.all_left()} == {()}


def test_a_new_file_can_have_the_name_of_a_removed_one(script: Script) -> None:
    for inode, data in ((FILE, b"old"), (OTHER, b"new")):
        script.do(Kind.CREATE, inode, "a")
        script.do(Kind.WRITE, inode, data=data)
        script.do(Kind.SYNC, inode)
        if inode == FILE:
            script.do(Kind.SYNC, script.inode)
            script.do(Kind.REMOVE, inode, "a")
    assert script.left() == {"a": b"old"}
    assert {one.get("a") for one in script.all_left()} == {None, b"old", b"new"}


def test_an_unsynced_write_can_be_torn_at_sectors(script: Script) -> None:
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.SYNC, script.inode)
    script.do(Kind.WRITE, FILE, data=CONTENT)
    found = {one["a"] for one in script.all_left()}
    assert {b"", CONTENT} < found
    for content in found - {b""}:
        parts = [content[start : start + 512] for start in range(0, len(content), 512)]
        assert all(part in (bytes([number]) * 512, bytes(512)) for number, part in enumerate(parts, 1))


def test_unsynced_writes_reach_the_disk_in_any_order(script: Script) -> None:
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.SYNC, script.inode)
    script.do(Kind.WRITE, FILE, data=b"x", offset=0)
    script.do(Kind.WRITE, FILE, data=b"y", offset=1)
    script.do(Kind.TRUNCATE, FILE, offset=1)
    assert {b"", b"x", b"\0y", b"xy", b"\0"} <= {one["a"] for one in script.all_left()}


def test_the_same_dice_leave_the_same_disk(script: Script) -> None:
    script.do(Kind.CREATE, FILE, "a")
    script.do(Kind.WRITE, FILE, data=CONTENT)
    script.do(Kind.SYNC, script.inode)
    assert script.left(random.Random(3)) == script.left(random.Random(3))


def test_a_call_that_the_recorder_does_not_follow_is_refused(script: Script) -> None:
    with pytest.raises(NotImplementedError, match="sendfile"):
        script.do(Kind.UNSUPPORTED, FILE, "sendfile")
