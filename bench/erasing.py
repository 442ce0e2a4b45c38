"""What it costs to take deleted documents off the disk: `python -m bench.erasing`.

A base of 1,000 documents with all indexes that need no language model. One is deleted, then 500 more; each time the
clean-up runs first, and then the erasing is measured, with how long anybody who writes meanwhile has to wait.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from holdfast.core.clock import SystemClock
from holdfast.knowledge.adding import Upload
from holdfast.library.catalogue import BaseSettings
from holdfast.runtime.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_settings

DOCUMENTS = 1_000
WORDS = 30_000


class Erased(NamedTuple):
    deleted: int
    cleaning: float  # seconds
    erasing: float
    idle: float  # what it costs when nothing was deleted
    longest_wait: float  # of whoever writes meanwhile
    megabytes: float


class Bench:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "holdfast.db"
        settings = Settings(database=f"sqlite:///{self.file}", data=str(folder / "blobs"))
        self.store = open_settings(settings)
        self.library = Library(self.store, settings)
        self.base = self.library.catalogue.create_base("b", BaseSettings(indexes=("fulltext", "vector", "graph")))
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
                f"# Document {n}\n\n" + " ".join(chance.choices(vocabulary, weights, k=600))
                for n in range(first, first + 100)
            ]
            self.library.items.put(
                self.base, [Upload(f"{first + n}.md", text.encode()) for n, text in enumerate(texts)]
            )
            self.work()

    def delete(self, numbers: list[int]) -> Erased:
        items = self.library.items
        items.delete(self.base, [items.find(self.base, f"{n}.md").id for n in numbers])
        cleaning = self.work()
        done = threading.Event()
        waits: list[float] = []

        def write() -> None:
            while not done.wait(0.002):
                began = time.perf_counter()
                self.store.database.write(
                    lambda tx: tx.plain("UPDATE counters SET value = value WHERE name = ''"), durable=False
                )
                waits.append(time.perf_counter() - began)

        other = threading.Thread(target=write)
        other.start()
        began = time.perf_counter()
        gone = self.library.erasing.erase(at_once=True)
        erasing = time.perf_counter() - began
        done.set()
        other.join()
        assert gone
        began = time.perf_counter()
        assert self.library.erasing.erase()
        idle = time.perf_counter() - began
        return Erased(len(numbers), cleaning, erasing, idle, max(waits), self.file.stat().st_size / 2**20)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.fill()
        for numbers in ([7], [8], list(range(100, 600))):
            one = bench.delete(numbers)
            print(
                f"  {one.deleted:4} of {DOCUMENTS:,} gone: clean-up {one.cleaning:5.2f} s, erasing {one.erasing:.2f} s;"
                f" a writer waits {one.longest_wait * 1000:4.0f} ms at most; nothing deleted {one.idle * 1000:.2f} ms;"
                f" file {one.megabytes:.0f} MB"
            )
        bench.store.close()


if __name__ == "__main__":
    main()
