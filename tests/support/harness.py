"""A base with documents, indexes and a worker in one process, on either database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.catalog.repository import BaseSettings, read_items
from holdfast.documents.requests import Action, Upload
from holdfast.engine.executor import Executor
from holdfast.engine.states import Operation
from holdfast.settings import Settings
from holdfast.tracing import NO_TRACER
from holdfast.wiring import Library
from tests.support.schema import metadata
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from holdfast.catalog.repository import Base, Item
    from holdfast.documents.requests import ItemReply
    from holdfast.engine.slot import Slot
    from holdfast.engine.store.base import Owner
    from holdfast.llm.base import UnmeteredProvider
    from holdfast.search.calibration import Calibration
    from holdfast.search.results import Hit
    from holdfast.tracing import Tracer
    from tests.support.clock import FakeClock


class Rig:
    """A base and a worker. Work runs only when a test starts it."""

    def __init__(
        self,
        url: str,
        folder: Path,
        clock: FakeClock,
        provider: UnmeteredProvider | None = None,
        *,
        speaker: UnmeteredProvider | None = None,
        settings: Mapping[str, Any] | None = None,
        tracer: Tracer = NO_TRACER,
        **base: Any,
    ) -> None:
        self.clock = clock
        self.folder = folder
        usual = {"home": str(folder.parent / "home"), "database": url, "data": str(folder)}
        numbers = Settings(**{**usual, **(settings or {})})
        self.store = open_test_store(url, clock, connections=numbers.connections)
        self.library = Library(self.store, numbers, embedder=provider, speaker=speaker, clock=clock, tracer=tracer)
        self.base: Base = self.library.catalog.create_base("shelf", BaseSettings(**base))
        self.indexers = self.library.indexers()
        self.worker = self.hire("worker")

    def hire(self, holder: str) -> Executor:
        """Create another worker."""
        return Executor(
            self.store,
            self.indexers,
            holder=holder,
            clock=self.clock,
            rules=self.store.rules,
            chance=lambda: 0.5,
            tracer=self.library.tracer,
        )

    def put(self, name: str, text: str | bytes, **more: Any) -> ItemReply:
        """Add or replace one document."""
        content = text.encode() if isinstance(text, str) else text
        return self.library.adder.put(self.base, [Upload(name, content)], **more)[0]

    def work(self, batch: int = 100) -> None:
        """Run the worker until no slot can be claimed."""
        while self.worker.run_next(batch):
            pass

    def calibrate(self) -> Calibration:
        """Measure the base, as a worker does in the background, and return what a search reads."""
        self.library.calibrator.refresh(self.base)
        self.library.searcher.clear_caches()
        return self.library.searcher.get_calibration(self.base)

    def index(self, name: str, text: str | bytes) -> Owner:
        """Add a document and build its slots."""
        self.put(name, text)
        self.work()
        return self.owner(name)

    def delete(self, *names: str) -> list[ItemReply]:
        return self.library.remover.delete(self.base, [self.library.items.find(self.base, name).id for name in names])

    def ask(self, name: str, operation: Operation) -> ItemReply:
        """Request an operation on an existing document."""
        items = [self.library.items.find(self.base, name).id]
        if operation is Operation.REINDEX:
            return self.library.operations.reindex(self.base, items)[0]
        return self.library.operations.request(self.base, items, Action(operation))[0]

    def owner(self, name: str) -> Owner:
        """Return the owner of a document, with its slots."""
        return self.store.owner(self.base.key, self.library.items.find(self.base, name).key)

    def children(self, base: Base, parent: int = 0) -> list[Item]:
        """Return the items in a container or at the top of a base, in the order in which they were added."""
        with self.store.database.reading() as tx:
            rows = tx.run_sql(
                f"SELECT id FROM library_items WHERE base_id = {base.id} AND parent_id = {parent} AND deleting = 0"  # noqa: S608
            )
            return sorted(read_items(tx, [id_ for (id_,) in rows]), key=lambda item: item.id)

    def slot(self, name: str, kind: str) -> Slot:
        """Return one slot of a document."""
        found = self.owner(name).slot(kind)
        assert found is not None
        return found

    def find(self, query: str, kind: str = "fulltext", limit: int = 100) -> list[Hit]:
        """Search one channel."""
        return self.library.searcher.search_channel(self.base, kind, query, limit)

    def sweep(self) -> None:
        """Run the garbage collector until it finds nothing."""
        sweeper = self.library.indexes.garbage_collector()
        while sweeper.collect():
            pass

    def count(self, table: str) -> int:
        """Count the rows of a table, named with or without the prefix `library_`."""
        name = f"library_{table}" if f"library_{table}" in metadata.tables else table
        with self.store.database.reading() as tx:
            found: int = tx.run_sql(f"SELECT count(*) FROM {name}")[0][0]  # noqa: S608 - constants of the tests
            return found

    def rows(self, kind: str) -> list[int]:
        """Return the chunks that have a row in an index, for any recipe."""
        found: list[int] = []
        for recipe in self.library.indexes.recipes(self.base, kind):
            found += self.library.indexes[kind].scan(recipe, 0, 1_000_000)
        return sorted(found)

    def path(self, blob: str | None) -> Path:
        """Return the file of a blob; the folder in it is named by the first character."""
        assert blob
        return self.folder / blob[0] / blob

    def close(self) -> None:
        self.store.close()
