"""Never uses the id of an event twice, on SQLite.

A claim is committed without a sync, because nothing is lost if it is repeated. A client of the event stream may have
seen its events when the power fails. The commit is lost then, and SQLite would give its ids to the next events. A
client that continues after the last id it knows would miss those. So after each start of the machine the ids skip a
range that contains all lost ids.

PostgreSQL needs none of this: it syncs each commit that has events.
"""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.engine import liveness
from holdfast.errors import StoreFull, StoreReadOnly

if TYPE_CHECKING:
    from holdfast.db import Database, Transaction

SKIPPED = 10_000  # more events than are ever written without a sync in between
BOOT_SECONDS = 600  # accuracy of the time of the start, where the system has no id for it

SKIP = "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'events'"


def skip_lost_ids(database: Database) -> None:
    """Skip a range of ids if the machine was started since the database was last opened.

    The database keeps the start in `user_version`, which Holdfast uses for nothing else. An unnecessary skip, such as
    after a restore on another machine, is harmless. Where nothing can be written, no id is used either.
    """
    if database.engine.dialect.name != "sqlite":
        return
    boot = _identify_boot()

    def work(tx: Transaction) -> None:
        if _read_boot(tx) != boot:  # two processes may open the database at the same time
            tx.run_sql(SKIP, [SKIPPED])
            tx.run_sql(f"PRAGMA user_version = {boot}")

    with database.reading() as tx:
        known = _read_boot(tx)
    if known != boot:
        with suppress(StoreReadOnly, StoreFull):
            database.write(work, durable=True)


def _read_boot(tx: Transaction) -> int:
    return int(tx.run_sql("PRAGMA user_version")[0][0])


def _identify_boot() -> int:
    """Return a number for the last start of this machine, which fits into `user_version`; never its default, zero."""
    boot = liveness.read_boot_id() or str(round((time.time() - time.monotonic()) / BOOT_SECONDS))
    return (zlib.crc32(boot.encode()) & 0x7FFFFFFF) or 1
