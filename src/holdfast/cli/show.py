"""`show`: all about one document; and how documents and jobs are shown elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_size, to_jsonable
from holdfast.cli.options import DEFAULT_BASE, BaseOption
from holdfast.cli.resolve import resolve_document
from holdfast.errors import BadRequest
from holdfast.paging import read_all_pages

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document, Job, Progress

TEXT_PART_CHARS = 100_000  # characters of a text that are read at once
MAX_JOBS_SHOWN = 3
EXCERPT_CHARS = 60  # characters of a chunk that is missing


def declare(app: typer.Typer) -> None:
    """Declare the command."""
    command(app, "show", panel="Looking")(show)


def show(
    context: CommandContext,
    document: Annotated[str, typer.Argument(metavar="DOC", help="A document, by number or by name.")],
    text: Annotated[bool, typer.Option("--text", help="Print its text as it was read.")] = False,
    chunks: Annotated[bool, typer.Option("--chunks", help="Print the parts that are searched.")] = False,
    chunk: Annotated[
        int | None, typer.Option("--chunk", metavar="N", help="Print one part with what stands around it.")
    ] = None,
    original: Annotated[
        Path | None, typer.Option("--original", metavar="FILE", help="Write the file as it came in; - for stdout.")
    ] = None,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Show a document: how it stands, each of its indexes, and why."""
    if sum((text, chunks, chunk is not None, original is not None)) > 1:
        raise BadRequest("Say one of --text, --chunks, --chunk and --original.")
    with context.open() as library:
        number = resolve_document(library, base, document)
        if text:
            _print_text(context, library, base, number)
        elif chunks:
            _print_chunks(context, library, base, number)
        elif chunk is not None:
            _print_passage(context, library, base, number, chunk)
        elif original is not None:
            _save_original(context, library, base, number, original)
        else:
            _print_document(context, library, base, number)


def show_document(context: CommandContext, one: Document) -> None:
    """Show all about a document."""
    context.terminal.print_heading(one.name)
    context.terminal.print_pairs(
        [
            ("document", f"{one.id} in base {one.base}" + (f", below {one.parent}" if one.parent else "")),
            ("kind", one.kind),
            ("status", one.status),
            ("why", one.why and one.why.message),
            ("tried again", one.retry_at),
            ("waits for", " ".join(why.message for why in one.waiting_for)),
            ("progress", format_progress(one.progress)),
            ("job", one.job),
            ("queue", None if one.queue_position is None else f"{one.queue_position:,} before it"),
            ("searchable", one.searchable),
            ("size", format_size(one.size) if one.size else ""),
            ("source", one.source),
            ("looked at every", f"{one.every:,} s" if one.every else ""),
            ("chunks", one.chunks),
            ("metadata", one.metadata),
            ("sha256", one.sha256),
            ("added", one.created_at),
            ("changed", one.changed_at),
            ("jobs", one.jobs[:MAX_JOBS_SHOWN]),
        ]
    )
    context.terminal.print_table(
        ("index", "state", "chunks", "missing", "attempts", "why"),
        [
            (index.kind, index.state, index.chunks, index.missing, f"{index.attempts}/{index.attempts_max}",
             index.error.message if index.error else format_progress(index.progress))
            for index in one.indexes
        ]
        + [(kind, "not enabled", "", "", "", why.message) for kind, why in one.not_enabled.items()],
    )  # fmt: skip


def show_job(context: CommandContext, one: Job) -> None:
    """Show all about a job."""
    context.terminal.print_pairs(
        [
            ("job", one.id),
            ("base", one.base),
            ("document", one.document),
            ("subject", one.subject),
            ("operation", one.operation),
            ("state", one.state),
            ("waits for", " ".join(why.message for why in one.waiting_for)),
            ("progress", format_progress(one.progress)),
            ("priority", one.priority),
            ("asked by", f"{one.requester} ({one.cause})" if one.requester else one.cause),
            ("asked at", one.created_at),
            ("ended at", one.finished_at),
            ("results", one.results),
        ]
    )


def format_progress(one: Progress | None) -> str:
    """Tell how far work is."""
    if one is None:
        return ""
    share = "" if one.share is None else f", {one.share:.0%}"
    return f"{one.stage}" + (f" {one.step}/{one.steps}" if one.steps > 1 else "") + share


def _print_document(context: CommandContext, library: Holdfast, base: str, number: int) -> None:
    """Show all about a document, and name what its indexes lack."""
    found = library.documents.get(base, number)
    lacks = library.dossiers.missing(base, number) if any(index.missing for index in found.indexes) else []

    def human() -> None:
        show_document(context, found)
        context.terminal.print_table(
            ("missing in", "chunk", "begins", "why"),
            [(one.index, one.chunk, one.text[:EXCERPT_CHARS], one.problem.message) for one in lacks],
        )

    context.print_result(to_jsonable(found) | {"missing": lacks}, human)


def _print_text(context: CommandContext, library: Holdfast, base: str, number: int) -> None:
    """Print a text, part by part; as JSON the whole of it."""
    parts = []
    start: int | None = 0
    first = None
    while start is not None:
        part = library.documents.text(base, number, start=start, length=TEXT_PART_CHARS)
        first = first or part
        if context.terminal.json:
            parts.append(part.text)
        else:
            context.terminal.print_text(part.text, end="")
        start = part.following
    if not context.terminal.json:
        context.terminal.print_text("")
    elif first is not None:
        context.terminal.print_json(to_jsonable(first) | {"text": "".join(parts), "following": None})


def _print_chunks(context: CommandContext, library: Holdfast, base: str, number: int) -> None:
    found = list(read_all_pages(lambda cursor: library.documents.chunks(base, number, cursor=cursor)))
    if context.terminal.json:
        context.terminal.print_json(found)
        return
    for one in found:
        path = " > ".join(one.headings)
        context.terminal.print_heading(
            f"chunk {one.chunk}, {one.tokens} tokens, {one.start}-{one.end}" + (f", {path}" if path else "")
        )
        context.terminal.print_text(one.text.rstrip() + "\n")


def _print_passage(context: CommandContext, library: Holdfast, base: str, number: int, chunk: int) -> None:
    found = library.documents.passage(base, number, chunk)

    def human() -> None:
        context.terminal.print_heading(" > ".join((found.name, *found.headings)))
        if found.page is not None:
            context.terminal.print_row(f"page {found.page}")
        before, after = found.before.strip(), found.after.strip()
        context.terminal.print_text(
            "\n".join(part for part in (before, f">>> {found.text.strip()} <<<", after) if part)
        )

    context.print_result(found, human)


def _save_original(context: CommandContext, library: Holdfast, base: str, number: int, where: Path) -> None:
    """Write the bytes of a document somewhere; a file that is there is not overwritten."""
    if str(where) == "-":
        library.documents.download(base, number, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    written = library.documents.download(base, number, where)
    told = {"document": number, "path": str(where.absolute()), "size": written}
    context.print_result(told, lambda: context.terminal.info(f"Wrote {format_size(written)} to {where}"))
