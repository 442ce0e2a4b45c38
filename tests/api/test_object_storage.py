"""Documents whose files are in a bucket: everything works as with a folder, and a deleted file leaves no version."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.states import Status
from holdfast.settings import Settings
from holdfast.wiring import Library
from tests.support.harness import Rig
from tests.support.http_site import HttpSite
from tests.support.processes import ROOT
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock
    from tests.support.object_storage import ObjectStorage

pytestmark = pytest.mark.s3

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
STONES = "# Stones\n\nGranite is hard.\n"
DOCUMENTS = "/bases/shelf/documents"


@pytest.fixture(params=[False, True], ids=["plain", "versioned"])
def bucket(s3: ObjectStorage, request: pytest.FixtureRequest) -> str:
    return s3.create_bucket(versioned=request.param)


@pytest.fixture
def site(s3: ObjectStorage, bucket: str, sqlite_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[HttpSite]:
    settings: dict[str, Any] = {"data": f"s3://{bucket}/team/documents", "s3_endpoint": s3.endpoint}
    rig = Rig(sqlite_url, tmp_path / "unused", clock, indexes=("fulltext",), settings=settings)
    site = HttpSite(rig, **settings)
    yield site
    site.close()
    rig.close()
    assert not (tmp_path / "unused").exists()


@pytest.mark.smoke
@pytest.mark.parametrize("bucket", [True], indirect=True, ids=["versioned"])
def test_a_document_is_added_found_downloaded_and_deleted_without_a_trace(
    site: HttpSite, s3: ObjectStorage, bucket: str
) -> None:
    document = site.index("whales.md", WHALES)
    assert [hit.name for hit in site.rig.find("krill")] == ["whales.md"]
    (key,) = s3.contents(bucket)
    assert key.startswith("team/documents/")
    assert site.http.get(f"{DOCUMENTS}/{document}/original").text == WHALES
    assert site.http.delete(f"{DOCUMENTS}/{document}").status_code == 202
    site.rig.work()
    assert s3.contents(bucket) == []
    assert site.rig.library.doctor.check(deep=True) == []


def test_a_part_of_a_file_is_downloaded(site: HttpSite) -> None:
    path = f"{DOCUMENTS}/{site.index('whales.md', WHALES)}/original"
    whole = site.http.get(path)
    assert (whole.headers["accept-ranges"], whole.headers["content-length"]) == ("bytes", str(len(WHALES)))
    assert whole.headers["content-disposition"] == 'attachment; filename="whales.md"'
    part = site.http.get(path, headers={"Range": "bytes=2-7"})
    assert (part.status_code, part.text) == (206, WHALES[2:8])
    assert part.headers["content-range"] == f"bytes 2-7/{len(WHALES)}"


def test_replaced_and_repeated_content_leaves_one_object_for_each_document(
    site: HttpSite, s3: ObjectStorage, bucket: str
) -> None:
    site.index("whales.md", WHALES)
    for text in (STONES, STONES, WHALES):
        site.rig.put("whales.md", text)
        site.rig.work()
    assert len(s3.contents(bucket)) == 1
    assert site.rig.owner("whales.md").status is Status.SUCCESS
    site.rig.sweep()
    assert site.rig.library.doctor.check(deep=True) == []


def test_a_base_is_exported_to_an_archive_and_imported(site: HttpSite, s3: ObjectStorage, bucket: str) -> None:
    rig = site.rig
    rig.index("whales.md", WHALES)
    rig.index("copy.md", WHALES)
    rig.index("stones.md", STONES)
    archive = io.BytesIO()
    counts = rig.library.archives.export(rig.base, archive)
    assert counts.documents == 3
    archive.seek(0)
    restored = rig.library.archives.restore(archive, name="again")
    rig.work()
    assert restored.documents == 3
    assert len(s3.contents(bucket)) == 6
    again = rig.library.catalog.find_base("again")
    assert [hit.name for hit in rig.library.searcher.search_channel(again, "fulltext", "granite", 10)] == ["stones.md"]
    rig.library.bases.delete(again)
    rig.work()
    assert len(s3.contents(bucket)) == 3


def test_the_doctor_finds_and_repairs_what_the_bucket_has_too_much_and_names_what_is_missing(
    site: HttpSite, s3: ObjectStorage, bucket: str
) -> None:
    rig = site.rig
    rig.index("whales.md", WHALES)
    rig.index("stones.md", STONES)
    with rig.library.blobs.write_batch() as put:
        put(io.BytesIO(b"nobody's"))
    s3.admin.put_object(Bucket=bucket, Key="team/documents/notes.txt", Body=b"of somebody else")
    assert {one.code: one.count for one in rig.library.doctor.check()} == {"file_left": 1, "file_stray": 1}
    rig.library.doctor.check(fix=True)
    assert {one.code: one.count for one in rig.library.doctor.check()} == {"file_stray": 1}
    whales, stones = (rig.library.items.find(rig.base, name).blob or "" for name in ("whales.md", "stones.md"))
    rig.library.blobs.remove([whales])
    digest, _, id_ = stones.partition("-")
    s3.admin.put_object(Bucket=bucket, Key=f"team/documents/{id_}-{digest}", Body=b"damaged")
    found = {one.code: one.examples for one in rig.library.doctor.check(deep=True)}
    assert set(found) == {"file_stray", "file_lacks", "file_damaged"}
    assert "whales.md" in found["file_lacks"][0]
    assert "stones.md" in found["file_damaged"][0]
    missing = site.http.get(f"{DOCUMENTS}/{rig.library.items.find(rig.base, 'whales.md').id}/original")
    assert (missing.status_code, missing.json()["code"]) == (409, "file_lacks")


@pytest.mark.parametrize("bucket", [True], indirect=True, ids=["versioned"])
def test_an_object_that_another_program_deleted_leaves_versions_that_the_doctor_removes(
    site: HttpSite, s3: ObjectStorage, bucket: str
) -> None:
    rig = site.rig
    with rig.library.blobs.write_batch() as put:
        put(io.BytesIO(b"nobody's"))
    (key,) = s3.contents(bucket)
    s3.admin.delete_object(Bucket=bucket, Key=key)
    assert s3.contents(bucket) == [key, key]  # the version and the delete marker
    assert [one.code for one in rig.library.doctor.check(fix=True)] == ["file_left"]
    assert s3.contents(bucket) == []


def test_files_are_moved_from_a_folder_to_a_bucket_as_the_page_says(
    s3: ObjectStorage, bucket: str, tmp_path: Path, clock: FakeClock
) -> None:
    page = (ROOT / "docs" / "object-storage.md").read_text("utf-8")
    (line,) = re.findall(r"^\$ (holdfast move .*)$", page, re.MULTILINE)
    source, target = f"sqlite:///{tmp_path / 'old.db'}", f"sqlite:///{tmp_path / 'new.db'}"
    folder = Rig(source, tmp_path / "files", clock, indexes=("fulltext",))
    for name in ("whales.md", "stones.md"):
        folder.index(name, WHALES + name)
    folder.close()
    written = {
        "sqlite:////srv/holdfast/holdfast.db": source,
        "sqlite:////srv/holdfast/new.db": target,
        "s3://team-documents/holdfast": f"s3://{bucket}/holdfast",
    }
    command = [written.get(word, word) for word in line.split()]
    assert set(written.values()) <= set(command)
    environment = {
        **os.environ,
        "HOLDFAST_S3_ENDPOINT": s3.endpoint,
        "HOLDFAST_HOME": str(tmp_path / "home"),
        "HOLDFAST_DATA": str(tmp_path / "files"),
    }
    for more in (["--yes"], ["--finish", "--yes"]):
        program = [sys.executable, "-m", "holdfast.cli", *command[1:], *more]
        subprocess.run(program, env=environment, check=True, cwd=ROOT)
    settings = Settings(database=target, data=f"s3://{bucket}/holdfast", s3_endpoint=s3.endpoint)
    store = open_test_store(target, clock)
    assert Library(store, settings, clock=clock).doctor.check(deep=True) == []
    assert len(s3.contents(bucket)) == 2
    store.close()


@pytest.mark.parametrize("bucket", [False], indirect=True, ids=["plain"])
def test_the_command_line_uses_the_bucket_of_the_settings(s3: ObjectStorage, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "whales.md").write_text(WHALES)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
        "HOLDFAST_HOME": str(tmp_path / "home"),
        "HOLDFAST_DATA": f"s3://{bucket}",
        "HOLDFAST_S3_ENDPOINT": s3.endpoint,
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast.cli", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert run("add", str(tmp_path / "whales.md")).returncode == 0
    assert len(s3.contents(bucket)) == 1
    shown = run("show", "whales.md", "--original", str(tmp_path / "saved.md"))
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "saved.md").read_text() == WHALES
    assert run("doctor", "--deep").returncode == 0
    assert run("rm", "whales.md", "--yes").returncode == 0
    assert s3.contents(bucket) == []
    assert not (tmp_path / "home" / "files").exists()
    environment["HOLDFAST_DATA"] = "s3://no-such-bucket"
    refused = run("add", str(tmp_path / "whales.md"))
    assert refused.returncode == 75
    assert f"Bucket 'no-such-bucket' does not exist at {s3.endpoint}" in refused.stderr
    checked = run("doctor")
    assert (checked.returncode, checked.stdout.split("\t")[0]) == (1, "files_away")
    assert f"Bucket 'no-such-bucket' does not exist at {s3.endpoint}" in checked.stdout
