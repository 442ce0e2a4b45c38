"""The system under test: the roles of a deployment, a paid provider and a webhook receiver.

`deployments` has the deployments with the servers that they need.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import httpx2

from tests.chaos.clocks import Clock
from tests.chaos.disks import Disk
from tests.chaos.processes import Role
from tests.chaos.provider import RecordedProvider
from tests.chaos.schedule import BASES, COMMON_BASE
from tests.support.receiver import Message, Receiver
from tests.support.servers import HOST

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.chaos.history import History

LEASE_SECONDS = 3.0
QUICK = {
    "lease": "3s",
    "heartbeat": "1s",
    "period": "1s",
    "ring_again": "2s",
    "backoff": "1s",
    "backoff_cap": "4s",
    "stall": "30s",
    "drain": "5s",
}
WORKERS = 3
DISK_MEGABYTES = 1024
CALM_TIMEOUT = 120.0
SMALL_CHUNKS = {"chunk_size": 64, "chunk_overlap": 0}
BASE_INDEXES = {"sea": ["vector", "fulltext"], "deep": ["vector", "fulltext", "graph", "questions"]}
WEBHOOK_TYPES = ["job.*", "document.deleted", "document.removed"]
WEBHOOK_TOPICS = ["job", "document.deleted", "document.removed"]  # the same events, in the words of the event list


class System(ABC):
    """A deployment. It runs inside `with`; `roles` are its processes."""

    def __init__(self, folder: Path, history: History) -> None:
        self.folder = folder
        self.history = history
        self.roles: list[Role] = []
        self.provider = RecordedProvider(history)
        self.receiver = Receiver(before=self._record_message)
        self.disk = Disk(folder / "disk", DISK_MEGABYTES)  # with the database
        self.tree = folder / "tree"  # the folder that a client syncs
        self.library_pid = 0  # of the program of a user that uses the library
        self.library_clock_error = 0.0  # seconds, when it last answered
        self.clock = Clock(folder / "clock")  # of that program, and of the role `clocked`
        self._held = ExitStack()
        self._secret = ""
        self.arrived: set[str] = set()  # events about which a valid webhook message has arrived

    @property
    def home(self) -> Path:
        return self.disk.folder / "home"

    @property
    @abstractmethod
    def largest_jump(self) -> int:
        """How many seconds the clock may jump."""

    @property
    def dsn(self) -> str:
        """The address of PostgreSQL for a direct connection; empty: the database is a file."""
        return ""

    @abstractmethod
    def stored_files(self) -> list[str]:
        """Return the names of the stored files of documents."""

    @abstractmethod
    def _start_servers(self) -> None:
        """Start the servers that the roles need."""

    @abstractmethod
    def _start_roles(self) -> None:
        """Start all processes of the product."""

    @property
    def settings(self) -> dict[str, object]:
        """The settings that all roles share."""
        return {
            **QUICK,
            "home": self.home,
            "workers": WORKERS,
            "log": "info",
            "secret_key": "k" * 40,
            "webhook_allow": f"{HOST}/32",
            "embedding_url": self.provider.url,
            "embedding_model": self.provider.embedding_model,
            "embedding_key": self.provider.key,
            "chat_url": self.provider.url,
            "chat_model": self.provider.chat_model,
            "chat_key": self.provider.key,
        }

    @property
    def library(self) -> str:
        """Where a program opens the library: a folder or a database."""
        return str(self.home)

    @property
    def program_environment(self) -> dict[str, str]:
        """The environment of programs of users on this machine."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return clean | self.environment

    @property
    def environment(self) -> dict[str, str]:
        return {f"HOLDFAST_{name.upper()}": str(value) for name, value in self.settings.items()}

    def __enter__(self) -> Self:
        self.tree.mkdir()
        with self._held as held:
            held.callback(self.clock.close)
            for part in (self.disk, self.provider, self.receiver):
                held.enter_context(part)
            self._start_servers()
            self._start_roles()
            for role in self.roles:
                role.await_ready()
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def add_role(self, name: str, *arguments: str, **more: str) -> Role:
        """Start a process that ends with the system; `more` is added to its environment."""
        role = Role(name, arguments, self.environment | more, self.folder)
        self.roles.append(role)
        self._held.callback(role.kill_all)
        role.start()
        if role.kind == "clocked":
            self.clock.users.add(role.pid)
        return role

    def of_kind(self, *kinds: str) -> list[Role]:
        return [role for role in self.roles if role.kind in kinds]

    def clock_error(self) -> float:
        """Return how far the clock of the processes with an own clock is from the true time, in seconds."""
        errors = [self.library_clock_error, *(role.clock_error() for role in self.of_kind("clocked"))]
        return max(errors, key=abs)

    @property
    def webs(self) -> list[Role]:
        return self.of_kind("serve", "web")

    def address(self, number: int) -> str:
        """Return the address of one of the web servers."""
        return self.webs[number % len(self.webs)].address

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Send a request until a server accepts it, and return the content of the answer, to set up and to read."""
        answer = self._send(method, path, **options)
        return answer.json() if answer.content else None

    def download(self, path: str) -> bytes:
        return self._send("GET", path).content

    def _send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        deadline, number = time.monotonic() + CALM_TIMEOUT, 0
        while True:
            address = f"{self.address(number)}/api/v1{path}"
            try:
                answer = httpx2.request(method, address, timeout=CALM_TIMEOUT, trust_env=False, **options)
                if answer.status_code < 500:
                    assert answer.status_code < 400 or answer.status_code == 409, f"{method} {path}: {answer.text}"
                    return answer
                found = answer.text
            except httpx2.TransportError as error:
                found = str(error)
            assert time.monotonic() < deadline, f"no server answers {method} {path}: {found}"
            number += 1
            time.sleep(0.2)

    def prepare(self) -> None:
        """Create the bases and the webhook that clients use."""
        webhook = {"url": self.receiver.url("/hook"), "types": WEBHOOK_TYPES}
        self._secret = self.request("POST", "/webhooks", json=webhook)["secret"]
        for name in (COMMON_BASE, *BASES.values()):
            indexes = BASE_INDEXES.get(name, BASE_INDEXES["sea"])
            self.request("POST", "/bases", json={"name": name, "indexes": indexes, **SMALL_CHUNKS})
            self._warm_up(name)

    def _warm_up(self, base: str) -> None:
        """Add a document before any fault: the first vector of a base decides the length of all others."""
        place = f"/bases/{base}/documents"
        reply = self.request("POST", place, params={"name": "first.md"}, content=f"# First\n\nOf {base}.".encode())
        document = reply["replies"][0]["document"]
        deadline = time.monotonic() + CALM_TIMEOUT
        while self.request("GET", f"{place}/{document}", params={"wait": 10})["status"] != "success":
            assert time.monotonic() < deadline, f"the first document of {base} is not indexed"

    def _record_message(self, message: Message) -> None:
        try:
            content: dict[str, Any] = message.verified(self._secret)
            valid = True
            self.arrived.add(str(content["data"]["id"]))
        except Exception:  # noqa: BLE001 - a message that is not valid is a finding
            content, valid = json.loads(message.body), False
        self.history.write(
            "message", message=message.id, event=content["data"]["id"], valid=valid, body=message.body.decode()
        )
