"""`add`, `sync`, `watch`: commands that add documents."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command, stop_on_signal
from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, reply_exit_code
from holdfast.cli.format import format_cell, format_code, format_count, format_status_counts
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

DirArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder on the machine that has the library.")]


def declare(app: typer.Typer) -> None:
    command(app, "add")(add)
    command(app, "sync")(sync)
    command(app, "watch")(watch)


def add(
    context: CommandContext,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|URL|-", help="Files, addresses of web pages, or - for stdin.", show_default=False),
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Add this text as a note.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of a note, of stdin or of one web page.")
    ] = None,
    on_duplicate: Annotated[
        OnDuplicate | None,
        typer.Option(
            "--on-duplicate",
            help="What to do if the name or the content already exists; default: the setting of the base.",
        ),
    ] = None,
    no_index: Annotated[bool, typer.Option("--no-index", help="Store the documents without indexing them.")] = False,
    sitemap: Annotated[
        bool, typer.Option("--sitemap", help="The addresses are sitemaps: add all pages that they list.")
    ] = False,
    every: Annotated[
        int | None, typer.Option("--every", metavar="SECONDS", min=60, help="Read web pages again at this interval.")
    ] = None,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Add files, web pages or notes, and wait until they are indexed.

    Example:
        holdfast add report.pdf --base handbook
        holdfast add https://example.org/guide.html
        holdfast add --note "Call the harbour office" --name calls
    """
    for word in what or []:
        if Path(word).is_dir():
            raise BadRequest("folder_not_file", path=word, command=context.format_command("sync", word, base=base))
    request = AddRequest(what or [], note, name, sitemap=sitemap, every=every)
    terms: dict[str, Any] = {"on_duplicate": on_duplicate, "index": False if no_index else None, "priority": priority}
    with context.open(work=not no_wait) as library:
        ensure_base(context, library, base)
        replies = request.submit(library, base, terms)
        print_replies(context, replies, "Added")
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
            raise BadRequest("nothing_to_add")
        if (self.note is not None or "-" in self.files) and not self.name:
            raise BadRequest("name_option_missing")
        if self.name and len(words) + (self.note is not None) > 1:
            raise BadRequest("name_option_for_several", name=self.name)
        if self.name and self.files and "-" not in self.files:
            raise BadRequest("name_option_for_file", name=self.name, path=self.files[0])
        if (self.sitemap or self.every) and not self.pages:
            raise BadRequest("web_option_without_address")
        for word in self.files:
            if word != "-" and not Path(word).is_file():
                raise BadRequest("no_such_file", path=word)

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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the changes without making them.")] = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Add a folder to a base, or bring it up to date.

    New files are added, changed files are indexed again, and missing files are deleted from the base.

    Example:
        holdfast sync docs --base handbook
        holdfast sync docs --dry-run
    """
    if context.remote and not folder.is_absolute():
        raise BadRequest("server_folder_relative", path=folder)
    with context.open(work=not no_wait and not dry_run) as library:
        if dry_run:
            found = library.documents.preview(base, folder)
            context.print_result(found, lambda: _print_preview(context, found))
            return ExitCode.OK
        ensure_base(context, library, base)
        reply = library.documents.sync(base, folder, priority=priority)
        print_replies(context, [reply], "Syncing")
        if no_wait or reply.document is None:
            context.print_result({"base": base, "replies": [reply], "documents": []}, lambda: None)
            return reply_exit_code(str(reply.verdict), reply.reason)
        return _wait_for_folder(context, library, base, reply)


def _wait_for_folder(context: CommandContext, library: Holdfast, base: str, reply: Reply) -> ExitCode:
    """Wait until a folder and everything in it is indexed, and print the result."""
    followed = BaseTarget(library, base, reply.document)
    wait_with_progress(context, library, followed, again=status_command(context, base, [reply.document or 0]))
    folder_status = followed.folder_status
    counts = library.bases.counts(base, exact=True)

    def human() -> None:
        if folder_status is not None:
            context.terminal.print_row(
                folder_status.id,
                reply.name,
                folder_status.status,
                folder_status.why.message if folder_status.why else "",
            )
        by_status = format_status_counts(counts)
        context.terminal.info(
            f"Base {base!r} has {format_count(counts.documents, 'document')}{f': {by_status}' if by_status else ''}"
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
    skipped = ", ".join(f"{number:,} {format_code(reason)}" for reason, number in found.skipped.items())
    context.terminal.info(
        f"Files: {len(found.added):,} added, {len(found.changed):,} changed, {len(found.removed):,} removed, "
        f"{found.unchanged:,} unchanged" + (f"; skipped: {skipped}" if skipped else "") + ". This was a dry run."
    )


def watch(
    context: CommandContext,
    folder: DirArgument,
    every: Annotated[
        int,
        typer.Option(
            "--every",
            metavar="SECONDS",
            min=1,
            help="Also sync at this interval, even if no change is reported.",
        ),
    ] = 300,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Sync a folder now and after every change, until Ctrl-C.

    Example:
        holdfast watch docs --base handbook
    """
    if context.remote:
        raise BadRequest("needs_local_library")
    stop = stop_on_signal()
    with context.open(work=True) as library:
        ensure_base(context, library, base)
        context.terminal.info(f"Watching {folder}. Press Ctrl-C to stop.")
        for reply in library.documents.watch(base, folder, stop=stop, every=timedelta(seconds=every)):
            if context.terminal.json:
                context.terminal.print_json_line(reply)
            else:
                context.terminal.print_row(reply.document, reply.name, _sync_label(reply), reply.job)
    context.terminal.info("Stopped watching.")


def _sync_label(reply: Reply) -> str:
    return "syncing" if reply.accepted else format_cell(reply.message)
