"""`serve`, `web`, `worker`, `reconcile` and `mcp`: commands that run until Ctrl-C or SIGTERM."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command, stop_on_signal
from holdfast.cli.format import format_count
from holdfast.errors import BadRequest, BadSettings
from holdfast.extras import importing_extra
from holdfast.health import answering_health
from holdfast.logs import JSON
from holdfast.settings import Settings
from holdfast.url_secrets import mask_secrets

LOCAL_SCHEDULERS = ("embedded", "inline")  # their workers run inside the server


def declare(app: typer.Typer) -> None:
    command(app, "serve")(serve)
    command(app, "web")(web)
    command(app, "worker")(worker)
    command(app, "reconcile")(reconcile)
    command(app, "mcp")(mcp)


Host = Annotated[
    str | None, typer.Option("--host", metavar="HOST", help="Address to listen on; default: HOLDFAST_HOST.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", min=0, max=65535, help="Port, or 0 for any free port; default: HOLDFAST_PORT."),
]


def serve(
    context: CommandContext,
    host: Host = None,
    port: Port = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Serve requests only; other processes index.")
    ] = False,
) -> None:
    """Serve the web page and the HTTP API, and run workers, until Ctrl-C.

    Example:
        holdfast serve --port 7340
    """
    _serve(context, host, port, work=not no_workers, alone=True)


def web(context: CommandContext, host: Host = None, port: Port = None) -> None:
    """Serve the web page and the HTTP API without workers, until Ctrl-C. Any number may run on one database.

    Example:
        holdfast web --host 0.0.0.0 --port 7340
    """
    _serve(context, host, port, work=False, alone=False)


def worker(
    context: CommandContext,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-n", metavar="N", min=1, help="Number of processes; default: HOLDFAST_WORKERS."),
    ] = None,
    kinds: Annotated[
        str | None, typer.Option("--kinds", metavar="KINDS", help="Kinds of work, separated by commas; default: all.")
    ] = None,
) -> None:
    """Run workers that index queued documents, until Ctrl-C. They ask the database for work, without a broker.

    Example:
        holdfast worker --workers 4
        holdfast worker --kinds vector,graph
    """
    with importing_extra("documents"):
        from holdfast.service.opening import check_blob_store, open_library  # noqa: PLC0415 - slow to load
        from holdfast.wiring import make_worker, open_polling_scheduler  # noqa: PLC0415

    settings = context.settings()
    settings = _configure_logging(context, replace(settings, workers=workers or settings.workers))
    chosen = _parse_kinds(kinds or "")
    library = open_library(settings)
    check_blob_store(library)  # raises an error before a worker starts
    stopped = stop_on_signal()
    scheduler = open_polling_scheduler(settings)
    scheduler.start(make_worker(settings, chosen))
    result = {"workers": settings.workers, "database": mask_secrets(settings.database)}
    context.print_result(
        result,
        lambda: context.terminal.info(
            f"{format_count(settings.workers, 'worker')} on {result['database']}. Press Ctrl-C to stop."
        ),
    )
    try:
        metrics = library.metrics_endpoint()
        with answering_health(settings.host, settings.health_port, library.catalog.bases, metrics.answer):
            stopped.wait()
    finally:
        context.terminal.info("Stopping. Unfinished work returns to the queue.")
        scheduler.stop()
        library.store.close()


def reconcile(context: CommandContext) -> None:
    """Send rings to the workers of a scheduler such as Celery, until Ctrl-C. Any number may run on one database.

    Example:
        holdfast reconcile
    """
    with importing_extra("documents"):
        from holdfast.service.opening import open_library  # noqa: PLC0415 - slow to load
        from holdfast.wiring import open_scheduler, running_reconciler, sample_queues  # noqa: PLC0415

    settings = _configure_logging(context, context.settings())
    stopped = stop_on_signal()
    library = open_library(settings)
    scheduler = open_scheduler(settings)
    metrics = library.metrics_endpoint(partial(sample_queues, scheduler))
    try:
        with (
            running_reconciler(settings, library, scheduler),
            answering_health(settings.host, settings.health_port, library.catalog.bases, metrics.answer),
        ):
            result = {"scheduler": settings.scheduler, "database": mask_secrets(settings.database)}
            context.print_result(
                result,
                lambda: context.terminal.info(
                    f"Reconciling {result['database']} for {settings.scheduler}. Press Ctrl-C to stop."
                ),
            )
            stopped.wait()
    finally:
        scheduler.stop()
        library.store.close()


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


def _serve(context: CommandContext, host: str | None, port: int | None, *, work: bool, alone: bool) -> None:
    with importing_extra("server"):
        from holdfast.api.server import serve as serving  # noqa: PLC0415 - slow to load
        from holdfast.web.site import install_pages  # noqa: PLC0415

    given: dict[str, Any] = {"host": host, "port": port}
    settings = replace(context.settings(), **{name: value for name, value in given.items() if value is not None})
    settings = _configure_logging(context, settings)
    if settings.production and work and settings.scheduler in LOCAL_SCHEDULERS:
        raise BadSettings("production_serve", scheduler=settings.scheduler)

    def ready(address: str) -> None:
        if context.terminal.json:
            context.terminal.print_json_line({"address": address, "home": settings.home})
        else:
            context.terminal.print_text(address)
        context.terminal.info(f"Serving {settings.home}. Press Ctrl-C to stop.")

    make_key = context.format_command("keys", "create", "admin", "--scope", "admin")
    serving(settings, work=work, alone=alone, ready=ready, pages=install_pages, make_key=make_key)
    context.terminal.info("The server has stopped.")


def _parse_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of work in a list such as `vector,graph`; raise `BadRequest` for unknown ones."""
    from holdfast.wiring import list_kinds  # noqa: PLC0415 - slow to load

    kinds = tuple(filter(None, (word.strip() for word in text.split(","))))
    known = list_kinds()
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise BadRequest("unknown_kinds", unknown=", ".join(map(repr, unknown)), known=", ".join(known))
    return kinds


def _configure_logging(context: CommandContext, settings: Settings) -> Settings:
    """Configure logging by `--debug`, `--quiet` and the settings. Return settings with that level, for the workers."""
    from holdfast.wiring import configure_logging  # noqa: PLC0415 - slow to load

    option = "debug" if context.options.debug else "warning" if context.options.quiet else ""
    level = option or settings.log or "info"
    configure_logging(level, settings.log_format)
    if settings.log_format == JSON:
        context.terminal.quiet = True  # so that stderr has only log lines
    return replace(settings, log=level)
