"""Archives: a restore is complete and pays for nothing again, refuses hostile files, and survives a killed process."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from base64 import b64decode, b64encode
from collections import Counter
from contextlib import ExitStack
from copy import copy
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.bases import archives
from holdfast.bases.archive_reader import ArchiveLimits
from holdfast.bases.archive_writer import ArchiveWriter
from holdfast.bases.archives import RestoreOptions
from holdfast.bases.removal import LOOK_AGAIN_AFTER
from holdfast.catalog.repository import BaseSettings, ItemKind
from holdfast.db.database import Database, Transaction
from holdfast.documents.add import ITEMS_PER_TRANSACTION
from holdfast.documents.requests import Action, AddOptions, Upload
from holdfast.engine.problems import describe_fault
from holdfast.engine.slot import Fault
from holdfast.engine.states import Status
from holdfast.errors import RESTORING, BadArchive, BadSettings, BaseFailed, NameTaken, StateConflict, UnknownBase
from holdfast.llm.offline import OfflineProvider
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.audit import audit_quiet
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider
from tests.support.processes import ROOT
from tests.support.question_harness import crustaceans
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.bases.archives import RestoredBase
    from holdfast.catalog.repository import Base, Item
    from tests.support.clock import FakeClock
    from tests.support.databases import Databases

    Make = Callable[..., Rig]
    Json = dict[str, Any]

ALL = {"indexes": ("vector", "fulltext", "graph", "questions"), "chunk_size": 64, "chunk_overlap": 8}
PLAIN = {"indexes": ("fulltext",)}
ENTITY = re.compile(r"\[\[([^]|]+)\|([^]|]+)\|([^]|]+)\]\]")
ABOUT = (
    "# Part {0}\n\nThe krill of part {0} is one of many. [[Krill|animal|Krill fact {0} .]]\n\n## More\n\nGranite {0}."
)
QUERIES = ("krill of part 3", "granite", "crustacean in part 7", "a page about whales", "a note")
LOOKED_AT = "https://example.org/never-fetched"


def reply(request: Json) -> str:
    """Reply as a language model would: with the marked entities, a merged description, or questions."""
    system, text = request["messages"][0]["content"], request["messages"][-1]["content"]
    if "knowledge graph" in system:
        found = [{"name": name, "kind": kind, "description": about} for name, kind, about in ENTITY.findall(text)]
        return json.dumps({"entities": found, "relations": []})
    if "description of the subject as JSON" in text:
        return json.dumps({"description": f"Merged of {text.count('Krill fact')}."})
    return crustaceans(request)


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        server.reply = reply
        yield server


@pytest.fixture
def provider(paid: PaidProvider) -> Iterator[OpenAIProvider]:
    with ExitStack() as stack:
        made = OpenAIProvider(
            Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model, chat_model=paid.chat_model)
        )
        stack.callback(made.close)
        yield made


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Make rigs, each with a new database of the given kind and its own files."""
    with ExitStack() as stack:
        made: list[Rig] = []

        def make(kind: str, provider: OpenAIProvider | None = None, **base: Any) -> Rig:
            folder = tmp_path / f"place-{len(made)}"
            folder.mkdir()
            if kind == "sqlite":
                shutil.copy(request.getfixturevalue("sqlite_pattern"), folder / "holdfast.db")
                url = f"sqlite:///{folder / 'holdfast.db'}"
            else:
                databases: Databases = request.getfixturevalue("databases")
                name = databases.lend()
                url = request.getfixturevalue("postgres").address(name)
                stack.callback(databases.take_back, name)
            rig = Rig(url, folder / "blobs", clock, provider, speaker=provider or OfflineProvider(), **base)
            rig.url = url  # type: ignore[attr-defined]
            stack.callback(rig.close)
            made.append(rig)
            return rig

        yield make


BOTH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
EVERY_WAY = pytest.mark.parametrize(
    ("here", "there"),
    [
        ("sqlite", "sqlite"),
        pytest.param("sqlite", "postgres", marks=pytest.mark.postgres),
        pytest.param("postgres", "sqlite", marks=pytest.mark.postgres),
        pytest.param("postgres", "postgres", marks=pytest.mark.postgres),
    ],
)


def quiet(rig: Rig) -> None:
    """Run the worker and the sweep until no work is left."""
    for _ in range(3):
        rig.work()
        while rig.library.sweep(500):
            rig.work()
        rig.clock.advance(LOOK_AGAIN_AFTER)
    rig.work()


def fill(rig: Rig, folder: Path) -> None:
    """Add notes, nested folders (virtual and on disk), web pages, an unreadable file, and files with equal content."""
    below = folder / "deep" / "deeper"
    below.mkdir(parents=True)
    (below / "disk.md").write_text("# Disk\n\nThe krill of part 90 is from the disk.")
    (folder / "same.md").write_text("# Same\n\nTwice the same text.")
    rig.library.adder.put(rig.base, [Upload(f"{n}.md", ABOUT.format(n).encode(), {"number": n}) for n in range(10)])
    (shelf,) = rig.library.adder.add(rig.base, [Upload("shelf/../odd", kind=ItemKind.DIRECTORY)])
    (box,) = rig.library.adder.add(rig.base, [Upload("box", kind=ItemKind.DIRECTORY, parent=shelf.item or 0)])
    rig.library.adder.add(
        rig.base,
        [
            Upload("note", b"A note in a box in a shelf.", {"by": "Ann \u2764"}, ItemKind.NOTE, parent=box.item or 0),
            Upload("same.md", b"# Same\n\nTwice the same text.", parent=box.item or 0),
            Upload("unreadable.pdf", problem=Fault("no_access", {"message": "Nobody may read it."})),
        ],
        AddOptions(refuse_copies=False),
    )
    page = b"<html><head><title>Whales</title></head><body><p>A page about whales and granite.</p></body></html>"
    known = json.dumps({"etag": '"1"', "modified": None})
    facts = {"file": "whales.html", "address": "https://example.org/whales", "type": "text/html"}
    rig.library.adder.add(
        rig.base, [Upload("Whales", page, facts, ItemKind.URL, "https://example.org/whales", known, 3600)]
    )
    rig.library.adder.add(
        rig.base, [Upload("never", kind=ItemKind.URL, source=LOOKED_AT, every=60)], AddOptions(index=False)
    )
    rig.library.adder.add(rig.base, [Upload("disk", kind=ItemKind.DIRECTORY, source=str(folder), every=60)])
    quiet(rig)


