"""What came of requests, told to people: each answer with its message, and how the command ends."""

from __future__ import annotations

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
VERDICT_LABELS = {"accepted": "accepted", "joined": "already under way", "skipped": "unchanged", "rejected": "refused"}


def print_replies(context: CommandContext, replies: Sequence[Reply], done: str = "accepted") -> None:
    """Tell the answers: each of few, and of many only those that were not accepted."""
    for one in replies:
        if one.accepted and len(replies) <= MAX_REPORTED:
            context.terminal.info(f"{done}: {_describe_reply(one)}")
        elif not one.accepted:
            named = {"document": one.document, "job": one.job}
            way = ", ".join(f"{word} {value}" for word, value in named.items() if value)
            told = f"{VERDICT_LABELS[str(one.verdict)]}: {one.name}: {one.message}" + (f" ({way})" if way else "")
            (context.terminal.info if str(one.verdict) == "skipped" else context.terminal.warn)(told)
    if len(replies) > MAX_REPORTED:
        context.terminal.info(
            f"{done}: {format_count(sum(one.accepted for one in replies), 'document')} of {len(replies):,}"
        )


def wait_and_report(
    context: CommandContext, library: Holdfast, base: str, replies: Sequence[Reply], *, wait: bool
) -> ExitCode:
    """Wait for what was accepted, tell how it ended, and return how the command ends."""
    asked = {one.document: one.name for one in replies if one.accepted and one.document is not None}
    standings = wait_for_documents(context, library, base, asked) if wait and asked else []
    if context.terminal.json:
        context.terminal.print_json({"base": base, "replies": replies, "documents": standings})
    elif wait:
        print_totals(context, base, standings)
    else:
        for one in replies:
            context.terminal.print_row(one.document, one.name, one.status, one.job)
        if asked:
            context.terminal.info(f"Not waited for. Look: {status_command(context, base, list(asked))}")
    refused = [reply_exit_code(str(one.verdict), one.reason) for one in replies if not one.accepted or not wait]
    return combine_exit_codes([*refused, *map(status_exit_code, standings)])


def wait_for_documents(
    context: CommandContext, library: Holdfast, base: str, names: Mapping[int, str]
) -> list[DocumentStatus]:
    """Wait until documents have come to rest; each is told when it has."""

    def ended(one: DocumentStatus) -> None:
        if not context.terminal.json:
            context.terminal.print_row(one.id, names[one.id], one.status, one.why.message if one.why else "")

    followed = DocumentsTarget(library, base, names)
    wait_with_progress(context, library, followed, again=status_command(context, base, list(names)), ended=ended)
    return list(followed.statuses.values())


def status_exit_code(one: DocumentStatus) -> ExitCode:
    """Tell how a command ends that waited for this document."""
    return STATUS_EXIT_CODES.get(str(one.status), ExitCode.OK)


def status_command(context: CommandContext, base: str, documents: Sequence[int]) -> str:
    """Return the command that shows the status of documents."""
    return (
        context.format_command("status", documents[0], base=base)
        if len(documents) == 1
        else context.format_command("ls", base=base)
    )


def print_totals(context: CommandContext, base: str, standings: Sequence[DocumentStatus]) -> None:
    """Tell how many documents ended how."""
    counted: dict[str, int] = {}
    for one in standings:
        counted[format_value(one.status)] = counted.get(format_value(one.status), 0) + 1
    if len(standings) > 1:
        context.terminal.info(", ".join(f"{number:,} {status}" for status, number in sorted(counted.items())))
    if counted.get("failed"):
        context.terminal.info(f"Try again what failed: {context.format_command('retry', '--all', base=base)}")


def _describe_reply(one: Reply) -> str:
    return (
        f"{one.name} (document {one.document})" if one.document and one.name else one.name or f"document {one.document}"
    )
