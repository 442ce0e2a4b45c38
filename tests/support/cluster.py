"""Holdfast on several machines: web servers, reconcilers and Celery workers, each in its own process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from holdfast.catalog.repository import BaseSettings
from holdfast.documents.requests import Upload
from holdfast.service.opening import open_library
from holdfast.settings import Settings
from holdfast.wiring import list_kinds
from tests.support.celery_worker import CeleryWorker
from tests.support.processes import Running, until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

QUICK = {"lease": "6s", "heartbeat": "2s", "period": "2s", "ring_again": "3s", "backoff": "1s", "stall": "60s"}
SEARCHABLE = ("content", "fulltext", "vector")


class Cluster:
    """The settings that all roles share, and the processes that a test starts. They end with the test."""

    def __init__(self, folder: Path, database: str, broker: str, **settings: object) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.settings: dict[str, object] = {
            "home": folder / "home",
            "database": database,
            "scheduler": "celery",
            "broker": broker,
            "log": "info",
            **QUICK,
            **settings,
        }
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self.library = open_library(Settings.from_environment(self.environment))
        self._held.callback(self.library.store.close)
        self.base = self.library.bases.create("sea", BaseSettings(indexes=SEARCHABLE[1:]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    @property
    def environment(self) -> dict[str, str]:
        return {f"HOLDFAST_{name.upper()}": str(value) for name, value in self.settings.items()}

    def run(self, *arguments: str) -> Running:
        """Start a command of Holdfast."""
        return self.run_module("holdfast.cli", *arguments)

    def run_module(self, module: str, *arguments: str) -> Running:
        """Start another program with the same settings."""
        log = self.folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        return self._held.enter_context(Running(["-m", module, *arguments], log, self.settings))

    def address_of(self, server: Running) -> str:
        """Return the address that a server prints when it is ready."""
        until(lambda: "http://" in server.log.read_text(), "the web server does not start")
        (address,) = re.findall(r"http://\S+", server.log.read_text())
        return str(address)

    def examine(self) -> list[str]:
        """Return the codes of what the doctor finds."""
        command = [sys.executable, "-m", "holdfast.cli", "doctor", "--deep", "--json"]
        ran = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True, check=False)
        assert ran.returncode in (0, 1), ran.stdout + ran.stderr
        return [finding["code"] for finding in json.loads(ran.stdout)]

    def celery_worker(self, kinds: Iterable[str] = (), **options: Any) -> CeleryWorker:
        """Start a Celery worker for the queues of some kinds, or of all."""
        prefix = self.settings.get("queue_prefix", "holdfast")
        queues = [f"{prefix}.{kind}" for kind in kinds or list_kinds()]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return self._held.enter_context(
            CeleryWorker("holdfast.celery", self.folder, queues=queues, environment=clean | self.environment, **options)
        )

    def add(self, *names: str) -> list[str]:
        """Add documents, as a web server does, without waiting for their indexes; return their jobs."""
        uploads = [Upload(name, f"# {name}\n\nThe tide of {name} is high.".encode()) for name in names]
        replies = self.library.adder.add(self.base, uploads)
        assert all(reply.verdict == "accepted" for reply in replies), replies
        return [str(reply.job) for reply in replies]

    def states(self) -> dict[tuple[str, str], int]:
        """Count the slots of each kind and state."""
        with self.library.store.database.reading() as tx:
            rows = tx.run_sql("SELECT kind, state, count(*) FROM slots GROUP BY kind, state")
        return {(kind, state): count for kind, state, count in rows}

    def found(self, question: str) -> set[str]:
        """Return the names of the documents that a search finds."""
        return {hit.title or "" for hit in self.library.searcher.search(self.base, question)}

    def events(self, type_: str) -> list[str]:
        """Return the owners of the slots that had this event, in order."""
        return [one.event.owner for one in self.library.store.events(limit=10_000) if one.event.type == type_]

    def until_ready(self, documents: int) -> None:
        wanted = {(kind, "ready"): documents for kind in SEARCHABLE}
        until(lambda: self.states() == wanted, f"not all of {documents} documents are indexed: {self.states()}")
