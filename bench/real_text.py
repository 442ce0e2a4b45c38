"""How fast real texts are searched, on both databases: `python -m bench.real_text [FOLDER [DATABASE … [CHUNKS …]]]`.

The texts and questions are those of `bench.corpus`. FOLDER keeps them, and a base for each database and size, so that a
second run measures at once. Each question is asked once. Reported is the CPU time of this process and of the backends
of PostgreSQL together. Each base is measured in a process of its own: its first search is cold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psycopg

from bench.corpus import Corpus
from bench.databases import DATABASE, KINDS, backend_cpu
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store
from tests.support.servers import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.catalog import Base

SIZES = (20_000, 100_000)
INDEXES = ("vector", "fulltext", "graph")
CHUNK_SIZE, CHUNK_OVERLAP = 256, 32
BATCH = 200  # documents that are added in one call
WARM, ASKED = 20, 200  # questions that are not counted, and that are
GOALS = {  # milliseconds of the median of a hybrid search with a short question
    ("sqlite", 20_000): 6.0,
    ("sqlite", 100_000): 12.0,
    ("postgresql", 20_000): 12.0,
    ("postgresql", 100_000): 25.0,
}
LONG_TO_SHORT, P95_TO_P50 = 2.0, 2.5
WITH_PEERS = (KINDS[0], SIZES[0])  # the base whose vectors and words other programs search, too
TIMES_A_PEER = 3.0


@dataclass(frozen=True)
class Opened:
    """A base of real texts."""

    library: Library
    base: Base
    backends: Callable[[], float]  # CPU seconds

    @property
    def chunks(self) -> int:
        with self.library.store.database.reading() as tx:
            return int(tx.run_sql("SELECT count(*) FROM library_chunks")[0][0])


@dataclass(frozen=True)
class Latency:
    """CPU milliseconds of a search."""

    p50: float
    p95: float


@contextmanager
def open_base(folder: Path, kind: str, chunks: int) -> Iterator[Opened]:
    """Open the base of a size in this folder; fill it first if it is not complete."""
    place = folder / f"{kind}-{chunks}"
    place.mkdir(parents=True, exist_ok=True)
    with _database(kind, place) as (url, backends):
        settings = Settings(database=url, data=str(place / "blobs"))
        store = open_configured_store(settings)
        library = Library(store, settings)
        if not (place / "complete").exists():
            _fill(library, settings, Corpus(folder), chunks)
            (place / "complete").touch()
        base = library.catalog.bases()[0]
        library.calibrator.refresh(base)  # as a worker does in the background
        yield Opened(library, base, backends)
        store.close()


@contextmanager
def _database(kind: str, place: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the address of a database in a folder, and a function that reads the CPU seconds of its backends."""
    if kind == "sqlite":
        yield f"sqlite:///{place / 'holdfast.db'}", lambda: 0.0
        return
    place.chmod(0o755)  # PostgreSQL may run as another user
    with Postgres(place) as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                server.create_database(DATABASE)
                admin.execute(f"ALTER DATABASE {DATABASE} SET max_parallel_workers_per_gather = 0")
        yield server.address(DATABASE), lambda: backend_cpu(server.pid, DATABASE)


def _fill(library: Library, settings: Settings, corpus: Corpus, chunks: int) -> None:
    """Add documents in the order of the corpus until there are enough chunks, then let the indexes do maintenance."""
    known = library.catalog.bases()
    base = (
        known[0]
        if known
        else library.catalog.create_base(
            "bench", BaseSettings(indexes=INDEXES, chunk_size=CHUNK_SIZE, chunk_overlap=CHUNK_OVERLAP)
        )
    )
    worker = Executor(library.store, library.indexers(), holder="bench", clock=SystemClock(), rules=settings.rules)
    uploads: list[Upload] = []
    opened = Opened(library, base, lambda: 0.0)
    for name, text in corpus.documents():
        uploads.append(Upload(name.replace("/", "-"), text.encode()))
        if len(uploads) == BATCH:
            library.adder.put(base, uploads)
            uploads = []
            while worker.run_next(BATCH):
                pass
            if opened.chunks >= chunks:
                break
    for kind in INDEXES:
        for recipe in library.indexes.recipes(base, kind):
            library.indexes[kind].tend(recipe)
    if library.store.database.engine.dialect.name == "postgresql":
        with library.store.database.autocommit() as tx:
            tx.run_sql("VACUUM ANALYZE")


