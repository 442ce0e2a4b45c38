"""A new database of either kind for a measurement, and the CPU time that it costs."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.support.servers import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = ("sqlite", "postgresql")
DATABASE = "bench"


@contextmanager
def opened(
    kind: str, folder: Path, *, durable: bool = False, connections: int = 100
) -> Iterator[tuple[str, Callable[[], float]]]:
    """Create a database; yield its address and a function that reads the CPU seconds of this process and of it.

    Without `durable`, PostgreSQL does not sync the disk.
    """
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'holdfast.db'}", time.process_time
        return
    folder.chmod(0o755)  # PostgreSQL may run as another user
    (folder / "postgres").mkdir()
    with Postgres(folder / "postgres", durable=durable) as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute(f"ALTER SYSTEM SET max_connections = {connections}")
        server.stop()
        server.start()
        url = server.create_database(DATABASE)
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:  # all work in measured processes
            admin.execute(f"ALTER DATABASE {DATABASE} SET max_parallel_workers_per_gather = 0")
        yield url, lambda: time.process_time() + backend_cpu(server.pid, DATABASE)


def backend_cpu(postmaster: int, database: str) -> float:
    """Return the CPU seconds of the processes that serve a database.

    Further processes, which PostgreSQL starts for parallel statements and for the log, are not included.
    """
    nanoseconds = 0
    for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            if f" {database} ".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                nanoseconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return nanoseconds / 1e9
