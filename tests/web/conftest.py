"""A real server for the tests of the web page, and contexts of the browser."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.paid_provider import PaidProvider, echo
from tests.support.serve_process import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx2
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

EXPECTED = "Failed to load resource"  # the browser's message for an error response or an unreachable server


class Site:
    """A server that can be killed and started again at the same address."""

    def __init__(self, home: Path, environment: dict[str, str] | None = None, *options: str) -> None:
        self.home = home
        self._environment = environment
        self._options = options
        self._serving = Serving(home, *options, environment=environment)
        self.url = self._serving.address

    @property
    def api(self) -> httpx2.Client:
        return self._serving.http

    def kill(self) -> None:
        """Kill the server without a shutdown, like a power cut."""
        self._serving.end(signal.SIGKILL)

    def start(self) -> None:
        """Start the server again at the same address."""
        port = urlsplit(self.url).port or 0
        self._serving = Serving(self.home, *self._options, port=port, environment=self._environment)
        assert self._serving.address == self.url

    def restart(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        """Shut the server down."""
        self._serving.end(signal.SIGTERM)

    def put(self, base: str, name: str, text: str | bytes) -> int:
        """Add a document, and wait until its indexing ends."""
        content = text.encode() if isinstance(text, str) else text
        answer = self.api.post(f"/bases/{base}/documents", params={"name": name}, content=content)
        assert answer.status_code == 202, answer.text
        document: int = answer.json()["replies"][0]["document"]
        self.rested(f"/bases/{base}/documents/{document}")
        return document

    def rested(self, path: str) -> dict[str, Any]:
        """Wait until a document or a job is at rest, and return it."""
        return self._serving.rested(path)


@pytest.fixture(scope="module")
def reply() -> Callable[[dict[str, Any]], str]:
    """Return the replies of the language model; a module may override it."""
    return echo


@pytest.fixture(scope="module")
def paid(reply: Callable[[dict[str, Any]], str]) -> Iterator[PaidProvider]:
    """A provider that a module can use in its environment."""
    with PaidProvider() as provider:
        provider.reply = reply
        yield provider


@pytest.fixture(scope="module")
def speaking(paid: PaidProvider) -> dict[str, str]:
    """The settings of a server with a language model."""
    return {
        "HOLDFAST_CHAT_URL": paid.url,
        "HOLDFAST_CHAT_MODEL": paid.chat_model,
        "HOLDFAST_CHAT_KEY": paid.key,
    }


@pytest.fixture(scope="module")
def embedding(paid: PaidProvider) -> dict[str, str]:
    """The settings of a server with paid embeddings."""
    return {
        "HOLDFAST_EMBEDDING_URL": paid.url,
        "HOLDFAST_EMBEDDING_MODEL": paid.embedding_model,
        "HOLDFAST_EMBEDDING_KEY": paid.key,
    }


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The settings of the server; a module may override them."""
    return {}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Site]:
    """One server for all tests of a module."""
    found = Site(tmp_path_factory.mktemp("site") / "home", environment)
    yield found
    found.close()


class Watch:
    """Records script errors, console warnings, and requests to other hosts."""

    def __init__(self, context: BrowserContext, home: str) -> None:
        self._home = urlsplit(home).netloc
        self.seen: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.seen.append(f"error: {error.error}"))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(EXPECTED):
            self.seen.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob") and where.netloc != self._home:
            self.seen.append(f"left the machine: {request.url}")


@pytest.fixture
def look() -> dict[str, Any]:
    """The viewport, colour scheme and language of the browser; a test may override them."""
    return {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", "color_scheme": "light"}


@pytest.fixture
def context(browser: Browser, site: Site, look: dict[str, Any]) -> Iterator[BrowserContext]:
    """A browser context without cookies or history."""
    made = browser.new_context(base_url=site.url, **look)
    watch = Watch(made, site.url)
    yield made
    made.close()
    assert watch.seen == []


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def base(site: Site) -> Iterator[str]:
    """A base without documents."""
    site.api.post("/bases", json={"name": "handbook", "indexes": ["vector", "fulltext"]}).raise_for_status()
    yield "handbook"
    site.api.delete("/bases/handbook")


@pytest.fixture
def put(site: Site, base: str) -> Callable[[str, str], int]:
    """Add a document, and wait until its indexing ends."""
    return lambda name, text: site.put(base, name, text)
