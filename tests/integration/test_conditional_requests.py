"""Conditional requests: a request for a known generation of a document never affects a newer one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import DBAPIError

from holdfast.documents import operations as requesting
from holdfast.documents import remove as removing
from holdfast.documents import selection as selecting
from holdfast.engine.admission import Request
from holdfast.engine.states import Operation, Status
from holdfast.errors import PreconditionFailed
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.harness import Rig
from tests.support.http_site import HttpSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

ACTIONS = ["index", "reindex", "refresh", "retry", "force", "cancel", "delete"]


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


@pytest.fixture
def site(rig: Rig) -> Iterator[HttpSite]:
    site = HttpSite(rig)
    yield site
    site.close()


def before_its_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Run `act` after the next request has begun and before its transaction begins."""
    real = rig.store.database.write

    def late(work: Any, *, durable: bool) -> Any:
        monkeypatch.setattr(rig.store.database, "write", real)
        act()
        return real(work, durable=durable)

    monkeypatch.setattr(rig.store.database, "write", late)


def raised(rig: Rig, owner: str) -> Callable[[], object]:
    """Return a function that raises the generation without locking the base, as requests of the queue do."""
    asks = Request(base=rig.base.key, owner=owner, operation=Operation.CHANGE, fingerprint="other")
    return lambda: rig.store.admit([asks])


def everything(rig: Rig) -> list[Any]:
    with rig.store.database.reading() as tx:
        tables = ("library_items", "owners", "slots", "jobs")
        return [tx.run_sql(f"SELECT * FROM {table} ORDER BY 1") for table in tables]  # noqa: S608 - table names from this test


@pytest.mark.parametrize("action", ACTIONS)
def test_a_request_is_refused_if_the_document_changed_since_it_was_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    documents = LocalService(rig.library, local_caller()).documents
    if action == "refresh":
        item = documents.url("shelf", "https://example.org/").document or 0
    else:
        item = documents.note("shelf", "whales.md", "It eats krill.").document or 0
        rig.work()
    generation = documents.get("shelf", item).generation
    after: list[Any] = []

    def change() -> None:
        raised(rig, f"source:{item}" if action == "refresh" else str(item))()
        after.extend(everything(rig))

    before_its_turn(rig, monkeypatch, change)
    with pytest.raises(PreconditionFailed) as caught:
        documents.many("shelf", action, [item], unless_changed=[generation])
    assert caught.value.generation == generation + 1
    assert everything(rig) == after
    replies = documents.many("shelf", action, [item], unless_changed=[generation, generation + 1])
    assert isinstance(replies, list)
    assert replies[0].document == item


def test_the_document_stays_locked_from_the_check_to_the_end_of_the_transaction(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = rig.put("whales.md", "It eats krill.").item or 0
    rig.work()
    looked: list[bool] = []

    def look(*given: Any) -> None:
        selecting.require_unchanged(*given)
        # The lock is held, so this fails without waiting.
        with pytest.raises((DBAPIError, sqlite3.OperationalError), match="lock"):
            take_at_once(rig)
        looked.append(True)

    monkeypatch.setattr(removing, "require_unchanged", look)
    monkeypatch.setattr(requesting, "require_unchanged", look)
    documents = LocalService(rig.library, local_caller()).documents
    assert documents.reindex("shelf", item, unless_changed=[1]).accepted
    assert documents.cancel("shelf", item, unless_changed=[2]).accepted
    assert documents.delete("shelf", item, unless_changed=[2]).accepted
    assert len(looked) == 3


def take_at_once(rig: Rig) -> None:
    """Take the lock that raising a generation needs, and fail at once if it is held."""
    engine = rig.store.database.engine
    if engine.dialect.name == "sqlite":
        with closing(sqlite3.connect(str(engine.url.database), timeout=0)) as connection:
            connection.execute("BEGIN IMMEDIATE")
    else:
        with engine.connect() as other:
            other.exec_driver_sql("SELECT id FROM owners FOR UPDATE NOWAIT")


def test_a_delete_over_http_is_refused_if_the_document_changed_just_before(
    rig: Rig, site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = site.index("whales.md", "The blue whale eats krill.")
    path = f"/bases/shelf/documents/{document}"
    tag = site.http.get(path).headers["etag"]
    before_its_turn(rig, monkeypatch, raised(rig, str(document)))
    refused = site.http.delete(path, headers={"If-Match": tag})
    assert (refused.status_code, refused.json()["code"], refused.json()["generation"]) == (412, "changed_meanwhile", 2)
    now = refused.headers["etag"]
    assert now == site.http.get(path).headers["etag"] != tag
    assert rig.library.items.status(rig.base, document) is Status.QUEUED
    assert site.http.delete(path, headers={"If-Match": f"{tag}, {now}"}).status_code == 202
    assert site.http.get(path).status_code == 404


def test_every_action_over_http_checks_if_match(site: HttpSite) -> None:
    document = site.index("whales.md", "The blue whale eats krill.")
    path = f"/bases/shelf/documents/{document}"
    for action in ("index", "reindex", "retry", "force", "cancel", "delete"):
        for tag in ('"g7"', 'W/"g1"', "g1", '"other"'):
            refused = site.http.post(f"{path}:{action}", headers={"If-Match": tag})
            assert (refused.status_code, refused.headers["etag"]) == (412, '"g1"'), (action, tag)
    assert site.http.post(f"{path}:reindex", headers={"If-Match": "*"}).status_code == 202
    assert site.http.post(f"{path}:force", headers={"If-Match": '"g2"'}).json()["code"] == "already_in_progress"


def test_a_conditional_request_for_a_missing_document_is_not_found(site: HttpSite) -> None:
    for action in ("delete", "retry", "reindex"):
        missing = site.http.post(f"/bases/shelf/documents/99:{action}", headers={"If-Match": '"g1"'})
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_document")


def test_a_retry_of_a_clean_up_checks_if_match(rig: Rig, site: HttpSite) -> None:
    document = site.index("whales.md", "The blue whale eats krill.")
    rig.library.remover.delete(rig.base, [document])
    path = f"/bases/shelf/documents/{document}:retry"
    refused = site.http.post(path, headers={"If-Match": '"g1"'})
    assert (refused.status_code, refused.headers["etag"]) == (412, '"g2"')
    joined = site.http.post(path, headers={"If-Match": '"g2"'})
    assert (joined.status_code, joined.json()["code"]) == (409, "already_deleting")
