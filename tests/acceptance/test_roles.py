"""The roles of a library on several machines, each in its own process: how they stop, and their health checks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.cluster import Cluster
from tests.support.paid_provider import PaidProvider
from tests.support.processes import Running, until
from tests.support.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import Valkey


@contextmanager
def running_web(folder: Path, **settings: object) -> Iterator[tuple[Running, str]]:
    """Run `holdfast web` on its own library, and return the process and its address."""
    log = folder / f"web-{time.monotonic_ns()}.log"
    command = ["-m", "holdfast.cli", "web", "--port", "0"]
    with Running(command, log, {"home": folder / "home", **settings}) as server:
        until(lambda: "http://" in log.read_text(), "the web server does not start")
        address = next(line for line in log.read_text().splitlines() if line.startswith("http://"))
        yield server, address


def begin_upload(address: str, body: bytes, sent: int) -> socket.socket:
    """Send the headers of an upload, and the first bytes of its body when the server waits for them."""
    host, port = str(urlsplit(address).hostname), urlsplit(address).port or 0
    upload = socket.create_connection((host, port), timeout=60)
    path = "/api/v1/bases/sea/documents?name=tide.md"
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    upload.sendall(head.encode())
    assert upload.recv(1000).startswith(b"HTTP/1.1 100")
    upload.sendall(body[:sent])
    return upload


@pytest.mark.smoke
def test_a_web_server_that_stops_finishes_a_running_upload(tmp_path: Path) -> None:
    body = b"# Tide\n\n" + b"The sea rises. " * 1000
    with running_web(tmp_path) as (server, address):
        httpx2.post(f"{address}/api/v1/bases", json={"name": "sea"}, trust_env=False).raise_for_status()
        with begin_upload(address, body, 100) as upload:
            until_stopped_listening(server, address)
            upload.sendall(body[100:])
            answer = upload.recv(1000)
        assert answer.startswith(b"HTTP/1.1 202"), answer
        assert server.ended() == 0


def test_a_web_server_ends_an_upload_that_takes_longer_than_the_drain(tmp_path: Path) -> None:
    with running_web(tmp_path, drain="1s") as (server, address):
        httpx2.post(f"{address}/api/v1/bases", json={"name": "sea"}, trust_env=False).raise_for_status()
        with begin_upload(address, bytes(10_000), 100):
            until_stopped_listening(server, address)
            assert server.ended() == 0
    with running_web(tmp_path) as (_, address):
        listed = httpx2.get(f"{address}/api/v1/bases/sea/documents", trust_env=False).raise_for_status().json()
        assert listed["items"] == []


def until_stopped_listening(server: Running, address: str) -> None:
    """Send SIGTERM, and wait until the server accepts no new connection."""
    server.send(signal.SIGTERM)
    target = (str(urlsplit(address).hostname), urlsplit(address).port or 0)

    def refused() -> bool:
        try:
            socket.create_connection(target, timeout=5).close()
        except ConnectionRefusedError:
            return True
        return False

    until(refused, "the server still accepts connections")


@pytest.mark.postgres
def test_workers_for_some_kinds_leave_the_others(tmp_path: Path, postgres_url: str) -> None:
    with Cluster(tmp_path, postgres_url, "", scheduler="embedded", workers=1) as cluster:
        cluster.add("a.md", "b.md")
        cluster.run("worker", "--kinds", "content,fulltext")
        wanted = {("content", "ready"): 2, ("fulltext", "ready"): 2, ("vector", "queued"): 2}
        until(lambda: cluster.states() == wanted, "the worker does not do its kinds")
        cluster.run("worker", "--kinds", "vector")
        cluster.until_ready(2)


@pytest.mark.postgres
@pytest.mark.celery
@pytest.mark.parametrize("role", ["worker", "reconcile", "celery"])
def test_every_role_answers_health_checks(tmp_path: Path, postgres_url: str, valkey: Valkey, role: str) -> None:
    port = free_port()
    scheduler = "embedded" if role == "worker" else "celery"
    with Cluster(
        tmp_path, postgres_url, valkey.url, scheduler=scheduler, workers=1, health_port=port, host="127.0.0.1"
    ) as cluster:
        if role == "celery":
            cluster.celery_worker()
        else:
            cluster.run(role)
        until(lambda: probe(port, "/healthz") == 200, "the role does not answer")
        assert probe(port, "/readyz") == 200
        assert probe(port, "/other") == 404
        assert probe(port, "/metrics") == 200


def probe(port: int, path: str) -> int:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}{path}", timeout=30, trust_env=False).status_code
    except httpx2.TransportError:
        return 0


@pytest.mark.postgres
def test_a_worker_is_not_ready_without_its_database(tmp_path: Path, postgres_url: str) -> None:
    port = free_port()
    with Cluster(tmp_path, postgres_url, "", scheduler="embedded", workers=1, health_port=port) as cluster:
        worker = cluster.run("worker")
        until(lambda: probe(port, "/readyz") == 200, "the worker is not ready")
        with cluster.library.store.database.writing(durable=True) as tx:
            tx.run_sql("ALTER TABLE library_bases RENAME TO hidden")
        assert (probe(port, "/healthz"), probe(port, "/readyz")) == (200, 503)
        assert "health.not_ready" in worker.log.read_text()
        with cluster.library.store.database.writing(durable=True) as tx:
            tx.run_sql("ALTER TABLE hidden RENAME TO library_bases")
        assert probe(port, "/readyz") == 200


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"HOLDFAST_DATABASE": ""}, "an SQLite file, which only one machine can use"),
        ({"HOLDFAST_SECRET_KEY": ""}, "HOLDFAST_SECRET_KEY is empty"),
        ({"HOLDFAST_KEYS": "auto"}, "HOLDFAST_KEYS is 'auto'"),
        ({}, "`serve` would run workers inside the server"),
    ],
)
def test_production_refuses_what_only_one_machine_can_use(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    production = {
        "HOLDFAST_HOME": str(tmp_path),
        "HOLDFAST_PRODUCTION": "1",
        "HOLDFAST_DATABASE": "postgresql+psycopg://nobody@127.0.0.1:1/none",
        "HOLDFAST_SECRET_KEY": "0" * 64,
        "HOLDFAST_KEYS": "on",
    }
    chosen = {name: value for name, value in (production | settings).items() if value}
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "serve"],
        env=os.environ | chosen,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode != 0
    assert expected in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.postgres
def test_a_stopped_worker_returns_its_work_at_once(tmp_path: Path, postgres_url: str) -> None:
    with PaidProvider() as paid:
        embedding = {"embedding_url": paid.url, "embedding_key": paid.key, "embedding_model": paid.embedding_model}
        with Cluster(tmp_path, postgres_url, "", scheduler="embedded", workers=1, **embedding) as cluster:
            paid.stall()
            worker = cluster.run("worker")
            cluster.add("a.md")
            paid.await_calls(1)
            worker.send(signal.SIGTERM)
            time.sleep(0.5)
            paid.release()
            assert worker.ended() == 0
            assert cluster.events("slot.expired") == []
            cluster.run("worker")
            cluster.until_ready(1)
