"""Moves between databases: everything arrives, nothing is paid again, and at most one database accepts writes."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import inspect, select

from holdfast.auth.principal import Scope
from holdfast.catalog.repository import ItemKind
from holdfast.cli import main
from holdfast.clock import Moment
from holdfast.db import closing
from holdfast.db.migrate import find_head
from holdfast.documents.requests import Upload
from holdfast.engine.states import SlotState
from holdfast.engine.store.factory import new_job_id
from holdfast.errors import BadRequest, BadSecretKey, StateConflict, StoreClosed, StoreError
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.moving import tables
from holdfast.moving.move import Move, MoveOptions
from holdfast.settings import Settings
from holdfast.wiring import Library, open_installation
from tests.integration.test_archives import ABOUT, reply
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider
from tests.support.schema import metadata
from tests.support.stores import follow_clock, open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.moving.installation import Installation
    from holdfast.moving.target import Report
    from tests.support.clock import FakeClock
    from tests.support.databases import Databases
    from tests.support.object_storage import ObjectStorage

ALL = {"indexes": ("vector", "fulltext", "graph", "questions"), "chunk_size": 64, "chunk_overlap": 8}
PLAIN: dict[str, Any] = {"indexes": ("fulltext",)}
QUERIES = ("krill of part 3", "granite", "crustacean in part 7", "an old note")
WAYS = pytest.mark.parametrize(
    ("kind", "other"),
    [
        pytest.param("sqlite", "postgres", marks=pytest.mark.postgres),
        pytest.param("postgres", "sqlite", marks=pytest.mark.postgres),
        ("sqlite", "sqlite"),
        pytest.param("postgres", "postgres", marks=pytest.mark.postgres),
    ],
)
SECRET = "s" * 40


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        server.reply = reply
        yield server


@pytest.fixture
def provider(paid: PaidProvider) -> Iterator[OpenAIProvider]:
    made = OpenAIProvider(
        Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model, chat_model=paid.chat_model)
    )
    yield made
    made.close()


class Desk:
    """Makes databases, and opens both ends of a move."""

    def __init__(self, folder: Path, clock: FakeClock, request: pytest.FixtureRequest) -> None:
        self.folder = folder
        self.clock = clock
        self.settings = Settings(home=str(folder / "home"), data=str(folder / "blobs"), secret_key=SECRET)
        self.files = str(folder / "other files")
        self.closing = ExitStack()
        self._request = request
        self._count = 0

    def new_database(self, kind: str = "sqlite") -> str:
        self._count += 1
        if kind == "sqlite":
            return f"sqlite:///{self.folder / f'{self._count}.db'}"
        databases: Databases = self._request.getfixturevalue("databases")
        name = databases.lend()
        self.closing.callback(databases.take_back, name)
        address: str = self._request.getfixturevalue("postgres").address(name)
        return address

    def fill(self, url: str, provider: OpenAIProvider | None = None, **base: Any) -> Rig:
        """Make a library, by default with the index `fulltext` only."""
        return fill(url, self.folder, self.clock, provider, **(base or ({} if provider else PLAIN)))

    def move(
        self,
        source: str,
        target: str,
        files: str | None = None,
        *,
        settings: Settings | None = None,
        options: MoveOptions = MoveOptions(),  # noqa: B008 - a constant
        report: Report = lambda *_: None,
    ) -> Move:
        own = settings or self.settings
        ends = (self.open_end(source, settings=own), self.open_end(target, files, settings=own))
        return Move(*ends, options, report)

    def open_end(self, url: str, data: str | None = None, *, settings: Settings | None = None) -> Installation:
        own = settings or self.settings
        end = open_installation(own, url, data or own.data, self.clock)
        self.closing.callback(end.database.close)
        if end.database.engine.dialect.name == "postgresql":
            follow_clock(end.library.store, self.clock)
        return end

    def open(self, url: str, provider: OpenAIProvider | None = None, data: str | None = None) -> Library:
        own = replace(self.settings, database=url, data=data or self.settings.data)
        store = open_test_store(url, self.clock, ids=new_job_id)
        self.closing.callback(store.close)
        return Library(store, own, embedder=provider, speaker=provider, clock=self.clock)

    def continue_work(self, library: Library) -> Rig:
        """Return a rig on an existing library, after a worker has built what waits and collected the garbage."""
        rig = Rig.__new__(Rig)
        rig.clock, rig.store, rig.library = self.clock, library.store, library
        (rig.base,) = library.catalog.bases()
        rig.indexers = library.indexers()
        rig.worker = rig.hire("worker")
        rig.work()
        while library.remover.continue_deletes():
            rig.work()
        rig.sweep()
        return rig


@pytest.fixture
def desk(tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Desk]:
    desk = Desk(tmp_path, clock, request)
    with desk.closing:
        yield desk


def fill(url: str, tmp_path: Path, clock: FakeClock, provider: OpenAIProvider | None = None, **base: Any) -> Rig:
    """Make a library with documents in every state, and with everything else that a database keeps."""
    own = {"home": str(tmp_path / "home"), "secret_key": SECRET, "webhook_allow": "127.0.0.1"}
    rig = Rig(url, tmp_path / "blobs", clock, provider, speaker=provider, settings=own, **(base or ALL))
    library = rig.library
    for part in range(4):
        rig.put(f"{part}.md", ABOUT.format(part))
    (folder,) = library.adder.add(rig.base, [Upload("folder", kind=ItemKind.DIRECTORY)])
    library.adder.add(rig.base, [Upload("note", b"An old note.", kind=ItemKind.NOTE, parent=folder.item or 0)])
    rig.put("broken.pdf", b"%PDF-1.4 broken")
    library.keys.create("reader", Scope.READ)
    rig.work()
    assert rig.store.roll_up()  # totals contain a part of the log
    library.webhooks.create("http://127.0.0.1:9/hook", ["job.*"])
    rig.work()
    rig.put("gone.md", "A document that is deleted.")
    rig.work()
    rig.delete("gone.md")
    rig.work()
    rig.put("half.md", "This document is deleted while the move runs.")
    rig.work()
    rig.delete("half.md")
    rig.put("queued.md", "This document waits in the queue.")
    rig.put("running.md", "This document is being read.")
    rig.put("1.md", ABOUT.format(1))  # the same content: a refused request
    assert rig.store.claim_next(["content"], "a worker elsewhere", 10)
    rig.library.deliveries.collect_events()
    return rig


def rows(database: Any) -> dict[str, list[Any]]:
    """Read all rows of the tables that are copied without changes."""
    changed = {"events", "webhooks", "event_marks", "slots", "jobs", "owners", "library_standings", *tables.NOT_COPIED}
    found = {}
    with database.reading() as tx:
        for table in tables.all_tables():
            if table.name not in changed:
                columns = tables.copied_columns(table)
                found[table.name] = sorted(map(repr, map(tuple, tx.connection.execute(select(*columns)).all())))
    return found


def searched(library: Library, base: Any, kinds: tuple[str, ...] = ALL["indexes"]) -> dict[Any, Any]:  # type: ignore[assignment]
    """Return hits and scores of every channel and query."""
    return {
        (kind, query): {hit.chunk: hit.score for hit in library.searcher.search_channel(base, kind, query, 20)}
        for kind in kinds
        for query in QUERIES
    }


def moved(move: Move) -> None:
    move.run()
    move.finish()


def test_every_table_of_a_database_is_copied_or_named_with_a_reason(sqlite_url: str, clock: FakeClock) -> None:
    store = open_test_store(sqlite_url, clock)
    with store.database.reading() as tx:
        existing = set(inspect(tx.connection).get_table_names()) - {"holdfast_version", "sqlite_sequence"}
    store.close()
    copied = {table.name for table in tables.copied_tables()}
    assert copied | set(tables.NOT_COPIED) == existing == set(metadata.tables)
    assert not copied & set(tables.NOT_COPIED)


@WAYS
def test_a_move_brings_everything_and_pays_for_nothing_again(
    desk: Desk, kind: str, other: str, paid: PaidProvider, provider: OpenAIProvider
) -> None:
    source, target, files = desk.new_database(kind), desk.new_database(other), desk.files
    rig = desk.fill(source, provider)
    hits = searched(rig.library, rig.base)
    before, counters = rows(rig.store.database), rig.store.counters()
    bill = dict(paid.bill.texts), dict(paid.bill.prompts)
    spoken = {text for text in paid.bill.texts if text not in QUERIES}
    cursor = rig.library.event_log.newest_cursor()
    attempts = rig.slot("running.md", "content").attempts
    rig.close()

    moved(desk.move(source, target, files))

    library = desk.open(target, provider, files)
    assert (dict(paid.bill.texts), dict(paid.bill.prompts)) == bill
    assert rows(library.store.database) == before
    assert library.store.counters() == counters
    (base,) = library.catalog.bases()
    for asked, found in searched(library, base).items():
        assert found.keys() == hits[asked].keys()
        assert list(found.values()) == pytest.approx([hits[asked][key] for key in found], abs=0.02), asked
    assert [one for one in library.doctor.check(deep=True) if one.code != "nobody_works"] == []
    assert library.event_log.read(cursor).reset
    assert library.store.find_wrong_slot_totals() == {}
    slot = library.store.slot(base.key, library.items.find(base, "running.md").key, "content")
    assert (slot.state, slot.holder, slot.attempts) == (SlotState.QUEUED, None, attempts - 1)

    work = desk.continue_work(library)
    work.put("1.md", ABOUT.format(1) + "\n\n## New\n\nOne new sentence.")
    work.work()
    work.sweep()
    assert all(paid.bill.texts[text] == bill[0][text] for text in spoken)
    assert [one for one in library.doctor.check(deep=True) if one.code != "nobody_works"] == []


@WAYS
def test_ids_continue_above_those_that_were_ever_used(desk: Desk, kind: str, other: str) -> None:
    source, target = desk.new_database(kind), desk.new_database(other)
    rig = desk.fill(source)
    last = rig.put("last.md", "The last document.").item
    rig.work()
    rig.delete("last.md")
    rig.work()
    while rig.library.remover.continue_deletes():
        rig.work()
    rig.close()

    moved(desk.move(source, target))

    library = desk.open(target)
    (base,) = library.catalog.bases()
    reply = library.adder.put(base, [Upload("next.md", b"The next document.")])[0]
    assert last is not None
    assert reply.item == last + 1


@WAYS
def test_a_webhook_gets_each_event_of_the_move_once(desk: Desk, kind: str, other: str) -> None:
    source, target = desk.new_database(kind), desk.new_database(other)
    rig = desk.fill(source)
    while rig.library.deliveries.collect_events() is not None:
        pass
    sent = deliveries(rig.store.database)
    rig.put("new.md", "An event that the webhook has not read.")
    rig.close()

    moved(desk.move(source, target))

    library = desk.open(target)
    while library.deliveries.collect_events() is not None:
        pass
    new = deliveries(library.store.database)[len(sent) :]
    assert [json.loads(body)["type"] for body in new] == ["job.accepted"]


def deliveries(database: Any) -> list[str]:
    with database.reading() as tx:
        return [body for (body,) in tx.run_sql("SELECT body FROM webhook_deliveries ORDER BY id")]


@WAYS
def test_the_totals_of_the_metrics_move_with_the_part_of_the_log_that_they_contain(
    desk: Desk, kind: str, other: str
) -> None:
    source, target = desk.new_database(kind), desk.new_database(other)
    rig = desk.fill(source)
    assert rig.store.roll_up(limit=7) == 7  # the totals contain a part of the events
    before = rig.store.read_metrics().totals
    rig.close()

    moved(desk.move(source, target, desk.files))

    store = desk.open(target, data=desk.files).store
    assert store.find_wrong_slot_totals() == {}
    after = store.read_metrics().totals
    for name in ("claims", "commits", "failures", "duplicates"):
        assert {total: value for total, value in after.items() if total.name == name} == {
            total: value for total, value in before.items() if total.name == name
        }


def test_older_events_can_be_left_out(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    rig = desk.fill(source)
    rig.close()

    moved(desk.move(source, target, options=MoveOptions(events_since=Moment(desk.clock.now() + 1))))

    library = desk.open(target)
    kinds = {event.type for event in library.event_log.read(None).events}
    assert "document.added" not in kinds
    assert library.store.find_wrong_slot_totals() == {}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_the_source_refuses_writes_until_the_move_is_aborted(desk: Desk, kind: str) -> None:
    source, target = desk.new_database(kind), desk.new_database()
    rig = desk.fill(source)
    before = rows(rig.store.database)
    move = desk.move(source, target)
    move.run()

    with pytest.raises(StoreClosed, match="move to"):
        rig.put("late.md", "Too late.")
    with pytest.raises(StoreClosed):
        rig.store.claim_next(["content", "fulltext"], "a worker", 5)
    assert rig.find("granite")
    with pytest.raises(StoreClosed, match="being copied into this database"):
        open_test_store(target, desk.clock)

    move.abort()
    assert rows(rig.store.database) == before
    assert rig.put("late.md", "Not too late.").item
    rig.close()


def test_a_finished_move_says_where_the_contents_are(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    rig = desk.fill(source)
    move = desk.move(source, target)
    with pytest.raises(StateConflict, match="not complete and verified"):
        move.finish()
    move.run()
    move.finish()

    with pytest.raises(StoreClosed, match=f"have moved to '{target}'"):
        open_test_store(source, desk.clock)
    with pytest.raises(StoreClosed):  # also from a process that had opened it before
        rig.put("late.md", "Too late.")
    with pytest.raises(StoreClosed):
        move.run()
    rig.close()


def test_finish_continues_after_the_source_is_marked(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    desk.fill(source).close()
    move = desk.move(source, target)
    move.run()
    move._source.database.write(lambda tx: closing.write_version(tx.connection, closing.MOVED), durable=True)
    move.finish()
    open_test_store(target, desk.clock).close()


class Interrupted(Exception):
    pass


@WAYS
def test_an_interrupted_move_continues_where_it_was(
    desk: Desk, kind: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of killed processes are in `tests/acceptance`; this one interrupts after every batch of ten rows."""
    source, target, files = desk.new_database(kind), desk.new_database(other), desk.files
    rig = desk.fill(source)
    before = rows(rig.store.database)
    rig.close()
    monkeypatch.setattr(tables, "ROWS", 10)
    seen: list[tuple[str, int]] = []

    def interrupt(part: str, done: int, _total: int) -> None:
        seen.append((part, done))
        raise Interrupted

    for _ in range(500):
        with suppress(Interrupted):
            desk.move(source, target, files, report=interrupt).run()
            break
    else:
        pytest.fail("it never ends")
    assert len(seen) == len(set(seen)) > 20
    desk.move(source, target, files).finish()
    library = desk.open(target, data=files)
    assert rows(library.store.database) == before