def tree(rig: Rig, base: Base | None = None) -> list[tuple[Any, ...]]:
    """Return every item with its path and all its fields except ids."""

    def below(parent: int, path: tuple[str, ...]) -> Iterator[tuple[Item, tuple[str, ...]]]:
        for item in rig.children(base or rig.base, parent):
            yield item, (*path, item.name)
            yield from below(item.id, (*path, item.name))

    return [
        (path, item.kind, dict(item.metadata), item.source, item.seen, item.every, item.digest, item.size, item.problem)
        for item, path in below(0, ())
    ]


def found(rig: Rig, base: Base) -> list[Any]:
    """Return the hits of every channel as name, text and score."""
    search = rig.library.searcher
    return [
        Counter((hit.name, hit.text, round(hit.score, 3)) for hit in hits)
        for query in QUERIES
        for hits in (search.search_channel(base, kind, query, 100) for kind in base.settings.indexes)
    ]


def cards(rig: Rig, base: Base) -> list[tuple[str, str]]:
    rig.library.cards.generate(base)
    rig.work()
    return sorted((card.question, card.answer) for card in rig.library.cards.page(base, limit=None))


def told(rig: Rig, base: Base) -> list[Any]:
    """Return the entities of the graph with their descriptions."""
    entities = rig.library.graph_queries.list_entities(base, 1_000)
    abouts = [rig.library.graph_queries.describe_entity(base, one.key) for one in entities]
    return [(one.entity.key, one.merged, one.description) for one in abouts if one is not None]


def bill(paid: PaidProvider) -> int:
    return sum(paid.bill.texts.values()) + sum(paid.bill.prompts.values())


def packed(rig: Rig, **more: Any) -> bytes:
    target = io.BytesIO()
    rig.library.archives.export(rig.base, target, **more)
    return target.getvalue()


def restored(rig: Rig, archive: bytes, name: str = "copy", **more: Any) -> RestoredBase:
    return rig.library.archives.restore(io.BytesIO(archive), name=name, options=RestoreOptions(**more))


def restored_base(rig: Rig, archive: bytes, name: str = "copy", **more: Any) -> Base:
    return rig.library.catalog.find_base(restored(rig, archive, name, **more).base)


def owners(rig: Rig, base: Base) -> set[Status]:
    with rig.store.database.reading() as tx:
        rows = tx.run_sql(f"SELECT status FROM owners WHERE base = '{base.id}'")  # noqa: S608 - the id of a test base
    return {Status(status) for (status,) in rows}


@EVERY_WAY
def test_a_restored_base_equals_the_original_and_pays_for_nothing_again(
    make: Make, paid: PaidProvider, provider: OpenAIProvider, tmp_path: Path, *, here: str, there: str
) -> None:
    source = make(here, provider, **ALL, tenant="ours", jobs_per_day=1_000, missing_share=0.25)
    fill(source, tmp_path / "folder")
    first = bill(paid)
    path = tmp_path / "shelf.zip"
    exported = source.library.archives.export(source.base, path)
    assert (exported.documents, exported.left_out, exported.bytes) == (15, 0, path.stat().st_size)
    assert exported.memos == source.count("memos") > 40
    assert [entry.name for entry in tmp_path.iterdir() if "shelf" in entry.name] == ["shelf.zip"]

    target = make(there, provider, **ALL)
    result = target.library.archives.restore(path, name="copy")
    base = target.library.catalog.find_base(result.base)
    assert (result.documents, result.memos, result.skipped) == (15, exported.memos, 0)
    assert base.settings == source.base.settings
    assert (base.name, base.problem) == ("copy", None)
    quiet(target)
    assert bill(paid) == first  # the restore paid for nothing again
    assert owners(target, base) == {Status.SUCCESS}
    assert tree(target, base) == tree(source)
    assert target.count("memo_holds") == 0
    assert (target.count("memos"), target.count("memo_uses")) == (source.count("memos"), source.count("memo_uses"))
    assert cards(target, base) == cards(source, source.base) != []
    assert told(target, base) == told(source, source.base)
    assert any(merged for _, merged, _ in told(target, base))
    assert found(target, base) == found(source, source.base)
    account = target.library.paid_cache.summarize_base(base.key)
    assert account.saved.texts > 30
    by_query = [one for one in (*account.kinds_spent, *account.kinds_saved) if one.kind == "query"]
    assert account.spent.tokens_in == sum(one.tokens_in for one in by_query)
    audit_quiet(target)

    again = packed_base(target, base)
    assert zipped(again).keys() == zipped(path.read_bytes()).keys()  # a second export has the same entries


def packed_base(rig: Rig, base: Base) -> bytes:
    target = io.BytesIO()
    rig.library.archives.export(base, target)
    return target.getvalue()


@BOTH
def test_a_restore_without_paid_answers_pays_again(
    make: Make, paid: PaidProvider, provider: OpenAIProvider, kind: str
) -> None:
    rig = make(kind, provider, **ALL)
    rig.index("1.md", ABOUT.format(1))
    whole, bare = packed(rig), packed(rig, memos=False)
    assert len(bare) < len(whole)
    other = make(kind, provider, **ALL)
    before = bill(paid)
    for number, (archive, believe) in enumerate([(bare, True), (whole, False)], 1):
        assert restored(other, archive, f"copy {number}", memos=believe).memos == 0
        other.work()
        # The second restore shares the answers of the first.
        assert bill(paid) > before if number == 1 else bill(paid) == before
        before = bill(paid)
    quiet(other)
    audit_quiet(other)


