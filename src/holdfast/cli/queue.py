"""`queue`: lists jobs, changes their priority, pauses and resumes work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_duration, format_next_page
from holdfast.cli.options import AnyBaseOption, CursorOption
from holdfast.cli.resolve import MAX_PAGE_SIZE
from holdfast.errors import BadRequest
from holdfast.settings import parse_duration

if TYPE_CHECKING:
    from holdfast.service.schemas import BulkProgress, Job, Page, Progress

HEADER = (
    "job", "state", "operation", "base", "document", "done", "priority", "requested by", "requested at", "duration",
)  # fmt: skip


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
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only jobs in this state: queued, indexing, deleting, or an outcome such as success or failed; "
            "repeatable.",
        ),
    ] = None,
    requester: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Only jobs that this user or key requested.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than", metavar="TIME", help="Only jobs whose work has been running for longer, such as 30m or 2h."
        ),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", "-n", metavar="N", min=1, max=MAX_PAGE_SIZE, help="Jobs per page.")
    ] = 30,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Number of the page.")] = 1,
    cursor: CursorOption = None,
    base: AnyBaseOption = None,
) -> None:
    """List jobs.

    Active jobs come first, in the order in which workers take them, then the jobs that ended. With --longer-than, the
    job that has been running longest comes first.

    Example:
        holdfast queue ls --state queued --base handbook
        holdfast queue ls --longer-than 30m
    """
    seconds = None if longer_than is None else _parse_seconds(longer_than)
    with context.open() as library:
        found = library.jobs.list(
            base, states=state or None, requester=requester, longer_than=seconds, cursor=cursor, page=page, size=size
        )
    filtered = bool(state or requester or base or longer_than)
    number = page if cursor is None else None
    context.print_result(found, lambda: _print_page(context, found, number, filtered=filtered))


def _print_page(context: CommandContext, found: Page[Job], page: int | None, *, filtered: bool) -> None:
    context.terminal.print_table(HEADER, [_row(job) for job in found.items])
    if not found.items and filtered:
        context.terminal.info(f"No jobs match. List all: {context.format_command('queue', 'ls')}")
    elif not found.items:
        context.terminal.info(f"No jobs yet. Add documents: {context.format_command('add', 'FILE')}")
    elif found.next_cursor is not None:
        context.terminal.info(format_next_page(found, page, "job"))


def _parse_seconds(text: str) -> int:
    try:
        return int(parse_duration(text).total_seconds())
    except ValueError:
        raise BadRequest("not_a_duration", option="--longer-than", value=text) from None


def _row(job: Job) -> tuple[Any, ...]:
    subject = job.subject if job.document is None else job.document
    operation = job.operation if job.bulk is None else job.bulk.action
    done = _format_done(job.bulk or job.progress)
    return (
        job.id, job.state, operation, job.base, subject, done, job.priority, job.requester, job.created_at,
        _format_time_taken(job),
    )  # fmt: skip


def _format_time_taken(job: Job) -> str:
    """Return how long an ended job took, or how long a running job has been running."""
    if job.finished_at is not None:
        return format_duration((job.finished_at - job.created_at).total_seconds())
    if job.running_since is None:
        return ""
    return f"running for {format_duration(max(0.0, round((datetime.now(UTC) - job.running_since).total_seconds())))}"


def _format_done(progress: BulkProgress | Progress | None) -> str:
    """Return how many parts of a job are done, if their number is known."""
    return f"{progress.done:,}/{progress.total:,}" if progress is not None and progress.total > 1 else ""


def pause(context: CommandContext, base: AnyBaseOption = None) -> None:
    """Pause the queue: no new work starts, and running work finishes.

    Example:
        holdfast queue pause --base handbook
    """
    _pause(context, base, stop=False)


def stop(context: CommandContext, base: AnyBaseOption = None) -> None:
    """Pause the queue, and return running work to it.

    Example:
        holdfast queue stop --base handbook
    """
    _pause(context, base, stop=True)


def _pause(context: CommandContext, base: str | None, *, stop: bool) -> None:
    with context.open() as library:
        changed = library.jobs.pause(base, stop=stop)
    _print_pause(context, base, paused=True, changed=changed, words="is paused" if changed else "was already paused")


def resume(context: CommandContext, base: AnyBaseOption = None) -> None:
    """Resume a paused queue.

    Example:
        holdfast queue resume --base handbook
    """
    with context.open() as library:
        changed = library.jobs.resume(base)
    _print_pause(context, base, paused=False, changed=changed, words="is resumed" if changed else "was not paused")


def _print_pause(context: CommandContext, base: str | None, *, paused: bool, changed: bool, words: str) -> None:
    subject = "The queue" if base is None else f"Base {base!r}"
    context.print_result(
        {"base": base, "paused": paused, "changed": changed}, lambda: context.terminal.info(f"{subject} {words}.")
    )


def prioritise(
    context: CommandContext,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of an active job, from `holdfast queue ls`.")],
    priority: Annotated[int, typer.Argument(metavar="N", min=0, max=9, help="Priority from 0 (first) to 9 (last).")],
) -> None:
    """Change the priority of an active job.

    Example:
        holdfast queue priority 18e8fc6a4ab71af56b9b2e12b082ef51 0
    """
    with context.open() as library:
        reply = library.jobs.prioritise(job, priority)
    context.print_result(reply, lambda: context.terminal.info(f"Job {job} has the priority {priority}."))
