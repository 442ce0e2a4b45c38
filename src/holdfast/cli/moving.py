"""`move`, `backup` and `restore`: copy the whole library."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast import __version__
from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_count
from holdfast.cli.options import YesOption
from holdfast.clock import Moment
from holdfast.errors import BadRequest
from holdfast.private_files import make_private_folder
from holdfast.url_secrets import mask_secrets

if TYPE_CHECKING:
    from holdfast.cli.terminal import Terminal

REPORT_SECONDS = 2.0  # between two lines about the progress


def declare(app: typer.Typer) -> None:
    command(app, "move")(move)
    command(app, "backup")(backup)
    command(app, "restore")(restore)


def move(
    context: CommandContext,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Address of the database to move.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Address of an empty database.")],
    blobs: Annotated[
        str | None,
        typer.Option(
            "--blobs", metavar="ADDRESS", help="Also copy the files: a folder or s3://BUCKET/PREFIX, as HOLDFAST_DATA."
        ),
    ] = None,
    events_since: Annotated[
        str | None,
        typer.Option("--events-since", metavar="DATE", help="Leave out older events, for example 2026-03-31."),
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Complete a verified move: open the target, and close the source.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Give up a move: the source accepts writes again.")] = False,
    yes: YesOption = False,
) -> None:
    """Move the library to another database, and its files to another place.

    Stop all servers and workers first. The source refuses every write from the start on, and nothing else of it
    changes until --finish. An interrupted move continues when you run the command again.

    Example:
        holdfast move sqlite:////srv/holdfast/holdfast.db postgresql://holdfast@db.internal/holdfast
        holdfast move sqlite:////srv/holdfast/holdfast.db postgresql://holdfast@db.internal/holdfast --finish
    """
    from holdfast.moving import MoveOptions  # noqa: PLC0415 - loads SQLAlchemy
    from holdfast.wiring import opening_move  # noqa: PLC0415

    if finish and abort:
        raise BadRequest("move_options")
    options = MoveOptions(events_since=_parse_date(events_since))
    settings = context.settings()
    if not abort:
        context.confirm(f"Move {mask_secrets(source)} to {mask_secrets(target)}?", yes=yes)
    report = ProgressLines(context.terminal)
    with opening_move(settings, source, target, files=blobs, options=options, report=report) as moving:
        if abort:
            moving.abort()
            context.print_result({"aborted": True}, lambda: context.terminal.info("The source accepts writes again."))
            return
        if finish:
            moving.finish()
            context.print_result({"finished": True}, lambda: _print_settings(context, target, blobs))
            return
        done = moving.run()
    again = context.format_command("move", source, target, *(["--blobs", blobs] if blobs else []), "--finish")

    def human() -> None:
        files = f" and {format_count(done.files, 'file')}" if blobs else ""
        context.terminal.info(f"Copied and verified {format_count(done.rows, 'row')}{files}.")
        context.terminal.info(f"The target opens when you complete the move: {mask_secrets(again)}")

    context.print_result(done._asdict(), human)


def backup(
    context: CommandContext,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the backup.")],
) -> None:
    """Write a backup of the whole library, also while it is in use.

    Database and files agree. The key that encrypts webhook secrets is not in the backup.

    Example:
        holdfast backup /backups/monday
    """
    from holdfast.moving import write_backup  # noqa: PLC0415 - loads SQLAlchemy
    from holdfast.wiring import opening_installation  # noqa: PLC0415

    with opening_installation(context.settings()) as installation:
        done = write_backup(installation, folder, __version__, ProgressLines(context.terminal))

    def human() -> None:
        context.terminal.info(
            f"Wrote {format_count(done.rows, 'row')} and {format_count(done.files, 'file')} to {folder}."
        )
        if done.missing_files:
            context.terminal.warn(
                f"{format_count(done.missing_files, 'document')} had no file before the backup. Find them with "
                f"{context.format_command('doctor')}"
            )

    context.print_result(done._asdict(), human)


def restore(
    context: CommandContext,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that `holdfast backup` wrote.")],
) -> None:
    """Restore a backup into an empty database.

    The database and the place of files are those of the settings, of either kind. The whole backup is checked first.
    An interrupted restore continues when you run the command again.

    Example:
        holdfast --home /srv/restored restore /backups/monday
    """
    from holdfast.moving import restore_backup  # noqa: PLC0415 - loads SQLAlchemy
    from holdfast.wiring import opening_installation  # noqa: PLC0415

    settings = context.settings()
    make_private_folder(Path(settings.home))
    with opening_installation(settings) as installation:
        done = restore_backup(installation, folder, ProgressLines(context.terminal))
    context.print_result(
        done._asdict(),
        lambda: context.terminal.info(
            f"Restored and verified {format_count(done.rows, 'row')} and {format_count(done.files, 'file')}."
        ),
    )


class ProgressLines:
    """Prints how far a copy is, every few seconds and at the end of each part."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._printed = time.monotonic()

    def __call__(self, part: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._printed + REPORT_SECONDS:
            return
        self._printed = now
        self._terminal.info(f"  {part}: {done} of {total}" if total else f"  {part}: {done}")


def _print_settings(context: CommandContext, target: str, blobs: str | None) -> None:
    """Print the settings with which the target is used from now on."""
    context.terminal.info("Moved. Start servers and workers with these settings:")
    settings: list[tuple[str, Any]] = [("HOLDFAST_DATABASE", mask_secrets(target))]
    for name, value in [*settings, *([("HOLDFAST_DATA", blobs)] if blobs else [])]:
        context.terminal.print_row(f"{name}={value}")


def _parse_date(text: str | None) -> Moment:
    """Return the start of a day in UTC; 0 for no date."""
    if text is None:
        return Moment(0)
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise BadRequest("move_date", value=text) from error
    return Moment(int(datetime.combine(day, time_of_day(), UTC).timestamp()) * 1_000_000)
