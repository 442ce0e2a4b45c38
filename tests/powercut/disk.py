"""The disk of a recording at any moment, and the disks that a power cut at this moment can leave.

After a cut, everything that was synced is there. Of the rest any part may be there: a sync of a file covers its content
but not its name; a sync of a folder covers the names in it but not their content. So the model is stricter than most
file systems, but not stricter than POSIX. It assumes two things: a rename is atomic, and a sector of 512 bytes is
written completely or not at all.

The content of a file of SQLite with the ending `-shm` means nothing after a cut, so it is made up.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tests.powercut.recording import Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.powercut.recording import Record

SECTOR = 512
TORN = 0.15  # how likely a write that reached the disk is torn
SHM_SIZES = (0, 3, 32768)


class Write(NamedTuple):
    """An unsynced change of the content of a file. Without data, the file gets the size `offset`."""

    offset: int
    data: bytes | None = None
    sectors: int | None = None  # of a torn write: a bit for each sector that reached the disk


@dataclass(eq=False)
class Node:
    """A file, a folder or a named pipe."""

    kind: Kind
    content: bytearray = field(default_factory=bytearray)  # synced
    unsynced: list[Write] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)  # what processes see in this folder
    synced_names: dict[str, Node] = field(default_factory=dict)


class NameChange(NamedTuple):
    """An unsynced change of one or two folders. `before` is the place that a node leaves, `after` the one it enters."""

    node: Node
    before: tuple[Node, str] | None
    after: tuple[Node, str] | None

    def needs(self, folder: Node) -> bool:
        """Return whether a sync of this folder makes the change durable: the folder that has the new name."""
        place = self.after or self.before
        return place is not None and place[0] is folder


Names = dict[Node, dict[str, Node]]
Change = TypeVar("Change")


class Disk:
    """Applies records in order. `ignore` names the syncs that are left out, to test the test."""

    def __init__(self, root: Path, *, ignore: Callable[[str], bool] = lambda _: False) -> None:
        self._prefix = str(root)
        self._ignore = ignore
        self.root = Node(Kind.MKDIR)
        self._inodes: dict[int, Node] = {root.stat().st_ino: self.root}
        self._names: dict[Node, str] = {self.root: ""}  # the last known path of each node, for `ignore`
        self._changes: list[NameChange] = []

    def apply(self, record: Record) -> None:
        match record.kind:
            case Kind.CREATE | Kind.MKDIR | Kind.FIFO:
                node = self._inodes[record.inode] = Node(record.kind)
                self._enter(node, None, record.path)
            case Kind.LINK:
                self._enter(self._inodes[record.inode], None, record.target)
            case Kind.RENAME:
                self._enter(self._inodes[record.inode], self._place(record.path), record.target)
            case Kind.REMOVE:
                folder, name = self._place(record.path)
                self._changes.append(NameChange(folder.names.pop(name), (folder, name), None))
            case Kind.WRITE:
                self._inodes[record.inode].unsynced.append(Write(record.offset, record.data))
            case Kind.TRUNCATE:
                self._inodes[record.inode].unsynced.append(Write(record.offset))
            case Kind.SYNC:
                self._sync(self._inodes[record.inode])
            case _:
                raise NotImplementedError(f"The recorder does not follow this call: {record.path} {record.target}")

    def tree(self) -> dict[str, bytes | None]:
        """Return what processes see: each path with the content of the file; None for folders and pipes."""
        return {
            path: bytes(_apply(bytearray(node.content), node.unsynced)) if node.kind is Kind.CREATE else None
            for path, node in _walk(self.root, lambda folder: folder.names)
        }

    def cut(self, target: Path, dice: random.Random | None) -> None:
        """Write a disk that a power cut at this moment can leave; without dice, only what was synced."""
        kept = _choose(self._changes, dice)
        names: Names = defaultdict(dict)
        for folder in {self.root, *self._names}:
            if folder.kind is Kind.MKDIR:
                names[folder] = dict(folder.synced_names)
        for change in kept:
            _change(names, change)
        target.mkdir(parents=True, mode=0o700)
        for path, node in _walk(self.root, lambda folder: names[folder]):
            _make(target / path.lstrip("/"), node, dice)

    def _enter(self, node: Node, before: tuple[Node, str] | None, path: str) -> None:
        folder, name = self._place(path)
        if before is not None:
            before[0].names.pop(before[1])
        folder.names[name] = node
        self._names[node] = path.removeprefix(self._prefix)
        self._changes.append(NameChange(node, before, (folder, name)))

    def _place(self, path: str) -> tuple[Node, str]:
        """Return the folder and the name of a path."""
        *folders, name = Path(path.removeprefix(self._prefix)).parts[1:]
        node = self.root
        for one in folders:
            node = node.names[one]
        return node, name

    def _sync(self, node: Node) -> None:
        if self._ignore(self._names[node]):
            return
        if node.kind is Kind.MKDIR:
            self._sync_names(node)
        else:
            _apply(node.content, node.unsynced)
            node.unsynced = []

    def _sync_names(self, folder: Node) -> None:
        """Make the changes of one folder durable, in order, and forget earlier changes of names that this removes."""
        left: list[NameChange] = []
        for change in self._changes:
            if not change.needs(folder):
                left.append(change)
                continue
            if change.after is not None:
                change.after[0].synced_names[change.after[1]] = change.node
            if change.before is not None:
                place, name = change.before
                if place.synced_names.get(name) is change.node:
                    del place.synced_names[name]
                left = [one for one in left if one.node is not change.node or one.after != change.before]
        self._changes = left


def _choose(changes: Sequence[Change], dice: random.Random | None) -> list[Change]:
    """Choose which unsynced changes reached the disk: none, all, the first ones, or any."""
    if dice is None:
        return []
    match dice.choices(("none", "all", "first", "any"), (4, 1, 2, 3))[0]:
        case "none":
            return []
        case "all":
            return list(changes)
        case "first":
            return list(changes[: dice.randint(0, len(changes))])
        case _:
            share = dice.random()
            return [change for change in changes if dice.random() < share]


def _change(names: Names, change: NameChange) -> None:
    """Apply a change, unless an earlier change that it needs was lost."""
    if change.before is not None:
        place, name = change.before
        if names[place].get(name) is not change.node:
            return
        del names[place][name]
    if change.after is not None:
        names[change.after[0]][change.after[1]] = change.node


def _walk(folder: Node, names: Callable[[Node], Mapping[str, Node]], path: str = "") -> Iterator[tuple[str, Node]]:
    for name, node in sorted(names(folder).items(), key=itemgetter(0)):
        yield f"{path}/{name}", node
        if node.kind is Kind.MKDIR:
            yield from _walk(node, names, f"{path}/{name}")


def _make(path: Path, node: Node, dice: random.Random | None) -> None:
    if node.kind is Kind.MKDIR:
        path.mkdir(mode=0o700)
    elif node.kind is Kind.FIFO:
        os.mkfifo(path, 0o600)
    elif path.name.endswith("-shm"):
        path.write_bytes(dice.randbytes(dice.choice(SHM_SIZES)) if dice else b"")
    else:
        path.write_bytes(_apply(bytearray(node.content), [_tear(one, dice) for one in _choose(node.unsynced, dice)]))


def _tear(write: Write, dice: random.Random | None) -> Write:
    """Lose some sectors of a write, sometimes."""
    if dice is None or write.data is None or dice.random() >= TORN:
        return write
    return write._replace(sectors=dice.getrandbits(len(write.data) // SECTOR + 2))


def _apply(content: bytearray, writes: Iterable[Write]) -> bytearray:
    """Change the content. What was never written before the end of a file is zero."""
    for offset, data, sectors in writes:
        size = offset + len(data or b"")
        if data is None:
            del content[offset:]
        if len(content) < size:
            content.extend(bytes(size - len(content)))
        if data is not None and sectors is None:
            content[offset:size] = data
        elif data is not None and sectors is not None:
            first = offset // SECTOR
            for number in range(first, (size - 1) // SECTOR + 1):
                start, end = max(offset, number * SECTOR), min(size, (number + 1) * SECTOR)
                if sectors >> (number - first) & 1:
                    content[start:end] = data[start - offset : end - offset]
    return content