def measure(questions: Sequence[str], ask: Callable[[str], object], backends: Callable[[], float]) -> Latency:
    for question in questions[:WARM]:
        ask(question)
    times = []
    for question in questions[WARM:]:
        behind, started = backends(), time.process_time()
        ask(question)
        own = time.process_time() - started
        times.append(1000 * (own + backends() - behind))
    times.sort()
    return Latency(times[len(times) // 2], times[len(times) * 95 // 100])


def measure_base(folder: Path, kind: str, chunks: int) -> dict[str, Any]:
    """Return all figures of one base as JSON values."""
    with open_base(folder, kind, chunks) as opened:
        searcher, base, backends = opened.library.searcher, opened.base, opened.backends
        questions = Corpus(folder).questions(4 * (WARM + ASKED), 20_000)
        behind, started = backends(), time.process_time()
        searcher.search(base, questions.short[-1])
        cold = time.process_time() - started + backends() - behind
        figures: dict[str, Any] = {"chunks": opened.chunks, "cold_s": round(cold, 2)}
        for length in ("short", "long"):
            asked: list[str] = getattr(questions, length)
            for place, channel in enumerate((*INDEXES, "hybrid")):

                def ask(question: str, channel: str = channel) -> object:
                    if channel == "hybrid":
                        return searcher.search(base, question)
                    return searcher.search_channel(base, channel, question, 10)

                one = measure(asked[place * (WARM + ASKED) :][: WARM + ASKED], ask, backends)
                figures[f"{channel}, {length}"] = {"p50": round(one.p50, 2), "p95": round(one.p95, 2)}
        figures["memory_mb"] = round(_resident_megabytes(os.getpid()))
        if (kind, chunks) == WITH_PEERS:
            from bench.search_peers import measure_peers  # noqa: PLC0415 - packages that only this measurement needs

            figures["peers"] = measure_peers(opened.library, base, questions.short[:ASKED])
        return figures


def _resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))


def report(goals: dict[str, bool], folder: Path, kinds: Sequence[str] = KINDS, sizes: Sequence[int] = SIZES) -> Any:
    """Print every figure, and note which goals are reached."""
    found = {}
    for kind in kinds:
        for size in sizes:
            run = [sys.executable, "-m", "bench.real_text", "--base", str(folder), kind, str(size)]
            done = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True)
            figures = found[f"{kind} {size}"] = json.loads(done.stdout.splitlines()[-1])
            _print_base(goals, kind, size, figures)
    return found


def _print_base(goals: dict[str, bool], kind: str, size: int, figures: dict[str, Any]) -> None:
    print(f"Real texts on {kind}, {figures['chunks']:,} chunks; milliseconds of CPU, with backends")
    print(f"  the first search of a process takes {figures['cold_s']:.2f} s; {figures['memory_mb']} MB afterwards")
    for length in ("short", "long"):
        for channel in (*INDEXES, "hybrid"):
            one = figures[f"{channel}, {length}"]
            print(f"  {length:6} {channel:9} p50 {one['p50']:8.2f}  p95 {one['p95']:8.2f}")
    name = f"real text: {kind}, {size}"
    short, long = figures["hybrid, short"], figures["hybrid, long"]
    if (kind, size) in GOALS:
        goals[f"{name}, short"] = short["p50"] <= GOALS[kind, size]
    goals[f"{name}, long to short"] = long["p50"] <= LONG_TO_SHORT * short["p50"]
    if peers := figures.get("peers"):
        for peer, milliseconds in peers.items():
            print(f"  {peer:16} p50 {milliseconds:8.2f}")
        goals[f"{name}, peers"] = short["p50"] <= TIMES_A_PEER * max(peers.values())
    goals[f"{name}, p95"] = short["p95"] <= P95_TO_P50 * short["p50"]


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--base"]:
        print(json.dumps(measure_base(Path(arguments[1]), arguments[2], int(arguments[3]))))
        return
    reached: dict[str, bool] = {}
    kinds = [word for word in arguments[1:] if word in KINDS] or KINDS
    sizes = [int(word) for word in arguments[1:] if word.isdigit()] or SIZES
    if arguments:
        report(reached, Path(arguments[0]), kinds, sizes)
    else:
        with TemporaryDirectory() as temporary:
            report(reached, Path(temporary), kinds, sizes)
    for goal, is_reached in reached.items():
        print(f"  {'reached' if is_reached else 'MISSED '}  {goal}")


if __name__ == "__main__":
    main(sys.argv[1:])