@BOTH
def test_sources_of_a_restored_base_are_not_refreshed_until_a_request(
    make: Make, tmp_path: Path, clock: FakeClock, kind: str
) -> None:
    rig = make(kind, **PLAIN)
    fill(rig, tmp_path / "folder")
    other = make(kind, **PLAIN)
    base = restored_base(other, packed(rig))
    shutil.rmtree(tmp_path / "folder")
    before = tree(other, base)
    clock.advance(timedelta(days=3))
    quiet(other)
    assert tree(other, base) == before
    with other.store.database.reading() as tx:
        assert tx.run_sql("SELECT count(*) FROM owners WHERE substr(owner, 1, 7) = 'source:'") == [(0,)]
        assert tx.run_sql("SELECT count(*) FROM library_items WHERE look_at IS NOT NULL") == [(0,)]
    disk = other.library.items.find(base, "disk")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "new.md").write_text("Something new.")
    other.library.operations.refresh(base, [disk.id])
    quiet(other)
    assert [one.name for one in other.children(base, disk.id)] == ["new.md"]
    with other.store.database.reading() as tx:  # from now on its schedule applies
        assert tx.run_sql("SELECT count(*) FROM library_items WHERE look_at IS NOT NULL") == [(1,)]


@BOTH
def test_restored_paid_answers_are_kept_for_documents_indexed_much_later(
    make: Make, paid: PaidProvider, provider: OpenAIProvider, clock: FakeClock, kind: str
) -> None:
    rig = make(kind, provider, indexes=("vector",), auto_index=False)
    (added,) = rig.library.adder.put(rig.base, [Upload("1.md", ABOUT.format(1).encode())])
    rig.library.operations.request(rig.base, [added.item or 0], Action.INDEX)
    rig.work()
    before = bill(paid)
    other = make(kind, provider, **PLAIN)
    base = restored_base(other, packed(rig))
    clock.advance(timedelta(days=40))
    quiet(other)
    assert (other.count("memos"), other.count("memo_uses"), owners(other, base)) == (1, 0, set())
    assert other.library.doctor.check(deep=True) == []
    item = other.library.items.find(base, "1.md").id
    other.library.operations.request(base, [item], Action.INDEX)
    quiet(other)
    assert (bill(paid), owners(other, base)) == (before, {Status.SUCCESS})
    assert (other.count("memos"), other.count("memo_uses"), other.count("memo_holds")) == (1, 1, 0)
    audit_quiet(other)


@BOTH
def test_paid_answers_survive_an_index_that_fails_at_first(
    make: Make, paid: PaidProvider, provider: OpenAIProvider, kind: str
) -> None:
    rig = make(kind, provider, indexes=("vector", "questions"), **{k: v for k, v in ALL.items() if k != "indexes"})
    rig.index("1.md", ABOUT.format(1))
    before = bill(paid)
    archive = packed(rig)
    other = make(kind, None, **PLAIN)  # no chat endpoint, and local vectors are free: nothing reads a paid answer
    base = restored_base(other, archive)
    quiet(other)
    assert other.count("memos") == rig.count("memos")
    assert other.count("memo_holds") == 0
    audit_quiet(other)
    other.library.remover.delete(base, [other.library.items.find(base, "1.md").id])
    quiet(other)
    assert (other.count("memos"), other.count("memo_uses")) == (0, 0)
    assert bill(paid) == before


@BOTH
def test_deleting_a_document_deletes_its_restored_paid_answers(
    make: Make, paid: PaidProvider, provider: OpenAIProvider, kind: str
) -> None:
    rig = make(kind, provider, **ALL)
    for number in range(10):
        rig.put(f"{number}.md", ABOUT.format(number))
    quiet(rig)
    other = make(kind, provider, **ALL)
    base = restored_base(other, packed(rig), index=False)
    other.library.remover.delete(base, [other.library.items.find(base, "0.md").id])  # before any document is indexed
    quiet(other)
    assert other.count("memo_uses") == 0
    with other.store.database.reading() as tx:
        values = [bytes(value) for (value,) in tx.run_sql("SELECT value FROM library_memos")]
    assert not any(b"part 0" in value or b"fact 0" in value for value in values)
    # The merged description also used the deleted document.
    assert not any(b"Merged of 10" in value for value in values)
    left = [other.library.items.find(base, f"{number}.md").id for number in range(1, 10)]
    other.library.operations.request(base, left, Action.INDEX)
    quiet(other)
    audit_quiet(other)
    other.library.remover.delete(base, left)
    quiet(other)
    assert (other.count("memos"), other.count("memo_uses"), other.count("memo_holds")) == (0, 0, 0)
    audit_quiet(other)


@BOTH
def test_a_copy_reuses_paid_answers_after_its_original_is_deleted(
    make: Make, paid: PaidProvider, provider: OpenAIProvider, kind: str
) -> None:
    rig = make(kind, provider, indexes=("vector",))
    rig.index("1.md", ABOUT.format(1))
    before = bill(paid)
    base = restored_base(rig, packed(rig), index=False)  # both bases are in one database and share one answer
    assert (rig.count("memos"), rig.count("memo_uses"), rig.count("memo_holds")) == (1, 1, 1)
    rig.delete("1.md")
    quiet(rig)
    assert (rig.count("memos"), rig.count("memo_uses"), rig.count("memo_holds")) == (1, 0, 1)
    rig.library.operations.request(base, [rig.library.items.find(base, "1.md").id], Action.INDEX)
    quiet(rig)
    assert bill(paid) == before
    audit_quiet(rig)


@BOTH
def test_new_content_releases_the_paid_answers_held_for_the_old_content(
    make: Make, provider: OpenAIProvider, kind: str
) -> None:
    rig = make(kind, provider, indexes=("vector",))
    rig.index("1.md", ABOUT.format(1))
    other = make(kind, provider, indexes=("vector",))
    base = restored_base(other, packed(rig), index=False)
    assert other.count("memos") == 1
    other.library.adder.put(base, [Upload("1.md", b"Something else entirely.")])
    assert (other.count("memos"), other.count("memo_holds")) == (0, 0)
    quiet(other)
    audit_quiet(other)


