"""Runs the application and the workers of this machine until a signal stops them."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import uvicorn

from holdfast.api.app import ServerState, make_app
from holdfast.api.connections import ACCEPTED_AT_ONCE, ConnectionLimits, make_limited_protocol
from holdfast.api.listen import ACCEPT_BACKLOG, listen
from holdfast.clock import SystemClock
from holdfast.db import MemoryNotifier
from holdfast.engine.loop import Loop
from holdfast.errors import BadSecretKey, BadSettings
from holdfast.events import Feed
from holdfast.service.opening import announce_server, check_blob_store, find_server, open_library, withdraw_server
from holdfast.wiring import open_event_notifier, open_tracer, running_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from holdfast.settings import Settings
    from holdfast.wiring import Library

log = logging.getLogger("holdfast")

CLEANUP_PERIOD = timedelta(minutes=1)


def serve(
    settings: Settings,
    *,
    work: bool = True,
    alone: bool = True,
    ready: Callable[[str], None] = print,
    pages: Callable[[FastAPI], None] = lambda _: None,
    make_key: str = "holdfast keys create admin --scope admin",
) -> None:
    """Serve until SIGINT or SIGTERM.

    With `work`, the server also runs what the scheduler of the settings needs: workers, or a reconciler that rings
    them. With `alone`, it is the only server of its home folder, and commands on this machine find it.

    The server calls `ready` with its address as soon as it accepts requests, and `pages` with the app, to add the web
    pages. `make_key` is the command that creates the first key of this library; an error message shows it.
    """
    other = find_server(settings) if alone else None
    if other is not None:
        raise BadSettings("already_served", home=settings.home, address=other)
    with ExitStack() as held:
        tracer = open_tracer()
        held.callback(tracer.close)
        library = open_library(settings, tracer)
        held.callback(library.store.close)
        check_blob_store(library)
        served = ServerState(
            library=library,
            settings=settings,
            feed=Feed(library.event_log, SystemClock()),
            needs_key=settings.needs_key,
            tracer=tracer,
        )
        if served.needs_key and not library.keys.any_created():
            raise BadSettings("server_without_key", host=settings.host, command=make_key)
        listening = held.enter_context(listen(settings.host, settings.port))
        _start_background_loops(held, served)
        if work:
            held.enter_context(running_work(settings, library))
        address = _format_address(listening)
        if alone:
            held.callback(withdraw_server, settings)
            announce_server(settings, address)
        app = make_app(served)
        pages(app)
        _Server(app, served, lambda: ready(address)).run(sockets=[listening])


def _start_background_loops(held: ExitStack, served: ServerState) -> None:
    """Start the threads that follow the event log, send webhooks and remove expired rows."""
    library, settings = served.library, served.settings
    news = open_event_notifier(settings.database, settings.connections)
    held.callback(news.close)
    listener = held.enter_context(closing(news.listen()))
    try:
        library.webhook_cipher.encrypt_plaintext(library.store.database)
    except BadSecretKey as error:
        log.error("webhook.secret_key error=%s", error)  # noqa: TRY400 - no trace is needed; only webhooks are affected
    sender = library.webhook_sender(listener.wake)
    held.callback(sender.close)
    quiet = held.enter_context(closing(MemoryNotifier().listen()))
    for loop in (
        Loop("webhooks", sender.step, listener, settings.period),
        Loop("tidying", lambda: _clean_up(library, settings), quiet, CLEANUP_PERIOD),
    ):
        held.callback(loop.start().join)
        held.callback(loop.stop)
    held.callback(served.feed.close)
    served.feed.start(news)


def _clean_up(library: Library, settings: Settings) -> None:
    """Store the last-used times of keys, and remove expired responses and deliveries."""
    library.keys.flush_uses()
    library.idempotency.sweep()
    library.deliveries.sweep(settings.retention)


class _Server(uvicorn.Server):
    """A uvicorn server that reports when it is ready, and ends event streams when it shuts down."""

    def __init__(self, app: FastAPI, served: ServerState, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=make_limited_protocol(ConnectionLimits.for_process()),
                ws="none",
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(served.settings.drain.total_seconds()),
            )
        )
        self._state = served
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop the server at a signal, and do not raise the signal again as uvicorn does: that skips the clean-up."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(ACCEPT_BACKLOG)  # uvicorn has set it to `ACCEPTED_AT_ONCE`
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Reject new requests, and end the streams."""
        self._state.draining.set()
        threading.Thread(target=self._state.feed.close, daemon=True).start()  # a signal handler must not wait
        super().handle_exit(sig, frame)  # type: ignore[arg-type]


def _format_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
