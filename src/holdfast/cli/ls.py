"""`ls` and `status`: lists documents; shows the status of a job, a document or the whole library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import (
    HOUR,
    format_count,
    format_documents,
    format_next_page,
    format_size,
    format_status_counts,
    format_value,
)
from holdfast.cli.options import (
    DEFAULT_BASE,
    BaseOption,
    CursorOption,
    DeletingOption,
    KindsOption,
    Order,
    StatesOption,
    TextOption,
    complete_base_name,
)
from holdfast.cli.resolve import MAX_PAGE_SIZE, is_job_id, resolve_document
from holdfast.cli.show import format_progress, show_document, show_job
from holdfast.errors import BadRequest
from holdfast.paging import read_all_pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document, Page

MAX_TREE_LINES = 2_000
HEADER = ("id", "name", "kind", "size", "status", "details")


def declare(app: typer.Typer) -> None:
    command(app, "ls")(ls)
    command(app, "status")(status)


def ls(
    context: CommandContext,
    folder: Annotated[
        str | None, typer.Argument(metavar="DOC", help="List only this folder or sitemap.", show_default=False)
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="List all folders with their contents, as a tree.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    deleting: DeletingOption = False,
    order: Annotated[
        Order, typer.Option("--order", help="Sort by activity, name, size or time of the last change.")
    ] = "active",
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    size: Annotated[
        int, typer.Option("--size", "-n", metavar="N", min=1, max=MAX_PAGE_SIZE, help="Documents per page.")
    ] = 50,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Number of the page.")] = 1,
    cursor: CursorOption = None,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """List the documents of a base.

    Queued and indexing documents come first, then failed ones, then the newest.

    Example:
        holdfast ls --base handbook
        holdfast ls --status failed
        holdfast ls --tree
    """
    filtered = bool(folder or state or kind or text or deleting)
    if tree and (state or kind or text or deleting or cursor):
        raise BadRequest("tree_with_filters")
    with context.open() as library:
        parent = resolve_document(library, base, folder) if folder else None
        if tree:
            _print_tree(context, library, base, parent or 0)
            return
        found = library.documents.list(
            base,
            parent=parent,
            states=state or None,
            kinds=kind or None,
            text=text,
            deleting=deleting,
            order=order,
            reverse=reverse,
            cursor=cursor,
            page=page,
            size=size,
        )
    number = page if cursor is None else None
    context.print_result(found, lambda: _print_page(context, found, base, number, filtered=filtered))


def _print_page(context: CommandContext, found: Page[Document], base: str, page: int | None, *, filtered: bool) -> None:
    context.terminal.print_table(HEADER, [_row(document, document.name) for document in found.items])
    if not found.items:
        context.terminal.info(_explain_empty_page(context, found, base, page, filtered=filtered))
    elif found.next_cursor is not None:
        context.terminal.info(format_next_page(found, page, "document"))


def _explain_empty_page(
    context: CommandContext, found: Page[Document], base: str, page: int | None, *, filtered: bool
) -> str:
    if found.total:
        what = "The page after the cursor" if page is None else f"Page {page}"
        return f"{what} is empty. Base {base!r} has only {format_count(found.total, 'document')} to list."
    if filtered:
        return f"No documents in base {base!r} match. List all: {context.format_command('ls', base=base)}"
    return f"No documents in base {base!r}. Add some: {context.format_command('add', 'FILE', base=base)}"


def _row(document: Document, name: str) -> Sequence[Any]:
    why = document.why.message if document.why else format_progress(document.progress)
    return document.id, name, document.kind, format_size(document.size) if document.size else "", document.status, why


def _print_tree(context: CommandContext, library: Holdfast, base: str, parent: int) -> None:
    found = []
    for depth, document in _walk_tree(library, base, parent, 0):
        found.append((depth, document))
        if len(found) == MAX_TREE_LINES:
            context.terminal.info(f"Only the first {MAX_TREE_LINES:,} documents are listed. Name a folder to list it.")
            break
    context.print_result(
        {"items": [document for _, document in found], "next_cursor": None, "total": len(found)},
        lambda: context.terminal.print_table(
            HEADER, [_row(document, "  " * depth + document.name) for depth, document in found]
        ),
    )


def _walk_tree(library: Holdfast, base: str, parent: int, depth: int) -> Iterator[tuple[int, Document]]:
    def read(cursor: str | None) -> Page[Document]:
        return library.documents.list(base, parent=parent, order="name", cursor=cursor, size=MAX_PAGE_SIZE)

    for document in read_all_pages(read):
        yield depth, document
        if str(document.kind) in ("directory", "sitemap"):
            yield from _walk_tree(library, base, document.id, depth + 1)


def status(
    context: CommandContext,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|DOC",
            help="Id of a job, or id or name of a document; default: the whole library.",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            "-b",
            metavar="NAME",
            help="Name of the base; default: all bases; for a document: default.",
            autocompletion=complete_base_name,
        ),
    ] = None,
) -> None:
    """Show the status of the library, of a document or of a job.

    Example:
        holdfast status
        holdfast status report.pdf --base handbook
    """
    with context.open() as library:
        if what is None:
            _print_overview(context, library, base)
        elif is_job_id(what):
            job = library.jobs.get(what)
            context.print_result(job, lambda: show_job(context, job))
        else:
            of = base or DEFAULT_BASE
            document = library.documents.get(of, resolve_document(library, of, what))
            context.print_result(document, lambda: show_document(context, document))


def _print_overview(context: CommandContext, library: Holdfast, base: str | None) -> None:
    bases = [library.bases.get(base)] if base else library.bases.list()
    counted = {one.name: library.bases.counts(one.name) for one in bases}
    queue = library.jobs.overview(base)

    def human() -> None:
        if not bases:
            context.terminal.info(f"No bases yet. Create one: {context.format_command('base', 'create', DEFAULT_BASE)}")
        context.terminal.print_table(
            ("base", "status", "documents", "size", "by status"),
            [(one.name, one.status, format_documents(counted[one.name]), format_size(counted[one.name].bytes),
              format_status_counts(counted[one.name]))
             for one in bases],
        )  # fmt: skip
        active = ", ".join(f"{many:,} {format_value(word)}" for word, many in queue.active.items() if many)
        ended = ", ".join(f"{many:,} {format_value(word)}" for word, many in queue.ended.items() if many)
        context.terminal.print_pairs(
            [
                ("active jobs", active or "none"),
                (f"jobs ended in the last {queue.window_seconds // HOUR} h", ended),
                ("of these, failed", f"{queue.failure_rate:.0%}" if queue.failure_rate else ""),
                ("oldest queued job", queue.oldest_queued),
                ("paused", "all bases" if queue.paused else queue.paused_bases),
            ]
        )

    context.print_result({"bases": bases, "counts": counted, "queue": queue}, human)
