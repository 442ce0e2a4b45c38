"""Flower, the usual monitor of Celery, with its HTTP API.

It gets the addresses of the broker and of the result backend, but not the app. So it shows what workers report.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx2

from tests.support.processes import ROOT
from tests.support.servers import HOST, Server
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


class Flower(Server):
    """Flower from the dev extra. It keeps in memory what workers report from its start on."""

    name = "flower"
    quit_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL

    def __init__(self, directory: Path, broker: str, backend: str) -> None:
        super().__init__(directory)
        self._broker = broker
        self._backend = backend

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def tasks(self, **filters: str) -> dict[str, dict[str, Any]]:
        """Return the tasks that it shows, by their ids."""
        found: dict[str, dict[str, Any]] = self._request("GET", "/api/tasks", filters).raise_for_status().json()
        return found

    def task(self, task_id: str) -> dict[str, Any] | None:
        """Return a task, or None if no worker has reported it."""
        answer = self._request("GET", f"/api/task/info/{task_id}", {})
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def state(self, task_id: str) -> str | None:
        found = self.task(task_id)
        return None if found is None else found["state"]

    def revoke(self, task_id: str, *, terminate: bool) -> None:
        """Revoke a task, as its button does."""
        given = {"terminate": "true"} if terminate else {}
        self._request("POST", f"/api/task/revoke/{task_id}", given).raise_for_status()

    def _request(self, method: str, path: str, params: dict[str, str]) -> httpx2.Response:
        return httpx2.request(method, self.url + path, params=params, timeout=PATIENCE_SECONDS, trust_env=False)

    def _prepare(self) -> None:
        """Do nothing: it writes no files."""

    def _account(self) -> dict[str, Any]:
        return {"env": os.environ | {"FLOWER_UNAUTHENTICATED_API": "true", "PYTHONPATH": str(ROOT)}}

    def _command(self) -> list[str]:
        servers = ["--broker", self._broker, "--result-backend", self._backend]
        return [sys.executable, "-m", "celery", *servers, "flower", f"--address={HOST}", f"--port={self.port}"]

    def _answers(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}/healthcheck", timeout=2, trust_env=False).is_success
        return False
