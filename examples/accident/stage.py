"""The stage on which the accident is played: a Redis, real Celery workers, and a storyteller who counts.

Both scripts use it, and their task modules differ in nothing else::

    with Stage("plain") as stage:
        stage.scene("What this scene shows")                 # no workers, no data, the clock at zero
        stage.worker(visibility_timeout=3)                   # returns when the worker is ready
        stage.write("doc-1", text)                           # its content from now on, a chunk a line
        task = stage.send("doc-1")                           # the id of the task
        until(lambda: stage.succeeded(task) == 1, "the end") # or the script ends and names what did not happen
        stage.tell("the document is indexed")                # a line of the story with its time

`until` and `wait` are in `examples/processes.py`; `wait` only returns whether the fact became true in time.

What can be asked: how often the broker `delivered` a task and how often it `succeeded`, from the logs of the workers;
what was `paid` for a document and for how many seconds two processes paid at once (`overlap`), from the receipts of
the model; and the `result` that a reader sees. `stop_child` stops the process that works on a document in the middle
of its work, and `go_on` continues it.

A task module is `examples/accident/<module>.py`. It has a Celery `app` and a task `index_document(document)`; it is
`stage.tasks`, for scripts that send in another way. It learns from REDIS_URL where Redis is, reads the content in the
key `accident:content:<document>`, a chunk a line, embeds with `paid_model`, and writes its result, a JSON list of
entries with a `text` each, under a key that begins with `accident:`. Its `read(document)` is the reader and returns
that list. Its settings are in `celeryconfig`; what needs a database finds the address of an empty one in
GUARD_DATABASE.
"""

import argparse
import importlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import redis

from examples.processes import ChildProcess, start_valkey

PACKAGE = "examples.accident"


class Stage:
    """Redis, workers and the clock of the story, for one task module; see the head of this file."""

    def __init__(self, module: str, *, redis_url: str | None = None) -> None:
        self.module = f"{PACKAGE}.{module}"
        self.tasks: Any = None
        self._redis: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="accident-")
        self._url = redis_url
        self._server: ChildProcess | None = None
        self._workers: list[ChildProcess] = []
        self._names = itertools.count(1)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        try:
            os.environ["REDIS_URL"] = self._url or self._start_valkey()
            self._redis = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
            self._redis.ping()
            os.environ["GUARD_DATABASE"] = f"sqlite:///{self._folder.name}/guard.db"
            self.tasks = importlib.import_module(self.module)  # only now, since it reads REDIS_URL
        except BaseException as error:
            self._end_processes()
            if isinstance(error, redis.ConnectionError):
                raise SystemExit(f"no Redis answers: {error}") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._clear()
        finally:
            self._end_processes()

    def scene(self, title: str) -> None:
        """Begin anew: no workers, no data, the clock at zero."""
        self._clear()
        self._began = time.monotonic()
        print(f"\n{title}\n")

    def tell(self, what: str) -> None:
        """Print a line of the story with its time."""
        print(f"  {time.monotonic() - self._began:5.1f} s  {what}", flush=True)

    def worker(self, *, visibility_timeout: float = 3600) -> None:
        """Start a Celery worker with one process for tasks, and return when it is ready."""
        name = f"worker-{next(self._names)}"
        command = [sys.executable, "-m", "celery", "-A", self.module, "worker", "--hostname", f"{name}@%h"]
        command += ["--concurrency=1", "--loglevel=INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        log = Path(self._folder.name) / f"{name}.log"
        worker = ChildProcess(command, log, VISIBILITY_TIMEOUT=str(visibility_timeout))
        self._workers.append(worker)
        worker.await_ready(lambda: " ready." in worker.log())

    def write(self, document: str, text: str) -> None:
        """Replace the content of a document; each line is a chunk."""
        self._redis.set(f"accident:content:{document}", text)

    def send(self, document: str) -> str:
        """Ask once for a document to be indexed, and return the id of the task."""
        return str(self.tasks.index_document.delay(document).id)

    def delivered(self, task: str) -> int:
        """Return how often a worker has received this task."""
        return self._told(f"[{task}] received")

    def succeeded(self, task: str) -> int:
        """Return how often a worker has finished this task without an error."""
        return self._told(f"[{task}] succeeded")

    def ended(self, task: str) -> int:
        """Return how many deliveries of this task have ended: with a result, discarded, or with an expected error."""
        return sum(self._told(f"[{task}] {how}") for how in ("succeeded", "ignored", "raised expected"))

    def paid(self, document: str) -> int:
        """Return how many embeddings were paid for this document."""
        return len(self._receipts(document))

    def overlap(self, document: str) -> float:
        """Return for how many seconds more than one process was paying for this document."""
        edges = sorted(
            edge
            for receipt in self._receipts(document)
            for edge in ((receipt["began"], 1), (receipt["began"] + receipt["seconds"], -1))
        )
        at_once = itertools.accumulate(step for _, step in edges)
        spans = zip(itertools.pairwise(edges), at_once, strict=False)
        return sum(float(end - start) for ((start, _), (end, _)), count in spans if count > 1)

    def result(self, document: str) -> str:
        """Return the text that a reader finds, empty when nothing was written."""
        return "\n".join(entry["text"] for entry in json.loads(self.tasks.read(document) or "[]"))

    def stop_child(self, document: str) -> int:
        """Stop the process that paid last for this document, and return its number for `go_on`."""
        process = int(self._receipts(document)[-1]["process"])
        os.kill(process, signal.SIGSTOP)
        return process

    def go_on(self, process: int) -> None:
        """Continue a stopped process."""
        os.kill(process, signal.SIGCONT)

    def table(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print beside each other what was asked and what happened."""
        lines = [("what was asked", "what happened"), *rows]
        width = max(len(asked) for asked, _ in lines)
        print()
        for asked, happened in lines:
            print(f"  {asked:<{width}}   {happened}")

    def _receipts(self, document: str) -> list[dict[str, Any]]:
        return [json.loads(receipt) for receipt in self._redis.lrange(f"accident:receipts:{document}", 0, -1)]

    def _told(self, words: str) -> int:
        return sum(worker.log().count(words) for worker in self._workers)

    def _clear(self) -> None:
        while self._workers:
            self._workers.pop().end()
        for key in self._redis.scan_iter("accident:*"):
            self._redis.delete(key)

    def _start_valkey(self) -> str:
        self._server, url = start_valkey(Path(self._folder.name))
        return url

    def _end_processes(self) -> None:
        for process in (*self._workers, *filter(None, [self._server])):
            process.end()
        self._folder.cleanup()


def redis_asked_for(description: str | None) -> str | None:
    """Read the one option of the scripts; without a Redis of the reader's own, the stage starts one."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--redis",
        metavar="URL",
        default=os.environ.get("REDIS_URL"),
        help="use this server; it touches only keys that begin with accident:",
    )
    return cast("str | None", parser.parse_args().redis)
