"""`ls` and `status`: what there is, and how it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.format import size as sized
from holdfast.cli.format import worded
from holdfast.cli.options import DEFAULT_BASE, Base, Cursor, Deleting, Kinds, Order, States, Text, base_names
from holdfast.cli.resolve import LARGEST_PAGE, find, is_job
from holdfast.cli.show import far, show_document, show_job
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document, Page

PANEL = "Looking"
MOST = 2_000  # lines of a tree
HEADER = ("id", "name", "kind", "size", "status", "why")


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "ls", panel=PANEL)(ls)
    command(app, "status", panel=PANEL)(status)


def ls(
    face: Face,
    folder: Annotated[
        str | None, typer.Argument(metavar="DOC", help="List what stands in this folder.", show_default=False)
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show folders with what is below them.")] = False,
    state: States = None,
    kind: Kinds = None,
    text: Text = None,
    deleting: Deleting = False,
    order: Annotated[Order, typer.Option("--order", help="What stands first.")] = "active",
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    size: Annotated[int, typer.Option("--size", "-n", min=1, max=LARGEST_PAGE, help="Documents on a page.")] = 50,
    page: Annotated[int, typer.Option("--page", min=1, help="Which page.")] = 1,
    cursor: Cursor = None,
    base: Base = DEFAULT_BASE,
) -> Exit:
    """List documents.

    The active ones stand first, then the failed, then the newest.
    """
    if tree and (state or kind or text or deleting or cursor):
        raise BadRequest("A tree shows all that is below; leave --state, --kind, --text, --deleting and --cursor away.")
    with face.open() as library:
        parent = find(library, base, folder) if folder else None
        if tree:
            return _tree(face, library, base, parent or 0)
        found = library.documents.list(
            base,
            parent=parent,
            states=state or None,
            kinds=kind or None,
            text=text,
            deleting=deleting,
            order=_order(order),
            reverse=reverse,
            cursor=cursor,
            page=page,
            size=size,
        )
    face.show(found, lambda: _listed(face, found, base, page))
    return Exit.OK


def _order(order: str) -> Any:
    from holdfast.documents import Order as Orders  # noqa: PLC0415 - slow to load

    return Orders(order)


def _listed(face: Face, found: Page[Document], base: str, page: int) -> None:
    face.terminal.table(HEADER, [_row(one, one.name) for one in found.items])
    if not found.items:
        face.terminal.say(f"No documents in base {base!r} are like that.")
    elif found.next_cursor is not None:
        face.terminal.say(f"{len(found.items):,} of {found.total:,}; more with --page {page + 1}")


def _row(one: Document, name: str) -> Sequence[Any]:
    why = one.why.message if one.why else far(one.progress)
    return one.id, name, one.kind, sized(one.size) if one.size else "", one.status, why


def _tree(face: Face, library: Holdfast, base: str, parent: int) -> Exit:
    found = []
    for depth, one in _below(library, base, parent, 0):
        found.append((depth, one))
        if len(found) == MOST:
            face.terminal.say(f"Only the first {MOST:,} are shown; name a folder to see what is in it.")
            break
    face.show(
        {"items": [one for _, one in found], "next_cursor": None, "total": len(found)},
        lambda: face.terminal.table(HEADER, [_row(one, "  " * depth + one.name) for depth, one in found]),
    )
    return Exit.OK


def _below(library: Holdfast, base: str, parent: int, depth: int) -> Iterator[tuple[int, Document]]:
    cursor = None
    while True:
        page = library.documents.list(base, parent=parent, order=_order("name"), cursor=cursor, size=LARGEST_PAGE)
        for one in page.items:
            yield depth, one
            if str(one.kind) in ("directory", "sitemap"):
                yield from _below(library, base, one.id, depth + 1)
        cursor = page.next_cursor
        if cursor is None:
            return


def status(
    face: Face,
    what: Annotated[
        str | None, typer.Argument(metavar="JOB|DOC", help="A job or a document; else all.", show_default=False)
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", "-b", metavar="NAME", help="The base that is meant.", autocompletion=base_names),
    ] = None,
) -> Exit:
    """Tell how a job, a document or everything stands."""
    with face.open() as library:
        if what is None:
            _overview(face, library, base)
        elif is_job(what):
            job = library.jobs.get(what)
            face.show(job, lambda: show_job(face, job))
        else:
            of = base or DEFAULT_BASE
            document = library.documents.get(of, find(library, of, what))
            face.show(document, lambda: show_document(face, document))
    return Exit.OK


def _overview(face: Face, library: Holdfast, base: str | None) -> None:
    bases = [library.bases.get(base)] if base else library.bases.list()
    counted = {one.name: library.bases.counts(one.name) for one in bases}
    queue = library.jobs.overview(base)

    def human() -> None:
        if not bases:
            face.terminal.say(f"There is no base yet; make one with: {face.hint('base', 'create', DEFAULT_BASE)}")
        face.terminal.table(
            ("base", "status", "documents", "size", "of these"),
            [(one.name, one.status, counted[one.name].documents, sized(counted[one.name].bytes),
              ", ".join(f"{many:,} {worded(word)}" for word, many in counted[one.name].by_status.items() if many))
             for one in bases],
        )  # fmt: skip
        active = ", ".join(f"{many:,} {worded(word)}" for word, many in queue.active.items() if many)
        rate = "" if not queue.failure_rate else f"{queue.failure_rate:.0%} of them failed"
        face.terminal.pairs(
            [
                ("queue", active or "empty"),
                ("ended today", ", ".join(f"{many:,} {worded(word)}" for word, many in queue.ended.items() if many)),
                ("failures", rate),
                ("oldest queued", queue.oldest_queued),
                ("paused", "everything" if queue.paused else queue.paused_bases),
            ]
        )

    face.show({"bases": bases, "counts": counted, "queue": queue}, human)
