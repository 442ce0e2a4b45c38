"""`holdfast serve` in its own process, as users run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx2

from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOVING = {"queued", "indexing", "deleting"}
LONGEST_WAIT = 60  # seconds of one long poll


class Serving:
    """A server process and an HTTP client for it. `address` is empty if the server did not start."""

    def __init__(self, home: Path, *more: str, port: int = 0, environment: Mapping[str, str] | None = None) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "--home", str(home), "serve", "--port", str(port), *more],
            env=clean | {"HOLDFAST_WORKERS": "1"} | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said = threading.Thread(target=self._drain, daemon=True)
        self.errors: list[str] = []
        self._said.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(PATIENCE_SECONDS)
            self._said.join()
            self.address = ""
            return
        self.address = next(word for word in line.split() if word.startswith("http://")).rstrip(".,")
        # The server closes idle connections after 5 s. The client must not reuse one at that moment.
        idle = httpx2.Limits(keepalive_expiry=1)
        self.http = httpx2.Client(
            base_url=f"{self.address}/api/v1",
            timeout=PATIENCE_SECONDS,
            trust_env=False,
            limits=idle,
            verify=False,
        )

    def _drain(self) -> None:
        assert self.process.stderr is not None
        self.errors += list(self.process.stderr)

    def add(self, name: str, text: str) -> int:
        """Add a document, wait until it is indexed, and return its id."""
        answer = self.http.post("/bases/sea/documents", params={"name": name}, content=text.encode())
        assert answer.status_code == 202, answer.text
        document: int = answer.json()["replies"][0]["document"]
        told = self.rested(f"/bases/sea/documents/{document}")
        assert told["status"] == "success", told
        return document

    def rested(self, path: str) -> dict[str, Any]:
        """Wait until a document or a job is settled, and return it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            told: dict[str, Any] = self.http.get(path, params={"wait": LONGEST_WAIT}).raise_for_status().json()
            if told.get("status", told.get("state")) not in MOVING:
                return told
            assert time.monotonic() < deadline, told

    def end(self, number: int = signal.SIGINT) -> int:
        """End the server with a signal and return its exit code."""
        if self.address:
            self.http.close()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._said.join(PATIENCE_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
