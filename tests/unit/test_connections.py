"""The server enforces its deadlines and limits for connections. Clock and transport are fakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import h11
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from holdfast.api.connections import STALLED_SECONDS, ConnectionLimits, make_limited_protocol, max_connections
from holdfast.api.problems import RequestRejected
from holdfast.api.stream_limits import StreamLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.api.connections import LimitedProtocol

HEAD, BODY, BYTES = 15.0, 30.0, 1024
LIMITS = ConnectionLimits(connections=3, head_seconds=HEAD, body_seconds=BODY, body_bytes=BYTES)
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n"


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Task:
    def add_done_callback(self, _: object) -> None:
        """Do nothing, because the task never ends."""


class Clock:
    """An event loop that runs no tasks. Its time passes only when a test advances it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + delay, call))
        return self.timers[-1]

    def create_task(self, coroutine: Any, **_: object) -> Task:
        coroutine.close()
        return Task()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.at <= self.now and not timer.cancelled]
        self.timers = [timer for timer in self.timers if timer.at > self.now]
        for timer in due:
            timer.call()


class Transport:
    """Records the bytes that the server writes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Do nothing, because this transport delivers no data by itself."""

    def resume_reading(self) -> None:
        """Do nothing, because this transport delivers no data by itself."""

    @property
    def answer(self) -> tuple[int, str]:
        return int(self.written.split()[1]), self.problem["code"]

    @property
    def problem(self) -> dict[str, Any]:
        problem: dict[str, Any] = json.loads(self.written.partition(b"\r\n\r\n")[2])
        return problem


class Server:
    def __init__(self) -> None:
        self.clock = Clock()
        self.config = Config(app=lambda: None, http=make_limited_protocol(LIMITS), ws="none", log_config=None)
        self.config.load()
        self.state = ServerState()

    def connect(self, data: bytes = b"") -> tuple[LimitedProtocol, Transport]:
        protocol: Any = self.config.http_protocol_class(
            config=self.config,  # type: ignore[call-arg]
            server_state=self.state,
            app_state={},
            _loop=self.clock,
        )
        transport = Transport()
        protocol.connection_made(transport)
        if data:
            protocol.data_received(data)
        return protocol, transport


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_request_head_that_is_incomplete_at_the_deadline_is_answered_with_408(server: Server) -> None:
    protocol, transport = server.connect(b"GET / HTTP/1.1\r\n")
    for _ in range(int(HEAD) - 1):
        server.clock.advance(1)
        protocol.data_received(b"X-Slow: 1\r\n")  # a header line does not extend the deadline
    assert not transport.is_closing()
    server.clock.advance(1)
    assert transport.is_closing()
    assert transport.answer == (408, "request_too_slow")
    assert (transport.problem["subcode"], transport.problem["params"]) == (
        "request_head_too_slow",
        {"seconds": f"{HEAD:g}"},
    )


def test_a_connection_that_sends_nothing_is_closed_without_an_answer(server: Server) -> None:
    _, transport = server.connect()
    server.clock.advance(HEAD)
    assert (transport.closed, transport.written) == (True, b"")


def test_a_body_that_makes_no_progress_is_answered_with_408(server: Server) -> None:
    protocol, transport = server.connect(UPLOAD + b"x")
    server.clock.advance(BODY - 1)
    protocol.data_received(b"x" * (BYTES - 2))
    server.clock.advance(1)
    assert transport.closed
    assert transport.answer == (408, "request_too_slow")
    assert transport.problem["detail"] == (
        f"The server received less than {BYTES} bytes of the body in {BODY:g} seconds and closed the connection. Send "
        "the request again."
    )


def test_an_upload_that_makes_progress_has_no_time_limit(server: Server) -> None:
    protocol, transport = server.connect(UPLOAD)
    for _ in range(90):
        server.clock.advance(BODY - 1)
        protocol.data_received(b"x" * BYTES)
        server.clock.advance(1)
    assert not transport.closed
    protocol.data_received(b"x" * (100_000 - 90 * BYTES))
    server.clock.advance(10 * BODY)
    assert not transport.closed


