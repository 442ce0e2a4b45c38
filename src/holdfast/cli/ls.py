"""`ls` and `status`: lists documents; shows the status of a job, a document or everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_size, format_value
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

MAX_TREE_LINES = 2_000  # shown at most
HEADER = ("id", "name", "kind", "size", "status", "why")


def declare(app: typer.Typer) -> None:
    command(app, "ls")(ls)
    command(app, "status")(status)


def ls(
    context: CommandContext,
    folder: Annotated[
        str | None, typer.Argument(metavar="DOC", help="List what stands in this folder.", show_default=False)
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show folders with what is below them.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    deleting: DeletingOption = False,
    order: Annotated[Order, typer.Option("--order", help="What stands first.")] = "active",
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=MAX_PAGE_SIZE, help="Documents on a page.")] = 50,
    page: Annotated[int, typer.Option("--page", min=1, help="Which page.")] = 1,
    cursor: CursorOption = None,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """List documents.

    The active ones stand first, then the failed, then the newest.
    """
    if tree and (state or kind or text or deleting or cursor):
        raise BadRequest("A tree shows all that is below; leave --state, --kind, --text, --deleting and --cursor away.")
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
    context.print_result(found, lambda: _print_page(context, found, base, page))


def _print_page(context: CommandContext, found: Page[Document], base: str, page: int) -> None:
    context.terminal.print_table(HEADER, [_row(document, document.name) for document in found.items])
    if not found.items:
        context.terminal.info(f"No documents in base {base!r} are like that.")
    elif found.next_cursor is not None:
        context.terminal.info(f"{len(found.items):,} of {found.total:,}; more with --page {page + 1}")


def _row(document: Document, name: str) -> Sequence[Any]:
    why = document.why.message if document.why else format_progress(document.progress)
    return document.id, name, document.kind, format_size(document.size) if document.size else "", document.status, why


def _print_tree(context: CommandContext, library: Holdfast, base: str, parent: int) -> None:
    found = []
    for depth, document in _walk_tree(library, base, parent, 0):
        found.append((depth, document))
        if len(found) == MAX_TREE_LINES:
            context.terminal.info(f"Only the first {MAX_TREE_LINES:,} are shown; name a folder to see what is in it.")
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
        str | None, typer.Argument(metavar="JOB|DOC", help="A job or a document; else all.", show_default=False)
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", "-b", metavar="NAME", help="The base that is meant.", autocompletion=complete_base_name),
    ] = None,
) -> None:
    """Tell how a job, a document or everything stands."""
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
            context.terminal.info(
                f"There is no base yet; make one with: {context.format_command('base', 'create', DEFAULT_BASE)}"
            )
        context.terminal.print_table(
            ("base", "status", "documents", "size", "of these"),
            [(one.name, one.status, counted[one.name].documents, format_size(counted[one.name].bytes),
              ", ".join(f"{many:,} {format_value(word)}" for word, many in counted[one.name].by_status.items() if many))
             for one in bases],
        )  # fmt: skip
        active = ", ".join(f"{many:,} {format_value(word)}" for word, many in queue.active.items() if many)
        rate = "" if not queue.failure_rate else f"{queue.failure_rate:.0%} of them failed"
        context.terminal.print_pairs(
            [
                ("queue", active or "empty"),
                (
                    "ended today",
                    ", ".join(f"{many:,} {format_value(word)}" for word, many in queue.ended.items() if many),
                ),
                ("failures", rate),
                ("oldest queued", queue.oldest_queued),
                ("paused", "everything" if queue.paused else queue.paused_bases),
            ]
        )

    context.print_result({"bases": bases, "counts": counted, "queue": queue}, human)
