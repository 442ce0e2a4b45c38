"""A retry of a failed clean-up runs it immediately and never restores the deleted document."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.catalog.repository import ItemKind
from holdfast.documents.lists import DocumentFilter
from holdfast.documents.requests import SOURCE_SLOT, Action, RequestOptions, Upload
from holdfast.engine.admission import Verdict
from holdfast.engine.slot import Fault
from holdfast.engine.states import Outcome, Status
from holdfast.engine.store.base import Failure
from holdfast.errors import Transient, UnknownItem
from tests.support.audit import audit_quiet
from tests.support.harness import Rig
from tests.support.scripted_workers import raises

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.documents.requests import ItemReply
    from tests.support.clock import FakeClock

V = Verdict
MINUTE = timedelta(minutes=1)


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    yield rig
    rig.close()


def put(rig: Rig, name: str, parent: int = 0, **more: object) -> int:
    (reply,) = rig.library.adder.add(rig.base, [Upload(name, more.pop("text", name.encode()), parent=parent, **more)])  # type: ignore[arg-type]
    assert reply.item is not None
    return reply.item


def fail_clean_up(rig: Rig) -> None:
    """Make every clean-up that is due fail."""
    while tickets := rig.store.claim_next(["content", "fulltext", SOURCE_SLOT], "cleaner", 10) + rig.store.claim_next(
        ["fulltext"], "cleaner", 10
    ):
        fault = Fault("disk", {"message": "The disk is away."})
        rig.store.fail([Failure(ticket=ticket, fault=fault, delay=MINUTE) for ticket in tickets])


def retry(rig: Rig, item: int, **manner: object) -> ItemReply:
    (reply,) = rig.library.operations.request(rig.base, [item], Action.RETRY, RequestOptions(**manner))  # type: ignore[arg-type]
    return reply


def going(rig: Rig) -> list[int]:
    return [row.id for row in rig.library.document_queries.list(rig.base, DocumentFilter(deleting=True)).items]


def settle(rig: Rig) -> None:
    rig.work()
    while rig.library.sweep(100):
        rig.work()


def test_a_retry_runs_a_failed_clean_up_immediately_and_restores_nothing(rig: Rig) -> None:
    item = put(rig, "whales.md")
    rig.work()
    rig.library.remover.delete(rig.base, [item])
    fail_clean_up(rig)
    rig.work()  # the next attempt is due in a minute
    assert going(rig) == [item]
    reply = retry(rig, item, requester="Ada")
    assert (reply.verdict, reply.reason, reply.status, reply.item) == (V.ACCEPTED, "clean_up_again", "deleting", item)
    assert rig.store.job(reply.job or "").requester == "Ada"
    with pytest.raises(UnknownItem):
        rig.library.document_queries.read_document(rig.base, item)
    again = retry(rig, item)
    assert (again.verdict, again.reason, again.job) == (V.JOINED, "already_deleting", reply.job)
    settle(rig)
    assert (going(rig), rig.count("items"), rig.count("owners")) == ([], 0, 0)
    assert rig.store.job(reply.job or "").outcome is Outcome.SUCCESS
    with pytest.raises(UnknownItem):
        retry(rig, item)
    audit_quiet(rig)


def test_a_retry_joins_a_clean_up_that_is_already_running(rig: Rig) -> None:
    item = put(rig, "whales.md")
    rig.work()
    (deleted,) = rig.library.remover.delete(rig.base, [item])
    (ticket,) = rig.store.claim_next(["fulltext"], "cleaner", 1)
    reply = retry(rig, item)
    assert (reply.verdict, reply.reason, reply.job) == (V.JOINED, "already_deleting", deleted.job)
    rig.store.forget([ticket])  # this claim is still valid
    settle(rig)
    assert rig.count("items") == 0


def test_a_retry_requests_the_missing_clean_up_of_an_interrupted_delete_and_builds_nothing(rig: Rig) -> None:
    item = put(rig, "whales.md", text=b" \n")  # has no text, so indexing fails and a retry would build it
    rig.work()
    with rig.store.database.writing(durable=True) as tx:  # as an interrupted large delete leaves it
        tx.run_sql("UPDATE library_items SET deleting = 1")
    reply = retry(rig, item)
    assert (reply.verdict, reply.reason) == (V.ACCEPTED, "delete")
    assert rig.store.owner(rig.base.key, str(item)).status is Status.DELETING
    settle(rig)
    assert (rig.count("items"), rig.count("owners")) == (0, 0)


def test_a_retry_of_a_deleted_folder_cleans_up_everything_below_it(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    folder = put(rig, "books", text=None, kind=ItemKind.DIRECTORY, source=str(tmp_path / "books"))
    inner = [put(rig, f"{number}.md", folder) for number in range(3)]
    rig.work()
    rig.library.remover.delete(rig.base, [folder])
    fail_clean_up(rig)
    reply = retry(rig, folder)
    assert (reply.verdict, reply.reason, reply.item) == (V.ACCEPTED, "clean_up_again", folder)
    assert {retry(rig, item).reason for item in inner} == {"already_deleting"}
    settle(rig)
    assert (rig.count("items"), rig.count("owners")) == (0, 0)
    audit_quiet(rig)


def test_a_retry_succeeds_after_the_cause_of_the_failed_clean_up_is_fixed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = put(rig, "whales.md")
    rig.work()
    rig.library.remover.delete(rig.base, [item])
    with monkeypatch.context() as away:
        away.setattr(rig.indexers["content"], "remove", raises(Transient("away", "It is away.")))
        rig.work()
    (row,) = rig.library.document_queries.list(rig.base, DocumentFilter(deleting=True)).items
    assert (row.why and row.why.code, row.retry_at is not None) == ("away", True)
    assert retry(rig, item).accepted
    (row,) = rig.library.document_queries.list(rig.base, DocumentFilter(deleting=True)).items
    assert row.why is None
    settle(rig)
    assert rig.count("items") == 0
