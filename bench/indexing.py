"""What first indexing costs, what doing it again costs, and how fast the result is searched; SQLite, one process.

The embedder is free and instant, so that what is measured is ours: reading, dividing, writing, publishing. CPU time is
compared, because the machine is small and shared; beside it a bare sqlite3 loop writes the same rows.
"""

from __future__ import annotations

import hashlib
import random
import resource
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.db.sqlite import PRAGMAS
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.llm.base import DelegatedModelInfo, Embeddings, never_stop
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from holdfast.llm.base import Completion, Meter, Prompt, Provider

DOCUMENTS = 1_000
DIMENSION = 256
SIZE, OVERLAP = 256, 32
SHARE = 0.25


class InstantProvider:
    """Embeds without any work, or after a pause as long as a network's; counts what it is asked."""

    embedding_model = "instant"
    dimension = DIMENSION
    chat_model = None
    version = "1"

    def __init__(self, *, pause: float = 0.0, paid: bool = False) -> None:
        self.paid = paid
        self.texts = 0
        self._pause = pause
        self._pool = np.random.default_rng(7).standard_normal((4096, DIMENSION)).astype(np.float32)

    def with_meter(self, meter: Meter) -> Provider:
        return Accounted(self, meter) if self.paid else self

    def embed(self, texts: Sequence[str]) -> Embeddings:
        return next(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:  # noqa: ARG002
        self.texts += len(texts)
        time.sleep(self._pause)
        rows = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=2).digest()) & 4095 for text in texts]
        yield Embeddings(positions=tuple(range(len(texts))), vectors=self._pool[rows])

    def complete(self, prompt: Prompt) -> Completion:
        raise NotImplementedError(prompt)

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        raise NotImplementedError(prompt)

    def close(self) -> None:
        pass


