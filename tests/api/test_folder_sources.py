"""Folders of the server as sources: which keys may add them, which folders are allowed, and never our own data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.harness import Rig
from tests.support.http_site import HttpSite, problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

    from tests.support.clock import FakeClock


@pytest.fixture
def site(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[HttpSite]:
    """Start a server whose operator allows one folder. All folders, also its home, are in `tmp_path`."""
    for name in ("allowed/a.md", "elsewhere/b.md", "home/secret.md", "home/files/text.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n\nKrill in {name}.")
    settings = {"home": str(tmp_path / "home"), "folder_roots": str(tmp_path / "allowed")}
    rig = Rig(database_url, tmp_path / "home" / "files", clock, indexes=("fulltext",), settings=settings)
    site = HttpSite(rig)
    yield site
    site.close()
    rig.close()


def add(site: HttpSite, folder: Path | str, key: dict[str, str] | None = None, base: str = "shelf") -> httpx2.Response:
    body = {"kind": "directory", "source": str(folder)}
    return site.http.post(f"/bases/{base}/documents/sources", json=body, headers=key or {})


def names(site: HttpSite, key: dict[str, str] | None = None) -> set[str]:
    listed = site.http.get("/bases/shelf/documents", params={"page_size": 500}, headers=key or {}).json()["items"]
    return {one["name"] for one in listed if one["kind"] == "file"}


def test_only_a_key_for_all_bases_may_add_a_folder_and_only_below_the_allowed_roots(
    site: HttpSite, tmp_path: Path
) -> None:
    limited, everywhere = site.key("admin", "shelf"), site.key("admin")
    (tmp_path / "allowed" / "out").symlink_to(tmp_path / "elsewhere")
    for folder in ("allowed", "elsewhere", "home", "gone"):
        assert problem(add(site, tmp_path / folder, limited))["code"] == "forbidden", folder
    outside = [
        add(site, folder, everywhere)
        for folder in (tmp_path, tmp_path / "elsewhere", tmp_path / "gone", tmp_path / "allowed" / "out", "/")
    ]
    assert {problem(one)["detail"] for one in outside} == {problem(outside[0])["detail"]}  # does not reveal what exists
    assert {one.status_code for one in outside} == {403}
    preview = site.http.post(
        "/bases/shelf/documents/sources:preview", json={"path": str(tmp_path / "elsewhere")}, headers=everywhere
    )
    assert (preview.status_code, problem(preview)["code"]) == (403, "forbidden")
    assert "HOLDFAST_FOLDER_ROOTS" in problem(preview)["detail"]
    assert add(site, tmp_path / "allowed", everywhere).status_code == 202
    site.rig.work()
    assert names(site, everywhere) == {"a.md"}


def test_the_data_folder_of_the_server_is_never_a_source(site: HttpSite, tmp_path: Path) -> None:
    (tmp_path / "door").symlink_to(tmp_path / "home")
    for folder in ("home", "home/files", "door", "door/files"):
        answer = add(site, tmp_path / folder)
        assert (answer.status_code, problem(answer)["subcode"]) == (422, "own_data"), folder
    everywhere = site.key("admin")
    assert add(site, tmp_path / "home", everywhere).status_code == 403
    assert names(site, everywhere) == set()


def test_a_source_that_contains_the_data_folder_skips_it_at_every_refresh(site: HttpSite, tmp_path: Path) -> None:
    assert add(site, tmp_path).status_code == 202
    for _ in range(3):
        site.rig.work()
        assert names(site) == {"a.md", "b.md"}
        (folder,) = site.http.get("/bases/shelf/documents", params={"parent": 0}).json()["items"]
        assert site.http.post(f"/bases/shelf/documents/{folder['id']}:refresh").status_code == 202
    site.rig.work()
    assert names(site) == {"a.md", "b.md"}


def look(site: HttpSite, key: dict[str, str], name: str) -> dict[str, Any]:
    """Refresh a folder with a key, and return its document afterwards."""
    listed = site.http.get("/bases/shelf/documents", params={"parent": 0}, headers=key).json()["items"]
    (id_,) = (one["id"] for one in listed if one["name"] == name)
    assert site.http.post(f"/bases/shelf/documents/{id_}:refresh", headers=key).status_code == 202
    site.rig.work()
    found: dict[str, Any] = site.http.get(f"/bases/shelf/documents/{id_}", headers=key).json()
    return found


def test_a_worker_checks_the_folder_again_at_every_refresh(site: HttpSite, tmp_path: Path) -> None:
    assert add(site, tmp_path / "elsewhere").status_code == 202  # without keys, the caller is the local user
    assert add(site, tmp_path / "allowed").status_code == 202
    site.rig.work()
    key = site.key("admin")
    (tmp_path / "elsewhere" / "c.md").write_text("# C\n\nMore krill.")
    assert look(site, key, "elsewhere")["why"] is None  # a folder that the local user added stays allowed
    assert names(site, key) == {"a.md", "b.md", "c.md"}

    with site.rig.store.database.engine.begin() as connection:  # the state after an import or an upgrade
        connection.exec_driver_sql("UPDATE library_items SET local = 0 WHERE name = 'elsewhere'")
    (tmp_path / "elsewhere" / "d.md").write_text("# D\n\nStill more krill.")
    assert look(site, key, "elsewhere")["why"]["code"] == "folder_not_allowed"
    assert names(site, key) == {"a.md", "b.md", "c.md"}  # no file is read, and no document counts as removed

    (tmp_path / "allowed").rename(tmp_path / "moved")
    (tmp_path / "allowed").symlink_to(tmp_path / "home")
    assert look(site, key, "allowed")["why"]["code"] == "own_data"
    assert names(site, key) == {"a.md", "b.md", "c.md"}


def test_the_local_user_may_adopt_a_folder_that_a_key_may_not_name(site: HttpSite, tmp_path: Path) -> None:
    key = site.key("admin")
    syncing, base = site.rig.library.folder_sync, site.rig.base
    assert add(site, tmp_path / "allowed", key).status_code == 202
    site.rig.work()
    item = syncing.find(base, tmp_path / "allowed")
    assert item is not None
    assert not item.local
    syncing.sync(base, tmp_path / "allowed")
    adopted = syncing.find(base, tmp_path / "allowed")
    assert adopted is not None
    assert adopted.local
