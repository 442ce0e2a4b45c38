"""What a client of `make chaos` concludes from answers, and from answers that do not arrive."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos import calls
from tests.chaos.calls import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENT: tuple[int, dict[str, Any]] = (0, {})


@contextmanager
def calling(*answers: tuple[int, dict[str, Any]]) -> Iterator[tuple[Caller, list[str]]]:
    """Answer requests in order; `SILENT` closes the connection. Yield a caller, and the keys that arrived."""
    left, keys = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            keys.append(self.headers.get("Idempotency-Key", ""))
            status, content = left.pop(0)
            if not status:
                return
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        caller = Caller(lambda _: f"http://127.0.0.1:{server.server_address[1]}")
        try:
            yield caller, keys
        finally:
            caller.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((202, {"job": "a"}), "ok"),
        ((409, {"code": "not_terminal"}), "fail"),
        ((503, {"code": "database_unavailable"}), "fail"),
        ((503, {"code": "commit_unknown"}), "unknown"),
        ((500, {"code": "internal_error"}), "unknown"),
        ((502, {}), "unknown"),
        (SILENT, "unknown"),
    ],
)
def test_an_answer_says_whether_the_request_took_effect(answer: tuple[int, dict[str, Any]], outcome: str) -> None:
    with calling(answer) as (caller, _):
        assert caller.send("POST", "/bases").outcome == outcome


def test_a_server_that_does_not_listen_got_nothing() -> None:
    caller = Caller(lambda _: "http://127.0.0.1:9")
    assert caller.send("POST", "/bases").outcome == "fail"
    assert caller.hang_up("POST", "/bases").outcome == "fail"
    caller.close()


def test_a_request_is_repeated_with_its_key_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "REPEAT_PAUSE", 0)
    with calling(SILENT, (409, {"code": "in_flight"}), (503, {"code": "draining"}), (202, {})) as (caller, keys):
        assert caller.repeat("POST", "/bases").ok
    assert len(keys) == 4
    assert len(set(keys)) == 1


def test_a_refusal_after_an_attempt_without_an_answer_leaves_the_effect_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "REPEAT_PAUSE", 0)
    with calling(SILENT, (404, {"code": "unknown_document"})) as (caller, _):
        assert caller.repeat("POST", "/bases").outcome == "unknown"
    with calling((503, {"code": "draining"}), (404, {"code": "unknown_document"})) as (caller, _):
        assert caller.repeat("POST", "/bases").outcome == "fail"