@BOTH
def test_a_restored_base_that_is_deleted_at_once_leaves_no_rows(
    make: Make, provider: OpenAIProvider, kind: str
) -> None:
    rig = make(kind, provider, **ALL)
    rig.index("1.md", ABOUT.format(1))
    other = make(kind, provider, **ALL)
    other.library.bases.delete(restored_base(other, packed(rig)))
    quiet(other)
    assert_nothing(other)


def assert_nothing(rig: Rig, name: str = "copy") -> None:
    """Assert that a failed restore left no rows and that its name is free."""
    quiet(rig)
    tables = ("items", "memos", "memo_uses", "memo_holds", "chunks", "owners", "slots")
    assert {table: rig.count(table) for table in tables} == dict.fromkeys(tables, 0)
    assert [base.name for base in rig.library.catalog.bases()] == ["shelf"]
    assert rig.count("bases") == 1
    audit_quiet(rig)
    rig.library.bases.delete(rig.library.bases.create(name))
    quiet(rig)


@BOTH
def test_an_archive_contains_nothing_of_deleted_documents(make: Make, provider: OpenAIProvider, kind: str) -> None:
    rig = make(kind, provider, **ALL)
    for number in range(10):
        rig.put(f"{number}.md", ABOUT.format(number))
    quiet(rig)
    rig.put("2.md", "Changed, and nothing of krill.")  # answers for the old content are not swept yet
    rig.work()
    rig.delete("0.md")  # its clean-up has not run yet
    shared = rig.put("shared.md", ABOUT.format(0))  # equal content, but its own answers do not exist yet
    archive = zipped(packed(rig))
    names = {item["name"] for item in lines(archive["items.jsonl"])}
    assert "0.md" not in names
    assert shared.name in names
    said = archive["memos.jsonl"]
    values = b"".join(decoded(one["value"]) for line in lines(said) for one in line["memos"] if "value" in one)
    assert b"Merged of 10" not in values
    assert b"part 0" not in values
    assert b"part 2" not in values
    assert b"part 3" in values


def decoded(text: str) -> bytes:
    return b64decode(text)


