"""Clients that use the product over HTTP, each in a thread, as its part of the schedule says."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.chaos.calls import Answer, Caller
from tests.chaos.texts import FILLER, find_marks, sha256, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.history import History
    from tests.chaos.schedule import Step
    from tests.chaos.system import System

SAME = "same_content"
ALL = 500
# The first vector of a base decides the length of all others, and a fault could spoil it. So new bases use no provider.
NEW_BASE = {"chunk_size": 64, "chunk_overlap": 0, "embedding": "offline"}


class Request(NamedTuple):
    """A write: how it is sent, and how its answer is read. None: the product refused it."""

    method: str
    path: str
    read: Callable[[Answer], dict[str, Any] | None]
    options: dict[str, Any] | None = None


class Directory:
    """What clients know from answers: the id of each document by base and key, and the last job of each client."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], int] = {}
        self.jobs: dict[str, str] = {}
        self.containers: dict[str, int] = {}


class Client:
    """Carries out steps one after the other, and records each of them."""

    def __init__(self, name: str, steps: Sequence[Step], system: System, directory: Directory) -> None:
        self.name = name
        self._steps = steps
        self._system = system
        self.history: History = system.history
        self.directory = directory
        self.caller = Caller(system.address)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stop = threading.Event()
        self.crash: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Let the client end its present step, and no more."""
        self._stop.set()
        self._thread.join(seconds)
        if self.crash is not None:
            raise self.crash

    def close(self) -> None:
        self.caller.close()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            for step in self._steps:
                if self._stop.wait(max(0.0, began + step.at - time.monotonic())):
                    return
                self.carry_out(step)
        except BaseException as error:  # noqa: BLE001 - `stop` raises it
            self.crash = error

    def carry_out(self, step: Step) -> None:
        getattr(self, f"_{step.name}")(step)

    # Writes

    def _put(self, step: Step) -> None:
        text = text_of(step.key, step.version)
        arguments = {"base": step.base, "key": step.key, "version": step.version, "sha256": sha256(text)}
        if step.client.startswith("b"):
            self._ensure_base(step.base)
        params = {"name": f"{step.key}.md", "on_duplicate": "replace"}
        path, options = f"/bases/{step.base}/documents", {"params": params, "content": text.encode()}
        self._write(step, arguments, Request("POST", path, self._uploaded(step), options))

    def _uploaded(self, step: Step) -> Callable[[Answer], dict[str, Any] | None]:
        """Return a function that reads the answer to an upload."""

        def read(answer: Answer) -> dict[str, Any] | None:
            if answer.ok:
                (reply,) = answer.content["replies"]
                self.directory.documents[step.base, step.key] = reply["document"]
                self.directory.jobs[step.client] = reply["job"]
                return {name: reply[name] for name in ("document", "job", "generation", "verdict")}
            if answer.code == SAME:
                document = answer.content["document"]
                self.directory.documents[step.base, step.key] = document
                return {"document": document, "job": answer.content["job"], "generation": None, "verdict": "same"}
            return None

        return read

    def _act(self, step: Step) -> None:
        document = self.directory.documents.get((step.base, step.key))
        if document is None:
            return
        arguments = {"base": step.base, "key": step.key, "document": document}
        path = f"/bases/{step.base}/documents/{document}:{step.name}"
        self._write(step, arguments, Request("POST", path, self._accepted(step)))

    _reindex = _force = _retry = _cancel = _delete = _act

    def _accepted(self, step: Step) -> Callable[[Answer], dict[str, Any] | None]:
        def read(answer: Answer) -> dict[str, Any] | None:
            if not answer.ok:
                return None
            if answer.content.get("job"):
                self.directory.jobs[step.client] = answer.content["job"]
            return {name: answer.content.get(name) for name in ("document", "job", "generation", "verdict")}

        return read

    def _settings(self, step: Step) -> None:
        self._ensure_base(step.base)
        arguments = {"base": step.base, "indexes": list(step.indexes)}
        path = f"/bases/{step.base}"
        options = {"json": {"indexes": list(step.indexes)}}
        self._write(step, arguments, Request("PATCH", path, _nothing, options))

    def _drop_base(self, step: Step) -> None:
        path = f"/bases/{step.base}"
        self._write(step, {"base": step.base}, Request("DELETE", path, self._accepted(step)))

    def _clear_base(self, step: Step) -> None:
        path = f"/bases/{step.base}:clear"
        self._write(step, {"base": step.base}, Request("POST", path, _nothing))

    def _ensure_base(self, base: str) -> None:
        """Create the base if it does not exist. The record needs no entry: only documents matter."""
        if ("", base) not in self.directory.documents:
            answer = self.caller.send("POST", "/bases", json={"name": base, **NEW_BASE})
            if answer.ok or answer.status == 409:
                self.directory.documents["", base] = 0

    def _write(self, step: Step, arguments: dict[str, Any], request: Request) -> None:
        """Send a write in the manner of the step, and record it."""
        send = {"repeated": self.caller.repeat, "hang_up": self.caller.hang_up}.get(step.manner, self.caller.send)
        if step.manner == "repeated" and request.method != "POST":
            send = self.caller.send
        arguments |= {"manner": step.manner}
        number = self.history.invoke(self.name, step.name, **arguments)
        others: list[threading.Thread] = []
        if step.manner == "double":
            twin = self.history.invoke(self.name, step.name, **arguments, twin=number)
            others.append(threading.Thread(target=self._send, args=(self.caller.send, twin, request)))
        for other in others:
            other.start()
        self._send(send, number, request)
        for other in others:
            other.join()

    def _send(self, send: Callable[..., Answer], number: int, request: Request) -> None:
        answer = send(request.method, request.path, **(request.options or {}))
        self._record_write(number, answer, request.read(answer) if answer.status else None)

    def _record_write(self, number: int, answer: Answer, value: dict[str, Any] | None) -> None:
        """Record the end of a write; `value` is None if the product did not acknowledge it."""
        if value is not None:
            self.history.ok(number, **value, **answer.told)
        elif answer.outcome == "unknown":
            self.history.unknown(number, **answer.told)
        else:
            self.history.fail(number, **answer.told)

    # Reads

    def _chunks(self, step: Step) -> None:
        self._read_document(step, "/chunks", lambda found: [passage_seen(one) for one in found["items"]], limit=ALL)

    def _text(self, step: Step) -> None:
        self._read_document(step, "/text", lambda found: [{"marks": _marks(found["text"])}])

    def _get(self, step: Step) -> None:
        self._read_document(step, "", lambda found: [{"document": found["id"], "generation": found["built"]}])

    def _read_document(self, step: Step, path: str, see: Callable[[Any], list[dict[str, Any]]], **params: Any) -> None:
        document = self.directory.documents.get((step.base, step.key))
        if document is None:
            return
        arguments = {"base": step.base, "key": step.key, "document": document}
        number = self.history.invoke(self.name, step.name, **arguments)
        answer = self.caller.send("GET", f"/bases/{step.base}/documents/{document}{path}", params=params)
        seen = [{"document": document, **one} for one in see(answer.content)] if answer.ok else []
        self._record_read(number, answer, seen)

    def _list(self, step: Step) -> None:
        number = self.history.invoke(self.name, "list", base=step.base)
        answer = self.caller.send("GET", f"/bases/{step.base}/documents", params={"page_size": ALL})
        items = answer.content["items"] if answer.ok else []
        seen = [{"document": one["id"], "generation": one["built"], "name": one["name"]} for one in items]
        self._record_read(number, answer, seen)

    def _search(self, step: Step) -> None:
        query = f"{step.key} {FILLER[:60]}"
        number = self.history.invoke(self.name, "search", base=step.base, query=query)
        answer = self.caller.send("POST", f"/bases/{step.base}/search", json={"query": query, "limit": 50})
        self._record_read(number, answer, [passage_seen(one) for one in answer.content["hits"]] if answer.ok else [])

    def _ask(self, step: Step) -> None:
        question = f"What does {step.key} say about the harbour?"
        number = self.history.invoke(self.name, "ask", base=step.base, query=question)
        answer = self.caller.send("POST", f"/bases/{step.base}/answers", json={"question": question})
        seen = [passage_seen(one) for one in answer.content["context"]] if answer.ok else []
        self._record_read(number, answer, seen)

    def _entities(self, step: Step) -> None:
        number = self.history.invoke(self.name, "entities", base=step.base)
        answer = self.caller.send("GET", f"/bases/{step.base}/graph/entities", params={"limit": ALL})
        marks = _marks(str(answer.content)) if answer.ok else []
        self._record_read(number, answer, [{"marks": marks}])

    def _job(self, step: Step) -> None:
        job = self.directory.jobs.get(step.client)
        if job is None:
            return
        number = self.history.invoke(self.name, "job", job=job)
        answer = self.caller.send("GET", f"/jobs/{job}")
        if answer.ok:
            self.history.ok(number, job=job, outcome=answer.content["outcome"], **answer.told)
        else:
            self.history.fail(number, **answer.told)

    def _record_read(self, number: int, answer: Answer, seen: list[dict[str, Any]]) -> None:
        if answer.ok:
            self.history.ok(number, seen=seen, **answer.told)
        else:
            self.history.fail(number, **answer.told)  # a read without an answer has no effect


def passage_seen(found: dict[str, Any]) -> dict[str, Any]:
    return {"document": found["document"], "generation": found["generation"], "marks": _marks(found["text"])}


def _marks(text: str) -> list[str]:
    return [str(mark) for mark in find_marks(text)]


def _nothing(answer: Answer) -> dict[str, Any] | None:
    return {} if answer.ok else None
