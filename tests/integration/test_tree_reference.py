"""Random operations on trees, compared with a reference: search finds exactly the current content.

The reference is the folder on the disk, and the last accepted content of each upload. Every content has a unique word,
so a hit identifies its content.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from holdfast.catalog.repository import ItemKind, OnDuplicate
from holdfast.documents.operations import TERMINAL
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.engine.executor import Executor
from holdfast.engine.states import Operation, Status
from holdfast.errors import UnknownItem
from tests.support.audit import audit, audit_quiet
from tests.support.clock import FakeClock
from tests.support.harness import Rig

if TYPE_CHECKING:
    from holdfast.documents.selection import ItemWithStatus

PATHS = ("a.md", "b.md", "deep/a.md", "deep/er/c.md", "other/a.md", "a.md/d.md")
NAMES = ("note.md", "report.md", "a.md")
POINTS = ("claimed", "checkpoint", "settling", "settled")
LONG = timedelta(hours=1)  # longer than any lease or delay


class Killed(BaseException):
    """Simulates the death of a process: nothing after this point is executed."""


class Machine(RuleBasedStateMachine):
    """A base with a folder and uploads, and a worker that can be killed."""

    pattern: Path

    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="trees-"))
        self.root = self.home / "folder"
        self.root.mkdir()
        shutil.copy(self.pattern, self.home / "holdfast.db")
        self.clock = FakeClock()
        self.rig = Rig(f"sqlite:///{self.home / 'holdfast.db'}", self.home / "blobs", self.clock, indexes=("fulltext",))
        self.numbers = itertools.count(1)
        self.uploads: dict[str, str] = {}  # name -> its unique word
        self.words: set[str] = set()
        self.folder: int | None = None
        self.add_folder()

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            try:
                self.everything_comes_to_rest()
            finally:
                self.rig.close()
                shutil.rmtree(self.home)

    def content(self) -> tuple[str, bytes]:
        word = f"word{next(self.numbers)}x"
        self.words.add(word)
        return word, f"# Title\n\nHere is {word} alone.\n".encode()

    @rule()
    def add_folder(self) -> None:
        upload = Upload("folder", kind=ItemKind.DIRECTORY, source=str(self.root))
        (reply,) = self.rig.library.adder.add(self.rig.base, [upload])
        self.folder = reply.item

    @rule(path=st.sampled_from(PATHS))
    def write(self, path: str) -> None:
        """Write a file, and replace whatever exists at its path."""
        target = self.root / path
        for above in (self.root / parent for parent in reversed(Path(path).parents) if str(parent) != "."):
            if above.is_file():
                above.unlink()
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.content()[1])

    @rule(path=st.sampled_from(PATHS), to=st.sampled_from(PATHS))
    def move(self, path: str, to: str) -> None:
        if (self.root / path).is_file() and not (self.root / to).exists():
            if any((self.root / parent).is_file() for parent in Path(to).parents):
                return
            (self.root / to).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).rename(self.root / to)

    @rule(path=st.sampled_from(PATHS))
    def unlink(self, path: str) -> None:
        if (self.root / path).is_file():
            (self.root / path).unlink()

    @rule()
    def look(self) -> None:
        if self.folder is not None:
            self.rig.library.operations.refresh(self.rig.base, [self.folder])

    @rule(name=st.sampled_from(NAMES), policy=st.sampled_from(list(OnDuplicate)))
    def upload(self, name: str, policy: OnDuplicate) -> None:
        word, content = self.content()
        (reply,) = self.rig.library.adder.add(self.rig.base, [Upload(name, content)], AddOptions(on_duplicate=policy))
        if reply.accepted:
            self.uploads[reply.name] = word

    @rule(name=st.sampled_from(NAMES))
    def reindex(self, name: str) -> None:
        items = self.rig.library.items
        found = self.rig.library.catalog.find_items(self.rig.base, [(0, name)])
        for item in found.values():
            before = items.status(self.rig.base, item.id)
            (reply,) = self.rig.library.operations.reindex(self.rig.base, [item.id])
            assert reply.accepted == (before in TERMINAL)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        found = self.rig.library.catalog.find_items(self.rig.base, [(0, name)])
        for item in found.values():
            self.rig.library.remover.delete(self.rig.base, [item.id])
            self.uploads.pop(name, None)

    @rule()
    def delete_the_folder(self) -> None:
        if self.folder is not None:
            self.rig.library.remover.delete(self.rig.base, [self.folder])
            self.folder = None

    @rule()
    def work_for_a_while(self) -> None:
        for _ in range(5):
            self.rig.worker.run_next(20)

    @rule(path=st.sampled_from(PATHS))
    def delete_below_the_folder(self, path: str) -> None:
        """Delete an item whose file stays: the next refresh adds it as a new item."""
        if self.folder is None:
            return
        parent = self.folder
        try:
            for part in Path(path).parts:
                parent = self.rig.library.items.find(self.rig.base, part, parent).id
        except UnknownItem:
            return
        self.rig.library.remover.delete(self.rig.base, [parent])

    @rule(operation=st.sampled_from([Operation.FORCE, Operation.RETRY, Operation.INDEX]))
    def ask_of_all(self, operation: Operation) -> None:
        if self.folder is not None:
            self.rig.library.operations.request(self.rig.base, [self.folder], Action(operation))

    @rule(batch=st.integers(1, 5))
    def work(self, batch: int) -> None:
        self.rig.worker.run_next(batch)

    @rule()
    def sweep(self) -> None:
        self.rig.library.sweep(5)

    @rule(point=st.sampled_from(POINTS), times=st.integers(1, 6))
    def kill_the_worker(self, point: str, times: int) -> None:
        """Kill the worker when it passes a point for the `times`-th time; another one takes over after the lease."""
        left = itertools.count(1)

        def reach(here: str) -> None:
            if here == point and next(left) == times:
                raise Killed

        try:
            self.hire(reach).run_next(5)
        except Killed:
            self.clock.advance(LONG)

    @rule(name=st.sampled_from(NAMES))
    def die_while_adding(self, name: str) -> None:
        """Stop after the bytes are written and before the row is committed."""
        store: Any = self.rig.store
        real = store.admit_with

        def die(write: object) -> None:
            raise Killed

        store.admit_with = die
        try:
            self.rig.library.adder.add(self.rig.base, [Upload(name, self.content()[1])])
        except Killed:
            pass
        finally:
            store.admit_with = real

    def hire(self, reach: Any) -> Executor:
        rig = self.rig
        return Executor(
            rig.store,
            rig.library.indexers(),
            holder="mortal",
            clock=self.clock,
            rules=rig.store.rules,
            chance=lambda: 0.5,
            reach=reach,
        )

    @invariant()
    def nothing_is_shown_twice(self) -> None:
        if hasattr(self, "rig"):
            audit(self.rig)

    def everything_comes_to_rest(self) -> None:
        rig = self.rig
        if self.folder is not None:
            self.quiet()
            rig.library.operations.refresh(rig.base, [self.folder])
        self.quiet()
        found = {}
        for word in self.words:
            for hit in rig.find(word):
                if word in hit.text:
                    found[hit.document] = word
        names = {item.name for item in rig.children(rig.base)}
        assert names == {*self.uploads, *(["folder"] if self.folder is not None else [])}
        expected = sorted([*self.uploads.values(), *self.on_disk()])
        assert sorted(found.values()) == expected
        for item in rig.children(rig.base):
            assert rig.library.items.status(rig.base, item.id) in (Status.SUCCESS, Status.NOT_INDEXED)
        assert rig.count("items") == sum(len(self.below(item.id)) for item in rig.children(rig.base))
        audit_quiet(rig)

    def below(self, item: int) -> list[ItemWithStatus]:
        return self.rig.library.items.tree(self.rig.base, item)

    def on_disk(self) -> list[str]:
        if self.folder is None:
            return []
        texts = [Path(where, name).read_text() for where, _, names in os.walk(self.root) for name in names]
        return [word for text in texts for word in self.words if f" {word} " in text]

    def quiet(self) -> None:
        """Run workers and sweeps until no work is left, and skip all delays."""
        for _ in range(100):
            self.clock.advance(LONG)
            worked = False
            while self.rig.worker.run_next(20):
                worked = True
            if not self.rig.library.sweep(100) and not worked:
                return
        raise AssertionError("it never comes to rest")


@pytest.mark.proof
def test_search_finds_exactly_the_current_content(sqlite_pattern: Path) -> None:
    Machine.pattern = sqlite_pattern
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=30, stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
