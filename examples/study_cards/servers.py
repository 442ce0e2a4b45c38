"""All servers of one version of the app: Valkey, the paid provider, the service, its workers, and the backend.

    with Servers("guarded") as servers:
        httpx.post(f"{servers.backend}/projects/7/study-plan")

They listen on free ports of the loopback address, keep their files in a temporary folder, and end with the script.
"""

import itertools
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from examples.processes import ChildProcess, free_port, start_valkey
from examples.study_cards.provider import Provider

PACKAGE = "examples.study_cards"
WORKER_PROCESSES = 8
SERVICE_PROCESSES = 2  # the service of a web app has several processes, or machines
# The defaults of the guard suit production: 30 s and 60 s. An example should not take that long.
QUICK = {"HOLDFAST_PERIOD": "1s", "HOLDFAST_RING_AGAIN": "5s"}


class Servers:
    """The servers of the version `plain` or `guarded`, with one worker. They run inside `with`.

    `api` replaces the app of the service, and `environment` has more variables for all processes.
    """

    def __init__(self, version: str, *, api: str = "", **environment: str) -> None:
        self.version = version
        self.provider = Provider()
        self.service = self.backend = ""
        self._api = api or f"{PACKAGE}.{version}:api"
        self._stack = ExitStack()
        self._names = itertools.count(1)
        self.environment = environment  # the modules of the app find the servers in it
        self._workers: list[ChildProcess] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="study-cards-")))
            stack.enter_context(self.provider)
            valkey, url = start_valkey(self._folder)
            stack.callback(valkey.end)
            self._redis = stack.enter_context(redis.Redis.from_url(url))
            self._stack = stack
            self._start(url)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self, redis_url: str) -> None:
        ports = {"service": free_port(), "backend": free_port()}
        self.service, self.backend = (f"http://127.0.0.1:{port}" for port in ports.values())
        self.environment |= {
            "REDIS_URL": redis_url,
            "PROVIDER_URL": self.provider.url,
            "SERVICE_URL": self.service,
            "BACKEND_URL": self.backend,
            "GUARD_DATABASE": f"sqlite:///{self._folder}/guard.db",
            **QUICK,
        }
        service = self._start_web(self._api, ports["service"], SERVICE_PROCESSES)
        backend = self._start_web(f"{PACKAGE}.backend:backend", ports["backend"], 1)
        if self.version == "guarded":
            self._run("reconciler", "holdfast.cli", "guard", "reconcile", f"{PACKAGE}.guarded:guard")
        self.start_worker()
        service.await_ready(lambda: service.log().count("startup complete") == SERVICE_PROCESSES)
        backend.await_ready(lambda: "startup complete" in backend.log())

    def start_worker(self) -> None:
        """Start a Celery worker, and return when it is ready."""
        name = f"worker-{next(self._names)}"
        options = ["--hostname", f"{name}@%h", f"--concurrency={WORKER_PROCESSES}", "--loglevel=INFO"]
        worker = self._run(name, "celery", "-A", f"{PACKAGE}.{self.version}", "worker", *options)
        self._workers.append(worker)
        worker.await_ready(lambda: " ready." in worker.log())

    def kill_workers(self) -> None:
        """Kill all processes of all workers with SIGKILL, like a machine that fails."""
        while self._workers:
            self._workers.pop().end()

    def empty_redis(self) -> None:
        """Delete all keys, like a cache that is flushed or restarted empty."""
        self._redis.flushall()

    def ttl(self, key: str) -> int:
        """Return after how many seconds a key expires; it is negative if there is none."""
        return int(self._redis.ttl(key))

    def log(self, name: str) -> str:
        """Return the log of a process, such as `worker-1`."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _start_web(self, app: str, port: int, processes: int) -> ChildProcess:
        options = ["--host", "127.0.0.1", "--port", str(port), "--workers", str(processes), "--no-access-log"]
        return self._run(app.replace(":", "-"), "uvicorn", app, *options)

    def _run(self, name: str, *module: str) -> ChildProcess:
        command = [sys.executable, "-m", *module]
        process = ChildProcess(command, self._folder / f"{name}.log", **self.environment)
        self._stack.callback(process.end)
        return process
