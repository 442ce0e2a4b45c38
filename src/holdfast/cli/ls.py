"""`ls` and `status`: what there is, and how it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.format import format_size as sized
from holdfast.cli.format import format_value
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document, Page

PANEL = "Looking"
MAX_TREE_LINES = 2_000  # lines of a tree
HEADER = ("id", "name", "kind", "size", "status", "why")


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "ls", panel=PANEL)(ls)
    command(app, "status", panel=PANEL)(status)


def ls(
    face: CommandContext,
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
) -> ExitCode:
    """List documents.

    The active ones stand first, then the failed, then the newest.
    """
    if tree and (state or kind or text or deleting or cursor):
        raise BadRequest("A tree shows all that is below; leave --state, --kind, --text, --deleting and --cursor away.")
    with face.open() as library:
        parent = resolve_document(library, base, folder) if folder else None
        if tree:
            return _print_tree(face, library, base, parent or 0)
        found = library.documents.list(
            base,
            parent=parent,
            states=state or None,
            kinds=kind or None,
            text=text,
            deleting=deleting,
            order=_parse_order(order),
            reverse=reverse,
            cursor=cursor,
            page=page,
            size=size,
        )
    face.print_result(found, lambda: _print_page(face, found, base, page))
    return ExitCode.OK


def _parse_order(order: str) -> Any:
    from holdfast.documents import Order as Orders  # noqa: PLC0415 - slow to load

    return Orders(order)


def _print_page(face: CommandContext, found: Page[Document], base: str, page: int) -> None:
    face.terminal.print_table(HEADER, [_row(one, one.name) for one in found.items])
    if not found.items:
        face.terminal.info(f"No documents in base {base!r} are like that.")
    elif found.next_cursor is not None:
        face.terminal.info(f"{len(found.items):,} of {found.total:,}; more with --page {page + 1}")


def _row(one: Document, name: str) -> Sequence[Any]:
    why = one.why.message if one.why else format_progress(one.progress)
    return one.id, name, one.kind, sized(one.size) if one.size else "", one.status, why


def _print_tree(face: CommandContext, library: Holdfast, base: str, parent: int) -> ExitCode:
    found = []
    for depth, one in _walk_tree(library, base, parent, 0):
        found.append((depth, one))
        if len(found) == MAX_TREE_LINES:
            face.terminal.info(f"Only the first {MAX_TREE_LINES:,} are shown; name a folder to see what is in it.")
            break
    face.print_result(
        {"items": [one for _, one in found], "next_cursor": None, "total": len(found)},
        lambda: face.terminal.print_table(HEADER, [_row(one, "  " * depth + one.name) for depth, one in found]),
    )
    return ExitCode.OK


def _walk_tree(library: Holdfast, base: str, parent: int, depth: int) -> Iterator[tuple[int, Document]]:
    cursor = None
    while True:
        page = library.documents.list(
            base, parent=parent, order=_parse_order("name"), cursor=cursor, size=MAX_PAGE_SIZE
        )
        for one in page.items:
            yield depth, one
            if str(one.kind) in ("directory", "sitemap"):
                yield from _walk_tree(library, base, one.id, depth + 1)
        cursor = page.next_cursor
        if cursor is None:
            return


def status(
    face: CommandContext,
    what: Annotated[
        str | None, typer.Argument(metavar="JOB|DOC", help="A job or a document; else all.", show_default=False)
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", "-b", metavar="NAME", help="The base that is meant.", autocompletion=complete_base_name),
    ] = None,
) -> ExitCode:
    """Tell how a job, a document or everything stands."""
    with face.open() as library:
        if what is None:
            _print_overview(face, library, base)
        elif is_job_id(what):
            job = library.jobs.get(what)
            face.print_result(job, lambda: show_job(face, job))
        else:
            of = base or DEFAULT_BASE
            document = library.documents.get(of, resolve_document(library, of, what))
            face.print_result(document, lambda: show_document(face, document))
    return ExitCode.OK


def _print_overview(face: CommandContext, library: Holdfast, base: str | None) -> None:
    bases = [library.bases.get(base)] if base else library.bases.list()
    counted = {one.name: library.bases.counts(one.name) for one in bases}
    queue = library.jobs.overview(base)

    def human() -> None:
        if not bases:
            face.terminal.info(
                f"There is no base yet; make one with: {face.format_command('base', 'create', DEFAULT_BASE)}"
            )
        face.terminal.print_table(
            ("base", "status", "documents", "size", "of these"),
            [(one.name, one.status, counted[one.name].documents, sized(counted[one.name].bytes),
              ", ".join(f"{many:,} {format_value(word)}" for word, many in counted[one.name].by_status.items() if many))
             for one in bases],
        )  # fmt: skip
        active = ", ".join(f"{many:,} {format_value(word)}" for word, many in queue.active.items() if many)
        rate = "" if not queue.failure_rate else f"{queue.failure_rate:.0%} of them failed"
        face.terminal.print_pairs(
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

    face.print_result({"bases": bases, "counts": counted, "queue": queue}, human)
