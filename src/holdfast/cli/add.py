"""`add`, `sync`, `watch`: commands that add documents."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command, stop_on_signal
from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, reply_exit_code
from holdfast.cli.format import format_cell, format_count, format_value
from holdfast.cli.options import DEFAULT_BASE, BaseOption, NoWaitOption, OnDuplicate, PriorityOption
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.resolve import ensure_base
from holdfast.cli.results import print_replies, status_command, wait_and_report
from holdfast.cli.wait_targets import BaseTarget
from holdfast.engine import DEFAULT_PRIORITY
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Reply, SyncPreview

WEB_PREFIXES = ("http://", "https://")

DirArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A folder of the machine that holds the library.")]


def declare(app: typer.Typer) -> None:
    command(app, "add")(add)
    command(app, "sync")(sync)
    command(app, "watch")(watch)


def add(
    context: CommandContext,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH|URL|-", help="Files, pages of the web, or - for stdin.", show_default=False),
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Add this text as a note.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="What a note, stdin or one page is called.")] = None,
    on_duplicate: Annotated[
        OnDuplicate | None, typer.Option("--on-duplicate", help="If name or content is there; else as the base has it.")
    ] = None,
    no_index: Annotated[bool, typer.Option("--no-index", help="Keep it, and do not index it yet.")] = False,
    sitemap: Annotated[
        bool, typer.Option("--sitemap", help="The addresses are sitemaps: add all pages they list.")
    ] = False,
    every: Annotated[
        int | None, typer.Option("--every", metavar="SECONDS", min=60, help="Look at pages again so often.")
    ] = None,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Add files, pages or notes, and wait until they are indexed."""
    for word in what or []:
        if Path(word).is_dir():
            raise BadRequest(f"{word!r} is a folder; use: {context.format_command('sync', word, base=base)}")
    request = AddRequest(what or [], note, name, sitemap=sitemap, every=every)
    terms: dict[str, Any] = {"on_duplicate": on_duplicate, "index": False if no_index else None, "priority": priority}
    with context.open(work=not no_wait) as library:
        ensure_base(context, library, base)
        replies = request.submit(library, base, terms)
        print_replies(context, replies, "added")
        return wait_and_report(context, library, base, replies, wait=not no_wait)


class AddRequest:
    """The arguments of `add`, checked before the library is opened."""

    def __init__(
        self, words: list[str], note: str | None, name: str | None, *, sitemap: bool, every: int | None
    ) -> None:
        self.note, self.name, self.sitemap, self.every = note, name, sitemap, every
        self.pages = [word for word in words if word.startswith(WEB_PREFIXES)]
        self.files = [word for word in words if not word.startswith(WEB_PREFIXES)]
        self._check(words)

    def _check(self, words: list[str]) -> None:
        if not words and self.note is None:
            raise BadRequest("Name what is to be added: files, addresses, - for stdin, or --note TEXT.")
        if (self.note is not None or "-" in self.files) and not self.name:
            raise BadRequest("A note, and what comes from stdin, needs a name: say --name NAME.")
        if self.name and len(words) + (self.note is not None) > 1:
            raise BadRequest("--name is for one thing only; files are called as they are.")
        if self.name and self.files and "-" not in self.files:
            raise BadRequest("A file is called as it is; --name is for a note, for stdin or for one page.")
        if (self.sitemap or self.every) and not self.pages:
            raise BadRequest("--sitemap and --every are for addresses of the web.")
        for word in self.files:
            if word != "-" and not Path(word).is_file():
                raise BadRequest(f"{word!r} is no file. Check the path; nothing was added.")

    def submit(self, library: Holdfast, base: str, terms: dict[str, Any]) -> list[Reply]:
        from holdfast.service.documents import File  # noqa: PLC0415 - slow to load

        replies: list[Reply] = []
        if self.files:
            files = [
                File(name=self.name or "", content=sys.stdin.buffer.read()) if word == "-" else File.at(word)
                for word in self.files
            ]
            replies += library.documents.add(base, files, **terms)
        page = library.documents.sitemap if self.sitemap else library.documents.url
        replies += [page(base, address, name=self.name, every=self.every) for address in self.pages]
        if self.note is not None:
            replies.append(library.documents.note(base, self.name or "", self.note, on_duplicate=terms["on_duplicate"]))
        return replies


