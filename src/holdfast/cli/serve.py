"""`serve`, `worker` and `mcp`: programs that stay."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.extras import importing_extra
from holdfast.settings import Settings
from holdfast.url_secrets import mask_secrets

PANEL = "Serving"


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "serve", panel=PANEL)(serve)
    command(app, "worker", panel=PANEL)(worker)
    command(app, "mcp", panel=PANEL)(mcp)


def serve(
    face: CommandContext,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on; else HOLDFAST_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port, 0 for any; else HOLDFAST_PORT.")
    ] = None,
    no_workers: Annotated[bool, typer.Option("--no-workers", help="Only answer; others work.")] = False,
) -> ExitCode:
    """Serve HTTP, with workers beside it, until Ctrl-C."""
    with importing_extra("server"):
        from holdfast.api.server import serve as serving  # noqa: PLC0415 - slow to load
        from holdfast.web.site import install_pages  # noqa: PLC0415

    given: dict[str, Any] = {"host": host, "port": port}
    settings = replace(face.settings(), **{name: value for name, value in given.items() if value is not None})
    settings = _configure_logging(face, settings)

    def ready(address: str) -> None:
        if face.terminal.json:
            face.terminal.print_json_line({"address": address, "home": settings.home})
        else:
            face.terminal.print_text(address)
        face.terminal.info(f"Serving {settings.home}; Ctrl-C ends it.")

    make_key = face.format_command("keys", "create", "admin", "--scope", "admin")
    serving(settings, work=not no_workers, ready=ready, pages=install_pages, make_key=make_key)
    face.terminal.info("The server ended.")
    return ExitCode.OK


def worker(
    face: CommandContext,
    workers: Annotated[
        int | None, typer.Option("--workers", "-n", min=1, help="Processes; else HOLDFAST_WORKERS.")
    ] = None,
) -> ExitCode:
    """Only work: index what others ask for, until Ctrl-C."""
    with importing_extra("documents"):
        from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load
        from holdfast.wiring import make_worker, open_scheduler  # noqa: PLC0415

    settings = face.settings()
    settings = _configure_logging(face, replace(settings, workers=workers or settings.workers))
    open_library(settings).store.close()  # what is wrong with it is told before anything is started
    ended = _stop_on_signal()
    scheduler = open_scheduler(settings)
    scheduler.start(make_worker(settings))
    told = {"workers": settings.workers, "database": mask_secrets(settings.database)}
    face.print_result(
        told, lambda: face.terminal.info(f"{settings.workers} workers on {told['database']}; Ctrl-C ends it.")
    )
    try:
        ended.wait()
    finally:
        face.terminal.info("Ending: what is being worked on is given back.")
        scheduler.stop()
    return ExitCode.OK


def mcp(
    face: CommandContext,
    http: Annotated[bool, typer.Option("--http", help="Speak HTTP instead of stdin and stdout.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --http: the port, 0 for any.")] = 0,
    writes: Annotated[bool, typer.Option("--writes", help="Also offer tools that change something.")] = False,
) -> ExitCode:
    """Offer the library to language models, by MCP."""
    with importing_extra("mcp"):
        tools = import_module("holdfast.mcp")
    _configure_logging(face, Settings.from_environment())
    tools.run(face.location, key=face.key, http=http, writes=writes, port=port)
    return ExitCode.OK


def _stop_on_signal() -> Any:
    """Return an event that SIGTERM and SIGINT set."""
    import signal  # noqa: PLC0415 - beside its only use
    import threading  # noqa: PLC0415

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def _configure_logging(face: CommandContext, settings: Settings) -> Settings:
    """Tell what happens as much as is wanted; return the settings by which the workers do the same."""
    from holdfast.wiring import configure_logging  # noqa: PLC0415 - slow to load

    said = "debug" if face.options.debug else "warning" if face.options.quiet else ""
    level = said or settings.log or "info"
    configure_logging(level)
    return replace(settings, log=level)
