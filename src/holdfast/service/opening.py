"""Opens a library in a folder or a database, and records which server serves a folder.

A folder gets a worker in this process unless a server already runs for it. A shared database has its own workers.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.auth import Caller, Scope
from holdfast.blobs import UNREACHABLE, find_data_folder
from holdfast.engine.liveness import known_dead, make_holder_name
from holdfast.errors import BadSettings, StoreUnavailable
from holdfast.extras import require_extra
from holdfast.private_files import make_private_folder, open_private_file, restrict_to_owner
from holdfast.settings import DATA_FOLDER, DATABASE_FILE, Settings
from holdfast.tracing import NO_TRACER
from holdfast.wiring import Library, open_configured_store

if TYPE_CHECKING:
    from holdfast.tracing import Tracer

log = logging.getLogger("holdfast")

SERVER_FILE = "server.json"  # in the home folder: the process and the address of its server


def settings_for(where: str | Path | None) -> Settings:
    """Return the settings from the environment, with the given folder or database."""
    settings = Settings.from_environment()
    if where is None:
        return settings
    if "://" in str(where):
        return replace(settings, database=str(where))
    home = Path(where).expanduser().absolute()
    return replace(settings, home=str(home), database=f"sqlite:///{home / DATABASE_FILE}", data=str(home / DATA_FOLDER))


def open_library(settings: Settings, tracer: Tracer = NO_TRACER) -> Library:
    """Open a library. Create its folder if needed, and make its folders private to the user of this process."""
    require_extra("documents")
    home = Path(settings.home)
    for folder in (home, find_data_folder(settings.data)):
        if folder is not None:
            restrict_to_owner(folder)
    if settings.database == f"sqlite:///{home / DATABASE_FILE}":
        try:
            make_private_folder(home)
        except OSError as error:
            raise BadSettings("home_not_created", path=home, detail=error.strerror) from error
    library = Library(open_configured_store(settings), settings, tracer=tracer)
    if "://" in settings.data:
        _ = library.blobs  # raises if the address is invalid or an extra is missing
    return library


def check_blob_store(library: Library) -> None:
    """Raise an error if the files of documents cannot be stored, for a process that is about to run for long.

    If the endpoint is only down, the process may start: uploads fail with a clear error, and work waits.
    """
    try:
        library.blobs.check()
    except StoreUnavailable as error:
        if error.subcode != UNREACHABLE:
            raise
        log.warning("blobs.unavailable error=%s", error)


class BackgroundWorker:
    """A worker in a thread of this process."""

    def __init__(self, settings: Settings) -> None:
        from holdfast.engine.worker import PollingWorker  # noqa: PLC0415 - most commands have no worker
        from holdfast.wiring import open_worker_parts  # noqa: PLC0415

        self._worker = PollingWorker(open_worker_parts(settings))
        self._thread = threading.Thread(target=self._worker.run, name="holdfast-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Release the claimed work and wait until the thread has ended."""
        self._worker.stop()
        self._thread.join()


def local_caller() -> Caller:
    """Return the user of this process as a caller with all rights."""
    name = ""
    with suppress(KeyError, OSError, ImportError):
        import pwd  # noqa: PLC0415 - only on POSIX

        name = pwd.getpwuid(os.getuid()).pw_name
    return Caller(key_id=None, name=name, scope=Scope.ADMIN, bases=None)


def announce_server(settings: Settings, address: str) -> None:
    """Record that this process serves the folder."""
    path = Path(settings.home) / SERVER_FILE
    make_private_folder(path.parent)
    record = json.dumps({"address": address, "holder": make_holder_name()})
    with open(path.with_suffix(".new"), "w", opener=open_private_file) as file:
        file.write(record)
    path.with_suffix(".new").replace(path)


def withdraw_server(settings: Settings) -> None:
    (Path(settings.home) / SERVER_FILE).unlink(missing_ok=True)


def find_server(settings: Settings) -> str | None:
    """Return the address of the running server of the folder; None if no server runs."""
    try:
        record = json.loads((Path(settings.home) / SERVER_FILE).read_text())
        return None if known_dead(record["holder"]) else str(record["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
