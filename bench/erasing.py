"""What it costs to take deleted documents off the disk: `python -m bench.erasing`.

A base of 1,000 documents with all indexes that need no language model. One is deleted, then 500 more; each time the
clean-up runs first, and then both stages of erasing are measured: how long they take, how long a writer has to wait
meanwhile, and how many words of the deleted documents are left in the files.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTS = 1_000
WORDS = 30_000
MARKED = "The harbour of Qz{n}zq Bay belongs to Qz{n}zq Town."  # words that only one document has


class Erased(NamedTuple):
    deleted: int
    cleaning: float  # seconds
    overwriting: float
    overwriting_wait: float  # the longest that a writer waited
    left: int  # marked words in the files after the first stage
    compacting: float
    compacting_wait: float
    left_at_last: int
    idle: float  # what it costs when nothing was deleted
    megabytes: float


class Bench:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "holdfast.db"
        settings = Settings(database=f"sqlite:///{self.file}", data=str(folder / "blobs"))
        self.store = open_configured_store(settings)
        self.library = Library(self.store, settings)
        self.base = self.library.catalog.create_base("b", BaseSettings(indexes=("fulltext", "vector", "graph")))
        self.worker = Executor(
            self.store,
            self.library.indexers(),
            holder="bench",
            clock=SystemClock(),
            rules=self.store.rules,
        )

    def work(self) -> float:
        began = time.perf_counter()
        while self.worker.run_next(100):
            pass
        return time.perf_counter() - began

    def fill(self) -> None:
        chance = random.Random(1)
        vocabulary = [
            "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(WORDS)
        ]
        weights = [1 / (n + 1) for n in range(WORDS)]
        for first in range(0, DOCUMENTS, 100):
            texts = [
                f"# Document {n}\n\n{MARKED.format(n=n)} " + " ".join(chance.choices(vocabulary, weights, k=600))
                for n in range(first, first + 100)
            ]
            self.library.adder.put(
                self.base, [Upload(f"{first + n}.md", text.encode()) for n, text in enumerate(texts)]
            )
            self.work()

    def delete(self, numbers: list[int]) -> Erased:
        items = self.library.items
        words = [f"qz{n}zq".encode() for n in numbers]
        assert self.count(words) > 0
        self.library.remover.delete(self.base, [items.find(self.base, f"{n}.md").id for n in numbers])
        cleaning = self.work()
        while self.library.indexes.garbage_collector().collect() or self.library.remover.continue_deletes(500):
            pass
        overwriting, overwriting_wait = self.timed(self.library.erasure.overwrite)
        left = self.count(words)
        compacting, compacting_wait = self.timed(self.library.erasure.run_now)
        left_at_last = self.count(words)
        assert self.library.erasure.read_state() == (None, None)
        began = time.perf_counter()
        self.library.erasure.run_due()
        idle = time.perf_counter() - began
        megabytes = self.file.stat().st_size / 2**20
        return Erased(
            len(numbers),
            cleaning,
            overwriting,
            overwriting_wait,
            left,
            compacting,
            compacting_wait,
            left_at_last,
            idle,
            megabytes,
        )

    def timed(self, work: Callable[[], object]) -> tuple[float, float]:
        """Return how long something takes, and the longest that a writer waits meanwhile."""
        done = threading.Event()
        waits: list[float] = []

        def write() -> None:
            while not done.wait(0.002):
                began = time.perf_counter()
                self.store.database.write(
                    lambda tx: tx.run_sql("UPDATE counters SET value = value WHERE name = ''"), durable=False
                )
                waits.append(time.perf_counter() - began)

        other = threading.Thread(target=write)
        other.start()
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        done.set()
        other.join()
        return took, max(waits, default=0.0)

    def count(self, words: list[bytes]) -> int:
        """Count words in the files; in another process, because closing a file here would drop the locks of SQLite."""
        code = (
            "import pathlib, re, sys; print(len(re.findall(sys.argv[2].encode(), b''.join("
            "path.read_bytes() for path in pathlib.Path(sys.argv[1]).glob('holdfast.db*') if path.is_file()))))"
        )
        pattern = f"(?i)({b'|'.join(words).decode()})"
        command = [sys.executable, "-c", code, str(self.file.parent), pattern]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.fill()
        for numbers in ([7], [8], list(range(100, 600))):
            one = bench.delete(numbers)
            print(
                f"  {one.deleted:4} of {DOCUMENTS:,} gone: clean-up {one.cleaning:.2f} s;"
                f" overwrite {one.overwriting:.2f} s, a writer waits {one.overwriting_wait * 1000:.0f} ms, {one.left}"
                f" words left; compact {one.compacting:.2f} s, a writer waits {one.compacting_wait * 1000:.0f} ms,"
                f" {one.left_at_last} words left; nothing deleted {one.idle * 1000:.2f} ms; file {one.megabytes:.0f} MB"
            )
        bench.store.close()


if __name__ == "__main__":
    main()
