"""The real HTTP server on a free port, in a thread of the test. Its worker runs only when the test starts it."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2
import uvicorn

from holdfast.api.app import ServerState, make_app
from holdfast.api.listen import listen
from holdfast.clock import SystemClock
from holdfast.db.notify import MemoryNotifier
from holdfast.events.feed import Feed
from holdfast.settings import Settings
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from tests.support.harness import Rig

API = "/api/v1"


class HttpSite:
    """A server for the library of a rig."""

    def __init__(
        self, rig: Rig, *, needs_key: bool = False, pages: Callable[[FastAPI], None] | None = None, **settings: Any
    ) -> None:
        self.rig = rig
        self.bell = MemoryNotifier()
        rig.store.database.set_notifier(self.bell)
        self.served = ServerState(
            library=rig.library,
            settings=Settings(**{"data": str(rig.folder), **settings}),
            feed=Feed(rig.library.event_log, SystemClock()),
            needs_key=needs_key,
        )
        self.served.feed.start(self.bell)
        self._listening = listen("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.app = make_app(self.served)
        if pages:
            pages(self.app)
        config = uvicorn.Config(self.app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        self.http = httpx2.Client(base_url=self.address + API, timeout=PATIENCE_SECONDS, trust_env=False, verify=False)
        with suppress(httpx2.HTTPError):
            self.http.get("/about")  # returns once the server answers

    def _serve(self, started: threading.Event) -> None:
        started.set()
        self._server.run(sockets=[self._listening])

    def key(self, scope: str = "read", *bases: str, name: str = "tester") -> dict[str, str]:
        """Create a key and return the header that contains it."""
        ids = [self.rig.library.catalog.find_base(base).id for base in bases] if bases else None
        _, secret = self.rig.library.keys.create(name, scope, ids)  # type: ignore[arg-type]
        return {"Authorization": f"Bearer {secret}"}

    def upload(self, name: str, text: str, base: str = "shelf", **more: Any) -> httpx2.Response:
        """Upload one file as a request body."""
        more.setdefault("params", {})["name"] = name
        return self.http.post(f"/bases/{base}/documents", content=text.encode(), **more)

    def index(self, name: str, text: str, base: str = "shelf") -> int:
        """Upload a file, index it and return the id of the document."""
        answer = self.upload(name, text, base)
        assert answer.status_code == 202, answer.text
        self.rig.work()
        document: int = answer.json()["replies"][0]["document"]
        return document

    def close(self) -> None:
        self.http.close()
        self.served.draining.set()
        self.served.feed.close()
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)


def problem(answer: httpx2.Response) -> dict[str, Any]:
    """Return the problem document of a response, after checking that it is complete."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body: dict[str, Any] = json.loads(answer.text)
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:holdfast:problem:{body['code']}"
    assert body["request_id"] == answer.headers["x-request-id"]
    assert len(body["detail"]) > len("short")
    assert "Traceback" not in answer.text
    return body
