"""The database servers of the test suite start, crash, restart, and leave nothing behind."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.support.servers import Postgres, Server, ServerError, Valkey

BOTH = [pytest.param(Postgres, marks=pytest.mark.postgres), Valkey]
# Starts a server, prints its process id, and waits to be killed.
PARENT = """
import signal, sys
from pathlib import Path
from tests.support import servers
server = getattr(servers, sys.argv[1])(Path(sys.argv[2]))
server.start()
print(server.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user may enter, unlike `tmp_path`, so that the server needs no copy of it."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def ask(server: Server) -> object:
    """Read the process id from the server, like a client of the project."""
    if isinstance(server, Postgres):
        with psycopg.connect(server.dsn) as connection:
            row = connection.execute("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int")
            return (row.fetchone() or (None,))[0]
    with redis.Redis.from_url(server.url) as client:
        return client.info("server")["process_id"]


@pytest.mark.parametrize("kind", BOTH)
def test_a_server_answers_at_its_url_until_it_is_stopped(kind: type[Server], tmp_path: Path) -> None:
    with kind(tmp_path) as server:
        assert ask(server) == server.pid
    with pytest.raises((psycopg.OperationalError, redis.ConnectionError)):
        ask(server)
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid


@pytest.mark.parametrize("kind", BOTH)
def test_a_crashed_server_comes_back_at_the_same_url(kind: type[Server], tmp_path: Path) -> None:
    with kind(tmp_path) as server:
        url, first = server.url, server.pid
        server.crash()
        server.restart()
        assert server.url == url
        assert ask(server) == server.pid != first


@pytest.mark.parametrize("kind", BOTH)
def test_a_running_server_can_be_restarted(kind: type[Server], tmp_path: Path) -> None:
    with kind(tmp_path) as server:
        first = server.pid
        server.restart()
        assert ask(server) == server.pid != first


@pytest.mark.parametrize("kind", BOTH)
def test_a_paused_server_can_be_stopped(kind: type[Server], tmp_path: Path) -> None:
    with kind(tmp_path) as server:
        os.kill(server.pid, signal.SIGSTOP)


@pytest.mark.parametrize("kind", BOTH)
def test_a_server_that_does_not_start_shows_its_log(kind: type[Server], tmp_path: Path) -> None:
    with kind(tmp_path) as first:
        second = kind(tmp_path / "second")
        second.port = first.port
        with pytest.raises(ServerError, match=r"(?i)address already in use"):
            second.start()
        assert ask(first) == first.pid


@pytest.mark.parametrize("kind", BOTH)
def test_a_server_ends_with_its_parent(kind: type[Server], open_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, kind.__name__, str(open_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([server], [], [], 20)
    os.close(server)
    assert ended


@pytest.mark.postgres
def test_postgres_keeps_its_data_after_a_crash(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        server.crash()
        server.restart()
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


@pytest.mark.postgres
def test_dropping_a_database_closes_its_connections(tmp_path: Path) -> None:
    with Postgres(tmp_path) as server:
        url = server.create_database('odd "name"')
        name = url.removeprefix(server.url.removesuffix("postgres"))
        with psycopg.connect(server.dsn, dbname=name) as connection:
            connection.execute("CREATE EXTENSION vector")
            server.drop_database(name)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.drop_database(name)


@pytest.mark.postgres
def test_a_durable_postgres_uses_fsync(tmp_path: Path) -> None:
    for durable, expected in ((False, "off"), (True, "on")):
        server = Postgres(tmp_path / expected, durable=durable)
        with server, psycopg.connect(server.dsn) as connection:
            assert connection.execute("SHOW fsync").fetchone() == (expected,)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize(("durable", "kept"), [(False, None), (True, b"7")])
def test_a_durable_valkey_keeps_its_data_after_a_crash(tmp_path: Path, durable: bool, kept: bytes | None) -> None:
    with Valkey(tmp_path, durable=durable) as server, redis.Redis.from_url(server.url) as client:
        client.set("number", 7)
        server.crash()
        server.restart()
        assert client.get("number") == kept