@BOTH
def test_an_archive_omits_answers_of_documents_changed_or_deleted_during_the_export(
    make: Make, provider: OpenAIProvider, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(kind, provider, **ALL)
    for number in (1, 2, 3):
        rig.index(f"{number}.md", ABOUT.format(number))
    write = ArchiveWriter._write_paid_answers

    def meanwhile(packer: ArchiveWriter, items: Any, paid: Any) -> int:
        rig.index("1.md", ABOUT.format(7))
        rig.delete("2.md")
        return write(packer, items, paid)

    monkeypatch.setattr(ArchiveWriter, "_write_paid_answers", meanwhile)
    archive = zipped(packed(rig))
    # The list of items is as it was when the export began.
    assert {item["name"] for item in lines(archive["items.jsonl"])} == {"1.md", "2.md", "3.md"}
    said = lines(archive["memos.jsonl"])
    values = b"".join(decoded(one["value"]) for line in said for one in line["memos"] if "value" in one)
    assert [number for number in (1, 2, 3, 7) if f"part {number}".encode() in values] == [3]


@BOTH
def test_a_document_whose_file_vanishes_during_the_export_is_left_out_and_counted(make: Make, kind: str) -> None:
    rig = make(kind, **PLAIN)
    for number in range(3):
        rig.put(f"{number}.md", ABOUT.format(number))
    blob = rig.library.items.find(rig.base, "1.md").blob
    assert blob is not None
    rig.library.blobs.remove([blob])  # as the clean-up does after the export has read the list of items
    target = io.BytesIO()
    exported = rig.library.archives.export(rig.base, target)
    assert (exported.documents, exported.left_out) == (2, 1)
    other = make(kind, **PLAIN)
    assert [path for path, *_ in tree(other, restored_base(other, target.getvalue()))] == [("0.md",), ("2.md",)]


@BOTH
def test_a_base_that_is_being_restored_refuses_other_operations_with_that_reason(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(kind, **PLAIN)
    rig.index("1.md", ABOUT.format(1))
    archive = packed(rig)
    other = make(kind, **PLAIN)
    seen: list[str] = []

    def hold(database: object, base: Base, answers: object) -> None:
        now = other.library.catalog.find_base("copy")
        assert now.problem is not None
        assert now.problem.code == RESTORING
        with pytest.raises(BaseFailed, match="Base 'copy' is being restored") as failed:
            other.library.adder.put(base, [Upload("mine.md", b"Mine.")])
        assert (failed.value.code, failed.value.subcode) == ("base_failed", RESTORING)
        assert failed.value.params == {"base": "copy"}
        for operation in (other.library.bases.repair, lambda one: other.library.archives.export(one, io.BytesIO())):
            with pytest.raises(StateConflict, match="Base 'copy' is being restored") as refused:
                operation(base)
            assert refused.value.code == RESTORING
        assert describe_fault(now.problem).message == str(refused.value)
        with pytest.raises(NameTaken):
            restored(other, archive)
        assert other.library.archives.clean_up_restores() == 0  # the process that restores it is alive
        seen.append(now.name)

    monkeypatch.setattr(archives, "store_restored_answers", hold)
    base = restored_base(other, archive)
    assert seen == ["copy"]
    assert other.library.catalog.find_base("copy") == base
    monkeypatch.undo()
    quiet(other)
    audit_quiet(other)


@BOTH
@pytest.mark.parametrize("harm", ["delete", "clear", "item"])
def test_a_delete_during_a_restore_fails_the_restore_and_leaves_no_partial_base(
    make: Make, kind: str, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(kind, **PLAIN)
    rig.index("1.md", ABOUT.format(1))
    archive = packed(rig)
    other = make(kind, **PLAIN)

    def hold(database: object, base: Base, answers: object) -> None:
        match harm:
            case "delete":
                other.library.bases.delete(base)
            case "clear":
                other.library.bases.clear(base)
            case _:
                other.library.remover.delete(base, [other.library.items.find(base, "1.md").id])

    with monkeypatch.context() as patched:
        patched.setattr(archives, "store_restored_answers", hold)
        with pytest.raises((UnknownBase, StateConflict)):
            restored(other, archive)
    assert_nothing(other)


@BOTH
def test_a_restore_under_a_taken_name_is_refused_before_anything_is_written(make: Make, kind: str) -> None:
    rig = make(kind, **PLAIN)
    rig.index("1.md", ABOUT.format(1))
    archive = packed(rig)
    with pytest.raises(NameTaken):
        rig.library.archives.restore(io.BytesIO(archive))
    assert rig.count("items") == 1
    assert [base.name for base in rig.library.catalog.bases()] == ["shelf"]
    beside = restored_base(rig, archive, "beside")  # a second copy in the same database
    quiet(rig)
    assert tree(rig, beside) == tree(rig)
    audit_quiet(rig)


@BOTH
def test_a_restore_does_not_index_more_documents_than_the_daily_quota_allows(make: Make, kind: str) -> None:
    rig = make(kind, **PLAIN, jobs_per_day=100)
    for number in range(5):
        rig.put(f"{number}.md", ABOUT.format(number))
    rig.library.bases.change(rig.base, BaseSettings(indexes=("fulltext",), jobs_per_day=2))
    other = make(kind, **PLAIN)
    result = restored(other, packed(rig))
    assert (result.documents, result.skipped) == (5, 3)
    assert len(tree(other, other.library.catalog.find_base(result.base))) == 5


def test_an_archive_can_be_written_to_a_pipe_and_read_from_one(make: Make) -> None:
    rig, other = make("sqlite", **PLAIN), make("sqlite", **PLAIN)
    rig.put("large.bin", os.urandom(300_000))
    read, write = os.pipe()

    def send() -> None:
        with os.fdopen(write, "wb") as target:
            rig.library.archives.export(rig.base, target)

    sender = threading.Thread(target=send)
    sender.start()
    with os.fdopen(read, "rb") as source:
        base = other.library.catalog.find_base(other.library.archives.restore(source, name="copy").base)
    sender.join(PATIENCE_SECONDS)
    assert tree(other, base) == tree(rig)


def test_a_failed_export_leaves_no_partial_file_and_keeps_the_old_one(make: Make, tmp_path: Path) -> None:
    rig = make("sqlite", **PLAIN)
    rig.put("1.md", ABOUT.format(1))
    path = tmp_path / "out" / "shelf.zip"
    with pytest.raises(FileNotFoundError):
        rig.library.archives.export(rig.base, path)
    path.parent.mkdir()
    path.write_bytes(b"the old one")
    rig.library.bases.delete(rig.base)
    with pytest.raises(UnknownBase):
        rig.library.archives.export(rig.base, path)
    assert [(one.name, one.read_bytes()) for one in path.parent.iterdir()] == [("shelf.zip", b"the old one")]


def test_highly_compressible_files_are_stored_uncompressed_so_that_they_can_be_restored(make: Make) -> None:
    rig, other = make("sqlite", **PLAIN), make("sqlite", **PLAIN)
    rig.put("zeros.bin", bytes(3_000_000))
    rig.put("empty.bin", b"")
    rig.put("text.md", "Granite and krill. " * 40 + str(os.urandom(400)))
    archive = packed(rig)
    packing = {entry.compress_type for entry in zipfile.ZipFile(io.BytesIO(archive)).infolist()}
    assert packing == {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
    assert tree(other, restored_base(other, archive)) == tree(rig)


def zipped(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name: file.read(name) for name in file.namelist()}


def rezipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return target.getvalue()


def lines(entry: bytes) -> list[Json]:
    return [json.loads(line) for line in entry.splitlines()]


def joined(told: list[Json]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in told)


def item(change: Callable[[list[Json]], object]) -> Callable[[dict[str, bytes]], None]:
    """Change the lines of items."""

    def work(entries: dict[str, bytes]) -> None:
        told = lines(entries["items.jsonl"])
        change(told)
        entries["items.jsonl"] = joined(told)

    return work


def memo(change: Callable[[list[Json]], object]) -> Callable[[dict[str, bytes]], None]:
    """Change the lines of paid answers."""

    def work(entries: dict[str, bytes]) -> None:
        told = lines(entries["memos.jsonl"])
        change(told)
        entries["memos.jsonl"] = joined(told)

    return work


def manifest(change: Callable[[Json], object]) -> Callable[[dict[str, bytes]], None]:
    def work(entries: dict[str, bytes]) -> None:
        told = json.loads(entries["holdfast.json"])
        change(told)
        entries["holdfast.json"] = json.dumps(told).encode()

    return work


def other_byte(entries: dict[str, bytes]) -> None:
    name = next(name for name in sorted(entries) if name.startswith("blobs/") and len(entries[name]) > 1)
    entries[name] = b"\0" + entries[name][1:]


def tail(entries: dict[str, bytes]) -> None:
    entries["items.jsonl"] = entries["items.jsonl"][:-10]


def fewer(entries: dict[str, bytes]) -> None:
    entries["items.jsonl"] = b"".join(entries["items.jsonl"].splitlines(keepends=True)[:-1])


def swap(told: list[Json]) -> None:
    """Make two folders each other's parent."""
    folder = next(one for one in told if one["name"] == "folder")
    box = next(one for one in told if one["name"] == "box")
    folder["parent"] = box["id"]


HOSTILE: list[tuple[str, Callable[[dict[str, bytes]], Any], str, str]] = [
    ("another byte", other_byte, "archive_hash", "do not match their SHA-256"),
    (
        "an entry outside",
        lambda e: e.update({"../../evil.txt": b"x"}),
        "archive_entry",
        "'../../evil.txt' is not part of an archive",
    ),
    (
        "an absolute entry",
        lambda e: e.update({"/etc/evil": b"x"}),
        "archive_entry",
        "'/etc/evil' is not part of an archive",
    ),
    (
        "a blob outside",
        lambda e: e.update({"blobs/../../" + "a" * 64: b"x"}),
        "archive_entry",
        "is not part of an archive",
    ),
    ("no manifest", lambda e: e.pop("holdfast.json"), "archive_entry", "'holdfast.json' is missing"),
    ("no tree", lambda e: e.pop("items.jsonl"), "archive_entry", "'items.jsonl' is missing"),
    (
        "a newer format",
        manifest(lambda m: m.update(format=2)),
        "archive_too_new",
        "its format is 2, and this version reads formats up to 1",
    ),
    (
        "no format",
        manifest(lambda m: m.pop("format")),
        "archive_field",
        "'format' of 'holdfast.json' must be a whole number from 1",
    ),
    (
        "a manifest that is a list",
        lambda e: e.update({"holdfast.json": b"[]"}),
        "archive_line",
        "'holdfast.json' lacks an object",
    ),
    (
        "a manifest as deep as a well",
        lambda e: e.update({"holdfast.json": b"[" * 99_999}),
        "archive_line",
        "'holdfast.json' is not JSON",
    ),
    (
        "a huge manifest",
        lambda e: e.update({"holdfast.json": b" " * (2 << 20)}),
        "archive_entry",
        "'holdfast.json' is too large",
    ),
    (
        "other counts",
        manifest(lambda m: m["counts"].update(memos=99)),
        "archive_answer_count",
        "should contain 99 paid answers",
    ),
    (
        "settings of another kind",
        manifest(lambda m: m["base"]["settings"].update(chunk_size="9")),
        "archive_setting",
        "\"9\" is not a value of the setting 'chunk_size'",
    ),
    (
        "a budget in words",
        manifest(lambda m: m["base"]["settings"].update(budget_tokens="plenty")),
        "archive_setting",
        "\"plenty\" is not a value of the setting 'budget_tokens'",
    ),
    (
        "languages that are no words",
        manifest(lambda m: m["base"]["settings"].update(languages=[["de"]])),
        "archive_field",
        "'languages' of 'holdfast.json:settings' must be text",
    ),
    (
        "settings that mean nothing",
        manifest(lambda m: m["base"]["settings"].update(indexes=[])),
        "archive_settings",
        "A base needs at least one index",
    ),
    (
        "settings that are no text",
        manifest(lambda m: m["base"]["settings"].update(tenant="\ud800")),
        "archive_field",
        "'tenant' of 'holdfast.json:settings' must be text",
    ),
    (
        "another mode",
        manifest(lambda m: m["base"]["settings"].update(on_duplicate="shout")),
        "archive_setting",
        "\"shout\" is not a value of the setting 'on_duplicate'",
    ),
    ("a cut line", tail, "archive_line", "'items.jsonl:5' is cut off"),
    ("a line less", fewer, "archive_item_count", "should contain 5 items and 3 documents, but it contains 4 and 2"),
    (
        "a line that is no JSON",
        lambda e: e.update({"items.jsonl": b"{}\n{oops}\n"}),
        "archive_line",
        "'items.jsonl:1' has an unknown kind",
    ),
    (
        "a number twice",
        item(lambda t: t[2].update(id=t[1]["id"])),
        "archive_line",
        "'items.jsonl:3' has an id that is not larger",
    ),
    ("a container in itself", item(swap), "archive_line", "has a parent that is not a folder or sitemap before it"),
    (
        "a parent that is a file",
        item(lambda t: t[4].update(parent=t[0]["id"])),
        "archive_line",
        "'items.jsonl:5' has a parent that is not a folder",
    ),
    (
        "a parent that is nowhere",
        item(lambda t: t[4].update(parent=77)),
        "archive_line",
        "'items.jsonl:5' has a parent that is not a folder",
    ),
    ("a kind of its own", item(lambda t: t[0].update(kind="bomb")), "archive_line", "has an unknown kind"),
    ("a name of nothing", item(lambda t: t[0].update(name=" ")), "archive_line", "has no name"),
    (
        "a name with half a character",
        item(lambda t: t[0].update(name="\ud83d")),
        "archive_field",
        "'name' of 'items.jsonl:1' must be text",
    ),
    (
        "a name with a zero",
        item(lambda t: t[0].update(name="a\0b")),
        "archive_field",
        "'name' of 'items.jsonl:1' must be text",
    ),
    (
        "a name twice",
        item(lambda t: t[1].update(name=t[0]["name"])),
        "archive_name_twice",
        "'1.md' twice in the same folder",
    ),
    (
        "a number that is none",
        item(lambda t: t[0].update(id=True)),
        "archive_field",
        "'id' of 'items.jsonl:1' must be a whole number from 1",
    ),
    (
        "a digest of its own",
        item(lambda t: t[0].update(digest="f" * 64)),
        "archive_line",
        "bytes are missing or have another size",
    ),
    (
        "a digest that is a path",
        item(lambda t: t[0].update(digest="../../etc/passwd")),
        "archive_line",
        "has a digest that is not a SHA-256",
    ),
    ("another size", item(lambda t: t[0].update(size=1)), "archive_line", "bytes are missing or have another size"),
    (
        "metadata with a zero",
        item(lambda t: t[0].update(metadata={"a": "\0"})),
        "archive_line",
        "has metadata that cannot be stored",
    ),
    ("metadata that is no object", item(lambda t: t[0].update(metadata=[1])), "archive_line", "lacks an object"),
    (
        "metadata that is no number",
        item(lambda t: t[0].update(metadata={"a": float("nan")})),
        "archive_line",
        "contains a number that is infinite or undefined",
    ),
    (
        "a schedule that never was",
        item(lambda t: t[0].update(every=0)),
        "archive_field",
        "'every' of 'items.jsonl:1' must be a whole number from 1",
    ),
    (
        "a problem without a name",
        item(lambda t: t[0].update(problem={})),
        "archive_line",
        "has a problem without a code",
    ),
    (
        "an answer for nobody",
        memo(lambda t: t[0].update(item=1_000_000)),
        "archive_answer_item",
        "item 1000000, which it does not contain",
    ),
    (
        "an answer that is no bytes",
        memo(lambda t: t[0]["memos"][0].update(value="???")),
        "archive_line",
        "has a paid answer that is not base64",
    ),
    (
        "an answer without a key",
        memo(lambda t: t[0]["memos"][0].update(key="k")),
        "archive_line",
        "has a paid answer without a key",
    ),
    ("an answer without a chunk", memo(lambda t: t[0]["memos"][0].update(chunks=[])), "archive_line", "without chunks"),
]


@pytest.fixture
def whole(make: Make, provider: OpenAIProvider) -> dict[str, bytes]:
    """Return the entries of a valid archive with five items; tests then damage them."""
    rig = make("sqlite", provider, indexes=("vector",), chunk_size=64, chunk_overlap=8)
    rig.library.adder.put(
        rig.base, [Upload("1.md", ABOUT.format(1).encode()), Upload("2.md", ABOUT.format(2).encode())]
    )
    (folder,) = rig.library.adder.add(rig.base, [Upload("folder", kind=ItemKind.DIRECTORY)])
    (box,) = rig.library.adder.add(rig.base, [Upload("box", kind=ItemKind.DIRECTORY, parent=folder.item or 0)])
    rig.library.adder.add(rig.base, [Upload("note", b"A note.", kind=ItemKind.NOTE, parent=box.item or 0)])
    rig.work()
    return zipped(packed(rig))


@pytest.mark.parametrize(("change", "code", "sentence"), [one[1:] for one in HOSTILE], ids=[one[0] for one in HOSTILE])
def test_a_bad_archive_is_refused_with_a_reason_and_nothing_is_left(
    make: Make, whole: dict[str, bytes], change: Callable[[dict[str, bytes]], Any], code: str, sentence: str
) -> None:
    rig = make("sqlite", **PLAIN)
    good = rezipped(whole)
    change(whole)
    with pytest.raises(BadArchive) as refused:
        restored(rig, rezipped(whole))
    assert (refused.value.code, refused.value.subcode) == ("bad_request", code)
    assert sentence in str(refused.value)
    assert "Nothing was restored." in str(refused.value)
    assert_nothing(rig)
    assert restored(rig, good).documents == 3  # proves that the change alone caused the refusal


@BOTH
def test_a_truncated_archive_is_refused_wherever_it_ends(make: Make, whole: dict[str, bytes], kind: str) -> None:
    rig = make(kind, **PLAIN)
    good = rezipped(whole)
    for end in (0, 1, 100, len(good) // 2, len(good) - 23, len(good) - 1):
        with pytest.raises(BadArchive):
            restored(rig, good[:end])
    name = next(name for name in whole if name.startswith("blobs/"))
    where = good.index(whole[name])
    for damage in (good[:where] + b"\0" * 9 + good[where + 9 :], good[:where] + good[where + 9 :]):
        with pytest.raises(BadArchive, match="The archive is damaged"):
            restored(rig, damage)
    assert_nothing(rig)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(make: Make, whole: dict[str, bytes]) -> None:
    rig = make("sqlite", **PLAIN)
    zeros = bytes(50_000_000)
    whole[f"blobs/{sha256(zeros).hexdigest()}"] = zeros
    archive = rezipped(whole, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        with pytest.raises(BadArchive, match="more than 100 times its size"):
            restored(rig, archive)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert_nothing(rig)


def test_an_archive_that_exceeds_a_limit_is_refused(make: Make, whole: dict[str, bytes]) -> None:
    rig = make("sqlite", **PLAIN)
    archive = rezipped(whole)
    for limits, sentence in (
        (ArchiveLimits(entries=3), "directory is larger|entries"),
        (ArchiveLimits(entries=5), "has 6 entries, at most 5"),
        (ArchiveLimits(bytes=200), "more than 200 bytes"),
        (ArchiveLimits(line=100), "'items.jsonl:1' is longer than 100 bytes"),
    ):
        with pytest.raises(BadArchive, match=sentence):
            restored(rig, archive, limits=limits)
    assert_nothing(rig)


def test_a_duplicate_entry_is_refused(make: Make, whole: dict[str, bytes]) -> None:
    rig = make("sqlite", **PLAIN)
    target = io.BytesIO(rezipped(whole))
    with zipfile.ZipFile(target, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("items.jsonl", b"")
    with pytest.raises(BadArchive, match=r"the entry 'items\.jsonl' occurs twice"):
        restored(rig, target.getvalue())
    assert_nothing(rig)


def test_overlapping_entries_are_refused(make: Make, whole: dict[str, bytes]) -> None:
    rig = make("sqlite", **PLAIN)
    large = os.urandom(100_000)
    whole[f"blobs/{sha256(large).hexdigest()}"] = large
    target = io.BytesIO(rezipped(whole))
    with zipfile.ZipFile(target, "a") as file:  # a second directory entry for the same bytes
        again = copy(file.getinfo(f"blobs/{sha256(large).hexdigest()}"))
        again.filename = f"blobs/{'a' * 64}"
        file.filelist.append(again)
        file._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(BadArchive, match="its entries overlap"):
        restored(rig, target.getvalue())
    assert_nothing(rig)


def test_a_restore_names_an_index_that_is_not_installed(make: Make, whole: dict[str, bytes]) -> None:
    rig = make("sqlite", **PLAIN)
    manifest(lambda told: told["base"]["settings"].update(indexes=["vector", "astrology"]))(whole)
    with pytest.raises(BadSettings, match="astrology"):
        restored(rig, rezipped(whole))
    assert_nothing(rig)


def test_unknown_settings_of_a_newer_version_are_ignored(make: Make, whole: dict[str, bytes]) -> None:
    rig = make("sqlite", **PLAIN)
    manifest(lambda told: told["base"]["settings"].update(colour="blue"))(whole)
    assert restored_base(rig, rezipped(whole)).settings.chunk_size == 64


def test_a_restore_never_overwrites_existing_paid_answers(
    make: Make, provider: OpenAIProvider, whole: dict[str, bytes]
) -> None:
    rig = make("sqlite", provider, indexes=("vector",), chunk_size=64, chunk_overlap=8)
    rig.index("mine.md", ABOUT.format(1))
    with rig.store.database.reading() as tx:
        before = dict(tx.run_sql("SELECT key, value FROM library_memos"))
    wrong = b64encode(b"\0" * 32).decode()
    memo(lambda told: [one.update(value=wrong) for line in told for one in line["memos"]])(whole)
    restored(rig, rezipped(whole))
    with rig.store.database.reading() as tx:
        after = dict(tx.run_sql("SELECT key, value FROM library_memos"))
    assert {key: after[key] for key in before} == before
    assert len(after) > len(before)


KILLED = """
import os, signal, sys
from pathlib import Path
from uuid import uuid4
from holdfast.bases.archives import Archives
from holdfast.settings import Settings
from holdfast.db.database import Database
from holdfast.wiring import Library
from tests.support.clock import FakeClock
from tests.support.stores import open_test_store

url, folder, archive, last = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
clock = FakeClock()
store = open_test_store(url, clock, ids=lambda: uuid4().hex)
library = Library(store, Settings(database=url, data=folder), clock=clock)
ordinary, count = Database.write, 0

def write(self, work, *, durable):
    global count
    count += 1
    if count == abs(last) and last > 0:
        os.kill(os.getpid(), signal.SIGKILL)  # before it is written
    result = ordinary(self, work, durable=durable)
    if count == abs(last) and last < 0:
        os.kill(os.getpid(), signal.SIGKILL)  # after it is written
    return result

Database.write = write
library.archives.restore(archive, name="copy")
print(count)
"""


@pytest.mark.proof
@BOTH
def test_a_restore_that_is_killed_at_any_point_is_deleted_by_the_next_sweep(
    make: Make, provider: OpenAIProvider, kind: str, tmp_path: Path
) -> None:
    rig = make(kind, provider, indexes=("vector",), chunk_size=64, chunk_overlap=8)
    (folder,) = rig.library.adder.add(rig.base, [Upload("folder", kind=ItemKind.DIRECTORY)])
    rig.library.adder.add(
        rig.base, [Upload(f"{n}.md", ABOUT.format(n).encode(), parent=folder.item or 0) for n in range(3)]
    )
    rig.work()
    archive = tmp_path / "shelf.zip"
    rig.library.archives.export(rig.base, archive)
    other = make(kind, None, **PLAIN)
    url: str = other.url  # type: ignore[attr-defined]

    def restore(last: int) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", KILLED, url, str(other.folder), str(archive), str(last)]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)

    # the writes in order: base, folder, file records, documents, paid answers, schedules, requests, opening the base
    for last in (-1, 2, 3, -3, -4, 5, -5, 7, 8):
        ran = restore(last)
        assert ran.returncode == -signal.SIGKILL, (last, ran.stdout, ran.stderr)
        (left,) = [base for base in other.library.catalog.bases() if base.name == "copy"]
        assert left.problem is not None
        assert left.problem.code == RESTORING
        assert_no_hits(other, left)
        assert other.library.archives.clean_up_restores() >= 1
        remove_blobs_of_nobody(other)
        assert_nothing(other)
    ran = restore(-8)  # killed right after the last write
    assert ran.returncode == -signal.SIGKILL
    base = other.library.catalog.find_base("copy")
    assert base.problem is None
    quiet(other)
    assert len(tree(other, base)) == 4
    audit_quiet(other)


def assert_no_hits(rig: Rig, base: Base) -> None:
    assert rig.library.searcher.search(base, "krill") == []


def remove_blobs_of_nobody(rig: Rig) -> None:
    """Remove files that no row names, which a killed process left. The product does this after a day."""
    with rig.store.database.reading() as tx:
        named = {blob for (blob,) in tx.run_sql("SELECT blob FROM library_items WHERE blob IS NOT NULL")}
    for path in rig.folder.rglob("*"):
        if path.is_file() and path.name not in named:
            path.unlink()


def test_a_restore_that_runs_on_another_host_is_not_cleaned_up(make: Make) -> None:
    rig = make("sqlite", **PLAIN)
    problem = Fault(RESTORING, {"message": "It is being restored.", "holder": "there/boot/1/2/3"})
    base = rig.library.bases.create("copy", None, problem)
    assert rig.library.archives.clean_up_restores() == 0
    assert rig.library.bases.read(base) == base
    rig.library.bases.delete(base)  # a user may still delete it
    assert_nothing(rig)


@pytest.mark.proof
def test_thousands_of_documents_need_little_memory_and_small_transactions(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, other = make("sqlite", **PLAIN, auto_index=False), make("sqlite", **PLAIN)
    count, size = 2_000, 20_000
    for first in range(0, count, 100):
        rig.library.adder.put(
            rig.base, [Upload(f"{n}.md", os.urandom(size // 2).hex().encode()) for n in range(first, first + 100)]
        )
    largest, writes = 0, 0
    run, write = Transaction.run, Database.write

    def counted(self: Transaction, statement: Any, rows: Any = None, **params: Any) -> Any:
        nonlocal largest
        found = run(self, statement, rows, **params)
        largest = max(largest, len(rows or ()), len(found))
        return found

    def written(self: Database, work: Any, *, durable: bool) -> Any:
        nonlocal writes
        writes += 1
        return write(self, work, durable=durable)

    monkeypatch.setattr(Transaction, "run", counted)
    monkeypatch.setattr(Database, "write", written)
    path = tmp_path / "many.zip"
    tracemalloc.start()
    try:
        assert rig.library.archives.export(rig.base, path).documents == count
        assert other.library.archives.restore(path, name="copy", options=RestoreOptions(index=True)).documents == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count * size / 2  # far less than the total size of the documents
    assert largest <= 500
    assert writes <= 3 * count / ITEMS_PER_TRANSACTION + 10  # three writes per batch: file records, documents, requests
    assert other.count("items") == count
