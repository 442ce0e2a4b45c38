"""Folders, pages and sitemaps as sources: a refresh applies changes and neither touches nor pays for anything else."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.catalog.repository import ItemKind
from holdfast.documents.requests import Action, Upload
from holdfast.documents.source_sync import SourceAccess
from holdfast.engine.states import Status
from holdfast.errors import BadRequest, Permanent
from holdfast.sources.address_policy import Reach
from holdfast.sources.folder import open_found
from tests.support.audit import audit, audit_quiet
from tests.support.harness import Rig
from tests.support.scripted_site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.sources.folder_limits import FolderLimits
    from tests.support.clock import FakeClock


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    rig.library.source_policy = SourceAccess(reach=Reach.parse("127.0.0.1"))
    rig.indexers = rig.library.indexers()
    rig.worker = rig.hire("worker")
    yield rig
    rig.close()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    root = tmp_path / "books"
    write(root / "whales.md", "# Whales\n\nThe blue whale eats krill.\n")
    write(root / "deep" / "er" / "stones.md", "# Stones\n\nGranite is hard.\n")
    return root


def write(path: Path, text: str) -> None:
    """Write a file with an old modification time, so that its stamp is trusted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = time.time() - 3600 + len(text) / 1000
    os.utime(path, (moment, moment))


def shelve(rig: Rig, root: Path) -> int:
    (reply,) = rig.library.adder.add(rig.base, [Upload("books", kind=ItemKind.DIRECTORY, source=str(root))])
    assert reply.accepted
    assert reply.item is not None
    rig.work()
    return reply.item


def look(rig: Rig, item: int) -> None:
    assert rig.library.operations.refresh(rig.base, [item])[0].accepted
    rig.work()
    while rig.library.sweep(100):
        rig.work()


def paths(rig: Rig, item: int) -> list[str]:
    tree = rig.library.items.tree(rig.base, item)
    names = {one.item.id: one.item.name for one in tree}
    parents = {one.item.id: one.item.parent for one in tree}

    def path(id_: int) -> str:
        parent = parents[id_]
        return names[id_] if parent not in names else f"{path(parent)}/{names[id_]}"

    return sorted(path(one.item.id) for one in tree)