def test_a_body_that_the_server_itself_does_not_read_is_not_too_slow(server: Server) -> None:
    protocol, transport = server.connect(UPLOAD)
    protocol.flow.pause_reading()
    server.clock.advance(10 * BODY)
    assert not transport.closed


def test_an_answer_has_no_time_limit(server: Server) -> None:
    _, transport = server.connect(REQUEST)
    server.clock.advance(100 * BODY)
    assert not transport.closed


def test_at_the_limit_the_longest_idle_connection_is_closed_for_a_new_one(server: Server) -> None:
    _, busy = server.connect(REQUEST)
    _, oldest = server.connect()
    _, younger = server.connect()
    _, new = server.connect(REQUEST)
    assert [one.closed for one in (busy, oldest, younger, new)] == [False, True, False, False]


def test_at_the_limit_a_stalled_upload_is_closed_before_a_new_connection(server: Server) -> None:
    _, stalled = server.connect(UPLOAD)
    slow, progressing = server.connect(UPLOAD)
    server.clock.advance(STALLED_SECONDS)
    slow.data_received(b"x")
    _, new = server.connect()
    _, newer = server.connect()
    assert [one.closed for one in (stalled, progressing, new, newer)] == [True, False, False, False]


def test_at_the_limit_an_upload_that_the_server_does_not_read_is_not_closed(server: Server) -> None:
    for _ in range(3):
        server.connect(UPLOAD)[0].flow.pause_reading()
    server.clock.advance(STALLED_SECONDS)
    assert server.connect()[1].answer == (503, "too_many_connections")


def test_a_pipelined_request_has_a_deadline_too(server: Server) -> None:
    protocol, transport = server.connect(REQUEST + UPLOAD + b"x")
    protocol.conn.send(h11.Response(status_code=204, headers=[]))
    protocol.conn.send(h11.EndOfMessage())
    protocol.cycle.response_complete = True
    protocol.on_response_complete()
    server.clock.advance(BODY)
    assert transport.closed
    assert transport.answer == (408, "request_too_slow")


def test_at_the_limit_without_an_idle_connection_a_new_one_is_answered_with_503(server: Server) -> None:
    busy = [server.connect(REQUEST)[1] for _ in range(3)]
    _, new = server.connect()
    assert new.closed
    assert new.answer == (503, "too_many_connections")
    assert b"retry-after: " in new.written
    assert not any(one.closed for one in busy)


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(300, 140), (1024, 768), (64, 21), (1, 1), (-1, 10_000), (1 << 20, 10_000)]
)
def test_some_file_descriptors_are_reserved_for_the_database_and_for_files(descriptors: int, connections: int) -> None:
    assert max_connections(descriptors) == connections


def test_streams_are_limited_by_key_and_by_process() -> None:
    streams = StreamLimits(connections=1000, most=5, per_key=2)
    held = [streams.reserve(key) for key in (1, 1, 2, 2, None)]
    for one in held:
        one.__enter__()
    server_full = ("", {"limit": "5"})
    for key, reason in ((1, ("too_many_streams_of_key", {"limit": "2"})), (3, server_full), (None, server_full)):
        with pytest.raises(RequestRejected) as refused, streams.reserve(key):
            pass
        assert (refused.value.status_code, refused.value.code) == (429, "too_many_streams")
        assert (refused.value.subcode, refused.value.params) == reason
        assert refused.value.headers is not None
        assert int(refused.value.headers["Retry-After"]) > 0
    held[0].__exit__(None, None, None)
    with streams.reserve(1):
        pass


def test_a_low_limit_of_connections_lowers_the_limit_of_streams() -> None:
    streams = StreamLimits(connections=140, most=1000, per_key=100)
    assert (streams.max_streams, streams.max_per_key) == (70, 35)
