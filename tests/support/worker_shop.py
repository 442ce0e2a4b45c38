"""A database on which worker programs run, and checks of the state that they leave."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from holdfast.engine.states import SlotState
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_work_notifier
from tests.support.processes import Program
from tests.support.scripted_indexer import WHOLE, make_rows_table, visible
from tests.support.stores import DOCUMENT, request

if TYPE_CHECKING:
    from tests.support.scripted_indexer import Fault

# Short enough for leases to expire during a test, long enough for a busy machine.
SHORT = {
    "lease": "1500ms",
    "heartbeat": "300ms",
    "period": "300ms",
    "ring_again": "1s",
    "backoff": "100ms",
    "backoff_cap": "1s",
}


class Shop:
    """One database, seen from outside the programs that use it."""

    def __init__(self, url: str, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.name = url.partition(":")[0].partition("+")[0]
        self._url = url
        self._more = settings
        opened = Settings(database=url, **dict[str, Any](settings))
        self._bell = open_work_notifier(url, opened.connections)
        self.store = open_configured_store(opened, self._bell)
        make_rows_table(self.store)

    def close(self) -> None:
        self.store.close()
        self._bell.close()

    def program(self, mode: str, *faults: Fault, **settings: str) -> Program:
        return Program(mode, self.folder, faults=faults, database=self._url, **(SHORT | self._more | settings))

    def add(self, *owners: str, **more: Any) -> None:
        for answer in self.store.admit([request(owner, **({"slots": DOCUMENT} | more)) for owner in owners]):
            assert answer.accepted

    def quiet(self) -> bool:
        """Return whether every job has an outcome."""
        return self._count("jobs WHERE outcome IS NULL") == 0

    def workers(self, parent: Program) -> list[int]:
        """Return the ids of the worker processes of a program in the mode `serves`."""
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        return [int(pid) for pid in children if "resource_tracker" not in _command(pid)]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [
            {**one.event.parsed_data, "owner": one.event.owner, "kind": one.event.kind, "fence": one.event.fence}
            for one in self.store.events(limit=100_000)
            if one.event.type == kind
        ]

    def count(self, kind: str) -> int:
        return len(self.events(kind))

    def audit(self) -> None:
        """Check that nothing was lost or repeated: each job ended once, and no slot has a holder."""
        assert self._count("jobs WHERE outcome IS NULL") == 0
        assert self._count("slots WHERE holder IS NOT NULL") == 0
        log = self.store.events(limit=100_000)
        ends = Counter(one.event.job for one in log if one.event.type.startswith("job."))
        assert set(ends.values()) <= {1}
        built = Counter(
            (one.event.owner, one.event.kind, one.event.generation) for one in log if one.event.type == "slot.completed"
        )
        assert set(built.values()) <= {1}

    def assert_built_once(self, owner: str) -> None:
        """Check that every slot serves one complete build, without missing or duplicate rows."""
        for slot in self.store.owner("shelf", owner).slots:
            assert (slot.state, slot.built) == (SlotState.READY, slot.wanted)
            assert visible(self.store, slot) == WHOLE

    def _count(self, what: str) -> int:
        with self.store.database.engine.connect() as connection:
            found: int = connection.execute(text(f"SELECT count(*) FROM {what}")).scalar_one()  # noqa: S608 - constants
        return found


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