def test_a_target_with_rows_is_refused_and_the_source_stays_open(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    rig = desk.fill(source)
    Rig(target, desk.folder / "blobs", desk.clock).close()
    with pytest.raises(StoreError, match="only an empty one can be filled"):
        desk.move(source, target).run()
    assert rig.put("new.md", "Still open.").item
    rig.close()


def test_moves_that_cannot_work_are_refused_before_anything_changes(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    with pytest.raises(StoreError, match="is not a database of Holdfast"):
        desk.move(source, target).run()
    rig = desk.fill(source)
    with pytest.raises(BadRequest, match="both the source and the target"):
        desk.move(source, source).run()
    with pytest.raises(StateConflict, match="do not move anywhere"):
        desk.move(source, target).abort()

    wrong_key = replace(desk.settings, secret_key="w" * 40)
    with pytest.raises(BadSecretKey):
        desk.move(source, target, settings=wrong_key).run()
    elsewhere = replace(desk.settings, data=str(desk.folder / "wrong place"))
    with pytest.raises(StoreError, match="have no files in"):
        desk.move(source, target, settings=elsewhere).run()
    old = desk.move(source, target)
    old._source.database.write(lambda tx: closing.write_version(tx.connection, "0007"), durable=True)
    with pytest.raises(StoreError, match="has version 0007"):
        old.run()
    old._source.database.write(lambda tx: closing.write_version(tx.connection, find_head()), durable=True)
    assert rig.put("new.md", "Still open.").item
    rig.close()


def test_a_source_with_running_workers_is_refused(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    rig = desk.fill(source)
    move = desk.move(source, target)
    move._source.library.store.register_worker("a worker elsewhere")
    with pytest.raises(StateConflict, match="1 workers use the database"):
        move.run()
    assert rig.put("new.md", "Still open.").item
    rig.close()


@pytest.mark.s3
def test_files_move_into_a_bucket(desk: Desk, s3: ObjectStorage) -> None:
    source, target = desk.new_database(), desk.new_database()
    rig = desk.fill(source)
    rig.close()
    place = f"s3://{s3.create_bucket()}/moved"
    desk.settings = replace(desk.settings, s3_endpoint=s3.endpoint)
    moved(desk.move(source, target, place))
    library = desk.open(target, data=place)
    assert [one for one in library.doctor.check(deep=True) if one.code != "nobody_works"] == []


def test_a_damaged_file_stops_the_move(desk: Desk) -> None:
    source, target = desk.new_database(), desk.new_database()
    rig = desk.fill(source)
    rig.path(rig.library.items.find(rig.base, "2.md").blob).write_bytes(b"damaged")
    rig.close()
    with pytest.raises(StoreError, match="does not have the hash in its name"):
        desk.move(source, target, desk.files).run()


def test_the_command_moves_and_prints_the_new_settings(
    desk: Desk, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, files = desk.new_database(), desk.new_database(), desk.files
    desk.fill(source).close()
    monkeypatch.setenv("HOLDFAST_HOME", str(desk.folder / "home"))
    monkeypatch.setenv("HOLDFAST_DATA", str(desk.folder / "blobs"))
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", SECRET)
    words = ["move", source, target, "--blobs", files, "--yes"]
    assert run(*words) == 0
    assert "Copied and verified" in capsys.readouterr().err
    assert run("move", source, target, "--abort", "--finish") == 2
    assert run("move", source, target, "--events-since", "yesterday", "--yes") == 2
    assert run(*words, "--finish") == 0
    assert capsys.readouterr().out == f"HOLDFAST_DATABASE={target}\nHOLDFAST_DATA={files}\n"
    open_test_store(target, desk.clock).close()


def run(*words: str) -> int:
    """Run a command in this process, and return its exit code."""
    return main(words)
