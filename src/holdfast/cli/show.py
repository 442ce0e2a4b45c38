"""`show`: prints a document. Other commands use its functions to print documents and jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_count, format_duration, format_size, to_jsonable
from holdfast.cli.options import DEFAULT_BASE, BaseOption
from holdfast.cli.resolve import resolve_document
from holdfast.errors import BadRequest
from holdfast.paging import MAX_COUNT, read_all_pages

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document, Job, Progress, UsageTotal

TEXT_PART_CHARS = 100_000  # per call
MAX_JOBS_SHOWN = 3
EXCERPT_CHARS = 60  # of the text of a missing chunk


def declare(app: typer.Typer) -> None:
    command(app, "show")(show)


def show(
    context: CommandContext,
    document: Annotated[str, typer.Argument(metavar="DOC", help="A document, by id or name.")],
    text: Annotated[bool, typer.Option("--text", help="Print the text of the document.")] = False,
    chunks: Annotated[bool, typer.Option("--chunks", help="Print the chunks of the document.")] = False,
    chunk: Annotated[
        int | None, typer.Option("--chunk", metavar="N", help="Print one chunk with the text around it.")
    ] = None,
    original: Annotated[
        Path | None, typer.Option("--original", metavar="FILE", help="Save the original file; - for stdout.")
    ] = None,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Show a document with the state of each index.

    Chunks that are missing in an index are listed with the reason.

    Example:
        holdfast show report.pdf --base handbook
        holdfast show 42 --text
    """
    if sum((text, chunks, chunk is not None, original is not None)) > 1:
        raise BadRequest("show_options_combined")
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


def show_document(context: CommandContext, document: Document) -> None:
    context.terminal.print_heading(document.name)
    context.terminal.print_pairs(
        [
            (
                "document",
                f"{document.id} in base {document.base}"
                + (f", in folder {document.parent}" if document.parent else ""),
            ),
            ("kind", document.kind),
            ("status", document.status),
            ("reason", document.why and document.why.message),
            ("next attempt", document.retry_at),
            ("waiting", " ".join(why.message for why in document.waiting_for)),
            ("progress", format_progress(document.progress)),
            ("job", document.job),
            (
                "queue",
                None
                if (ahead := document.queue_position) is None
                else f"{format_count(ahead, 'job', exact=ahead < MAX_COUNT)} before it",
            ),
            ("searchable", document.searchable),
            ("size", format_size(document.size) if document.size else ""),
            ("source", document.source),
            ("read again every", format_duration(document.every) if document.every else ""),
            ("chunks", document.chunks),
            ("metadata", document.metadata),
            ("sha256", document.sha256),
            ("added at", document.created_at),
            ("changed at", document.changed_at),
            ("latest jobs", document.jobs[:MAX_JOBS_SHOWN]),
        ]
    )
    context.terminal.print_table(
        ("index", "state", "chunks", "missing", "attempts", "details"),
        [
            (index.kind, index.state, index.chunks, index.missing, f"{index.attempts}/{index.attempts_max}",
             index.error.message if index.error else format_progress(index.progress))
            for index in document.indexes
        ]
        + [(kind, "not enabled", "", "", "", why.message) for kind, why in document.not_enabled.items()],
    )  # fmt: skip


def show_job(context: CommandContext, job: Job) -> None:
    context.terminal.print_pairs(
        [
            ("job", job.id),
            ("base", job.base),
            ("document", job.document),
            ("subject", job.subject),
            ("operation", job.operation),
            ("state", job.state),
            ("waiting", " ".join(why.message for why in job.waiting_for)),
            ("progress", format_progress(job.progress)),
            ("priority", job.priority),
            ("requested by", f"{job.requester} ({job.cause})" if job.requester else job.cause),
            ("requested at", job.created_at),
            ("ended at", job.finished_at),
            ("tokens paid", format_tokens(job.cost.spent) if job.cost else ""),
            ("tokens saved", format_tokens(job.cost.saved) if job.cost else ""),
        ]
    )
    context.terminal.print_table(
        ("result", "state", "missing", "attempts", "written", "kept", "removed", "CPU", "memory", "error"),
        [
            (kind, one["state"], one["missing"], one.get("attempts", ""),
             *(one.get(name, "") for name in ("written", "kept", "removed")),
             f"{one['cpu_ms'] / 1000:.3f} s" if "cpu_ms" in one else "",
             format_size(one["peak_kb"] * 1024) if "peak_kb" in one else "", one.get("error", ""))
            for kind, one in job.results.items()
        ],
    )  # fmt: skip


def format_tokens(total: UsageTotal) -> str:
    """Format tokens and their price, if it is known; empty if there are none."""
    if not total.texts:
        return ""
    return f"{total.tokens:,}" + (f" ({total.price:.4g})" if total.price is not None else "")


def format_progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    share = "" if progress.share is None else f", {progress.share:.0%}"
    return f"{progress.stage}" + (f" {progress.step}/{progress.steps}" if progress.steps > 1 else "") + share


def _print_document(context: CommandContext, library: Holdfast, base: str, number: int) -> None:
    """Print a document, and the chunks that are missing in its indexes."""
    found = library.documents.get(base, number)
    missing = library.dossiers.missing(base, number) if any(index.missing for index in found.indexes) else []

    def human() -> None:
        show_document(context, found)
        context.terminal.print_table(
            ("missing in", "chunk", "text", "reason"),
            [(chunk.index, chunk.chunk, chunk.text[:EXCERPT_CHARS], chunk.problem.message) for chunk in missing],
        )

    context.print_result(to_jsonable(found) | {"missing": missing}, human)


def _print_text(context: CommandContext, library: Holdfast, base: str, number: int) -> None:
    """Print the text in parts; as JSON, print it in one piece."""
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
    for chunk in found:
        path = " > ".join(chunk.headings)
        context.terminal.print_heading(
            f"chunk {chunk.chunk}, {chunk.tokens} tokens, {chunk.start}-{chunk.end}" + (f", {path}" if path else "")
        )
        context.terminal.print_text(chunk.text.rstrip() + "\n")


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
    """Write the original file. An existing file is not overwritten."""
    if str(where) == "-":
        library.documents.download(base, number, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    written = library.documents.download(base, number, where)
    result = {"document": number, "path": str(where.absolute()), "size": written}
    context.print_result(result, lambda: context.terminal.info(f"Saved {format_size(written)} to {where}."))
