"""Adds documents on a small disk until their rows do not fit. It runs in a process with its own mount namespace.

`python -m tests.support.full_disk FOLDER` prints the error of each way to add a document, and the files and rows
before and after.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.clock import FakeClock
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable


def mount(folder: Path) -> None:
    """Mount a disk of four megabytes."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        sys.stdout.write(json.dumps({"refused": mounted.stderr}))
        raise SystemExit


def fill(folder: Path) -> None:
    """Fill the disk so that a small file still fits, but not the pages that SQLite writes in one transaction."""
    free = os.statvfs(folder)
    (folder / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - 3 * 4096))


def state(rig: Rig) -> dict[str, Any]:
    files = sorted(path.name for path in rig.folder.rglob("*") if path.is_file())
    return {"files": files, "items": rig.count("items"), "jobs": rig.count("jobs")}


def outcome(write: Callable[[], object]) -> str:
    try:
        write()
    except HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "written"


def main(folder: Path) -> None:
    """Fill the disk, write, free space, and write again."""
    mount(folder)
    rig = Rig(f"sqlite:///{folder / 'holdfast.db'}", folder / "blobs", FakeClock(), indexes=("fulltext",))
    library = LocalService(rig.library, local_caller())
    rig.put("kept.txt", "kept")
    archive = io.BytesIO()
    rig.library.archives.export(rig.base, archive)
    ways: dict[str, Callable[[], object]] = {
        "upload": lambda: rig.put("upload.txt", "upload"),
        "note": lambda: library.documents.note("shelf", "note", "a note"),
        "archive": lambda: library.archives.restore(io.BytesIO(archive.getvalue()), name="copy"),
    }
    fill(folder)
    before = state(rig)
    full = {name: outcome(write) for name, write in ways.items()}
    after = state(rig)
    (folder / "filler").unlink()
    again = {name: outcome(write) for name, write in ways.items()}
    rig.close()
    fill(folder)
    full["open"] = outcome(lambda: Rig(f"sqlite:///{folder / 'holdfast.db'}", folder / "blobs", FakeClock()))
    sys.stdout.write(json.dumps({"before": before, "full": full, "after": after, "again": again}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
