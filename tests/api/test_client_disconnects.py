"""A client that disconnects during a request causes no warning and leaves no data, subscription or thread behind."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.harness import Rig
from tests.support.http_site import API, HttpSite
from tests.support.processes import until
from tests.support.scripted_site import Site
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
FORM = {"content-type": "multipart/form-data; boundary=edge"}
OPENED = b'--edge\r\ncontent-disposition: form-data; name="file"; filename="half.md"\r\n\r\n'
UPLOAD = f"{API}/bases/shelf/documents?name=half.md"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with timeout 0: closing sends RST instead of FIN


@pytest.fixture(params=["ended", "torn down"])
def leave(request: pytest.FixtureRequest) -> Callable[[socket.socket], None]:
    """Return a function that closes a connection in one of two ways: in order, or with a reset."""

    def leave(line: socket.socket) -> None:
        if request.param == "torn down":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        line.close()

    return leave


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that nothing was logged at WARNING or above, and that no thread is left."""
    before = threads()
    caplog.set_level(logging.DEBUG, "holdfast")
    yield
    said = [*caplog.get_records("setup"), *caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in said if record.levelno >= logging.WARNING] == []
    assert threads() <= before


def threads() -> set[str]:
    """Return the names of running threads, except pool threads of AnyIO and threads of the fake language model."""
    named = {one.name for one in threading.enumerate()}
    return {name for name in named if "AnyIO" not in name and "process_request" not in name}


def asked(site: HttpSite, method: str, path: str, body: bytes = b"", length: int = 0, **headers: str) -> socket.socket:
    """Send a request on a new connection. `length` may announce a longer body than the one that is sent."""
    host, port = site.address.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    named = {"host": f"{host}:{port}", "content-length": str(length or len(body))} | headers
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    line.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    return line


def at_rest(site: HttpSite) -> bool:
    """Return whether the server has no open request and no subscription."""
    return not site._server.server_state.tasks and not site.served.feed._subscriptions


def heard(line: socket.socket, words: bytes) -> None:
    """Read until these bytes arrive."""
    said = b""
    while words not in said:
        piece = line.recv(1 << 16)
        assert piece, said
        said += piece


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (UPLOAD, {}),
        (UPLOAD, {"idempotency-key": "half"}),
        (UPLOAD, FORM),
        (f"{API}/archives", {}),
        (f"{API}/bases/shelf/documents/notes", {"content-type": "application/json"}),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_an_interrupted_upload_leaves_no_document_and_no_file(
    site: HttpSite, leave: Callable[[socket.socket], None], path: str, headers: dict[str, str]
) -> None:
    begun = (OPENED if headers is FORM else b"") + b"half of a whale " * 100_000
    line = asked(site, "POST", path, begun, 2 * len(begun), **headers)
    until(lambda: site._server.server_state.tasks, "nobody took the request")
    leave(line)
    until(lambda: at_rest(site), "the request was not given up")
    assert site.http.get("/bases/shelf/documents").json()["items"] == []
    assert [one for one in site.rig.folder.rglob("*") if one.is_file()] == []
    again = site.upload("half.md", WHALES, headers={"idempotency-key": "half"})
    assert again.status_code == 202, again.text


@pytest.mark.parametrize("path", ["/bases/shelf/documents/{document}", "/jobs/{job}"])
@pytest.mark.usefixtures("quiet")
def test_a_long_poll_ends_when_its_client_disconnects(
    site: HttpSite, leave: Callable[[socket.socket], None], path: str
) -> None:
    one = site.upload("whales.md", WHALES).json()["replies"][0]
    line = asked(site, "GET", f"{API}{path.format(**one)}?wait=60")
    until(lambda: site.served.feed._subscriptions, "nobody waits")
    leave(line)
    until(lambda: at_rest(site), "somebody still waits")
    site.rig.work()
    assert site.http.get(f"{path.format(**one)}?wait=1").is_success


@pytest.mark.usefixtures("quiet")
def test_an_event_stream_ends_when_its_client_disconnects(
    site: HttpSite, leave: Callable[[socket.socket], None]
) -> None:
    line = asked(site, "GET", f"{API}/events/stream")
    heard(line, b"retry:")
    site.index("whales.md", WHALES)
    heard(line, b"job.success")
    leave(line)
    until(lambda: at_rest(site), "somebody still looks on")
    assert site.http.get("/events").is_success


@pytest.mark.usefixtures("quiet")
def test_a_client_that_disconnects_before_the_first_event_leaves_no_subscription(site: HttpSite) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": f"{API}/events/stream",
        "raw_path": f"{API}/events/stream".encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1")],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(0)

    asyncio.run(site.app(scope, receive, send))
    assert site.served.feed._subscriptions == set()


class Speaker:
    """A language model that streams its first words, then waits for `go_on` before it streams the others."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.over = threading.Event()

    def __call__(self, _: object) -> Iterator[bytes]:
        try:
            yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            yield self.event("The first words. ")
            self.go_on.wait(PATIENCE_SECONDS)
            for _ in range(10_000):
                yield self.event("And more of them. ")
        finally:
            self.over.set()

    @staticmethod
    def event(words: str) -> bytes:
        choice = {"index": 0, "delta": {"role": "assistant", "content": words}, "finish_reason": None}
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return b"data: %b\n\n" % json.dumps({**head, "choices": [choice]}).encode()


@pytest.mark.usefixtures("quiet")
def test_a_streamed_answer_stops_when_its_client_disconnects(
    database_url: str, tmp_path: Path, clock: FakeClock, leave: Callable[[socket.socket], None]
) -> None:
    speaker = Speaker()
    with Site() as model:
        model.answers["/v1/chat/completions"] = speaker
        endpoint = Endpoint(base_url=model.url("/v1"), key="sk-test", chat_model="m")
        provider = OpenAIProvider(endpoint)
        rig = Rig(database_url, tmp_path / "blobs", clock, speaker=provider, indexes=("fulltext",))
        site = HttpSite(rig)
        site.index("whales.md", WHALES)
        body = json.dumps({"question": "What does the blue whale eat?"}).encode()
        line = asked(site, "POST", f"{API}/bases/shelf/answers:stream", body, content_type="application/json")
        heard(line, b"first words")
        leave(line)
        speaker.go_on.set()
        until(lambda: at_rest(site), "it is still spoken")
        assert speaker.over.wait(PATIENCE_SECONDS)
        (spent,) = site.http.get("/bases/shelf/usage").json()["kinds_spent"]
        assert (spent["kind"], spent["texts"]) == ("answer", 1)
        assert 0 < spent["tokens_out"] < 2048  # the tokens received, not the reserved maximum
        assert spent["estimated"] == spent["tokens_in"] + spent["tokens_out"]
        assert site.http.get("/about").is_success
        site.close()
        rig.close()
        provider.close()
