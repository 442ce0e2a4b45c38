"""On a full disk every write returns 507, leaves no file and no row, and succeeds again once there is space."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.repository import ItemKind
from holdfast.documents.requests import SOURCE_SLOT, AddOptions, Upload
from holdfast.documents.source_sync import SourceAccess
from holdfast.engine.problems import describe_fault
from holdfast.errors import StoreFull
from holdfast.service.documents import open_for_writing
from holdfast.sources.address_policy import Reach
from tests.support.harness import Rig
from tests.support.http_site import HttpSite, problem
from tests.support.processes import ROOT
from tests.support.scripted_site import Site, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx2

    from tests.support.clock import FakeClock

LARGEST_FILE = 900_000
FITS_IN_MEMORY = 1_000_000  # the server keeps it in memory, so the write fails in the folder of the documents
SPOOLED = 2_000_000  # the server spools it, so the write fails in the temporary folder
DOCUMENTS = "/bases/shelf/documents"
# Raises the error that PostgreSQL raises when it cannot extend a table.
REFUSE_ROWS = """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"""


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the size of files that this process may write. Larger writes fail, as they do on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def written(site: HttpSite) -> tuple[list[str], int, int]:
    files = sorted(path.name for path in site.rig.folder.rglob("*") if path.is_file())
    return files, site.rig.count("items"), site.rig.count("slots")


def upload(site: HttpSite, size: int, **headers: str) -> httpx2.Response:
    return site.upload("large.txt", "x" * size, headers=headers)


def upload_form(site: HttpSite, size: int) -> httpx2.Response:
    return site.http.post(DOCUMENTS, files={"file": ("form.txt", b"x" * size)})


def upload_repeatable(site: HttpSite, size: int) -> httpx2.Response:
    return upload(site, size, **{"Idempotency-Key": "once"})


def add_note(site: HttpSite, size: int) -> httpx2.Response:
    return site.http.post(f"{DOCUMENTS}/notes", json={"name": "note", "text": "x" * size})


WAYS = pytest.mark.parametrize(
    ("write", "size"),
    [
        (upload, FITS_IN_MEMORY),
        (upload, SPOOLED),
        (upload_form, FITS_IN_MEMORY),
        (upload_form, SPOOLED),
        (upload_repeatable, FITS_IN_MEMORY),
        (upload_repeatable, SPOOLED),
        (add_note, SPOOLED),
    ],
)


@WAYS
def test_a_write_to_a_full_disk_returns_507_and_leaves_nothing(
    site: HttpSite, write: Callable[[HttpSite, int], httpx2.Response], size: int
) -> None:
    before = written(site)
    with full_disk():
        answer = write(site, size)
    assert answer.status_code == 507, answer.text
    told = problem(answer)
    assert told["code"] == "disk_full"
    assert told["detail"].startswith("The disk is full. Nothing was written. Free some space for '")
    assert written(site) == before
    assert write(site, size).status_code == 202


@pytest.mark.parametrize("size", [FITS_IN_MEMORY, SPOOLED])
def test_an_archive_that_does_not_fit_on_the_disk_leaves_no_base(site: HttpSite, size: int) -> None:
    archive = io.BytesIO()
    site.rig.library.adder.add(site.rig.base, [Upload("kept", os.urandom(size))], AddOptions(index=False))
    site.rig.library.archives.export(site.rig.base, archive)
    before = written(site)
    with full_disk():
        answer = site.http.post("/archives", params={"name": "copy"}, content=archive.getvalue())
    assert (answer.status_code, problem(answer)["code"]) == (507, "disk_full")
    site.rig.work()  # removes what the archive wrote
    assert written(site) == before
    assert [base["name"] for base in site.http.get("/bases").json()] == ["shelf"]


class Pipe(io.BytesIO):
    """A stream that is not seekable, like standard input."""

    def seekable(self) -> bool:
        return False


def test_a_piped_archive_that_does_not_fit_in_the_temporary_folder_leaves_no_base(site: HttpSite) -> None:
    archive = io.BytesIO()
    site.rig.library.adder.add(site.rig.base, [Upload("kept", os.urandom(SPOOLED))], AddOptions(index=False))
    site.rig.library.archives.export(site.rig.base, archive)
    before = written(site)
    with full_disk(), pytest.raises(StoreFull, match="TMPDIR"):
        site.rig.library.archives.restore(Pipe(archive.getvalue()), name="copy")
    assert written(site) == before


def test_an_export_or_download_to_a_full_disk_leaves_no_partial_file(site: HttpSite, tmp_path: Path) -> None:
    site.rig.library.adder.add(site.rig.base, [Upload("kept", os.urandom(SPOOLED))], AddOptions(index=False))
    with full_disk():
        with pytest.raises(StoreFull, match=r"copy\.zip, TMPDIR"):
            site.rig.library.archives.export(site.rig.base, tmp_path / "copy.zip")
        with pytest.raises(StoreFull, match="saved"), open_for_writing(tmp_path / "saved") as file:
            file.write(bytes(SPOOLED))
    assert not {"copy.zip", "saved"} & {path.name for path in tmp_path.iterdir()}


def test_a_page_that_does_not_fit_on_the_disk_is_fetched_again_when_there_is_space(site: HttpSite) -> None:
    rig = site.rig
    rig.library.source_policy = SourceAccess(reach=Reach.parse("127.0.0.1"))
    rig.indexers = rig.library.indexers()
    worker = rig.hire("fetcher")
    with Site() as web:
        web.says("/page", reply(b"<p>" + b"tide " * 200_000 + b"</p>"))
        rig.library.adder.add(rig.base, [Upload("page", kind=ItemKind.URL, source=web.url("/page"))], AddOptions())
        item = rig.library.items.find(rig.base, "page")
        with full_disk():
            worker.run_next(1)
        slot = rig.store.slot(rig.base.key, item.source_key, SOURCE_SLOT)
        assert slot.error is not None
        assert (slot.state, slot.error.code, slot.attempts) == ("waiting", "disk_full", 0)
        assert slot.error.params == {"place": "HOLDFAST_DATA"}
        assert describe_fault(slot.error).message == (
            "The disk is full. Nothing was written. Free some space for 'HOLDFAST_DATA', then try again."
        )
        assert written(site)[0] == []
        rig.clock.advance(timedelta(hours=1))
        worker.run_next(1)
        assert len(written(site)[0]) == 1


@pytest.mark.postgres
def test_a_full_disk_of_postgresql_returns_507_and_leaves_nothing(
    postgres_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    rig = Rig(postgres_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    site = HttpSite(rig)
    try:
        with rig.store.database.writing(durable=True) as tx:
            tx.run_sql(REFUSE_ROWS)
            tx.run_sql("CREATE TRIGGER full_disk BEFORE INSERT ON library_items EXECUTE FUNCTION full_disk()")
        before = written(site)
        for answer in (upload(site, 1000), upload_form(site, 1000), add_note(site, 1000)):
            assert (answer.status_code, problem(answer)["code"]) == (507, "disk_full")
            assert problem(answer)["detail"].startswith(
                "The disk is full. Nothing was written. Free some space for 'PostgreSQL'"
            )
        assert written(site) == before
        with rig.store.database.writing(durable=True) as tx:
            tx.run_sql("DROP TRIGGER full_disk ON library_items")
        assert upload(site, 1000).status_code == 202
    finally:
        site.close()
        rig.close()


def test_an_upload_of_many_files_reports_how_many_were_added_before_the_disk_was_full(site: HttpSite) -> None:
    files = [("file", (f"{number}.txt", b"x" * number)) for number in range(100)]
    with full_disk():
        answer = site.http.post(DOCUMENTS, files=[*files, ("file", ("large.txt", b"x" * FITS_IN_MEMORY))])
    assert answer.status_code == 507
    detail = problem(answer)["detail"]
    assert "The first 100 items of this request were processed" in detail
    assert "Free some space for '" in detail
    assert "…" not in detail, "the place is named"
    assert written(site)[1] == 100


def test_a_file_is_removed_again_when_its_row_does_not_fit_on_the_disk(tmp_path: Path) -> None:
    missing = [tool for tool in ("unshare", "mount") if shutil.which(tool) is None]
    if missing:
        assert os.environ.get("CI") != "true", f"install {missing}: continuous integration must fill a disk"
        pytest.skip(f"there is no {missing[0]} to make a small disk with")
    command = ["unshare", "-rm", sys.executable, "-m", "tests.support.full_disk", str(tmp_path / "disk")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    if "refused" in told or (done.returncode and done.stderr.startswith("unshare:")):
        pytest.skip(f"this kernel lets us make no small disk: {told.get('refused') or done.stderr}")
    assert done.returncode == 0, done.stderr
    for said in told["full"].values():
        assert said.startswith("StoreFull: The disk is full. Nothing was written"), told["full"]
    assert told["after"] == told["before"]
    assert set(told["again"].values()) == {"written"}, told["again"]
