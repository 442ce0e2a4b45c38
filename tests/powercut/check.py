"""Opens a disk that a power cut left, lets the product settle, and checks what users were told before the cut."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from unittest import mock

from holdfast.documents.requests import Upload
from holdfast.engine import liveness
from holdfast.engine.executor import Executor
from holdfast.engine.reconciler import Reconciler
from holdfast.engine.states import Status
from holdfast.errors import UnknownBase, UnknownItem
from holdfast.events.public_events import Cursor
from holdfast.llm.batches import BatchLimits
from holdfast.private_files import make_private_folder
from holdfast.service.opening import settings_for
from holdfast.settings import DATA_FOLDER
from holdfast.wiring import Library
from tests.powercut.workload import BASE, ENDINGS, read_message
from tests.support.audit import audit, audit_quiet
from tests.support.clock import FakeClock
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.catalog import Base
    from holdfast.engine.slot import Ring
    from tests.powercut.workload import Call, History, Request, Text, World

OFF = timedelta(minutes=10)  # how long the machine was off; all leases expire meanwhile
ROUNDS = 8


class LostPromise(AssertionError):
    """Something that a user was told before the cut is not true after it."""


def require(fact: object, what: str) -> None:
    if not fact:
        raise LostPromise(what)


class NoCarrier:
    """Carries no rings: the worker below asks for work itself."""

    needs_rings = False

    def room(self, kind: str, outstanding: Callable[[], int]) -> int:  # noqa: ARG002 - needs no rings
        return 0

    def carry(self, rings: Sequence[Ring]) -> None: ...


class Recovered:
    """The product on the disk that a cut left."""

    def __init__(self, home: Path, world: World) -> None:
        self.clock = FakeClock()
        self.clock.jump(OFF + timedelta(microseconds=time.time_ns() // 1000 - self.clock.now()))
        make_private_folder(home)
        settings = replace(settings_for(home), **world.settings())  # type: ignore[arg-type]
        self.store = open_test_store(settings.database, self.clock)
        self.library = Library(self.store, settings, clock=self.clock)
        self.folder = home / DATA_FOLDER
        self._worker = Executor(
            self.store, self.library.indexers(), holder="after", clock=self.clock, rules=self.store.rules
        )
        self._reconciler = Reconciler(
            self.store,
            NoCarrier(),
            tuple(self.library.indexers()),
            self.store.rules,
            clock=self.clock,
            sweep=self.library.sweep,
        )
        self._sender = self.library.webhook_sender(lambda: None)

    def continue_work(self) -> None:
        """Add a document, as a user does who knows nothing of the cut."""
        base = self.find_base()
        if base is not None:
            upload = Upload("after.md", b"# After\n\nThe light is on again.")
            require(self.library.adder.add(base, [upload])[0].accepted, "a new document is refused")

    def settle(self) -> None:
        """Run the parts of the product that run in a server, until all work is done."""
        for _ in range(ROUNDS):
            self._reconciler.reconcile()
            while self._worker.run_next(100):
                pass
            self._send()
            self.clock.advance(timedelta(minutes=2))

    def _send(self) -> None:
        while self.library.deliveries.collect_events() is not None:
            pass
        while self.library.deliveries.delay_until_due() == timedelta():
            self._sender.step()
            self._sender.wait_until_idle()

    def find_base(self) -> Base | None:
        try:
            return self.library.catalog.find_base(BASE)
        except UnknownBase:
            return None

    def digest(self, base: Base, name: str) -> str | None:
        """Return the SHA-256 of the stored file of a document; None if there is no such document."""
        try:
            item = self.library.items.find(base, name)
        except UnknownItem:
            return None
        require(item.blob is not None, f"'{name}' has no file")
        stored = self.library.blobs.digest(str(item.blob))
        require(stored == item.digest, f"'{name}' names a file that is missing or damaged")
        return stored

    def close(self) -> None:
        self._sender.close()
        self.store.close()


@contextmanager
def _restarted_machine() -> Iterator[None]:
    """Let the machine have another boot id, as after a restart."""
    try:
        with mock.patch.object(liveness, "read_boot_id", return_value="after the cut"):
            liveness._read_host_id.cache_clear()
            yield
    finally:
        liveness._read_host_id.cache_clear()


class Checker:
    """Compares a recovered product with the history, as it was at the position of the cut."""

    def __init__(self, history: History, world: World) -> None:
        self._history = history
        self._world = world

    def check(self, home: Path, cut: int) -> None:
        """Raise `LostPromise` or any other error of the product."""
        after: list[Call] = []
        self._world.provider.calls = after
        messages = [one for one in self._history.messages if one.position <= cut]
        self._world.receiver.before = lambda message: messages.append(read_message(message, cut))
        with _restarted_machine():
            recovered = Recovered(home, self._world)
            try:
                self._check_database(recovered)
                self._check_documents(recovered, cut)
                self._check_events(recovered, cut)
                audit(recovered)
                recovered.continue_work()
                recovered.settle()
                self._check_documents(recovered, cut)
                self._check_indexed(recovered)
                self._check_payments(cut, {text for call in after for text in call.texts})
                self._check_messages(recovered, {(one.type, one.about) for one in messages})
                self._check_events(recovered, cut)
                self._check_database(recovered)
                audit_quiet(recovered)
            finally:
                recovered.close()

    def _check_database(self, recovered: Recovered) -> None:
        with recovered.store.database.reading() as tx:
            found = tx.run_sql("PRAGMA integrity_check") + tx.run_sql("PRAGMA foreign_key_check")
        require(found == [("ok",)], f"the database is damaged: {found[:3]}")

    def _check_documents(self, recovered: Recovered, cut: int) -> None:
        """Each document has the content of the last answered request, or of one that was not answered yet."""
        base = recovered.find_base()
        if base is None:
            require(cut < self._history.created, "the base is gone")
            return
        for name, requests in self._by_name().items():
            known = {None if text is None else digest_of(text) for text in allowed(requests, cut)}
            found = recovered.digest(base, name)
            require(found in known, f"'{name}' is {'gone' if found is None else 'not what was answered'}")

    def _check_indexed(self, recovered: Recovered) -> None:
        """Each document is found by its content, and nothing else is found."""
        base = recovered.find_base()
        if base is None:
            return
        for name, requests in self._by_name().items():
            current = recovered.digest(base, name)
            for text in {request.text for request in requests if request.text is not None}:
                hits = recovered.library.searcher.search_channel(base, "fulltext", text.word, 10)
                shown = current == digest_of(text)
                require(bool(hits) is shown, f"'{name}' is {'not found' if shown else 'found by an old content'}")
            if current is not None:
                item = recovered.library.items.find(base, name)
                status = recovered.library.items.status(base, item.id)
                require(status is Status.SUCCESS, f"'{name}' is {status}")

    def _check_payments(self, cut: int, again: set[str]) -> None:
        """No text of a document that was shown as indexed is paid again, and few of the others."""
        paid = [call for call in self._history.calls if call.position <= cut and again & set(call.texts)]
        most = BatchLimits().concurrency
        require(len(paid) <= most, f"{len(paid)} answered calls were lost, more than the {most} in flight")
        shown = {one.about for one in self._history.indexed if one.position <= cut}
        for requests in self._by_name().values():
            texts = allowed(requests, cut)
            text = texts[0]
            if len(texts) == 1 and text is not None and text.word in shown:
                twice = [one for one in again if text.word in one]
                require(not twice, f"a text of an indexed document was paid again: {twice}")

    def _check_messages(self, recovered: Recovered, received: set[tuple[str, str]]) -> None:
        """The end of every job was sent to the webhook, before the cut or after it."""
        if not recovered.library.webhooks.list_all():
            return
        page = recovered.library.event_log.read(None, 100_000)
        ended = {(event.type, event.job or "") for event in page.events if event.type in ENDINGS}
        require(ended <= received, f"not sent: {sorted(ended - received)[:3]}")

    def _check_events(self, recovered: Recovered, cut: int) -> None:
        """A client that continues after the last event that it has seen misses none."""
        seen = {Cursor.parse(one.id): (one.type, one.about) for one in self._history.events if one.position <= cut}
        page = recovered.library.event_log.read(None, 100_000)
        for event in page.events:
            if seen and min(seen) <= event.cursor <= max(seen):
                known = seen.get(event.cursor)
                require(known == (event.type, event.job or ""), f"event {event.id} is {event.type} and was {known}")

    def _by_name(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        for request in sorted(self._history.requests, key=lambda request: request.began):
            found.setdefault(request.name, []).append(request)
        return found


def allowed(requests: Sequence[Request], cut: int) -> list[Text | None]:
    """Return the contents that a document may have: the last answered one, and one whose answer was lost."""
    answered = [request.text for request in requests if request.answered <= cut]
    begun = [request.text for request in requests if request.began <= cut < request.answered]
    return [answered[-1] if answered else None, *begun]


def digest_of(text: Text) -> str:
    return hashlib.sha256(text.content.encode()).hexdigest()
