"""The record of a run: JSON lines with what clients did, what they were told, and which faults occurred.

An operation is written twice: `invoke` before the request is sent, and its end. The end is

- `ok`: the product acknowledged it,
- `fail`: the product refused it, or the request never reached the product,
- `unknown`: no answer arrived, so it may take effect at any later time, or never.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
NEVER = float("inf")


class History:
    """Writes the record. All threads share it, and all times are seconds since it was created."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w")
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._operations = 0
        self.acknowledged = 0

    @property
    def now(self) -> float:
        return round(time.monotonic() - self._began, 4)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def write(self, type_: str, **fields: Any) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.write(json.dumps({"type": type_, "at": self.now, **fields}) + "\n")
                self._file.flush()

    def invoke(self, client: str, name: str, **arguments: Any) -> int:
        """Record that a client begins an operation, and return the number of the operation."""
        with self._lock:
            self._operations += 1
            number = self._operations
        self.write("invoke", op=number, client=client, name=name, arguments=arguments)
        return number

    def ok(self, number: int, **value: Any) -> None:
        with self._lock:
            self.acknowledged += 1
        self.write("ok", op=number, value=value)

    def fail(self, number: int, **value: Any) -> None:
        self.write("fail", op=number, value=value)

    def unknown(self, number: int, **value: Any) -> None:
        self.write("unknown", op=number, value=value)


@dataclass(slots=True)
class Operation:
    """One operation of a client, from its request to the answer."""

    number: int
    client: str
    name: str
    arguments: Json
    invoked: float
    ended: float = NEVER
    outcome: str = "unknown"
    value: Json = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def unknown(self) -> bool:
        return self.outcome == "unknown"

    @property
    def settled(self) -> float:
        """When its effect has occurred for certain. An operation without an answer may take effect at any time."""
        return NEVER if self.unknown else self.ended

    @property
    def key(self) -> str:
        return str(self.arguments.get("key", ""))


@dataclass(slots=True)
class Record:
    """Everything that is known about a run, in the order of time."""

    operations: list[Operation] = field(default_factory=list)
    faults: list[Json] = field(default_factory=list)  # kind, begin, end, fired
    followed: dict[str, list[Json]] = field(default_factory=dict)  # follower -> events as they arrived
    messages: list[Json] = field(default_factory=list)  # webhook messages
    calls: list[Json] = field(default_factory=list)  # of the paid provider
    final: Json = field(default_factory=dict)  # the contents of all stores at the end
    run: Json = field(default_factory=dict)  # how the run was started


def read_record(path: Path) -> Record:
    record = Record()
    operations: dict[int, Operation] = {}
    for line in path.read_text("utf-8").splitlines():
        _add(record, operations, json.loads(line))
    record.operations = list(operations.values())
    return record


def _add(record: Record, operations: dict[int, Operation], line: Json) -> None:
    kind, at = line.pop("type"), line.pop("at")
    if kind == "invoke":
        number = line["op"]
        operations[number] = Operation(number, line["client"], line["name"], line["arguments"], at)
    elif kind in ("ok", "fail", "unknown"):
        one = operations[line["op"]]
        one.ended, one.outcome, one.value = at, kind, line["value"]
    elif kind == "fault":
        record.faults.append(line)
    elif kind == "event":
        record.followed.setdefault(line.pop("follower"), []).append(line | {"at": at})
    elif kind == "message":
        record.messages.append(line | {"at": at})
    elif kind == "call":
        record.calls.append(line)
    elif kind == "final":
        record.final = line
    elif kind == "run":
        record.run |= line
