"""Copies rows and files into a closed database, verifies them, and opens it. Both moves and restores use it."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.db import closing
from holdfast.db.migrate import find_head, migrate
from holdfast.errors import StateConflict, StoreError
from holdfast.moving.files import copy_files
from holdfast.moving.tables import EVENTS, count_rows
from holdfast.moving.target import Mark, RowTarget, marks, release_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from holdfast.blobs import BlobStore
    from holdfast.db import Transaction
    from holdfast.db.closing import MoveState
    from holdfast.doctor import Finding
    from holdfast.moving.installation import Installation
    from holdfast.moving.source import RowSource
    from holdfast.moving.target import Report

    ListBlobs = Callable[[int], Iterator[tuple[int, list[str]]]]
    ListFindings = Callable[..., list[Finding]]

FILES = "files"  # the mark of the copied files
MAX_SHOWN = 5  # findings in an error


class Stage(StrEnum):
    """How far the target is, in order."""

    COPYING = "copying"
    RELEASED = "released"  # all rows are compared, and leases are cleared
    VERIFIED = "verified"


class CopyResult(NamedTuple):
    rows: int
    files: int


class Copy:
    """The target of a move or of a restore. No process can open it before `open`."""

    def __init__(self, target: Installation, source: RowSource, report: Report) -> None:
        self._target = target
        self._database = target.database
        self._source = source
        self._report = report
        self._writer = RowTarget(self._database, source, report)

    @property
    def stage(self) -> Stage:
        state = self.read_state()
        return Stage(json.loads(state.details).get("stage", Stage.COPYING)) if state else Stage.COPYING

    def read_state(self) -> MoveState | None:
        """Return what the target knows about the copy; None if it takes part in none."""
        if not self._target.exists():
            return None
        with self._database.reading() as tx:
            state = closing.read_move_state(tx.connection)
        return state if state is not None and state.role == closing.TARGET else None

    def prepare(self, move: str | None) -> bool:
        """Return whether this copy, named by `move`, has begun. Else create the tables of an empty target.

        Raises an error if the target has rows, or is the target of another copy.
        """
        if self._target.exists():
            with self._database.reading() as tx:
                version, found = closing.read_version(tx.connection), closing.read_move_state(tx.connection)
            if version == closing.ARRIVING:
                if found is not None and found.move == move:
                    return True
                other = found.other if found is not None else ""
                raise StateConflict("target_of_another_move", target=self._target.shown, source=other)
        migrate(self._database)
        self._target.require_empty()
        return False

    def begin(self, state: MoveState) -> None:
        """Close the empty target, unless this copy has done so."""
        if self.read_state() is not None:
            return

        def write(tx: Transaction) -> None:
            closing.create_move_state(tx.connection, state)
            marks.create(tx.connection, checkfirst=True)
            closing.write_version(tx.connection, closing.ARRIVING)

        self._database.write(write, durable=True)

    def copy_files(self, source: BlobStore, list_blobs: ListBlobs) -> None:
        """Copy the files that the items of the source name."""
        mark = self._writer.read_mark(FILES)
        after, copied = (mark.position[0] if mark.position else 0), mark.rows
        for last, names in list_blobs(after):
            copied += copy_files(names, source, self._target.library.blobs)
            done = Mark([last], copied)
            self._database.write(lambda tx, done=done: self._writer.write_mark(tx, FILES, done), durable=False)  # type: ignore[misc]
            self._report(FILES, copied, 0)

    def run(self) -> CopyResult:
        """Copy and compare all rows, and return the slots that workers of the source held."""
        if self.stage is Stage.COPYING:
            self._writer.copy_all()
            self._compare_counts()
            release_slots(self._target.library.store)
            self._target.tend()
            self._enter(Stage.RELEASED)
        rows = sum(self._writer.read_mark(part.name).rows for part in self._source.tables())
        return CopyResult(rows, self._writer.read_mark(FILES).rows)

    def verify(
        self, *, deep: bool, known: ListFindings = lambda **_: [], allowed: Collection[str] = frozenset()
    ) -> None:
        """Let the doctor check the target. What it also finds in the source is no error of the copy.

        `allowed` are the codes of findings that the source is known to have.
        """
        if self.stage is Stage.VERIFIED:
            return
        found = [one for one in self._target.list_findings(deep=deep) if one.code not in allowed]
        if found:
            before = {(one.code, one.where): one.count for one in known(deep=deep)}
            found = [one for one in found if one.count > before.get((one.code, one.where), 0)]
        if found:
            sentences = " ".join(one.sentence for one in found[:MAX_SHOWN])
            raise StoreError("copy_not_verified", target=self._target.shown, findings=sentences)
        self._enter(Stage.VERIFIED)

    def open(self) -> None:
        """Open the target for all processes."""

        def write(tx: Transaction) -> None:
            closing.write_version(tx.connection, find_head())
            closing.drop_move_state(tx.connection)
            marks.drop(tx.connection, checkfirst=True)

        self._database.write(write, durable=True)

    def _enter(self, stage: Stage) -> None:
        def write(tx: Transaction) -> None:
            state = closing.read_move_state(tx.connection)
            details = json.loads(state.details) if state else {}
            closing.write_move_details(tx.connection, json.dumps(details | {"stage": stage}))

        self._database.write(write, durable=True)

    def _compare_counts(self) -> None:
        """Compare the rows of each table with the source, before the target is changed in any way."""
        for part in self._source.tables():
            assert part.table is not None  # noqa: S101 - these parts are tables
            filters: dict[str, Any] = {"since": 0} if part.name == EVENTS else {}
            expected, found = self._source.count(part), self._database.read(count_rows(part.table), **filters)[0][0]
            if expected != found:
                raise StoreError("copy_incomplete", table=part.name, expected=expected, found=found)
