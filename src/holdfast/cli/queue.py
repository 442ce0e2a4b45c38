"""`queue`: the jobs, their order, and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.format import lasting
from holdfast.cli.options import AnyBase, Cursor
from holdfast.cli.resolve import LARGEST_PAGE

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
    face: Face,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="queued, indexing, deleting or an outcome; may be said again."),
    ] = None,
    requester: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Only what this one asked for.")] = None,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=LARGEST_PAGE, help="Jobs on a page.")] = 30,
    page: Annotated[int, typer.Option("--page", min=1, help="Which page.")] = 1,
    cursor: Cursor = None,
    base: AnyBase = None,
) -> Exit:
    """List jobs.

    The active ones stand first, in the order in which they are served, then those that ended.
    """
    with face.open() as library:
        found = library.jobs.list(base, states=state or None, requester=requester, cursor=cursor, page=page, size=size)
    face.show(found, lambda: _listed(face, found, page))
    return Exit.OK


def _listed(face: Face, found: Page[Job], page: int) -> None:
    face.terminal.table(HEADER, [_row(one) for one in found.items])
    if not found.items:
        face.terminal.say("There are no such jobs.")
    elif found.next_cursor is not None:
        face.terminal.say(f"{len(found.items):,} of {found.total:,}; more with --page {page + 1}")


def _row(one: Job) -> tuple[Any, ...]:
    took = "" if one.finished_at is None else lasting((one.finished_at - one.created_at).total_seconds())
    subject = one.subject if one.document is None else one.document
    return one.id, one.state, one.operation, one.base, subject, one.priority, one.requester, one.created_at, took


def pause(face: Face, base: AnyBase = None) -> Exit:
    """Let nothing new begin; what runs goes on to its end."""
    return _paused(face, base, stop=False)


def stop(face: Face, base: AnyBase = None) -> Exit:
    """Let nothing new begin, and call back what runs."""
    return _paused(face, base, stop=True)


def _paused(face: Face, base: str | None, *, stop: bool) -> Exit:
    with face.open() as library:
        changed = library.jobs.pause(base, stop=stop)
    _told(face, base, paused=True, changed=changed, words="is paused" if changed else "was paused already")
    return Exit.OK


def resume(face: Face, base: AnyBase = None) -> Exit:
    """End a pause."""
    with face.open() as library:
        changed = library.jobs.resume(base)
    _told(face, base, paused=False, changed=changed, words="goes on" if changed else "was not paused")
    return Exit.OK


def _told(face: Face, base: str | None, *, paused: bool, changed: bool, words: str) -> None:
    subject = "The queue" if base is None else f"Base {base!r}"
    face.show({"base": base, "paused": paused, "changed": changed}, lambda: face.terminal.say(f"{subject} {words}."))


def prioritise(
    face: Face,
    job: Annotated[str, typer.Argument(metavar="JOB", help="An active job.")],
    priority: Annotated[int, typer.Argument(metavar="N", min=0, max=9, help="0 is served first, 9 last.")],
) -> Exit:
    """Give an active job another priority."""
    with face.open() as library:
        reply = library.jobs.prioritise(job, priority)
    face.show(reply, lambda: face.terminal.say(f"Job {job} has priority {priority} now."))
    return Exit.OK
