"""Moves an installation into another database, and its files into another blob store.

1. Close the source: from then on it refuses every write, and can be read. Record the move in both databases.
2. Copy tables, indexes and files. Return to the queue what the workers of the source held.
3. Compare the numbers of rows, and let the doctor check the target.
4. `finish`: mark the source as moved, then open the target.

At most one of the two databases accepts writes at any time. Each step may be interrupted, and the next call continues
it. `abort` opens the source again; nothing else of it has changed.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, NamedTuple

from holdfast.clock import Moment
from holdfast.db import closing
from holdfast.db.closing import MoveState
from holdfast.db.migrate import find_head
from holdfast.errors import BadRequest, StateConflict, StoreError
from holdfast.moving.copying import Copy, Stage
from holdfast.moving.source import DatabaseSource
from holdfast.moving.tables import all_tables

if TYPE_CHECKING:
    from holdfast.db import Transaction
    from holdfast.moving.copying import CopyResult
    from holdfast.moving.installation import Installation
    from holdfast.moving.target import Report


class MoveOptions(NamedTuple):
    events_since: Moment = Moment(0)  # older events are not copied


class Move:
    """A move from one installation to another, in whichever stage it is."""

    def __init__(
        self, source: Installation, target: Installation, options: MoveOptions, report: Report = lambda *_: None
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._report = report

    def run(self) -> CopyResult:
        """Copy everything that is not copied yet, and verify it."""
        state = self._require_source()
        rows = DatabaseSource(self._source.database, self._events_since(state))
        copy = Copy(self._target, rows, self._report)
        self._prepare_target(copy, state)
        if state is None:
            self._check_source(rows)
            self._count_old_events()
            state = self._close_source()
        copy.begin(state._replace(role=closing.TARGET, other=self._source.shown))
        if self._copies_files:
            copy.copy_files(self._source.library.blobs, rows.list_blobs)
        result = copy.run()
        copy.verify(deep=self._copies_files, known=self._source.list_findings)
        return result

    def finish(self) -> None:
        """Mark the source as moved, then open the target. Copies nothing."""
        with self._source.database.reading() as tx:
            state, version = closing.read_move_state(tx.connection), closing.read_version(tx.connection)
        copy = Copy(self._target, DatabaseSource(self._source.database, Moment(0)), self._report)
        arrived = copy.read_state()
        if state is None or arrived is None or arrived.move != state.move or copy.stage is not Stage.VERIFIED:
            raise StateConflict("move_not_verified", source=self._source.shown, target=self._target.shown)
        if version != closing.MOVED:
            self._source.database.write(lambda tx: closing.write_version(tx.connection, closing.MOVED), durable=True)
        copy.open()

    def abort(self) -> None:
        """Open the source again. The target stays closed, and may be removed."""
        state = self._require_source()
        if state is None:
            raise StateConflict("move_not_running", source=self._source.shown)

        def reopen(tx: Transaction) -> None:
            closing.accept_writes(tx, [table.name for table in all_tables()])
            closing.drop_move_state(tx.connection)

        self._source.database.write(reopen, durable=True)

    @property
    def _copies_files(self) -> bool:
        return self._source.data != self._target.data

    def _require_source(self) -> MoveState | None:
        """Return the move in which the source takes part; raise an error if it cannot be moved."""
        state = self._source.require_current()
        if state is not None and state.other != self._target.shown:
            raise StateConflict("move_other_target", source=self._source.shown, target=state.other)
        return state

    def _prepare_target(self, copy: Copy, state: MoveState | None) -> None:
        """Create the tables of an empty target; raise an error if it is not the target of this move."""
        if self._source.is_same_database(self._target):
            raise BadRequest("move_same_database", source=self._source.shown)
        copy.prepare(state.move if state is not None else None)

    def _check_source(self, rows: DatabaseSource) -> None:
        """Check what would otherwise fail late: running workers, the secret key, the extension, the place of files."""
        library = self._source.library
        workers = library.store.count_workers()
        if workers:
            raise StateConflict("move_source_in_use", source=self._source.shown, workers=workers)
        library.webhook_cipher.require_readable(self._source.database)
        rows.rows.require_vector_support(self._target.database)
        if self._copies_files:
            self._target.library.blobs.check()
        _, names = next(rows.list_blobs(), (0, []))
        if names and len(library.blobs.find_missing(names)) == len(names):
            raise StoreError("move_files_missing", source=self._source.shown, data=self._source.data)

    def _count_old_events(self) -> None:
        """Add the events that are not copied to the totals of the metrics."""
        while self._options.events_since and self._source.library.store.roll_up():
            pass

    def _close_source(self) -> MoveState:
        details = json.dumps({"events_since": self._options.events_since})
        state = MoveState(secrets.token_hex(8), closing.SOURCE, self._target.shown, find_head(), details)

        def close(tx: Transaction) -> None:
            closing.create_move_state(tx.connection, state)
            closing.refuse_writes(tx, [table.name for table in all_tables()], self._target.shown)

        self._source.database.write(close, durable=True)
        return state

    def _events_since(self, state: MoveState | None) -> Moment:
        """Return the option with which the move began."""
        if state is None:
            return self._options.events_since
        since: Moment = json.loads(state.details)["events_since"]
        return since