def test_a_folder_becomes_nested_items_and_all_files_are_found(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    assert paths(rig, item) == ["books", "books/deep", "books/deep/er", "books/deep/er/stones.md", "books/whales.md"]
    assert rig.library.items.status(rig.base, item) is Status.SUCCESS
    assert [hit.name for hit in rig.find("granite")] == ["stones.md"]
    audit(rig)


def test_equal_files_of_a_folder_are_separate_items(rig: Rig, tmp_path: Path) -> None:
    root = tmp_path / "many"
    for number in range(10):
        write(root / str(number) / "README.md", "# Read me\n\nThe same krill everywhere.\n")
    shelve(rig, root)
    assert len(rig.find("krill")) == 10
    audit(rig)


def test_a_second_refresh_touches_no_unchanged_row(rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sources.folder.COARSE_NS", -(10**18))  # every stamp is trusted
    item = shelve(rig, books)

    def rows() -> object:
        with rig.store.database.reading() as tx:
            return [
                tx.run_sql(f"SELECT * FROM {table} WHERE {condition} ORDER BY id")  # noqa: S608
                for table, condition in (
                    ("library_items", "name <> 'books'"),
                    ("library_chunks", "1 = 1"),
                    ("owners", "substr(owner, 1, 7) <> 'source:'"),
                    ("slots", "kind <> 'source'"),
                    ("jobs", "substr(owner, 1, 7) <> 'source:'"),
                )
            ]

    before = rows()
    opened: list[object] = []
    monkeypatch.setattr("holdfast.documents.folders.open_found", lambda *found, **_: opened.append(found))
    look(rig, item)
    after = rows()
    assert opened == []
    assert after == before
    assert [hit.generation for hit in rig.find("krill")] == [1]


def test_a_refresh_adds_new_files_updates_changed_ones_and_removes_missing_ones(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    write(books / "whales.md", "# Whales\n\nThe sperm whale eats squid, and dives for an hour.\n")
    write(books / "new" / "sand.md", "# Sand\n\nQuartz is common.\n")
    (books / "deep" / "er" / "stones.md").unlink()
    look(rig, item)
    assert paths(rig, item) == ["books", "books/new", "books/new/sand.md", "books/whales.md"]
    assert [len(rig.find(word)) for word in ("krill", "squid", "quartz", "granite")] == [0, 1, 1, 0]
    assert [hit.generation for hit in rig.find("squid")] == [2]
    audit(rig)


def test_a_file_with_only_a_new_timestamp_is_read_but_not_indexed_again(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    os.utime(books / "whales.md")
    look(rig, item)
    assert [hit.generation for hit in rig.find("krill")] == [1]


def test_a_refresh_handles_a_file_replaced_by_a_folder_and_vice_versa(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    (books / "whales.md").unlink()
    write(books / "whales.md" / "blue.md", "# Blue\n\nIt eats krill.\n")
    (books / "deep" / "er" / "stones.md").unlink()
    (books / "deep" / "er").rmdir()
    write(books / "deep" / "er", "Basalt is dark.")
    look(rig, item)
    assert paths(rig, item) == ["books", "books/deep", "books/deep/er", "books/whales.md", "books/whales.md/blue.md"]
    assert [len(rig.find(word)) for word in ("krill", "basalt", "granite")] == [1, 1, 0]
    audit(rig)


def test_a_missing_source_folder_deletes_nothing_and_is_retried(rig: Rig, books: Path, clock: FakeClock) -> None:
    item = shelve(rig, books)
    books.rename(books.with_name("elsewhere"))
    rig.library.operations.refresh(rig.base, [item])
    rig.work()
    assert len(rig.find("krill")) == 1
    assert rig.library.items.status(rig.base, item) is Status.INDEXING  # waiting for the next attempt
    books.with_name("elsewhere").rename(books)
    clock.advance(timedelta(hours=2))
    rig.work()
    assert rig.library.items.status(rig.base, item) is Status.SUCCESS


def test_an_unreadable_file_is_a_failed_item_until_it_becomes_readable(
    rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(root: Path, path: str, limits: FolderLimits) -> object:
        if path == "whales.md":
            raise Permanent("not_permitted", "The file may not be read.")
        return open_found(root, path, limits)

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.documents.folders.open_found", forbidden)
        item = shelve(rig, books)
    assert rig.library.items.status(rig.base, item) is Status.DEGRADED
    assert len(rig.find("granite")) == 1
    failed = rig.library.items.find(rig.base, "whales.md", item)
    assert failed.problem is not None
    assert failed.problem.code == "not_permitted"
    look(rig, item)
    assert len(rig.find("krill")) == 1
    assert rig.library.items.status(rig.base, item) is Status.SUCCESS


def test_reindexing_a_folder_refreshes_it_and_also_indexes_unchanged_files(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    write(books / "sand.md", "# Sand\n\nQuartz is common.\n")
    (reply,) = rig.library.operations.reindex(rig.base, [item])
    assert reply.accepted
    assert len(rig.find("krill")) == 1  # the old content stays served
    rig.work()
    assert [hit.generation for hit in rig.find("krill")] == [2]
    assert [hit.generation for hit in rig.find("granite")] == [2]
    assert len(rig.find("quartz")) == 1


def test_reindexing_a_nested_folder_refreshes_only_that_folder(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    deep = next(one.item.id for one in rig.library.items.tree(rig.base, item) if one.item.name == "deep")
    write(books / "deep" / "sand.md", "# Sand\n\nQuartz is common.\n")
    write(books / "beside.md", "# Beside\n\nBasalt is dark.\n")
    assert rig.library.operations.reindex(rig.base, [deep])[0].accepted
    rig.work()
    assert [hit.generation for hit in rig.find("granite")] == [2]
    assert [hit.generation for hit in rig.find("krill")] == [1]
    assert [len(rig.find(word)) for word in ("quartz", "basalt")] == [1, 0]


def test_no_child_is_created_under_a_folder_that_is_being_deleted(
    rig: Rig, books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = shelve(rig, books)
    write(books / "sand.md", "# Sand\n\nQuartz is common.\n")
    rig.library.operations.refresh(rig.base, [item])
    real = rig.library.adder.add

    def deleted_meanwhile(*args: object, **more: object) -> object:
        monkeypatch.setattr(rig.library.adder, "add", real)
        rig.library.remover.delete(rig.base, [item])
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.library.adder, "add", deleted_meanwhile)
    rig.work()
    while rig.library.sweep(100):
        rig.work()
    assert (rig.count("items"), rig.count("owners")) == (0, 0)
    audit_quiet(rig)


def test_a_refresh_that_lost_its_lease_cannot_write_old_content(
    rig: Rig, books: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = shelve(rig, books)
    write(books / "whales.md", "# Whales\n\nThe old text tells of squid.\n")
    rig.library.operations.refresh(rig.base, [item])
    real = rig.library.adder.add

    def overtaken(*args: object, **more: object) -> object:
        monkeypatch.setattr(rig.library.adder, "add", real)
        uploads = list(args[1])  # type: ignore[call-overload]
        content = (books / "whales.md").read_bytes()
        write(books / "whales.md", "# Whales\n\nThe new text tells of plankton and more.\n")
        clock.advance(timedelta(minutes=10))
        while rig.hire("other").run_next(10):
            pass
        late = [upload._replace(content=content) for upload in uploads if upload.name == "whales.md"]
        return real(args[0], late, *args[2:], **more)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.library.adder, "add", overtaken)
    rig.work()
    assert [len(rig.find(word)) for word in ("squid", "plankton")] == [0, 1]


def test_a_deleted_folder_leaves_no_rows(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    rig.library.remover.delete(rig.base, [item])
    assert rig.find("krill") == []
    while rig.library.sweep(100):
        rig.work()
    rig.work()
    while rig.library.sweep(100):
        rig.work()
    assert (rig.count("items"), rig.count("owners"), rig.count("slots")) == (0, 0, 0)
    audit_quiet(rig)


def test_a_source_is_refreshed_when_its_interval_has_passed(rig: Rig, books: Path, clock: FakeClock) -> None:
    upload = Upload("books", kind=ItemKind.DIRECTORY, source=str(books), every=3600)
    rig.library.adder.add(rig.base, [upload])
    rig.work()
    write(books / "sand.md", "# Sand\n\nQuartz is common.\n")
    rig.library.sweep(100)
    rig.work()
    assert rig.find("quartz") == []
    clock.advance(timedelta(seconds=3601))
    rig.library.sweep(100)
    rig.work()
    assert len(rig.find("quartz")) == 1
    rig.library.sweep(100)
    assert rig.worker.run_next(1) == 0  # not again before its interval has passed


def page(text: str, *headers: bytes) -> bytes:
    menu = "<nav><a href='/'>Home</a> <a href='/about'>About lighthouses</a></nav>"
    body = f"<html><body>{menu}<main><h1>Page</h1><p>{text}</p></main></body></html>".encode()
    head = [b"HTTP/1.1 200 OK", b"Content-Type: text/html", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def test_a_page_is_fetched_and_found_and_an_unchanged_page_is_not_indexed_again(rig: Rig) -> None:
    with Site() as site:
        site.says("/whales", page("The blue whale eats krill.", b'ETag: "1"'))
        (reply,) = rig.library.adder.add(rig.base, [Upload("whales", kind=ItemKind.URL, source=site.url("/whales"))])
        assert reply.item is not None
        rig.work()
        assert [hit.name for hit in rig.find("krill")] == ["whales"]
        assert rig.find("lighthouses") == []  # the menu is not part of the main text
        assert rig.library.items.status(rig.base, reply.item) is Status.SUCCESS
        site.says("/whales", b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n')
        look(rig, reply.item)
        assert site.asked[-1].headers["if-none-match"] == '"1"'
        assert [hit.generation for hit in rig.find("krill")] == [1]
        site.says("/whales", page("The blue whale eats krill.", b'ETag: "2"'))  # the same bytes with another ETag
        look(rig, reply.item)
        assert [hit.generation for hit in rig.find("krill")] == [1]
        site.says("/whales", page("The sperm whale eats squid."))
        look(rig, reply.item)
    assert (rig.find("krill"), len(rig.find("squid"))) == ([], 1)
    audit(rig)


def test_a_page_that_no_longer_exists_keeps_its_content_and_is_degraded(rig: Rig) -> None:
    with Site() as site:
        site.says("/whales", page("The blue whale eats krill."))
        (reply,) = rig.library.adder.add(rig.base, [Upload("whales", kind=ItemKind.URL, source=site.url("/whales"))])
        assert reply.item is not None
        rig.work()
        site.says("/whales", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        rig.library.operations.refresh(rig.base, [reply.item])
        rig.work()
    assert len(rig.find("krill")) == 1
    assert rig.library.items.status(rig.base, reply.item) is Status.DEGRADED


def test_a_page_in_a_private_network_is_refused(rig: Rig) -> None:
    rig.library.source_policy = SourceAccess()
    rig.indexers = rig.library.indexers()
    with Site() as site:
        (reply,) = rig.library.adder.add(rig.base, [Upload("inside", kind=ItemKind.URL, source=site.url("/secret"))])
        rig.hire("other").run_next(10)
        assert site.asked == []
    assert reply.item is not None
    assert rig.library.items.status(rig.base, reply.item) is Status.FAILED


def test_a_deleted_page_leaves_no_rows(rig: Rig) -> None:
    with Site() as site:
        site.says("/whales", page("The blue whale eats krill."))
        (reply,) = rig.library.adder.add(rig.base, [Upload("whales", kind=ItemKind.URL, source=site.url("/whales"))])
        assert reply.item is not None
        rig.work()
        rig.library.remover.delete(rig.base, [reply.item])
        assert rig.find("krill") == []
    rig.work()
    while rig.library.sweep(100):
        rig.work()
    assert (rig.count("items"), rig.count("owners")) == (0, 0)
    audit_quiet(rig)


def sitemap(site: Site, *targets: str, modified: str = "2026-01-01") -> bytes:
    urls = "".join(f"<url><loc>{site.url(target)}</loc><lastmod>{modified}</lastmod></url>" for target in targets)
    body = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_a_sitemap_becomes_pages_and_a_refresh_follows_its_changes(rig: Rig) -> None:
    with Site() as site:
        site.says("/robots.txt", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        site.says("/a", page("The blue whale eats krill."))
        site.says("/b", page("Granite is hard."))
        site.says("/sitemap.xml", sitemap(site, "/a", "/b"))
        upload = Upload("site", kind=ItemKind.SITEMAP, source=site.url("/sitemap.xml"))
        (reply,) = rig.library.adder.add(rig.base, [upload])
        assert reply.item is not None
        rig.work()
        assert rig.library.items.status(rig.base, reply.item) is Status.SUCCESS
        assert [len(rig.find(word)) for word in ("krill", "granite")] == [1, 1]
        asked = len(site.asked)
        look(rig, reply.item)  # the dates are unchanged: no page is requested
        assert {one.target for one in site.asked[asked:]} == {"/robots.txt", "/sitemap.xml"}
        site.says("/a", page("The sperm whale eats squid."))
        site.says("/sitemap.xml", sitemap(site, "/a", modified="2026-02-02"))
        look(rig, reply.item)
    assert [len(rig.find(word)) for word in ("krill", "squid", "granite")] == [0, 1, 0]
    audit(rig)


def test_an_uploaded_document_cannot_be_refreshed(rig: Rig) -> None:
    rig.put("note.md", "krill")
    with pytest.raises(BadRequest, match=r"'note\.md' was uploaded"):
        rig.library.operations.refresh(rig.base, [rig.library.items.find(rig.base, "note.md").id])


def test_a_request_for_a_container_applies_to_each_document_below_it(rig: Rig, books: Path) -> None:
    item = shelve(rig, books)
    (reply,) = rig.library.operations.request(rig.base, [item], Action.FORCE)
    assert reply.accepted
    (stopped,) = rig.library.operations.request(rig.base, [item], Action.CANCEL)
    assert stopped.accepted
    rig.work()
    assert [hit.generation for hit in rig.find("krill")] == [1]
