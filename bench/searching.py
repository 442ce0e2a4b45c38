"""How fast 100,000 chunks are searched, by each channel and by all together; SQLite, one process.

The texts are made: words as often as in a language, titles that other documents name. A vector is the mean of what the
words of a text stand for, so that texts that share words are near each other and all are far from zero. Queries are
sentences and names out of the documents, each asked once: some of their words are heard everywhere, some hardly ever.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.indexing import DIMENSION, InstantProvider, Shop
from holdfast.documents.requests import Upload
from holdfast.llm.base import Embeddings, never_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CHUNKS = 100_000
SECTIONS = 110  # of a document; each becomes a chunk
VOCABULARY = 40_000
COMMON = 60  # words of a sentence that begin so are the grammar of the language
KINDS = ("vector", "fulltext", "graph")
WARM = 20  # queries that are not counted
ASKED = 200
GOALS = {"vector": None, "fulltext": None, "graph": None, "hybrid": 15.0}


class MeaningProvider(InstantProvider):
    """Embeds a text as the mean of its words, each of which stands for numbers of its own."""

    embedding_model = "words"

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, int] = {}

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:  # noqa: ARG002
        known, pool = self._known, self._pool
        vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for place, text in enumerate(texts):
            words = text.lower().split() or [""]
            vectors[place] = pool[[known.setdefault(word, len(known)) % len(pool) for word in words]].mean(axis=0)
        yield Embeddings(positions=tuple(range(len(texts))), vectors=vectors)


class Writer:
    """Writes documents in a language of its own, in which words are as unequal as in any other."""

    def __init__(self) -> None:
        chance = random.Random(5)
        syllables = [a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "an", "er", "il", "on")]
        made = {"".join(chance.choices(syllables, k=1 + place % 4)): None for place in range(2 * VOCABULARY)}
        self.words = np.array(list(made)[:VOCABULARY])
        rarity = 1 / (np.arange(len(self.words)) + 2.7)
        self._edges = np.cumsum(rarity / rarity.sum())
        names = [word.capitalize() for word in self.words[2_000:6_000]]
        self.titles = [f"{one} {other}" for one, other in zip(names, chance.sample(names, len(names)), strict=True)]

    def document(self, number: int) -> str:
        chance = np.random.default_rng(number)
        drawn = np.searchsorted(self._edges, chance.random(SECTIONS * 180))
        words = iter(self.words[np.minimum(drawn, len(self.words) - 1)].tolist())
        title = self.titles[number % len(self.titles)]
        parts = [f"# {title}"]
        for section in range(SECTIONS):
            sentences = [
                " ".join(next(words) for _ in range(length)).capitalize() for length in chance.integers(8, 20, 11)
            ]
            named = self.titles[int(chance.integers(len(self.titles)))]
            sentences[section % 11] += f" {next(words, 'e')} {named}"
            parts.append(f"## {title} {section}\n\n" + ". ".join(sentences) + ".")
        return "\n\n".join(parts) + "\n"

    def queries(self, documents: int, count: int) -> list[str]:
        """Return sentences, and questions of a few words and a name."""
        chance = random.Random(3)
        made = []
        for place in range(count):
            text = self.document(chance.randrange(documents))
            sentence = chance.choice(text.split(". ")[1:-1]).split("\n")[0]
            if place % 4 == 3:
                rare = chance.choice(self.words[3_000:].tolist())
                made.append(f"{chance.choice(self.titles)} {rare} {self.words[chance.randrange(200)]}")
            else:
                made.append(sentence)
        return made


@dataclass(frozen=True)
class Asked:
    """How long queries took, in milliseconds of CPU."""

    p50: float
    p95: float


def measure(queries: Sequence[str], ask: Callable[[str], object]) -> Asked:
    for query in queries[:WARM]:
        ask(query)
    times = []
    for query in queries[WARM:]:
        started = time.process_time()
        ask(query)
        times.append(1000 * (time.process_time() - started))
    times.sort()
    return Asked(times[len(times) // 2], times[len(times) * 95 // 100])


def fill(shop: Shop, writer: Writer) -> None:
    """Put in documents until there are enough chunks."""
    count = 0
    while shop.rows("SELECT count(*) FROM library_chunks")[0][0] < CHUNKS:
        shop.put([Upload(f"{n}.md", writer.document(n).encode()) for n in range(count, count + 50)])
        count += 50


def report(goals: dict[str, bool], folder: Path | None = None) -> dict[str, Any]:
    """Print every figure, and note which goals are reached; a folder that is given is kept, and found again."""
    writer = Writer()
    with TemporaryDirectory() as temporary:
        shop = Shop(folder or Path(temporary), KINDS, MeaningProvider())
        started = time.process_time()
        fill(shop, writer)
        ((chunks,),) = shop.rows("SELECT count(*) FROM library_chunks")
        print(f"Searching {chunks:,} chunks, written in {time.process_time() - started:.0f} s of CPU; SQLite")
        searching = shop.library.searcher
        queries = writer.queries(CHUNKS // (2 * SECTIONS), 5 * (WARM + ASKED))
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        searching.search(shop.base, queries[0])
        first = time.process_time() - started
        print(f"  the first query, which measures the base and fills what is kept in memory: {first:.1f} s of CPU")
        asks: dict[str, Callable[[str], object]] = {
            kind: lambda query, kind=kind: searching.search_channel(shop.base, kind, query, 10)  # type: ignore[misc]
            for kind in KINDS
        }
        asks["hybrid"] = lambda query: searching.search(shop.base, query)
        found = {}
        for place, (name, ask) in enumerate(asks.items()):
            one = measure(queries[place * (WARM + ASKED) :][: WARM + ASKED], ask)
            found[name] = {"p50_ms": round(one.p50, 2), "p95_ms": round(one.p95, 2)}
            print(f"  {name:9} p50 {one.p50:6.2f} ms of CPU, p95 {one.p95:6.2f}")
            if (goal := GOALS[name]) is not None:
                goals[f"search: {name}"] = one.p50 <= goal
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"  memory grew by {grown:.0f} MB, {1024 * 1024 * grown / chunks:.0f} bytes a chunk")
        shop.store.close()
    return {"chunks": chunks, "first_s": round(first, 2), "memory_mb": round(grown), **found}


if __name__ == "__main__":
    reached: dict[str, bool] = {}
    print(report(reached, Path(sys.argv[1]) if len(sys.argv) > 1 else None), reached)
