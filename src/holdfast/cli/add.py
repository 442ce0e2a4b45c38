"""`add`, `sync`, `watch`: things go in."""

from __future__ import annotations

import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, reply_exit_code
from holdfast.cli.format import format_cell, format_count, format_value
from holdfast.cli.options import DEFAULT_BASE, BaseOption, NoWaitOption, OnDuplicate, PriorityOption
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.resolve import ensure_base
from holdfast.cli.results import print_replies, status_command, wait_and_report
from holdfast.cli.wait_targets import BaseTarget
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Reply, SyncPreview

PANEL = "Putting in"
DEFAULT_PRIORITY = 5
WEB_PREFIXES = ("http://", "https://")

DirArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A folder of the machine that holds the library.")]


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "add", panel=PANEL)(add)
    command(app, "sync", panel=PANEL)(sync)
    command(app, "watch", panel=PANEL)(watch)


def add(
    face: CommandContext,
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
            raise BadRequest(f"{word!r} is a folder; use: {face.format_command('sync', word, base=base)}")
    asked = AddRequest(what or [], note, name, sitemap=sitemap, every=every)
    terms: dict[str, Any] = {"on_duplicate": on_duplicate, "index": False if no_index else None, "priority": priority}
    with face.open(work=not no_wait) as library:
        ensure_base(face, library, base)
        replies = asked.submit(library, base, terms)
        print_replies(face, replies, "added")
        return wait_and_report(face, library, base, replies, wait=not no_wait)


class AddRequest:
    """What somebody wants to add, looked at before anything is opened."""

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
        """Add it all."""
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
    face: CommandContext,
    folder: DirArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Bring a folder up to date.

    New files go in, changed ones are indexed again, missing ones go out.
    """
    if face.remote and not folder.is_absolute():
        raise BadRequest(f"The folder is one of the server's; write its whole path, not {str(folder)!r}.")
    with face.open(work=not no_wait and not dry_run) as library:
        if dry_run:
            found = library.documents.preview(base, folder)
            face.print_result(found, lambda: _print_preview(face, found))
            return ExitCode.OK
        ensure_base(face, library, base)
        reply = library.documents.sync(base, folder, priority=priority)
        print_replies(face, [reply], "syncing")
        if no_wait or reply.document is None:
            face.print_result({"base": base, "replies": [reply], "documents": []}, lambda: None)
            return reply_exit_code(str(reply.verdict), reply.reason)
        return _wait_for_folder(face, library, base, reply)


def _wait_for_folder(face: CommandContext, library: Holdfast, base: str, reply: Reply) -> ExitCode:
    """Wait until a folder and all below it have come to rest."""
    followed = BaseTarget(library, base, reply.document)
    wait_with_progress(face, library, followed, again=status_command(face, base, [reply.document or 0]))
    stands = followed.folder_status
    counts = library.bases.counts(base)

    def human() -> None:
        if stands is not None:
            face.terminal.print_row(stands.id, reply.name, stands.status, stands.why.message if stands.why else "")
        told = [f"{number:,} {format_value(status)}" for status, number in counts.by_status.items() if number]
        face.terminal.info(
            f"{format_count(counts.documents, 'document')} in base {base!r}: {', '.join(told) or 'none'}"
        )

    face.print_result(
        {"base": base, "replies": [reply], "documents": [stands] if stands else [], "counts": counts}, human
    )
    failed = stands is not None and str(stands.status) in ("failed", "degraded")
    return combine_exit_codes([ExitCode.PARTIAL if failed else ExitCode.OK])


def _print_preview(face: CommandContext, found: SyncPreview) -> None:
    for word, paths in (("added", found.added), ("changed", found.changed), ("removed", found.removed)):
        for path in paths:
            face.terminal.print_row(word, path)
    skipped = ", ".join(f"{number:,} {why}" for why, number in found.skipped.items())
    face.terminal.info(
        f"{len(found.added):,} to add, {len(found.changed):,} to change, {len(found.removed):,} to remove, "
        f"{found.unchanged:,} unchanged" + (f"; left out: {skipped}" if skipped else "") + ". Nothing was done."
    )


def watch(
    face: CommandContext,
    folder: DirArgument,
    every: Annotated[
        int, typer.Option("--every", metavar="SECONDS", min=1, help="Look so often even if nothing is reported.")
    ] = 300,
    base: BaseOption = DEFAULT_BASE,
) -> ExitCode:
    """Keep a folder in step until Ctrl-C.

    It is synced at once, and whenever something in it changes.
    """
    if face.remote:
        raise BadRequest("A folder is watched on the machine that holds the library; run this there, without --at.")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with face.open(work=True) as library:
        ensure_base(face, library, base)
        face.terminal.info(f"Watching {folder}; Ctrl-C ends it.")
        for reply in library.documents.watch(base, folder, stop=stop, every=timedelta(seconds=every)):
            if face.terminal.json:
                face.terminal.print_json_line(reply)
            else:
                face.terminal.print_row(reply.document, reply.name, _sync_label(reply), reply.job)
    face.terminal.info("Watching ended.")
    return ExitCode.OK  # a watch has no other end


def _sync_label(reply: Reply) -> str:
    return "syncing" if reply.accepted else format_cell(reply.message)
