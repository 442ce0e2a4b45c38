"""`make read DATA=folder`: what becomes of every file below a folder, through the real pipeline; last a line of JSON.

Each file is put in, read in a cage and indexed. Whatever it is, it ends in a state that says what happened.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.catalog.repository import BaseSettings
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.executor import Executor
from holdfast.engine.states import Status
from holdfast.settings import Settings
from holdfast.wiring import Library, open_configured_store

ENDED = {Status.SUCCESS, Status.DEGRADED, Status.FAILED}


def main(folder: Path) -> int:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    with TemporaryDirectory() as where:
        settings = Settings(database=f"sqlite:///{where}/holdfast.db", data=f"{where}/blobs", attempts=1)
        store = open_configured_store(settings)
        library = Library(store, settings)
        base = library.catalog.create_base("files", BaseSettings(indexes=("vector", "fulltext", "graph")))
        library.adder.put(base, [Upload(str(file.relative_to(folder)), file.read_bytes()) for file in files])
        worker = Executor(store, library.indexers(), holder="files", clock=SystemClock(), rules=settings.rules)
        longest, started = 0.0, time.monotonic()
        while worker.run_next(1):
            longest = max(longest, time.monotonic() - started)
            started = time.monotonic()
        states: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for file in files:
            name = str(file.relative_to(folder))
            owner = store.owner(base.key, library.items.find(base, name).key)
            states[owner.status] += 1
            content = owner.slot("content")
            if content is not None and content.error is not None:
                reasons[content.error.code] += 1
                print(f"  {owner.status:10} {content.error.code:24} {name}")
        store.close()
    print(f"{len(files)} files; the longest took {longest:.1f} s")
    print(
        json.dumps(
            {"files": len(files), "states": dict(states), "reasons": dict(reasons), "longest_s": round(longest, 1)}
        )
    )
    return 0 if set(states) <= ENDED else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
