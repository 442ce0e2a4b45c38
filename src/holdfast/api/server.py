"""A server: the app, and the workers of its machine beside it, until somebody ends it."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import uvicorn

from holdfast.api.app import Served, make_app
from holdfast.api.connections import ACCEPTED_AT_ONCE, ConnectionLimits, limited
from holdfast.api.listen import QUEUED, listen
from holdfast.clock import SystemClock
from holdfast.db import MemoryBell
from holdfast.engine.loop import Loop
from holdfast.errors import BadSecretKey, BadSettings
from holdfast.events.feed import Feed
from holdfast.service.opening import announce, open_library, server_of, withdraw
from holdfast.sources.address_policy import Reach
from holdfast.webhooks.http_post import Line
from holdfast.webhooks.sender import Sender
from holdfast.wiring import crew, open_news, open_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from holdfast.settings import Settings
    from holdfast.wiring import Library

log = logging.getLogger("holdfast")

TIDYING = timedelta(minutes=1)
GRACE = 5  # seconds that requests have to end when the server goes down


def serve(
    settings: Settings,
    *,
    work: bool = True,
    ready: Callable[[str], None] = print,
    pages: Callable[[FastAPI], None] = lambda _: None,
    make_key: str = "holdfast keys create admin --scope admin",
) -> None:
    """Serve until SIGINT or SIGTERM.

    `ready` is called with the address once requests are accepted, `pages` adds to the app, and `make_key` is the
    command that creates the first key of this library.
    """
    other = server_of(settings)
    if other is not None:
        raise BadSettings(f"A server serves {settings.home} already, at {other}. Use it, or set another HOLDFAST_HOME.")
    with ExitStack() as held:
        library = open_library(settings)
        held.callback(library.store.close)
        served = Served(
            library=library,
            settings=settings,
            feed=Feed(library.log, SystemClock()),
            needs_key=_needs_key(settings),
        )
        if served.needs_key and not library.keys.exist():
            raise BadSettings(
                f"A server on {settings.host} would be open to everybody who can reach it, because there is no key. "
                f"Make one first: {make_key}"
            )
        listening = held.enter_context(listen(settings.host, settings.port))
        _follow(held, served)
        if work:
            scheduler = open_scheduler(settings)
            held.callback(scheduler.stop)
            scheduler.start(crew(settings))
        address = _address(listening)
        held.callback(withdraw, settings)
        announce(settings, address)
        app = make_app(served)
        pages(app)
        _Server(app, served, lambda: ready(address)).run(sockets=[listening])


def _follow(held: ExitStack, served: Served) -> None:
    """Follow the log for those who look on, send to webhooks, and tidy up now and then; all in threads of their own."""
    library, settings = served.library, served.settings
    news = open_news(settings.database)
    held.callback(news.close)
    listener = held.enter_context(closing(news.listen()))
    try:
        library.webhooks.encrypt_plaintext()
    except BadSecretKey as error:
        log.error("webhook.secret_key %s", error)  # noqa: TRY400 - the sentence says it; only webhooks are affected
    reach = Reach.parse(settings.webhook_allow)
    sender = Sender(library.deliveries, Line(reach=reach), wake=listener.poke)
    held.callback(sender.close)
    quiet = held.enter_context(closing(MemoryBell().listen()))
    for loop in (
        Loop("webhooks", sender.step, listener, settings.period),
        Loop("tidying", lambda: _tidy(library, settings), quiet, TIDYING),
    ):
        held.callback(loop.start().join)
        held.callback(loop.stop)
    held.callback(served.feed.close)
    served.feed.start(news)


def _tidy(library: Library, settings: Settings) -> None:
    """Note which keys were used, and remove what nobody asks for any more."""
    library.keys.note_uses()
    library.repeats.sweep()
    library.deliveries.sweep(settings.retention)


class _Server(uvicorn.Server):
    """Tells when it is ready, and lets streams know that it goes down."""

    def __init__(self, app: FastAPI, served: Served, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=limited(ConnectionLimits.of_process()),
                ws="none",
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._served = served
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let a signal end the server and nothing else: what follows it is to be closed, too."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUED)  # uvicorn has set it to the number that is accepted at once
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Take no more requests, and end the streams."""
        self._served.draining.set()
        threading.Thread(target=self._served.feed.close, daemon=True).start()  # a signal handler must not wait
        super().handle_exit(sig, frame)  # type: ignore[arg-type]


def _needs_key(settings: Settings) -> bool:
    return settings.keys == "on" or bool(settings.hosts) or not _here(settings.host)


def _here(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
