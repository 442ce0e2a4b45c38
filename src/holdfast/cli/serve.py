"""`serve`, `worker` and `mcp`: programs that stay."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Annotated, Any

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.extras import required
from holdfast.settings import Settings
from holdfast.url_secrets import masked

PANEL = "Serving"


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "serve", panel=PANEL)(serve)
    command(app, "worker", panel=PANEL)(worker)
    command(app, "mcp", panel=PANEL)(mcp)


def serve(
    face: Face,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; else HOLDFAST_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port, 0 for any; else HOLDFAST_PORT.")
    ] = None,
    no_workers: Annotated[bool, typer.Option("--no-workers", help="Only answer; others work.")] = False,
) -> Exit:
    """Serve HTTP, with workers beside it, until Ctrl-C."""
    with required("server"):
        from holdfast.api.server import serve as serving  # noqa: PLC0415 - slow to load
        from holdfast.web.site import install  # noqa: PLC0415

    given: dict[str, Any] = {"host": host, "port": port}
    settings = replace(face.settings(), **{name: value for name, value in given.items() if value is not None})
    settings = _log(face, settings)

    def ready(address: str) -> None:
        if face.terminal.json:
            face.terminal.record({"address": address, "home": settings.home})
        else:
            face.terminal.text(address)
        face.terminal.say(f"Serving {settings.home}; Ctrl-C ends it.")

    make_key = face.hint("keys", "create", "admin", "--scope", "admin")
    serving(settings, work=not no_workers, ready=ready, pages=install, make_key=make_key)
    face.terminal.say("The server ended.")
    return Exit.OK


def worker(
    face: Face,
    workers: Annotated[
        int | None, typer.Option("--workers", "-n", min=1, help="Processes; else HOLDFAST_WORKERS.")
    ] = None,
) -> Exit:
    """Only work: index what others ask for, until Ctrl-C."""
    with required("documents"):
        from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load
        from holdfast.wiring import crew, open_scheduler  # noqa: PLC0415

    settings = face.settings()
    settings = _log(face, replace(settings, workers=workers or settings.workers))
    open_library(settings).store.close()  # what is wrong with it is told before anything is started
    ended = _ended()
    scheduler = open_scheduler(settings)
    scheduler.start(crew(settings))
    told = {"workers": settings.workers, "database": masked(settings.database)}
    face.show(told, lambda: face.terminal.say(f"{settings.workers} workers on {told['database']}; Ctrl-C ends it."))
    try:
        ended.wait()
    finally:
        face.terminal.say("Ending: what is being worked on is given back.")
        scheduler.stop()
    return Exit.OK


def mcp(
    face: Face,
    http: Annotated[bool, typer.Option("--http", help="Speak HTTP instead of stdin and stdout.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --http: the port, 0 for any.")] = 0,
    writes: Annotated[bool, typer.Option("--writes", help="Also offer tools that change something.")] = False,
) -> Exit:
    """Offer the library to language models, by MCP."""
    with required("mcp"):
        tools = import_module("holdfast.mcp")
    _log(face, Settings.from_environment())
    tools.run(face.where, key=face.key, http=http, writes=writes, port=port)
    return Exit.OK


def _ended() -> Any:
    """Return an event that SIGTERM and SIGINT set."""
    import signal  # noqa: PLC0415 - beside its only use
    import threading  # noqa: PLC0415

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def _log(face: Face, settings: Settings) -> Settings:
    """Tell what happens as much as is wanted; return the settings by which the workers do the same."""
    from holdfast.wiring import show_log  # noqa: PLC0415 - slow to load

    said = "debug" if face.common.debug else "warning" if face.common.quiet else ""
    level = said or settings.log or "info"
    show_log(level)
    return replace(settings, log=level)