def sync(
    context: CommandContext,
    folder: DirArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Bring a folder up to date.

    New files go in, changed ones are indexed again, missing ones go out.
    """
    if context.remote and not folder.is_absolute():
        raise BadRequest(f"The folder is one of the server's; write its whole path, not {str(folder)!r}.")
    with context.open(work=not no_wait and not dry_run) as library:
        if dry_run:
            found = library.documents.preview(base, folder)
            context.print_result(found, lambda: _print_preview(context, found))
            return ExitCode.OK
        ensure_base(context, library, base)
        reply = library.documents.sync(base, folder, priority=priority)
        print_replies(context, [reply], "syncing")
        if no_wait or reply.document is None:
            context.print_result({"base": base, "replies": [reply], "documents": []}, lambda: None)
            return reply_exit_code(str(reply.verdict), reply.reason)
        return _wait_for_folder(context, library, base, reply)


def _wait_for_folder(context: CommandContext, library: Holdfast, base: str, reply: Reply) -> ExitCode:
    """Wait until a folder and everything in it are at rest, and report the result."""
    followed = BaseTarget(library, base, reply.document)
    wait_with_progress(context, library, followed, again=status_command(context, base, [reply.document or 0]))
    folder_status = followed.folder_status
    counts = library.bases.counts(base)

    def human() -> None:
        if folder_status is not None:
            context.terminal.print_row(
                folder_status.id,
                reply.name,
                folder_status.status,
                folder_status.why.message if folder_status.why else "",
            )
        told = [f"{number:,} {format_value(status)}" for status, number in counts.by_status.items() if number]
        context.terminal.info(
            f"{format_count(counts.documents, 'document')} in base {base!r}: {', '.join(told) or 'none'}"
        )

    context.print_result(
        {"base": base, "replies": [reply], "documents": [folder_status] if folder_status else [], "counts": counts},
        human,
    )
    failed = folder_status is not None and str(folder_status.status) in ("failed", "degraded")
    return combine_exit_codes([ExitCode.PARTIAL if failed else ExitCode.OK])


def _print_preview(context: CommandContext, found: SyncPreview) -> None:
    for word, paths in (("added", found.added), ("changed", found.changed), ("removed", found.removed)):
        for path in paths:
            context.terminal.print_row(word, path)
    skipped = ", ".join(f"{number:,} {why}" for why, number in found.skipped.items())
    context.terminal.info(
        f"{len(found.added):,} to add, {len(found.changed):,} to change, {len(found.removed):,} to remove, "
        f"{found.unchanged:,} unchanged" + (f"; left out: {skipped}" if skipped else "") + ". Nothing was done."
    )


def watch(
    context: CommandContext,
    folder: DirArgument,
    every: Annotated[
        int, typer.Option("--every", metavar="SECONDS", min=1, help="Look so often even if nothing is reported.")
    ] = 300,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Keep a folder in step until Ctrl-C.

    It is synced at once, and whenever something in it changes.
    """
    if context.remote:
        raise BadRequest("A folder is watched on the machine that holds the library; run this there, without --at.")
    stop = stop_on_signal()
    with context.open(work=True) as library:
        ensure_base(context, library, base)
        context.terminal.info(f"Watching {folder}; Ctrl-C ends it.")
        for reply in library.documents.watch(base, folder, stop=stop, every=timedelta(seconds=every)):
            if context.terminal.json:
                context.terminal.print_json_line(reply)
            else:
                context.terminal.print_row(reply.document, reply.name, _sync_label(reply), reply.job)
    context.terminal.info("Watching ended.")


def _sync_label(reply: Reply) -> str:
    return "syncing" if reply.accepted else format_cell(reply.message)
