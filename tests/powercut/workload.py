"""What users do until the power is cut, and what they were told, each with its position in the log.

The product is a real `holdfast serve` with its own worker processes. Clients add, change and delete documents at the
same time; one follows the events; a receiver gets the webhooks; a provider counts the texts that it is paid for.
"""

from __future__ import annotations

import json
import random
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import httpx2

from tests.support.paid_provider import PaidProvider, texts_of
from tests.support.receiver import Receiver
from tests.support.serve_process import Serving
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.powercut.recording import Recording
    from tests.support.paid_provider import Json
    from tests.support.receiver import Message

BASE = "sea"
CLIENTS = 3
NAMES = 6  # documents of each client
SECTIONS = (1, 12)
CALL_SECONDS = 0.05  # of the provider, so that the power can fail during a call
ENDINGS = frozenset({"job.success", "job.degraded", "job.failed", "job.superseded", "job.cancelled", "job.deleted"})


class Text(NamedTuple):
    """The content of a document. The word occurs in no other content."""

    word: str
    content: str


class Request(NamedTuple):
    """A change of a document by its only client, which began and was answered at these positions."""

    name: str
    text: Text | None  # None: deleted
    began: int
    answered: int


class Seen(NamedTuple):
    """Something that an observer saw: an event, a message, or that a document is indexed."""

    position: int
    type: str
    about: str
    id: str = ""


class Call(NamedTuple):
    """A paid call that was answered."""

    position: int
    texts: tuple[str, ...]


@dataclass
class History:
    """Everything that clients asked for and were told."""

    requests: list[Request] = field(default_factory=list)
    indexed: list[Seen] = field(default_factory=list)  # `about` is the word
    events: list[Seen] = field(default_factory=list)  # of the stream; `about` is the job
    messages: list[Seen] = field(default_factory=list)  # that the receiver got
    calls: list[Call] = field(default_factory=list)
    created: int = 0  # when the base and the webhook were answered
    port: int = 0  # of the receiver


