"""A server goes on when nobody reads its log any more, or when the disk of the log is full."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.processes import until
from tests.support.servers import free_port
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL_DISK = Path("/dev/full")


@pytest.fixture(params=["closed pipe", "full disk"])
def log(request: pytest.FixtureRequest) -> Iterator[int]:
    """A descriptor to which every write fails."""
    if request.param == "full disk":
        if not FULL_DISK.exists():
            pytest.skip("this system has no device that is always full")
        descriptor = os.open(FULL_DISK, os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    yield descriptor
    os.close(descriptor)


@pytest.mark.smoke
def test_documents_are_indexed_although_the_log_cannot_be_written(tmp_path: Path, log: int) -> None:
    with pytest.raises(OSError, match=r"Broken pipe|No space left"):
        os.write(log, b"x")
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    server = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "--home", str(tmp_path / "home"), "serve", "--port", str(port)],
        env=clean | {"HOLDFAST_WORKERS": "1", "HOLDFAST_LOG": "debug"},
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", timeout=PATIENCE_SECONDS, trust_env=False
        ) as http:

            def answers() -> bool:
                with suppress(httpx2.TransportError):
                    return http.get("/bases").is_success
                assert server.poll() is None, "the server ended"
                return False

            until(answers, "the server does not start")
            http.post("/bases", json={"name": "sea", "indexes": ["fulltext"]}).raise_for_status()
            added = http.post("/bases/sea/documents", params={"name": "whale.md"}, content=b"# Whale\n\nIt eats krill.")
            document = added.raise_for_status().json()["replies"][0]["document"]
            until(
                lambda: http.get(f"/bases/sea/documents/{document}", params={"wait": 10}).json()["status"] == "success",
                "the document is not indexed",
            )
            assert http.post("/bases/sea/search", json={"query": "krill"}).json()["hits"]
    finally:
        server.terminate()
        code = server.wait(PATIENCE_SECONDS)
    assert code == 0
