"""A bucket that is missing, closed, full or down: the error says what to do, nothing is lost, and work waits."""

from __future__ import annotations

import io
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast.bases.slots import BASE
from holdfast.blobs import s3_bucket
from holdfast.blobs.base import BlobLocation, open_blob_store
from holdfast.catalog.file_records import LEASE
from holdfast.catalog.repository import ItemKind
from holdfast.documents.requests import AddOptions, Upload
from holdfast.engine.states import SlotState, Status
from holdfast.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from holdfast.service.opening import check_blob_store
from tests.support.harness import Rig
from tests.support.http_site import HttpSite, problem
from tests.support.object_storage import Answer, FaultyProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.blobs.base import BlobStore
    from tests.support.clock import FakeClock
    from tests.support.object_storage import ObjectStorage

WHALES = "# Whales\n\nThe blue whale eats krill.\n"


@pytest.fixture
def proxy(s3: ObjectStorage) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def bucket(s3: ObjectStorage) -> str:
    return s3.create_bucket()


@pytest.fixture
def blobs(proxy: FaultyProxy, bucket: str) -> BlobStore:
    return open_blob_store(BlobLocation(address=f"s3://{bucket}", s3_endpoint=proxy.endpoint))


@pytest.fixture
def rig(proxy: FaultyProxy, bucket: str, sqlite_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    settings = {"data": f"s3://{bucket}", "s3_endpoint": proxy.endpoint}
    rig = Rig(sqlite_url, tmp_path / "unused", clock, indexes=("fulltext",), settings=settings)
    yield rig
    rig.close()


def put(blobs: BlobStore, *contents: bytes) -> list[str]:
    with blobs.write_batch() as write:
        return [write(io.BytesIO(content)).name for content in contents]


def settle(rig: Rig, clock: FakeClock) -> None:
    """Let the records of failed uploads expire, and clean up."""
    clock.advance(LEASE)
    rig.library.orphan_blobs.sweep(500)


pytestmark = pytest.mark.s3


@pytest.mark.parametrize(
    ("credentials", "where", "error", "code", "words"),
    [
        (None, "s3://no-such-bucket", StoreUnavailable, "bucket_missing", "Create the bucket"),
        (("nobody", "secret"), "", StoreUnavailable, "bucket_credentials", "AWS_ACCESS_KEY_ID"),
        (("user-access-key", "wrong"), "", StoreUnavailable, "bucket_credentials", "AWS_ACCESS_KEY_ID"),
        (("reader-access-key", "reader-secret-key"), "", StoreReadOnly, "bucket_read_only", "s3:PutObject"),
        (("", ""), "", StoreUnavailable, "bucket_no_credentials", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_an_upload_that_the_bucket_refuses_says_why_and_leaves_nothing(
    s3: ObjectStorage,
    *,
    bucket: str,
    sqlite_url: str,
    tmp_path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    credentials: tuple[str, str] | None,
    where: str,
    error: type[StoreError],
    code: str,
    words: str,
) -> None:
    for name, value in s3.environment(credentials).items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    settings: dict[str, Any] = {"data": where or f"s3://{bucket}", "s3_endpoint": s3.endpoint}
    rig = Rig(sqlite_url, tmp_path / "unused", clock, indexes=("fulltext",), settings=settings)
    with pytest.raises(error) as refused:
        rig.put("whales.md", WHALES)
    named = settings["data"].removeprefix("s3://")
    assert refused.value.subcode == code
    assert all(word in str(refused.value) for word in (named, s3.endpoint, words)), str(refused.value)
    assert (rig.count("items"), s3.contents(bucket)) == (0, [])
    site = HttpSite(rig, **settings)
    answer = site.upload("whales.md", WHALES)
    assert (answer.status_code, problem(answer)["subcode"]) == (503, code)
    site.close()
    if error is StoreUnavailable:
        with pytest.raises(error, match=words):
            check_blob_store(rig.library)  # a server does not start
    rig.close()


def test_a_full_bucket_is_reported_as_a_full_disk(rig: Rig, proxy: FaultyProxy, s3: ObjectStorage, bucket: str) -> None:
    for answer in (Answer(507, "InsufficientStorage"), Answer(403, "QuotaExceeded")):
        proxy.fault = lambda method, _, answer=answer: answer if method == "PUT" else None  # type: ignore[misc]
        with pytest.raises(StoreFull, match=rf"Bucket '{bucket}' at {proxy.endpoint} is full .*Raise its quota"):
            rig.put("whales.md", WHALES)
        assert (rig.count("items"), rig.count("files"), s3.contents(bucket)) == (0, 0, [])
    proxy.recover()
    assert rig.index("whales.md", WHALES).status is Status.SUCCESS


def test_while_the_endpoint_answers_503_work_waits_without_spending_attempts(
    rig: Rig, proxy: FaultyProxy, clock: FakeClock, s3: ObjectStorage, bucket: str
) -> None:
    rig.index("stones.md", "# Stones\n\nGranite is hard.\n")
    rig.put("whales.md", WHALES)
    proxy.fail_all()
    for _ in range(5):  # more often than the attempts of a generation
        rig.work()
        slot = rig.slot("whales.md", "content")
        assert (slot.state, slot.attempts) == (SlotState.WAITING, 0)
        assert slot.error is not None
        assert slot.error.code == "bucket_unreachable"
        clock.advance(rig.store.rules.retry.max_delay)
    rig.delete("stones.md")
    rig.work()
    assert rig.count("items") == 2
    assert len(s3.contents(bucket)) == 2
    with pytest.raises(StoreUnavailable, match=f"'{bucket}'.*503|'{bucket}'.*ServiceUnavailable"):
        rig.put("more.md", "More.")
    assert [one.code for one in rig.library.doctor.check()] == ["files_away"]
    check_blob_store(rig.library)  # a server may start
    proxy.recover()
    clock.advance(rig.store.rules.retry.max_delay)
    rig.work()
    assert rig.owner("whales.md").status is Status.SUCCESS
    assert [hit.name for hit in rig.find("krill")] == ["whales.md"]
    settle(rig, clock)
    assert (rig.count("items"), rig.count("files"), len(s3.contents(bucket))) == (1, 0, 1)


def test_an_upload_whose_answer_is_lost_leaves_no_object(
    rig: Rig, proxy: FaultyProxy, clock: FakeClock, s3: ObjectStorage, bucket: str
) -> None:
    def fault(method: str, _: str) -> Answer | None:
        return Answer(503, "SlowDown", applied=method == "PUT")

    proxy.fault = fault
    with pytest.raises(StoreUnavailable):
        rig.put("whales.md", WHALES)
    proxy.recover()
    assert len(s3.contents(bucket)) == 1  # the server has stored it
    assert (rig.count("items"), rig.count("files")) == (0, 1)
    settle(rig, clock)
    assert (rig.count("files"), s3.contents(bucket)) == (0, [])


def test_a_failed_batch_takes_back_the_objects_that_were_stored(
    rig: Rig, proxy: FaultyProxy, s3: ObjectStorage, bucket: str
) -> None:
    puts: list[str] = []

    def fault(method: str, path: str) -> Answer | None:
        puts.extend([path] if method == "PUT" else [])
        return Answer(507, "InsufficientStorage") if method == "PUT" and len(puts) > 5 else None

    proxy.fault = fault
    with pytest.raises(StoreFull):
        put(rig.library.blobs, *(b"%d" % number for number in range(30)))
    assert len(puts) < 30
    assert s3.contents(bucket) == []


def test_an_endpoint_that_is_down_or_silent_is_reported(
    blobs: BlobStore, proxy: FaultyProxy, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = put(blobs, b"krill")
    monkeypatch.setattr(s3_bucket, "READ_SECONDS", 0.2)
    silent = open_blob_store(BlobLocation(address=f"s3://{bucket}", s3_endpoint=proxy.endpoint))
    proxy.delay = lambda: time.sleep(0.6)
    with pytest.raises(StoreUnavailable, match=f"{proxy.endpoint} did not answer .*'{bucket}' .*timeout"):
        silent.find_missing([name])
    down = open_blob_store(BlobLocation(address=f"s3://{bucket}", s3_endpoint="http://127.0.0.1:9"))
    with pytest.raises(StoreUnavailable, match=r"http://127\.0\.0\.1:9 did not answer"), down.open(name):
        pass
    with pytest.raises(StoreUnavailable):
        put(down, b"krill")


def test_a_server_starts_while_the_endpoint_is_silent(
    rig: Rig, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request of the client waits for a minute, and is sent three times. A server does not wait that long."""
    monkeypatch.setattr(s3_bucket, "CHECK_SECONDS", 0.2)
    answered = threading.Event()
    proxy.delay = answered.wait
    check_blob_store(rig.library)
    assert len(proxy.requests) == 1
    answered.set()


def test_the_objects_of_a_missing_bucket_are_not_reported_as_missing(
    blobs: BlobStore, s3: ObjectStorage, bucket: str
) -> None:
    names = put(blobs, b"krill", b"whales")
    blobs.remove(names[:1])
    assert blobs.find_missing(names) == set(names[:1])
    blobs.remove(names)
    s3.admin.delete_bucket(Bucket=bucket)
    with pytest.raises(StoreUnavailable, match=f"Bucket '{bucket}' does not exist"):
        blobs.find_missing(names)


def test_a_download_that_is_cut_continues_where_it_ended(blobs: BlobStore, proxy: FaultyProxy) -> None:
    content = bytes(range(256)) * 4_000
    (name,) = put(blobs, content)
    proxy.cut_after = 300_000
    with blobs.local_file(name) as path:
        assert path.read_bytes() == content
    assert sum(request.startswith("GET") for request in proxy.requests) == 4
    proxy.cut_after = 0
    with pytest.raises(StoreUnavailable, match="did not answer"), blobs.local_file(name):
        pass


def test_a_delete_waits_for_the_permission_to_remove_versions(
    s3: ObjectStorage, proxy: FaultyProxy, sqlite_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    bucket = s3.create_bucket(versioned=True)
    settings = {"data": f"s3://{bucket}", "s3_endpoint": proxy.endpoint}
    rig = Rig(sqlite_url, tmp_path / "unused", clock, indexes=("fulltext",), settings=settings)
    rig.index("whales.md", WHALES)
    item = rig.library.items.find(rig.base, "whales.md")
    rig.delete("whales.md")

    def fault(method: str, path: str) -> Answer | None:
        listed = any("versions" in request for request in proxy.requests)
        return Answer(403, "AccessDenied") if listed and method == "POST" and "delete" in path else None

    proxy.requests.clear()
    proxy.fault = fault
    rig.work()
    (slot,) = rig.store.owner(rig.base.key, item.key).slots
    assert (slot.state, slot.error and slot.error.code) == (SlotState.DELETING, "bucket_read_only")
    assert slot.error is not None
    assert slot.error.params["action"] == "s3:DeleteObjectVersion"
    assert len(s3.contents(bucket)) == 2  # the version and a delete marker
    proxy.recover()
    clock.advance(rig.store.rules.retry.max_delay)
    rig.work()
    assert (rig.count("items"), s3.contents(bucket)) == (0, [])
    rig.close()


def test_a_server_that_knows_no_versions_is_listed_by_objects(
    blobs: BlobStore, proxy: FaultyProxy, s3: ObjectStorage, bucket: str
) -> None:
    proxy.fault = lambda method, path: Answer(501, "NotImplemented") if method == "GET" and "versions" in path else None
    names = put(blobs, *(b"%d" % number for number in range(12)))
    found = blobs.list_blobs("", 5)
    found += blobs.list_blobs(found[-1].name, 50)
    assert sorted(one.name for one in found) == sorted(names)
    blobs.remove_ids([name[-16:] for name in names[:6]])
    blobs.remove(names[6:])
    assert s3.contents(bucket) == []


class Fault(NamedTuple):
    """What the proxy answers, and what follows from it."""

    answer: Answer
    methods: str  # of the requests that get this answer
    code: str
    words: str  # that the message contains, beside bucket and endpoint
    reads: bool = True  # whether files can still be read
    removes: bool = True  # whether files can still be removed


FAULTS = {
    "down": Fault(
        Answer(503, "ServiceUnavailable"), "GET HEAD PUT POST DELETE", "bucket_unreachable",
        "Check that the server is running", reads=False, removes=False,
    ),
    "missing": Fault(
        Answer(404, "NoSuchBucket"), "GET HEAD PUT POST DELETE", "bucket_missing", "Create the bucket",
        reads=False, removes=False,
    ),
    "read-only": Fault(
        Answer(403, "AccessDenied"), "PUT POST DELETE", "bucket_read_only", "s3:PutObject", removes=False
    ),
    "full disk": Fault(Answer(507, "InsufficientStorage"), "PUT", "bucket_full", "Raise its quota"),
    "full quota": Fault(Answer(403, "QuotaExceeded"), "PUT", "bucket_full", "Raise its quota"),
    "full MinIO": Fault(Answer(507, "XMinioStorageFull"), "PUT", "bucket_full", "Raise its quota"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.smoke if name == "down" else ()) for name in FAULTS]
)
def test_a_fault_of_a_minute_loses_nothing_and_the_work_continues_by_itself(  # noqa: PLR0917 - fixtures
    name: str, rig: Rig, proxy: FaultyProxy, clock: FakeClock, s3: ObjectStorage, bucket: str, tmp_path: Path
) -> None:
    fault = FAULTS[name]
    rig.index("stones.md", "# Stones\n\nGranite is hard.\n")
    rig.index("corals.md", "# Corals\n\nThey build reefs.\n")
    rig.put("whales.md", WHALES)  # waits for a worker
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tides.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    proxy.fault = lambda method, _: fault.answer if method in fault.methods.split() else None
    rig.delete("stones.md")
    rig.library.folder_sync.sync(rig.base, tmp_path / "notes", local=True)
    for _ in range(6):
        rig.work()
        clock.advance(timedelta(seconds=10))
        with pytest.raises(StoreError) as refused:
            rig.put("more.md", "More.")
        assert refused.value.subcode == fault.code
        assert all(word in str(refused.value) for word in (bucket, proxy.endpoint, fault.words)), str(refused.value)
    assert [hit.name for hit in rig.find("reefs")] == ["corals.md"], "search continues"
    (folder,) = [item for item in rig.children(rig.base) if item.kind is ItemKind.DIRECTORY]
    syncing = rig.store.slot(rig.base.key, folder.source_key, "source")
    assert (syncing.state, syncing.attempts, syncing.error and syncing.error.code) == (SlotState.WAITING, 0, fault.code)
    if not fault.reads:
        reading = rig.slot("whales.md", "content")
        assert (reading.state, reading.attempts) == (SlotState.WAITING, 0)
    assert (rig.owner("whales.md").status is Status.SUCCESS) == fault.reads
    found = {one.code: one.examples for one in rig.library.doctor.check() if one.code.startswith("file")}
    assert set(found) == (set() if fault.reads else {"files_away"})
    assert all(bucket in example for examples in found.values() for example in examples)

    proxy.recover()
    clock.advance(rig.store.rules.retry.max_delay)
    rig.work()
    statuses = {one.name: one.status for one in rig.library.document_queries.list(rig.base).items}
    assert statuses == dict.fromkeys(("corals.md", "whales.md", "notes", "tides.md"), Status.SUCCESS)
    assert [hit.name for hit in rig.find("moon")] == ["tides.md"]
    settle(rig, clock)
    assert (rig.count("files"), len(s3.contents(bucket))) == (0, 3)
    assert rig.library.doctor.check(deep=True) == []


def test_the_removal_of_a_base_waits_for_the_bucket(
    rig: Rig, proxy: FaultyProxy, clock: FakeClock, s3: ObjectStorage, bucket: str
) -> None:
    rig.index("stones.md", "# Stones\n\nGranite is hard.\n")
    rig.library.adder.add(rig.base, [Upload("later.md", WHALES.encode())], AddOptions(index=False))
    rig.library.bases.delete(rig.base)
    proxy.fail_all()
    for _ in range(3):
        rig.work()
        clock.advance(timedelta(minutes=1))
    slot = rig.store.slot(rig.base.key, BASE, BASE)
    assert (slot.state, slot.error and slot.error.code) == (SlotState.DELETING, "bucket_unreachable")
    assert len(s3.contents(bucket)) == 2
    proxy.recover()
    for _ in range(3):
        clock.advance(rig.store.rules.retry.max_delay)
        rig.work()
    assert (rig.count("bases"), rig.count("items"), s3.contents(bucket)) == (0, 0, [])


def test_the_doctor_repairs_what_it_can_without_the_bucket(
    rig: Rig, proxy: FaultyProxy, s3: ObjectStorage, bucket: str
) -> None:
    rig.library.adder.add(rig.base, [Upload("later.md", WHALES.encode())], AddOptions(index=False))
    hide = "UPDATE library_items SET deleting = 1"  # as a crash may leave it
    rig.store.database.write(lambda tx: tx.run_sql(hide), durable=True)
    proxy.fail_all()
    before = {one.code: one.count for one in rig.library.doctor.check(fix=True)}
    assert before["delete_unfinished"] == 1, before
    assert before["files_away"] == 5
    assert rig.count("items") == 1
    proxy.recover()
    assert {one.code: one.fixed for one in rig.library.doctor.check(fix=True)}["delete_unfinished"] == 1
    assert (rig.count("items"), s3.contents(bucket)) == (0, [])