class Accounted(DelegatedModelInfo):
    """The same provider where every call passes a meter."""

    def __init__(self, provider: InstantProvider, meter: Meter) -> None:
        super().__init__(provider)
        self._provider = provider
        self._meter = meter
        self.complete = provider.complete
        self.stream = provider.stream

    def embed(self, texts: Sequence[str]) -> Embeddings:
        return next(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        with self._meter(self._provider.embedding_model, texts) as bill:
            found = list(self._provider.embed_parts(texts, enough))
            bill.report_tokens(len(texts), 0)
        yield from found


@dataclass(frozen=True)
class First:
    """First indexing with some indexes."""

    kinds: tuple[str, ...]
    chunks: int
    ours: float  # CPU milliseconds a chunk
    bare: float

    @property
    def share(self) -> float:
        return self.bare / self.ours


@dataclass(frozen=True)
class Again:
    """A run over documents that are there already."""

    seconds: float
    texts: int
    new: int  # texts that are really new


class Shop:
    """A library in a folder with a worker in this process."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], provider: InstantProvider) -> None:
        self.path = folder / "holdfast.db"
        settings = Settings(database=f"sqlite:///{self.path}", data=str(folder / "blobs"))
        self.store = open_configured_store(settings)
        self.library = Library(self.store, settings, embedder=provider)
        known = {base.name: base for base in self.library.catalog.bases()}
        self.base = known.get("bench") or self.library.catalog.create_base(
            "bench", BaseSettings(indexes=kinds, chunk_size=SIZE, chunk_overlap=OVERLAP)
        )
        self.worker = Executor(
            self.store, self.library.indexers(), holder="bench", clock=SystemClock(), rules=settings.rules
        )

    def put(self, uploads: Sequence[Upload]) -> None:
        self.library.adder.put(self.base, uploads)
        while self.worker.run_next(100):
            pass

    def rows(self, sql: str) -> list[Any]:
        with self.store.database.reading() as tx:
            return tx.run_sql(sql)


def documents(count: int, *, edited: int = 0) -> list[Upload]:
    """Make Markdown as people write it: sections, paragraphs, sentences; the first few may be edited in one place."""
    chance = random.Random(11)
    words = ["".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9))) for _ in range(12_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [
        Upload(f"{number}.md", document(number, words, weights, edited=number < edited).encode())
        for number in range(count)
    ]


def document(number: int, words: list[str], weights: list[float], *, edited: bool) -> str:
    chance = random.Random(number)
    stock = iter(chance.choices(words, weights, k=3_200))
    parts, length = [f"# Document {number}"], 0
    while length < 15_000:
        parts.append(f"## Section {len(parts)}")
        for _ in range(chance.randint(2, 5)):
            sentences = (
                " ".join(next(stock, "end") for _ in range(chance.randint(8, 20))).capitalize() + "."
                for _ in range(chance.randint(3, 6))
            )
            parts.append(" ".join(sentences))
            length += len(parts[-1])
    if edited:
        parts[len(parts) // 2] += " This sentence was added."
    return "\n\n".join(parts) + "\n"


def measure_first(kinds: tuple[str, ...], count: int = DOCUMENTS) -> First:
    uploads = documents(count)
    with TemporaryDirectory() as folder:
        shop = Shop(Path(folder), kinds, InstantProvider())
        started = time.process_time()
        shop.put(uploads)
        ours = time.process_time() - started
        ((chunks,),) = shop.rows("SELECT count(*) FROM library_chunks")
        bare = bare_loop(shop, kinds, Path(folder) / "bare.db")
        shop.store.close()
    return First(kinds, chunks, 1000 * ours / chunks, 1000 * bare / chunks)


def bare_loop(shop: Shop, kinds: tuple[str, ...], path: Path) -> float:
    """Write the same rows with the sqlite3 module alone, every parameter ready made, a transaction a document."""
    copied = [
        (
            "library_chunks",
            "INSERT INTO library_chunks VALUES (?, ?, ?, ?, ?, ?, ?)",
            "SELECT owner_id, * FROM library_chunks",
        )
    ]
    copied.append(
        (
            "library_lists",
            "INSERT INTO library_lists VALUES (?, ?, ?, ?, ?, ?, ?)",
            "SELECT owner_id, * FROM library_lists",
        )
    )
    recipes = dict(shop.rows("SELECT kind, id FROM library_recipes"))
    for kind in kinds:
        table = f"{kind}_{recipes[kind]}"
        key, columns = (
            ("chunk", ("seq", "chunk", "vector")) if kind == "vector" else ("rowid", ("rowid", "headings", "body"))
        )
        chosen = ", ".join(f"{table}.{column}" for column in columns)
        copied.append(
            (
                table,
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES (?, ?, ?)",  # noqa: S608 - our own table
                f"SELECT owner_id, {chosen} FROM {table} JOIN library_chunks ON library_chunks.id = {table}.{key}",  # noqa: S608
            )
        )
    names = {name for name, _, _ in copied}
    made = [sql for table, sql in shop.rows("SELECT tbl_name, sql FROM sqlite_master WHERE sql > ''") if table in names]
    by_owner: dict[int, list[tuple[str, list[Any]]]] = {}
    for _, insert, select in copied:
        for owner, *row in shop.rows(select):
            inserts = by_owner.setdefault(owner, [])
            if not inserts or inserts[-1][0] != insert:
                inserts.append((insert, []))
            inserts[-1][1].append(row)
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode=WAL")
    for pragma in PRAGMAS:
        raw.execute(f"PRAGMA {pragma}")
    raw.execute("PRAGMA synchronous=NORMAL")
    for sql in made:
        raw.execute(sql)
    started = time.process_time()
    for inserts in by_owner.values():
        raw.execute("BEGIN IMMEDIATE")
        for insert, rows in inserts:
            raw.executemany(insert, rows)
        raw.execute("COMMIT")
    seconds = time.process_time() - started
    raw.close()
    return seconds


def measure_again(count: int = DOCUMENTS) -> tuple[Again, Again]:
    """Put in the same documents again, and then with one in a hundred edited; paid texts are counted."""
    with TemporaryDirectory() as folder:
        provider = InstantProvider(paid=True)
        shop = Shop(Path(folder), ("vector", "fulltext"), provider)
        shop.put(documents(count))
        unchanged = rerun(shop, provider, documents(count))
        edited = rerun(shop, provider, documents(count, edited=count // 100))
        shop.store.close()
    return unchanged, edited


def rerun(shop: Shop, provider: InstantProvider, uploads: Sequence[Upload]) -> Again:
    ((before,),) = shop.rows("SELECT count(*) FROM library_chunks")
    paid, started = provider.texts, time.perf_counter()
    shop.put(uploads)
    seconds = time.perf_counter() - started
    ((after,),) = shop.rows("SELECT count(*) FROM library_chunks")
    return Again(seconds, provider.texts - paid, after - before)


def measure_pause(count: int = 200) -> float:
    """Return how much longer indexing takes, in CPU and waiting, when each call takes 20 ms."""
    uploads = documents(count)
    seconds = []
    for pause in (0.0, 0.02):
        with TemporaryDirectory() as folder:
            shop = Shop(Path(folder), ("vector",), InstantProvider(pause=pause, paid=True))
            started = time.perf_counter()
            shop.put(uploads)
            seconds.append(time.perf_counter() - started)
            shop.store.close()
    return seconds[1] / seconds[0]


def measure_query(count: int = DOCUMENTS) -> float:
    """Return the median milliseconds of CPU of a vector query, hits confirmed."""
    with TemporaryDirectory() as folder:
        shop = Shop(Path(folder), ("vector",), InstantProvider())
        shop.put(documents(count))
        shop.library.searcher.search_channel(shop.base, "vector", "warm up", 10)
        times = []
        for number in range(50):
            started = time.process_time()
            shop.library.searcher.search_channel(shop.base, "vector", f"query {number}", 10)
            times.append(time.process_time() - started)
        shop.store.close()
    return 1000 * sorted(times)[len(times) // 2]


def measure_memory() -> float:
    """Return how much the peak memory of a worker grows from 250 documents to 1,000."""
    peaks = []
    for count in (250, 1_000):
        run = [sys.executable, "-m", "bench.indexing", str(count)]
        peaks.append(int(subprocess.run(run, check=True, capture_output=True, text=True).stdout))
    return peaks[1] / peaks[0]


def report(goals: dict[str, bool]) -> dict[str, Any]:
    """Print every figure, and note which goals are reached."""
    print(
        f"First indexing of {DOCUMENTS:,} Markdown documents with an embedder that costs nothing; SQLite, one process"
    )
    shares = {}
    for kinds, goal in ((("vector",), 0.2), (("vector", "fulltext"), 0.3)):
        first = measure_first(kinds)
        name = " + ".join(kinds)
        shares[name] = {"ms_per_chunk": round(first.ours, 3), "share_of_bare": round(first.share, 3)}
        print(
            f"  {name:18} {first.chunks:,} chunks, {first.ours:.3f} ms of CPU a chunk; a bare loop that writes the same"
            f" rows {first.bare:.3f} = {first.share:.0%}"
        )
        goals[f"index: {name}, CPU"] = first.ours <= goal
        goals[f"index: {name}, share"] = first.share >= SHARE
    unchanged, edited = measure_again()
    print(f"  the same again: {unchanged.seconds:.2f} s, {unchanged.texts} texts paid")
    print(f"  one in a hundred edited: {edited.seconds:.2f} s, {edited.texts} texts paid, {edited.new} are new")
    goals["index: unchanged"] = unchanged.seconds < 0.8 and unchanged.texts == 0
    goals["index: edited"] = edited.seconds < 1.2 and edited.texts == edited.new
    pause = measure_pause()
    print(f"  a provider that takes 20 ms a call: {pause:.2f} times as long")
    goals["index: slow provider"] = pause <= 1.1
    memory = measure_memory()
    print(f"  peak memory of 1,000 documents: {memory:.2f} times that of 250")
    goals["index: memory"] = memory <= 1.2
    query = measure_query()
    print(f"  a vector query: {query:.2f} ms of CPU")
    goals["index: vector query"] = query < 3
    return {
        "first": shares,
        "unchanged_s": round(unchanged.seconds, 2),
        "edited_s": round(edited.seconds, 2),
        "edited_texts": [edited.texts, edited.new],
        "slow_provider": round(pause, 2),
        "memory_growth": round(memory, 2),
        "vector_query_ms": round(query, 2),
    }


if __name__ == "__main__":
    with TemporaryDirectory() as where:
        one = Shop(Path(where), ("vector", "fulltext"), InstantProvider())
        for number in range(0, int(sys.argv[1]), 50):
            one.put(documents(number + 50)[number:])
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
