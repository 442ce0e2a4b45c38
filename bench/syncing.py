"""What a second look at a folder of 10,000 files costs, beside reading the folder alone; SQLite, one process."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.indexing import InstantProvider, Shop
from holdfast.catalog.repository import ItemKind
from holdfast.documents.requests import Upload
from holdfast.sources.folder import FoundFile, scan

FILES, FOLDERS = 10_000, 200
MOST = 3.0  # times the time of reading the folder


def report(goals: dict[str, bool]) -> dict[str, Any]:
    """Print every figure, and note which goals are reached."""
    print(f"A folder of {FILES:,} small files in {FOLDERS} folders")
    with TemporaryDirectory() as name:
        root = Path(name) / "folder"
        _fill(root)
        shop = Shop(Path(name), ("fulltext",), InstantProvider())
        first = _timed(lambda: _add(shop, root))
        time.sleep(2.1)  # until the stamps can be trusted
        item = shop.library.items.find(shop.base, "folder").id
        _look(shop, item)  # notes the stamps of files that were too young
        before = _rows(shop)
        bare = min(_timed(lambda: _read(root)) for _ in range(3))
        second = min(_timed(lambda: _look(shop, item)) for _ in range(3))
        untouched = _rows(shop) == before
        shop.store.close()
    ratio = second / bare
    print(f"  first look, all indexed: {first:.1f} s")
    print(f"  second look: {second:.2f} s, {ratio:.1f} times reading the folder ({bare:.2f} s)")
    print(f"  rows of documents that it touched: {'none' if untouched else 'some'}")
    goals["sync: second look"] = ratio <= MOST and untouched
    return {"first_s": round(first, 1), "second_s": round(second, 2), "times_reading": round(ratio, 1)}


def _fill(root: Path) -> None:
    for number in range(FILES):
        folder = root / f"{number % FOLDERS:03}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.md").write_text(f"# Note {number}\n\nThis is note {number} of many.\n")


def _add(shop: Shop, root: Path) -> None:
    shop.library.adder.add(shop.base, [Upload("folder", kind=ItemKind.DIRECTORY, source=str(root))])
    _work(shop)


def _look(shop: Shop, item: int) -> None:
    shop.library.operations.refresh(shop.base, [item])
    _work(shop)


def _work(shop: Shop) -> None:
    while shop.worker.run_next(100):
        pass


def _read(root: Path) -> int:
    return sum(1 for entry in scan(root) if isinstance(entry, FoundFile))


def _rows(shop: Shop) -> list[Any]:
    documents = shop.rows("SELECT id, blob, digest, seen FROM library_items WHERE kind = 'file' ORDER BY id")
    return [documents, shop.rows("SELECT * FROM slots WHERE kind <> 'source' ORDER BY id")]


def _timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
