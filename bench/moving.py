"""What it costs to move and to back up a library: `python -m bench.moving [DOCUMENTS]`.

A base with full text, vectors and graph, 10,000 documents by default. Each step is compared with a bare copy of the
same tables: rows read with `SELECT *` and written with `executemany` (SQLite) or COPY (PostgreSQL), without full text,
files, checks, marks or checksums. CPU time is that of this process and of PostgreSQL. The doctor is measured apart.
"""

from __future__ import annotations

import random
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from bench import deleting
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.moving import backup, installation, move
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store, open_installation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCUMENTS = 10_000
WORDS = 250  # of a document
BARE_ROWS = 1_000
INDEXES = ("fulltext", "vector", "graph")


@dataclass(slots=True)
class Spent:
    """The costs of one step."""

    name: str
    seconds: float = 0.0
    cpu: float = 0.0
    rows: int = 0


@contextmanager
def measuring(name: str, found: list[Spent], cpu: Callable[[], float]) -> Iterator[Spent]:
    spent = Spent(name)
    began, before = time.perf_counter(), cpu()
    yield spent
    spent.seconds, spent.cpu = time.perf_counter() - began, cpu() - before
    found.append(spent)
    print(f"{name:34} {spent.seconds:8.1f} s {spent.cpu:8.1f} s CPU {spent.rows or '':>10}", flush=True)


def fill(settings: Settings, documents: int) -> None:
    """Index generated documents."""
    store = open_configured_store(settings)
    library = Library(store, settings)
    base = library.catalog.create_base("b", BaseSettings(indexes=INDEXES))
    worker = Executor(store, library.indexers(), holder="bench", clock=SystemClock(), rules=store.rules)
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(30_000)]
    weights = [1 / (number + 1) for number in range(len(words))]
    for first in range(0, documents, 500):
        library.adder.put(
            base,
            [
                Upload(f"{n}.md", f"# Document {n}\n\n{' '.join(chance.choices(words, weights, k=WORDS))}".encode())
                for n in range(first, min(first + 500, documents))
            ],
        )
        while worker.run_next(100):
            pass
    store.close()


def copy_bare(source: Path, target: str, folder: Path) -> int:
    """Copy the tables of SQLite without anything else; return the number of rows."""
    count = 0
    with closing(sqlite3.connect(source)) as read:
        tables = read.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
        kept = [(name, sql) for name, sql in tables.fetchall() if not name.startswith(("sqlite_", "fulltext_"))]
        if target == "sqlite":
            with closing(sqlite3.connect(folder / "bare.db")) as write:
                for name, sql in kept:
                    write.execute(sql)
                    count += _insert(read, write, name)
                write.commit()
            return count
        with psycopg.connect(target) as write_to, write_to.cursor() as cursor:
            for name, _ in kept:
                rows = read.execute(f"SELECT * FROM {name}")  # noqa: S608 - our tables
                cursor.execute(f"CREATE TABLE bare_{name} ({_columns(rows)})")
                with cursor.copy(f"COPY bare_{name} FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row([cell if isinstance(cell, bytes) else _text(cell) for cell in row])
                        count += 1
    return count


def _insert(read: sqlite3.Connection, write: sqlite3.Connection, name: str) -> int:
    info = read.execute(f"PRAGMA table_xinfo({name})").fetchall()
    columns = ", ".join(f'"{row[1]}"' for row in info if not row[6])
    marks = ", ".join("?" for row in info if not row[6])
    rows, count = read.execute(f"SELECT {columns} FROM {name}"), 0  # noqa: S608 - our tables
    while batch := rows.fetchmany(BARE_ROWS):
        write.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", batch)  # noqa: S608 - our tables
        count += len(batch)
    return count


def _columns(rows: sqlite3.Cursor) -> str:
    return ", ".join(
        f'"{column[0]}" {"bytea" if column[0] in ("vector", "value") else "text"}' for column in rows.description
    )


def _text(cell: Any) -> str | None:
    return None if cell is None else str(cell)


def measure(documents: int) -> list[Spent]:
    found: list[Spent] = []
    with tempfile.TemporaryDirectory() as place, deleting.postgres(Path(place)) as (postgres, cpu):
        folder = Path(place)
        settings = Settings(
            home=str(folder), database=f"sqlite:///{folder / 'holdfast.db'}", data=str(folder / "files")
        )
        with measuring("indexing, for comparison", found, cpu):
            fill(settings, documents)

        def end(address: str, data: str) -> installation.Installation:
            return open_installation(settings, address, data)

        with measuring("bare copy to SQLite", found, cpu) as bare:
            bare.rows = copy_bare(folder / "holdfast.db", "sqlite", folder)
        moved = f"sqlite:///{folder / 'moved.db'}"
        checking = list[Spent]()
        with doctor_apart(checking, cpu), measuring("move to SQLite with files", found, cpu) as spent:
            ends = end(settings.database, settings.data), end(moved, str(folder / "moved files"))
            spent.rows = move.Move(*ends, move.MoveOptions()).run().rows
        move.Move(*ends, move.MoveOptions()).abort()
        bare_target = postgres.replace("postgresql+psycopg://", "postgresql://")
        with measuring("bare copy to PostgreSQL", found, cpu) as bare:
            bare.rows = copy_bare(folder / "holdfast.db", bare_target, folder)
        with doctor_apart(checking, cpu), measuring("move to PostgreSQL", found, cpu) as spent:
            ends = end(settings.database, settings.data), end(postgres, settings.data)
            spent.rows = move.Move(*ends, move.MoveOptions()).run().rows
        move.Move(*ends, move.MoveOptions()).abort()
        with measuring("backup with files", found, cpu) as spent:
            spent.rows = backup.write_backup(ends[0], folder / "backup", "bench").rows
        with doctor_apart(checking, cpu), measuring("restore with files", found, cpu) as spent:
            restored = end(f"sqlite:///{folder / 'restored.db'}", str(folder / "restored files"))
            spent.rows = backup.restore_backup(restored, folder / "backup").rows
        print(f"of these, the doctor: {', '.join(f'{one.cpu:.1f}' for one in checking)} s CPU")
        size = sum(file.stat().st_size for file in (folder / "backup").rglob("*") if file.is_file()) / 2**20
        print(f"backup: {size:.0f} MB, database: {(folder / 'holdfast.db').stat().st_size / 2**20:.0f} MB")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")
    return found


@contextmanager
def doctor_apart(found: list[Spent], cpu: Callable[[], float]) -> Iterator[None]:
    """Measure the doctor inside the block."""
    before = installation.Installation.list_findings

    def timed(one: installation.Installation, *, deep: bool) -> list[Any]:
        began = cpu()
        result = before(one, deep=deep)
        found.append(Spent("doctor", cpu=cpu() - began))
        return result

    setattr(installation.Installation, "list_findings", timed)  # noqa: B010 - only for this measurement
    try:
        yield
    finally:
        setattr(installation.Installation, "list_findings", before)  # noqa: B010


if __name__ == "__main__":
    measure(int(sys.argv[1]) if sys.argv[1:] else DOCUMENTS)
