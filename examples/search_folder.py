"""Index a folder of documents and search it: no server, no key, no network.

python examples/search_folder.py FOLDER "what you want to know"
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.core.clock import SystemClock
from holdfast.knowledge.adding import Upload
from holdfast.library.catalogue import BaseSettings
from holdfast.runtime.executor import Executor
from holdfast.settings import Settings
from holdfast.wiring import Library, open_settings


def main(folder: Path, question: str) -> None:
    """Put every file in, work on all of them, and print the three best passages."""
    with TemporaryDirectory() as where:
        settings = Settings(database=f"sqlite:///{where}/holdfast.db", data=f"{where}/blobs")
        store = open_settings(settings)
        library = Library(store, settings)
        base = library.catalogue.create_base("folder", BaseSettings(indexes=("vector", "fulltext", "graph")))

        files = sorted(file for file in folder.rglob("*") if file.is_file())
        library.items.put(base, [Upload(str(file.relative_to(folder)), file.read_bytes()) for file in files])
        worker = Executor(store, library.indexers(), holder="me", clock=SystemClock(), rules=settings.rules)
        while worker.run_next(100):
            pass

        for hit in library.searching.search(base, question, limit=3):
            passage = hit.served.passage
            print(f"{hit.score:.2f}  {hit.served.name}  {' > '.join(passage.headings)}")
            print("      " + " ".join(passage.text.split())[:150])
        store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
