"""HOLDFAST_DATA names a folder or a bucket. Anything else is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.blobs.base import BlobLocation, find_data_folder, open_blob_store
from holdfast.errors import BadSettings, MissingExtra
from holdfast.settings import Settings
from holdfast.wiring import exclude_own_files


@pytest.mark.parametrize(
    ("address", "endpoint", "words"),
    [
        ("s3://", "", "names no bucket"),
        ("s3://key:secret@bucket", "", "names no bucket"),
        ("s3://bucket?region=x", "", "names no bucket"),
        ("s3://bucket", "s3.example.org", "HOLDFAST_S3_ENDPOINT"),
        ("gs://bucket", "", "no installed store has the scheme 'gs'"),
        ("file://host/files", "", "names no folder"),
    ],
)
def test_an_address_that_names_no_store_is_refused(address: str, endpoint: str, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        open_blob_store(BlobLocation(address=address, s3_endpoint=endpoint))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[s3\]'"):
        open_blob_store(BlobLocation(address="s3://bucket"))


def test_only_a_folder_is_excluded_from_folder_sources() -> None:
    home = Path("/srv/home")
    for data, own in (("/srv/files", (home, Path("/srv/files"))), ("file:///srv/files", (home, Path("/srv/files")))):
        assert exclude_own_files(Settings(home=str(home), data=data)).own_folders == own
    assert exclude_own_files(Settings(home=str(home), data="s3://bucket/files")).own_folders == (home,)
    assert find_data_folder("relative/files") == Path("relative/files")


def test_a_folder_that_also_holds_the_database_reports_no_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").touch()
    for address in (str(tmp_path), f"file://{tmp_path}"):
        shared = open_blob_store(BlobLocation(address=address, own_paths=[tmp_path / "holdfast.db"]))
        assert shared.list_foreign_files() == []
        assert open_blob_store(BlobLocation(address=address)).list_foreign_files() == ["holdfast.db"]
