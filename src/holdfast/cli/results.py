"""Prints the replies to requests, waits for the documents, and returns the exit code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, reply_exit_code
from holdfast.cli.format import format_count, format_value
from holdfast.cli.progress import MAX_REPORTED, wait_with_progress
from holdfast.cli.wait_targets import DocumentsTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.cli.command import CommandContext
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import DocumentStatus, Reply

STATUS_EXIT_CODES = {"failed": ExitCode.FAILED, "degraded": ExitCode.PARTIAL}
VERDICT_LABELS = {"joined": "Already in progress", "skipped": "Skipped", "rejected": "Rejected"}


def print_replies(context: CommandContext, replies: Sequence[Reply], done: str) -> None:
    """Print the replies; `done` is the label of accepted ones, such as "Added".

    If there are many replies, print a total and the replies that are not accepted.
    """
    for reply in replies:
        if reply.accepted and len(replies) <= MAX_REPORTED:
            context.terminal.info(f"{done}: {_describe_reply(reply)}")
        elif not reply.accepted:
            cause = {"document": reply.document, "job": reply.job}
            named = ", ".join(f"{word} {value}" for word, value in cause.items() if value)
            message = f"{VERDICT_LABELS[str(reply.verdict)]}: {reply.name}: {reply.message}" + (
                f" ({named})" if named else ""
            )
            (context.terminal.info if str(reply.verdict) == "skipped" else context.terminal.warn)(message)
    if len(replies) > MAX_REPORTED:
        accepted = sum(reply.accepted for reply in replies)
        context.terminal.info(f"{done}: {accepted:,} of {format_count(len(replies), 'document')}")


def print_started_job(context: CommandContext, job: str, work: str) -> None:
    """Print what a job does, and the commands that follow and cancel it."""
    shown, stopped = context.format_command("queue", "ls"), context.format_command("cancel", job)
    context.terminal.info(f"Job {job} {work}. Show its progress: {shown}. Stop it: {stopped}")


def wait_and_report(
    context: CommandContext, library: Holdfast, base: str, replies: Sequence[Reply], *, wait: bool
) -> ExitCode:
    """Wait for the accepted documents if `wait` is set, print the result, and return the exit code."""
    accepted = {reply.document: reply.name for reply in replies if reply.accepted and reply.document is not None}
    statuses = wait_for_documents(context, library, base, accepted) if wait and accepted else []
    if context.terminal.json:
        context.terminal.print_json({"base": base, "replies": replies, "documents": statuses})
    elif wait:
        print_totals(context, base, statuses)
    else:
        for reply in replies:
            context.terminal.print_row(reply.document, reply.name, reply.status, reply.job)
        if accepted:
            context.terminal.info(
                f"Not waiting for the result. Check it later: {status_command(context, base, list(accepted))}"
            )
    refused = [reply_exit_code(str(reply.verdict), reply.reason) for reply in replies if not reply.accepted or not wait]
    return combine_exit_codes([*refused, *map(status_exit_code, statuses)])


def wait_for_documents(
    context: CommandContext, library: Holdfast, base: str, names: Mapping[int, str]
) -> list[DocumentStatus]:
    """Wait until no document is queued or being indexed; print each document when it is done."""

    def ended(document: DocumentStatus) -> None:
        if not context.terminal.json:
            context.terminal.print_row(
                document.id, names[document.id], document.status, document.why.message if document.why else ""
            )

    followed = DocumentsTarget(library, base, names)
    wait_with_progress(context, library, followed, again=status_command(context, base, list(names)), ended=ended)
    return list(followed.statuses.values())


def status_exit_code(document: DocumentStatus) -> ExitCode:
    """Return the exit code for a document after waiting for it."""
    return STATUS_EXIT_CODES.get(str(document.status), ExitCode.OK)


def status_command(context: CommandContext, base: str, documents: Sequence[int]) -> str:
    """Return the command line that shows the status of documents."""
    return (
        context.format_command("status", documents[0], base=base)
        if len(documents) == 1
        else context.format_command("ls", base=base)
    )


def print_totals(context: CommandContext, base: str, statuses: Sequence[DocumentStatus]) -> None:
    """Print the number of documents by status, and a hint if some failed."""
    counted = Counter(format_value(document.status) for document in statuses)
    if len(statuses) > 1:
        by_status = ", ".join(f"{number:,} {status}" for status, number in sorted(counted.items()))
        context.terminal.info(f"{format_count(len(statuses), 'document')}: {by_status}")
    if counted.get("failed"):
        context.terminal.info(
            "Fix the cause of each failure, then retry the failed documents: "
            f"{context.format_command('retry', '--all', base=base)}"
        )


def _describe_reply(reply: Reply) -> str:
    return (
        f"{reply.name} (document {reply.document})"
        if reply.document and reply.name
        else reply.name or f"document {reply.document}"
    )
