"""A simulated provider of a paid model: an HTTP server on loopback that takes its time and keeps a bill.

    with Provider() as provider:
        httpx.post(f"{provider.url}/pairs", json={"project": 7, "texts": ["Krill live in the sea."]})
        provider.paid(7)  # 1

The provider has done its work when it answers, so a call also costs money if the caller has died meanwhile.
"""

import hashlib
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

CALL_SECONDS = 0.25  # real models take longer
PRICE_OF_1000_TOKENS = 0.01


class Provider:
    """The server, in a thread, and its bill: the number of paid calls for each project."""

    def __init__(self) -> None:
        self._bill: Counter[int] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("BilledHandler", (_Handler,), {"bill": self._bill}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def paid(self, *projects: int) -> int:
        """Return how many calls were paid for these projects."""
        return sum(self._bill[project] for project in projects)


class _Handler(BaseHTTPRequestHandler):
    bill: Counter[int]

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bill[call["project"]] += 1
        time.sleep(CALL_SECONDS)
        tokens = sum(len(text) // 4 + 1 for text in call["texts"])
        cost = {"tokens": tokens, "price": tokens * PRICE_OF_1000_TOKENS / 1000}
        answer = json.dumps(ANSWERS[self.path](call["texts"]) | cost).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the caller was killed
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing: the bill is the record."""


def embed(texts: list[str]) -> dict[str, Any]:
    """Return a vector for each text, the same for the same text."""
    return {"vectors": [[byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8]] for text in texts]}


def ask(texts: list[str]) -> dict[str, Any]:
    """Return a pair of question and answer for each sentence."""
    sentences = [sentence.strip(" .") for text in texts for sentence in text.split(". ")]
    return {"pairs": [{"question": f"What do you know about: {one}?", "answer": f"{one}."} for one in sentences]}


ANSWERS = {"/embeddings": embed, "/pairs": ask}
