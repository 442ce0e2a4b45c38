"""`serve`, `worker` and `mcp`: commands that run until Ctrl-C or SIGTERM."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command, stop_on_signal
from holdfast.cli.format import format_count
from holdfast.extras import importing_extra
from holdfast.settings import Settings
from holdfast.url_secrets import mask_secrets


def declare(app: typer.Typer) -> None:
    command(app, "serve")(serve)
    command(app, "worker")(worker)
    command(app, "mcp")(mcp)


def serve(
    context: CommandContext,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Address to listen on; default: HOLDFAST_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, help="Port, or 0 for any free port; default: HOLDFAST_PORT."
        ),
    ] = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Serve requests only; other processes index.")
    ] = False,
) -> None:
    """Serve the web page and the HTTP API, and run workers, until Ctrl-C.

    Example:
        holdfast serve --port 7340
    """
    with importing_extra("server"):
        from holdfast.api.server import serve as serving  # noqa: PLC0415 - slow to load
        from holdfast.web.site import install_pages  # noqa: PLC0415

    given: dict[str, Any] = {"host": host, "port": port}
    settings = replace(context.settings(), **{name: value for name, value in given.items() if value is not None})
    settings = _configure_logging(context, settings)

    def ready(address: str) -> None:
        if context.terminal.json:
            context.terminal.print_json_line({"address": address, "home": settings.home})
        else:
            context.terminal.print_text(address)
        context.terminal.info(f"Serving {settings.home}. Press Ctrl-C to stop.")

    make_key = context.format_command("keys", "create", "admin", "--scope", "admin")
    serving(settings, work=not no_workers, ready=ready, pages=install_pages, make_key=make_key)
    context.terminal.info("The server has stopped.")


def worker(
    context: CommandContext,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-n", metavar="N", min=1, help="Number of processes; default: HOLDFAST_WORKERS."),
    ] = None,
) -> None:
    """Run workers that index queued documents, until Ctrl-C.

    Example:
        holdfast worker --workers 4
    """
    with importing_extra("documents"):
        from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load
        from holdfast.wiring import make_worker, open_scheduler  # noqa: PLC0415

    settings = context.settings()
    settings = _configure_logging(context, replace(settings, workers=workers or settings.workers))
    open_library(settings).store.close()  # raises an error before a worker starts
    stopped = stop_on_signal()
    scheduler = open_scheduler(settings)
    scheduler.start(make_worker(settings))
    result = {"workers": settings.workers, "database": mask_secrets(settings.database)}
    context.print_result(
        result,
        lambda: context.terminal.info(
            f"{format_count(settings.workers, 'worker')} on {result['database']}. Press Ctrl-C to stop."
        ),
    )
    try:
        stopped.wait()
    finally:
        context.terminal.info("Stopping. Unfinished work returns to the queue.")
        scheduler.stop()


def mcp(
    context: CommandContext,
    http: Annotated[bool, typer.Option("--http", help="Use HTTP instead of stdin and stdout.")] = False,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="With --http: port, or 0 for any free port."),
    ] = 0,
    writes: Annotated[bool, typer.Option("--writes", help="Also offer tools that change documents.")] = False,
) -> None:
    """Offer the library to language models over MCP.

    Example:
        holdfast mcp
        holdfast mcp --http --port 7341
    """
    with importing_extra("mcp"):
        tools = import_module("holdfast.mcp")
    _configure_logging(context, Settings.from_environment())
    tools.run(context.location, key=context.key, http=http, writes=writes, port=port)


def _configure_logging(context: CommandContext, settings: Settings) -> Settings:
    """Configure logging by `--debug`, `--quiet` and the settings. Return settings with that level, for the workers."""
    from holdfast.wiring import configure_logging  # noqa: PLC0415 - slow to load

    option = "debug" if context.options.debug else "warning" if context.options.quiet else ""
    level = option or settings.log or "info"
    configure_logging(level)
    return replace(settings, log=level)
