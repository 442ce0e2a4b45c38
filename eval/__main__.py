"""`make eval DATA=dir`: how well a set in BEIR layout is searched, through the real pipeline; last a line of JSON.

The folder has `corpus.jsonl` (_id, title, text), `queries.jsonl` (_id, text) and `qrels.tsv`. Each document becomes a
Markdown file with its title as heading, is put in, indexed by a worker and searched, all with the defaults.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.search.fusion import HYBRID
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.search.results import Hit

CHANNELS = ("fulltext", "vector", "graph", HYBRID)
CUTS = (2, 5, 10, 100)


class Set(NamedTuple):
    """Documents, questions, and which documents answer them."""

    documents: list[Upload]
    queries: list[tuple[str, str]]
    relevant: Mapping[str, Mapping[str, int]]


def load(folder: Path) -> Set:
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0:
            relevant[query][document] = int(score)
    queries = [(one["_id"], one["text"]) for one in lines(folder / "queries.jsonl") if one["_id"] in relevant]
    documents = [Upload(f"{one['_id']}.md", markdown(one).encode()) for one in lines(folder / "corpus.jsonl")]
    return Set(documents, queries, relevant)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as file:
        yield from map(json.loads, file)


def markdown(document: dict[str, Any]) -> str:
    title = " ".join(document.get("title", "").split())
    return f"# {title}\n\n{document['text']}\n" if title else f"{document['text']}\n"


def best_documents(hits: Sequence[Hit]) -> list[str]:
    """Return the documents of the hits, each where its best passage stands."""
    return list(dict.fromkeys(hit.name.removesuffix(".md") for hit in hits))


def ndcg(found: Sequence[str], relevant: Mapping[str, int], cut: int = 10) -> float:
    gains = [(2.0 ** relevant.get(one, 0) - 1) / math.log2(rank + 2) for rank, one in enumerate(found[:cut])]
    best = sorted(relevant.values(), reverse=True)[:cut]
    return sum(gains) / math.fsum((2.0**gain - 1) / math.log2(rank + 2) for rank, gain in enumerate(best))


def main(folder: str, most: int | None = None) -> int:
    data = load(Path(folder))
    with TemporaryDirectory() as where:
        settings = Settings(database=f"sqlite:///{where}/holdfast.db", data=f"{where}/blobs")
        store = open_configured_store(settings)
        library = Library(store, settings)
        base = library.catalog.create_base("eval", BaseSettings(indexes=("vector", "fulltext", "graph")))
        started = time.process_time()
        library.adder.put(base, data.documents)
        worker = Executor(store, library.indexers(), holder="eval", clock=SystemClock(), rules=settings.rules)
        while worker.run_next(100):
            pass
        print(f"{len(data.documents)} documents indexed in {time.process_time() - started:.1f} s of CPU")
        queries = data.queries[:most]
        sums: dict[str, list[float]] = {name: [0.0] * (1 + len(CUTS)) for name in CHANNELS}
        library.calibrator.refresh(base)  # as a worker does in the background
        times = []
        for query, text in queries:
            started = time.process_time()
            found = library.searcher.compare_channels(base, text)
            times.append(time.process_time() - started)
            relevant = data.relevant[query]
            for name in CHANNELS:
                documents = best_documents(found.get(name, []))
                shares = [sum(one in relevant for one in documents[:cut]) / len(relevant) for cut in CUTS]
                for place, value in enumerate([ndcg(documents, relevant), *shares]):
                    sums[name][place] += value
        measured = library.searcher.get_calibration(base)
        store.close()
    table = {name: [round(value / len(queries), 4) for value in values] for name, values in sums.items()}
    heads = ["nDCG@10", *(f"R@{cut}" for cut in CUTS)]
    print(f"{'':10}" + "".join(f"{head:>10}" for head in heads))
    for name, values in table.items():
        print(f"{name:10}" + "".join(f"{value:10.4f}" for value in values))
    milliseconds = 1000 * sorted(times)[len(times) // 2]
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in measured.weights.items())
    print(
        f"{milliseconds:.1f} ms of CPU a query (median, all channels); "
        f"trusted: {weights}, ties {measured.link_trust:.2f}"
    )
    result = {name: dict(zip(heads, values, strict=True)) for name, values in table.items()}
    print(json.dumps({"set": Path(folder).name, "queries": len(queries), "ms": round(milliseconds, 1), **result}))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("Name the folder of the set: make eval DATA=folder")
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))