class CountingProvider(PaidProvider):
    """A provider that notes when each call was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.position: Callable[[], int] = lambda: 0
        self.calls: list[Call] = []

    def embeddings(self, request: Json) -> Json:
        answer = super().embeddings(request)
        self.calls.append(Call(self.position(), tuple(texts_of("/v1/embeddings", request))))
        return answer


class World:
    """The provider and the receiver: what is outside the machine, and goes on after a power cut."""

    def __init__(self, port: int = 0) -> None:
        self.provider = CountingProvider()
        self.receiver = Receiver(port=port)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self.provider)
        self._open.enter_context(self.receiver)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def settings(self) -> dict[str, str]:
        return {
            "webhook_allow": self.receiver.address,
            "embedding_url": self.provider.url,
            "embedding_key": self.provider.key,
            "embedding_model": self.provider.embedding_model,
        }


def read_message(message: Message, position: int) -> Seen:
    content = json.loads(message.body)
    return Seen(position, content["type"], content["data"].get("job") or "", message.id)


class Run:
    """One run of the product, recorded."""

    def __init__(self, recording: Recording, world: World, seed: int, steps: int) -> None:
        self._recording = recording
        self._world = world
        self._seed = seed
        self._steps = steps
        self.history = History()
        self._mutex = threading.Lock()
        self._errors: list[BaseException] = []

    def run(self) -> History:
        """Start the server, let the clients work, and stop it."""
        history, world = self.history, self._world
        world.provider.position = lambda: self._recording.position
        world.provider.calls = history.calls
        world.provider.stall(CALL_SECONDS)
        history.port = world.receiver.port
        world.receiver.before = lambda message: history.messages.append(read_message(message, self._recording.position))
        settings = {f"HOLDFAST_{name.upper()}": value for name, value in world.settings().items()}
        serving = Serving(
            self._recording.root / "home",
            environment=settings | self._recording.environment() | {"NO_PROXY": "127.0.0.1"},
        )
        assert serving.address, "".join(serving.errors)
        try:
            self._prepare(serving.http)
            follower = self._thread(lambda: self._follow(serving.address))
            work = [partial(self._work, serving.address, number) for number in range(CLIENTS)]
            clients = [self._thread(one) for one in work]
            for client in clients:
                client.join(PATIENCE_SECONDS)
        finally:
            code = serving.end()
        follower.join(PATIENCE_SECONDS)
        if self._errors:
            raise self._errors[0]
        assert code == 0, "".join(serving.errors)
        return history

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - `run` raises it
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _prepare(self, http: httpx2.Client) -> None:
        body = {"name": BASE, "indexes": ["fulltext", "vector"], "chunk_size": 64, "chunk_overlap": 0}
        http.post("/bases", json=body).raise_for_status()
        if self._seed % 2:  # each delivery syncs the database, so other runs have none
            http.post("/webhooks", json={"url": self._world.receiver.url(), "types": ["*"]}).raise_for_status()
        self.history.created = self._recording.position

    def _follow(self, address: str) -> None:
        """Follow the stream of events until the server ends."""
        url = f"{address}/api/v1/events/stream"
        with httpx2.stream("GET", url, timeout=PATIENCE_SECONDS, trust_env=False) as answer:
            id_ = type_ = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    id_ = value
                elif name == "event":
                    type_ = value
                elif name == "data" and id_:
                    about = json.loads(value).get("job") or ""
                    self.history.events.append(Seen(self._recording.position, type_, about, id_))
                    id_ = ""

    def _work(self, address: str, number: int) -> None:
        dice = random.Random(f"{self._seed}-{number}")
        with httpx2.Client(
            base_url=f"{address}/api/v1/bases/{BASE}", timeout=PATIENCE_SECONDS, trust_env=False
        ) as http:
            client = Client(self, http, dice, number)
            for _ in range(self._steps):
                client.step()

    def note(self, name: str, text: Text | None, ask: Callable[[], httpx2.Response]) -> httpx2.Response:
        """Send a request and note when it began and was answered."""
        began = self._recording.position
        answer = ask()
        answered = self._recording.position
        answer.raise_for_status()
        self.history.requests.append(Request(name, text, began, answered))
        return answer

    def note_indexed(self, text: Text) -> None:
        self.history.indexed.append(Seen(self._recording.position, "success", text.word))


class Client:
    """One user. It changes only its own documents, so the last answer is the truth about each."""

    def __init__(self, run: Run, http: httpx2.Client, dice: random.Random, number: int) -> None:
        self._run = run
        self._http = http
        self._dice = dice
        self._names = [f"client {number} document {one}.md" for one in range(NAMES)]
        self._documents: dict[str, tuple[int, Text]] = {}
        self._number = number
        self._count = 0

    def step(self) -> None:
        name = self._dice.choice(self._names)
        choice = self._dice.random()
        if name in self._documents and choice < 0.25:
            self._delete(name)
        elif name in self._documents and choice < 0.6:
            self._await_success(name)
        else:
            self._put(name)

    def _put(self, name: str) -> None:
        text = self._compose(name)
        answer = self._run.note(
            name,
            text,
            lambda: self._http.post(
                "/documents", params={"name": name, "on_duplicate": "replace"}, content=text.content.encode()
            ),
        )
        self._documents[name] = answer.json()["replies"][0]["document"], text

    def _compose(self, name: str) -> Text:
        """Return a new text; most sections of an earlier text stay."""
        self._count += 1
        word = f"krill{self._number}x{self._count:04}"  # no word is a part of another
        own = f"## New\n\nThe {word} of {name}."
        kept: list[str] = []
        if name in self._documents:
            kept = self._documents[name][1].content.split("\n\n## ")[1:-1]
        added = [
            f"Part {self._number}.{self._count}.{part}\n\nNumber {self._count} of {name}. " + f"Padding {part}. " * 20
            for part in range(self._dice.randint(*SECTIONS))
        ]
        return Text(word, "\n\n## ".join(["# Sea", *kept, *added]) + f"\n\n{own}")

    def _delete(self, name: str) -> None:
        document, _ = self._documents.pop(name)
        self._run.note(name, None, lambda: self._http.delete(f"/documents/{document}"))

    def _await_success(self, name: str) -> None:
        document, text = self._documents[name]
        answer: Mapping[str, Any] = (
            self._http.get(f"/documents/{document}", params={"wait": 30}).raise_for_status().json()
        )
        if answer["status"] == "success":
            self._run.note_indexed(text)
