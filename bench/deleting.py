"""What deleting costs beside indexing the same documents: `python -m bench.deleting [corpus.jsonl]`.

1,000 documents are indexed by meaning, by words and in a graph, and then all are deleted and overwritten on the disk,
on SQLite and on PostgreSQL. CPU time is compared: of this process, of those it started, and of every process of
PostgreSQL. The second stage of erasing, which runs in a quiet moment, is measured for itself. A file in BEIR layout
gives real texts; without one they are generated.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store
from tests.support.servers import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DOCUMENTS = 1_000
KINDS = ("vector", "fulltext", "graph")
SHARE = 0.25
TOGETHER = 100  # documents added or deleted in one call, and slots claimed at once
WORDS = 12_000


@dataclass(frozen=True)
class Costs:
    """CPU seconds."""

    database: str
    chunks: int
    indexing: float
    deleting: float
    overwriting: float  # of the seconds of deleting
    compacting: float  # not part of these

    @property
    def share(self) -> float:
        return self.deleting / self.indexing


class Bench:
    """A library with a worker in this process."""

    def __init__(self, url: str, folder: Path, cpu: Callable[[], float]) -> None:
        settings = Settings(database=url, data=str(folder / "blobs"))
        self.cpu = cpu
        self.store = open_configured_store(settings)
        self.library = Library(self.store, settings)
        self.base = self.library.catalog.create_base("bench", BaseSettings(indexes=KINDS))
        self.worker = Executor(
            self.store, self.library.indexers(), holder="bench", clock=SystemClock(), rules=settings.rules
        )

    def work(self) -> None:
        while self.worker.run_next(TOGETHER):
            pass

    def index(self, uploads: Sequence[Upload]) -> list[int]:
        ids: list[int] = []
        for first in range(0, len(uploads), TOGETHER):
            replies = self.library.adder.put(self.base, uploads[first : first + TOGETHER])
            ids += [reply.item for reply in replies if reply.item is not None]
            self.work()
        return ids

    def delete(self, ids: Sequence[int]) -> None:
        for first in range(0, len(ids), TOGETHER):
            self.library.remover.delete(self.base, ids[first : first + TOGETHER])
        self.work()
        with patch.object(self.library.erasure, "run_due"):  # is measured for itself
            while self.library.sweep(500):
                pass

    def overwrite(self) -> None:
        assert self.library.erasure.overwrite()

    def compact(self) -> None:
        assert self.library.erasure.run_now() == (None, None)

    def count(self, table: str) -> int:
        with self.store.database.reading() as tx:
            found: int = tx.run_sql(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 - our own table
            return found

    def measure(self, name: str, uploads: Sequence[Upload]) -> Costs:
        began = self.cpu()
        ids = self.index(uploads)
        indexed = self.cpu()
        chunks = self.count("library_chunks")
        assert len(ids) == len(uploads)
        start = self.cpu()
        self.delete(ids)
        deleted = self.cpu()
        self.overwrite()
        overwritten = self.cpu()
        self.compact()
        compacted = self.cpu()
        assert self.count("library_items") == self.count("library_chunks") == self.count("owners") == 0
        return Costs(name, chunks, indexed - began, overwritten - start, overwritten - deleted, compacted - overwritten)


def own_cpu() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def server_cpu(postmaster: int) -> float:
    """Return the CPU seconds of a PostgreSQL: of its processes, and of those that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        number, parent = int(path.parent.name), int(fields[1])
        if postmaster in (number, parent):
            ticks += sum(map(int, fields[11:15] if number == postmaster else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def sqlite(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    yield f"sqlite:///{folder / 'holdfast.db'}", own_cpu


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    (folder / "postgres").mkdir()
    with Postgres(folder / "postgres", durable=True) as server:
        yield server.create_database("bench"), lambda: own_cpu() + server_cpu(server.pid)


DATABASES = {"SQLite": sqlite, "PostgreSQL": postgres}


def texts(count: int, corpus: Path | None) -> list[Upload]:
    """Return documents as people have them: real ones, or generated prose with headings and names."""
    if corpus is not None:
        with corpus.open(encoding="utf-8") as lines:
            found = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
        return [Upload(f"{one['_id']}.md", f"# {one['title']}\n\n{one['text']}\n".encode()) for one in found]
    chance = random.Random(5)
    words = ["".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9))) for _ in range(WORDS)]
    weights = [1 / rank for rank in range(1, WORDS + 1)]
    people = [f"{chance.choice(words).title()} {chance.choice(words).title()}" for _ in range(300)]
    return [
        Upload(f"{number}.md", generated(number, random.Random(number), words, weights, people).encode())
        for number in range(count)
    ]


def generated(number: int, chance: random.Random, words: list[str], weights: list[float], people: list[str]) -> str:
    parts = [f"# Report {number}"]
    for section in range(3):
        parts.append(f"## Part {section}")
        for _ in range(2):
            sentences = []
            for _ in range(6):
                said = chance.choices(words, weights, k=chance.randint(8, 18))
                said.insert(chance.randint(1, 7), chance.choice(people))
                sentences.append(f"{said[0].capitalize()} {' '.join(said[1:])}.")
            parts.append(" ".join(sentences))
    return "\n\n".join(parts) + "\n"


def measure(database: str, count: int = DOCUMENTS, corpus: Path | None = None) -> Costs:
    uploads = texts(count, corpus)
    with TemporaryDirectory() as folder, DATABASES[database](Path(folder)) as (url, cpu):
        Path(folder).chmod(0o755)  # PostgreSQL may run as another user
        bench = Bench(url, Path(folder), cpu)
        costs = bench.measure(database, uploads)
        bench.store.close()
    return costs


def report(goals: dict[str, bool], count: int = DOCUMENTS, corpus: Path | None = None) -> dict[str, Any]:
    """Print every figure, and note which goals are reached."""
    print(f"Deleting {count:,} documents beside indexing them ({', '.join(KINDS)}); CPU of all processes")
    shares = {}
    for database in DATABASES:
        one = measure(database, count, corpus)
        shares[database] = round(one.share, 3)
        print(
            f"  {database:11} {one.chunks:,} chunks: indexing {one.indexing:.2f} s, deleting {one.deleting:.2f} s"
            f" = {one.share:.0%} (of that overwriting {one.overwriting:.2f} s); compacting {one.compacting:.2f} s"
        )
        goals[f"delete: {database}"] = one.share <= SHARE
    return shares


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    began = time.monotonic()
    report(reached, corpus=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    print(f"  {reached}; {time.monotonic() - began:.0f} s")
    sys.exit(not all(reached.values()))
