"""`queue`: the jobs, their order, and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.format import format_duration
from holdfast.cli.options import AnyBaseOption, CursorOption
from holdfast.cli.resolve import MAX_PAGE_SIZE

if TYPE_CHECKING:
    from holdfast.service.schemas import Job, Page

HEADER = ("job", "state", "operation", "base", "document", "priority", "asked by", "asked at", "took")


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "ls")(ls)
    command(app, "pause")(pause)
    command(app, "resume")(resume)
    command(app, "stop")(stop)
    command(app, "priority")(prioritise)


def ls(
    face: CommandContext,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="queued, indexing, deleting or an outcome; may be said again."),
    ] = None,
    requester: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what this one asked for.")] = None,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=MAX_PAGE_SIZE, help="Jobs on a page.")] = 30,
    page: Annotated[int, typer.Option("--page", min=1, help="Which page.")] = 1,
    cursor: CursorOption = None,
    base: AnyBaseOption = None,
) -> ExitCode:
    """List jobs.

    The active ones stand first, in the order in which they are served, then those that ended.
    """
    with face.open() as library:
        found = library.jobs.list(base, states=state or None, requester=requester, cursor=cursor, page=page, size=size)
    face.print_result(found, lambda: _print_page(face, found, page))
    return ExitCode.OK


def _print_page(face: CommandContext, found: Page[Job], page: int) -> None:
    face.terminal.print_table(HEADER, [_row(one) for one in found.items])
    if not found.items:
        face.terminal.info("There are no such jobs.")
    elif found.next_cursor is not None:
        face.terminal.info(f"{len(found.items):,} of {found.total:,}; more with --page {page + 1}")


def _row(one: Job) -> tuple[Any, ...]:
    took = "" if one.finished_at is None else format_duration((one.finished_at - one.created_at).total_seconds())
    subject = one.subject if one.document is None else one.document
    return one.id, one.state, one.operation, one.base, subject, one.priority, one.requester, one.created_at, took


def pause(face: CommandContext, base: AnyBaseOption = None) -> ExitCode:
    """Let nothing new begin; what runs goes on to its end."""
    return _pause(face, base, stop=False)


def stop(face: CommandContext, base: AnyBaseOption = None) -> ExitCode:
    """Let nothing new begin, and call back what runs."""
    return _pause(face, base, stop=True)


def _pause(face: CommandContext, base: str | None, *, stop: bool) -> ExitCode:
    with face.open() as library:
        changed = library.jobs.pause(base, stop=stop)
    _print_pause(face, base, paused=True, changed=changed, words="is paused" if changed else "was paused already")
    return ExitCode.OK


def resume(face: CommandContext, base: AnyBaseOption = None) -> ExitCode:
    """End a pause."""
    with face.open() as library:
        changed = library.jobs.resume(base)
    _print_pause(face, base, paused=False, changed=changed, words="goes on" if changed else "was not paused")
    return ExitCode.OK


def _print_pause(face: CommandContext, base: str | None, *, paused: bool, changed: bool, words: str) -> None:
    subject = "The queue" if base is None else f"Base {base!r}"
    face.print_result(
        {"base": base, "paused": paused, "changed": changed}, lambda: face.terminal.info(f"{subject} {words}.")
    )


def prioritise(
    face: CommandContext,
    job: Annotated[str, typer.Argument(metavar="JOB", help="An active job.")],
    priority: Annotated[int, typer.Argument(metavar="N", min=0, max=9, help="0 is served first, 9 last.")],
) -> ExitCode:
    """Give an active job another priority."""
    with face.open() as library:
        reply = library.jobs.prioritise(job, priority)
    face.print_result(reply, lambda: face.terminal.info(f"Job {job} has priority {priority} now."))
    return ExitCode.OK
