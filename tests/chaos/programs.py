"""Clients that use the product through a program: the library in a process of its own, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.chaos.calls import Answer
from tests.chaos.clients import Client, passage_seen
from tests.chaos.texts import FILLER, sha256, text_of
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from tests.chaos.schedule import Step

COMMAND_SECONDS = 90.0  # a busy machine starts a program slowly
ANSWER_SECONDS = 60.0
NOTHING_DONE = (2, 3, 4, 75, 77)  # exit codes of commands that were refused or reached no server


class ProgramClient(Client):
    """Carries out the operations of a client through a program. Subclasses know the program."""

    def _call(self, call: dict[str, Any]) -> Answer:
        raise NotImplementedError

    def _put(self, step: Step) -> None:
        text = text_of(step.key, step.version)
        arguments = {"base": step.base, "key": step.key, "version": step.version, "sha256": sha256(text)}
        number = self.history.invoke(self.name, "put", **arguments)
        answer = self._call({"name": "put", "base": step.base, "key": step.key, "text": text})
        value = None
        if answer.ok:
            (reply,) = answer.content["replies"]
            refused = reply["verdict"] not in ("accepted", "joined") and reply["reason"] != "same_content"
            if not refused:
                self.directory.documents[step.base, step.key] = reply["document"]
                value = {name: reply[name] for name in ("document", "job", "generation")}
                value["verdict"] = "same" if reply["reason"] == "same_content" else reply["verdict"]
        self._record_write(number, answer, value)

    def _act(self, step: Step) -> None:
        document = self.directory.documents.get((step.base, step.key))
        if document is None:
            return
        number = self.history.invoke(self.name, step.name, base=step.base, key=step.key, document=document)
        answer = self._call({"name": step.name, "base": step.base, "document": document})
        value = None
        if answer.ok:
            reply = answer.content.get("replies", [answer.content])[0]
            value = {name: reply[name] for name in ("document", "job", "generation", "verdict")}
        self._record_write(number, answer, value)

    _delete = _reindex = _act

    def _chunks(self, step: Step) -> None:
        document = self.directory.documents.get((step.base, step.key))
        if document is None:
            return
        number = self.history.invoke(self.name, "chunks", base=step.base, key=step.key, document=document)
        answer = self._call({"name": "chunks", "base": step.base, "document": document})
        self._record_read(number, answer, [passage_seen(one) for one in answer.content["items"]] if answer.ok else [])

    def _search(self, step: Step) -> None:
        query = f"{step.key} {FILLER[:60]}"
        number = self.history.invoke(self.name, "search", base=step.base, query=query)
        answer = self._call({"name": "search", "base": step.base, "query": query})
        self._record_read(number, answer, [passage_seen(one) for one in answer.content["hits"]] if answer.ok else [])


class LibraryClient(ProgramClient):
    """A program that imports the library. If it is killed, another one is started."""

    _process: subprocess.Popen[str] | None = None

    def _call(self, call: dict[str, Any]) -> Answer:
        process = self._running()
        watch = threading.Timer(ANSWER_SECONDS, process.kill)
        watch.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(call) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            self.close_program()
            return Answer(outcome="unknown", code="killed")
        told = json.loads(line)
        self._system.library_clock_error = told["now"] - time.time()
        return Answer(outcome=told["outcome"], code=told.get("code", ""), content=told.get("content"))

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close_program()
            log = self._system.folder / "library.log"
            with log.open("a") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.chaos.library_program", self._system.library],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=ROOT,
                    env=self._system.program_environment | self._system.clock.environment,
                )
            self._system.library_pid = self._process.pid
            self._system.clock.users.add(self._process.pid)
        return self._process

    def close_program(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            process.wait()

    def close(self) -> None:
        self.close_program()
        super().close()


class CommandClient(ProgramClient):
    """The command `holdfast`, which starts for each operation and calls a web server."""

    _calls = 0

    def _call(self, call: dict[str, Any]) -> Answer:
        words, given = self._words(call)
        self._calls += 1
        where = ["--at", self._system.address(self._calls), "--json"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "holdfast.cli", *where, *words],
                input=given,
                capture_output=True,
                text=True,
                cwd=ROOT,
                env=self._system.program_environment,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(outcome="unknown", code="command_timeout")
        try:
            content = json.loads(done.stdout)
        except ValueError:
            content = {}
        if done.returncode == 0:
            return Answer(outcome="ok", content=content)
        code = content.get("error", {}).get("code", f"exit {done.returncode}")
        refused = done.returncode in NOTHING_DONE and code not in ("unreachable", "commit_unknown")
        return Answer(outcome="fail" if refused else "unknown", code=code)

    @staticmethod
    def _words(call: dict[str, Any]) -> tuple[list[str], str]:
        """Return the words of the command, and its input."""
        base = ["--base", call["base"]]
        if call["name"] == "put":
            name = ["--name", f"{call['key']}.md"]
            return ["add", "-", *name, "--on-duplicate", "replace", "--no-wait", *base], call["text"]
        if call["name"] == "delete":
            return ["rm", str(call["document"]), "--yes", *base], ""
        return ["search", call["query"], *base], ""
