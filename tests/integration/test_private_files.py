"""Only the owner can read stored files, regardless of the umask and of who created the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.documents.requests import Upload
from holdfast.service.opening import announce_server, open_library
from holdfast.settings import Settings
from holdfast.wiring import open_event_notifier, open_work_notifier

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """Give new files all permissions, unless the code sets others."""
    before = os.umask(0)
    yield
    os.umask(before)


def rights(folder: Path) -> dict[str, str]:
    """Return the mode of a folder and everything in it, where other users have access."""
    found = [folder, *folder.rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}
    return {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


def use(settings: Settings) -> None:
    """Create files in every way: add a document, erase, listen for wake-ups, announce a server."""
    library = open_library(settings)
    base = library.bases.create("shelf")
    library.adder.put(base, [Upload("a.txt", b"tide")])
    library.erasure.run_now()
    listeners = [open_work_notifier(settings.database).listen(), open_event_notifier(settings.database).listen()]
    announce_server(settings, "http://127.0.0.1:1")
    home = Path(settings.home)
    names = {path.name for path in home.rglob("*")}
    assert {"holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "holdfast.db-turn", "server.json"} <= names
    assert rights(home) == {}
    for listener in listeners:
        listener.close()
    library.store.close()


def test_only_the_owner_can_access_a_new_home_folder(tmp_path: Path) -> None:
    use(Settings(home=str(tmp_path / "home")))


def test_opening_a_readable_home_folder_removes_the_access_of_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    use(Settings(home=str(home)))
    for path in (home, *home.rglob("*")):
        path.chmod(0o777)
    library = open_library(Settings(home=str(home)))
    library.adder.put(library.catalog.find_base("shelf"), [Upload("b.txt", b"ebb")])
    library.store.close()
    assert home.stat().st_mode & 0o077 == 0  # no other user can reach the files in it
    assert rights(home / "holdfast.db") == {}
    assert (home / "files").stat().st_mode & 0o077 == 0


def test_opening_a_separate_data_folder_removes_the_access_of_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    url = f"sqlite:///{tmp_path / 'other.db'}"
    open_library(Settings(home=str(tmp_path / "home"), database=url, data=str(data))).store.close()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert rights(tmp_path / "other.db") == {}


def test_a_folder_shared_by_all_users_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    open_library(Settings(home=str(shared))).store.close()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert rights(shared / "holdfast.db") == {}
