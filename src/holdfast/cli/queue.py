"""`queue`: lists jobs, changes their priority, pauses and resumes the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_duration
from holdfast.cli.options import AnyBaseOption, CursorOption
from holdfast.cli.resolve import MAX_PAGE_SIZE

if TYPE_CHECKING:
    from holdfast.service.schemas import Job, Page

HEADER = ("job", "state", "operation", "base", "document", "priority", "asked by", "asked at", "took")


def declare(app: typer.Typer) -> None:
    command(app, "ls")(ls)
    command(app, "pause")(pause)
    command(app, "resume")(resume)
    command(app, "stop")(stop)
    command(app, "priority")(prioritise)


def ls(
    context: CommandContext,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="queued, indexing, deleting or an outcome; may be said again."),
    ] = None,
    requester: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what this one asked for.")] = None,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=MAX_PAGE_SIZE, help="Jobs on a page.")] = 30,
    page: Annotated[int, typer.Option("--page", min=1, help="Which page.")] = 1,
    cursor: CursorOption = None,
    base: AnyBaseOption = None,
) -> None:
    """List jobs.

    The active ones stand first, in the order in which they are served, then those that ended.
    """
    with context.open() as library:
        found = library.jobs.list(base, states=state or None, requester=requester, cursor=cursor, page=page, size=size)
    context.print_result(found, lambda: _print_page(context, found, page))


def _print_page(context: CommandContext, found: Page[Job], page: int) -> None:
    context.terminal.print_table(HEADER, [_row(job) for job in found.items])
    if not found.items:
        context.terminal.info("There are no such jobs.")
    elif found.next_cursor is not None:
        context.terminal.info(f"{len(found.items):,} of {found.total:,}; more with --page {page + 1}")


def _row(job: Job) -> tuple[Any, ...]:
    took = "" if job.finished_at is None else format_duration((job.finished_at - job.created_at).total_seconds())
    subject = job.subject if job.document is None else job.document
    return job.id, job.state, job.operation, job.base, subject, job.priority, job.requester, job.created_at, took


def pause(context: CommandContext, base: AnyBaseOption = None) -> None:
    """Let nothing new begin; what runs goes on to its end."""
    _pause(context, base, stop=False)


def stop(context: CommandContext, base: AnyBaseOption = None) -> None:
    """Let nothing new begin, and call back what runs."""
    _pause(context, base, stop=True)


def _pause(context: CommandContext, base: str | None, *, stop: bool) -> None:
    with context.open() as library:
        changed = library.jobs.pause(base, stop=stop)
    _print_pause(context, base, paused=True, changed=changed, words="is paused" if changed else "was paused already")


def resume(context: CommandContext, base: AnyBaseOption = None) -> None:
    """End a pause."""
    with context.open() as library:
        changed = library.jobs.resume(base)
    _print_pause(context, base, paused=False, changed=changed, words="goes on" if changed else "was not paused")


def _print_pause(context: CommandContext, base: str | None, *, paused: bool, changed: bool, words: str) -> None:
    subject = "The queue" if base is None else f"Base {base!r}"
    context.print_result(
        {"base": base, "paused": paused, "changed": changed}, lambda: context.terminal.info(f"{subject} {words}.")
    )


def prioritise(
    context: CommandContext,
    job: Annotated[str, typer.Argument(metavar="JOB", help="An active job.")],
    priority: Annotated[int, typer.Argument(metavar="N", min=0, max=9, help="0 is served first, 9 last.")],
) -> None:
    """Give an active job another priority."""
    with context.open() as library:
        reply = library.jobs.prioritise(job, priority)
    context.print_result(reply, lambda: context.terminal.info(f"Job {job} has priority {priority} now."))
