"""Two Unicode spellings of a name are one name: for documents, bases, filters and the command line."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, cast

import pytest
from alembic import command
from alembic.config import Config

from holdfast.cli.resolve import resolve_document
from holdfast.clock import SystemClock
from holdfast.documents.requests import Upload
from holdfast.engine.store.factory import open_database
from holdfast.errors import NameTaken
from holdfast.service.documents import File
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.harness import Rig
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.db.database import Transaction
    from holdfast.service.client import Holdfast
    from tests.support.clock import FakeClock

NFC, NFD = "Caf\u00e9", "Cafe\u0301"
BEFORE = "0010"  # the last schema version before names were normalized


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


@pytest.fixture
def library(rig: Rig) -> LocalService:
    return LocalService(rig.library, local_caller())


def test_a_document_is_found_and_replaced_under_either_spelling(rig: Rig, library: LocalService) -> None:
    first = library.documents.note("shelf", NFD, "espresso")
    refused = library.documents.note("shelf", NFC, "ristretto")
    assert (refused.reason, refused.document) == ("name_taken", first.document)
    (replaced,) = library.documents.add("shelf", [File(name=f"{NFD}.md", content=b"one")])
    (again,) = library.documents.add("shelf", [File(name=f"{NFC}.md", content=b"two")], on_duplicate="replace")
    assert again.document == replaced.document
    rig.work()
    assert sorted(one.name for one in library.documents.list("shelf").items) == [NFC, f"{NFC}.md"]
    assert {rig.library.items.find(rig.base, name).id for name in (NFC, NFD)} == {first.document}
    for name in (NFC, NFD):
        assert resolve_document(cast("Holdfast", library), "shelf", name) == first.document
        assert library.documents.list("shelf", text=name).total == 2


def test_metadata_is_searched_under_either_spelling(rig: Rig, library: LocalService) -> None:
    for name, author in (("a", NFC), ("b", NFD), ("c", "Tea")):
        library.documents.note("shelf", name, f"krill {name}", metadata={"by": {"names": [author]}})
    rig.work()
    for author in (NFC, NFD):
        found = library.asking.search("shelf", "krill", metadata={"by": {"names": [author]}})
        assert sorted(hit.name for hit in found) == ["a", "b"]


def test_both_spellings_of_a_name_are_the_same_base(library: LocalService) -> None:
    assert library.bases.create(NFD).name == NFC
    with pytest.raises(NameTaken):
        library.bases.create(NFC)
    with pytest.raises(NameTaken):
        library.bases.rename("shelf", NFD)
    assert {library.bases.get(name).id for name in (NFC, NFD)} == {library.bases.get(NFC).id}
    assert library.bases.rename(NFC, NFD).name == NFC


def test_a_synced_folder_with_decomposed_names_is_stable(rig: Rig, tmp_path: Path) -> None:
    books = tmp_path / NFD
    (books / NFD).mkdir(parents=True)
    (books / NFD / f"{NFD}.md").write_text("krill")
    for _ in range(3):
        rig.library.folder_sync.sync(rig.base, books)
        rig.work()
        items = rig.library.items.tree(rig.base, rig.library.items.find(rig.base, NFC).id)
        assert [one.item.name for one in items] == [NFC, NFC, f"{NFC}.md"]
        assert items[-1].item.changed_at == items[-1].item.created_at


@pytest.mark.parametrize("first", [NFC, NFD])
def test_an_archive_of_an_older_version_with_both_spellings_is_restored(rig: Rig, first: str) -> None:
    second = NFD if first == NFC else NFC
    uploads = [Upload(name, content) for name, content in (("a.md", b"one"), ("b.md", b"two"), ("c.md", b"three"))]
    rig.library.adder.add(rig.base, uploads)
    packed, older = io.BytesIO(), io.BytesIO()
    rig.library.archives.export(rig.base, packed)
    with zipfile.ZipFile(packed) as file, zipfile.ZipFile(older, "w") as target:
        for name in file.namelist():
            content = file.read(name)
            if name == "items.jsonl":
                for before, after in (("a.md", f"{first}.md"), ("b.md", f"{second}.md"), ("c.md", f"{NFD} 2.md")):
                    content = content.replace(before.encode(), after.encode())
            target.writestr(name, content)
    base = rig.library.catalog.find_base(rig.library.archives.restore(older, name="copy").base)
    names = {row.name for row in rig.library.document_queries.list(base).items}
    assert names == {f"{NFC}.md", f"{NFC} (2).md", f"{NFC} 2.md"}


class TestUpgrade:
    @pytest.fixture
    def empty(self) -> bool:
        return True

    def test_an_upgrade_normalizes_the_names_of_an_older_version(self, database_url: str, clock: FakeClock) -> None:
        config = Config()
        config.set_main_option("script_location", "holdfast:db/migrations")
        config.set_main_option("path_separator", "os")
        database = open_database(database_url, SystemClock())
        database.prepare()
        with database.writing(durable=True) as tx:
            config.attributes["connection"] = tx.connection
            command.upgrade(config, BEFORE)
            self._fill(tx)
        database.close()
        store = open_test_store(database_url, clock)
        with store.database.reading() as tx:
            bases = tx.run_sql("SELECT id, name FROM library_bases ORDER BY id")
            items = tx.run_sql("SELECT id, name, folded FROM library_items ORDER BY id")
        store.close()
        assert bases == [(1, NFC), (2, f"{NFC} (2)")]
        assert [(id_, name) for id_, name, _ in items] == [
            (1, f"{NFC} (2).md"), (2, f"{NFC}.md"), (3, f"{NFC}.md"), (4, f"{NFC}.md"), (5, "plain.md"),
        ]  # fmt: skip
        assert [folded for *_, folded in items] == [name.casefold() for _, name, _ in items]

    @staticmethod
    def _fill(tx: Transaction) -> None:
        for id_, name in ((1, NFC), (2, NFD)):
            tx.run_sql(
                f"INSERT INTO library_bases (id, name, settings, created_at) VALUES ({id_}, '{name}', '{{}}', 1)"  # noqa: S608
            )
        rows = [
            (1, 1, 0, f"{NFD}.md", 0), (2, 1, 0, f"{NFC}.md", 0), (3, 1, 0, f"{NFD}.md", 1), (4, 2, 0, f"{NFD}.md", 0),
            (5, 1, 0, "plain.md", 0),
        ]  # fmt: skip
        for id_, base, parent, name, deleting in rows:
            tx.run_sql(
                "INSERT INTO library_items (id, base_id, parent_id, kind, name, deleting, created_at, folded)"  # noqa: S608
                f" VALUES ({id_}, {base}, {parent}, 'note', '{name}', {deleting}, 1, '{name.casefold()}')"
            )
