"""`search` and `ask`: searches documents; answers questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_count
from holdfast.cli.options import DEFAULT_BASE, BaseOption, Mode
from holdfast.cli.resolve import resolve_documents

if TYPE_CHECKING:
    from holdfast.service.schemas import Answer, Hits, Notice

MAX_RESULT_CHARS = 600  # a longer result is cut, unless --whole is given


def declare(app: typer.Typer) -> None:
    command(app, "search")(search)
    command(app, "ask")(ask)


def search(
    context: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words or a question to search for.")],
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=100, help="Maximum number of results.")
    ] = 5,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel",
            metavar="CHANNEL",
            help="Search only this channel: fulltext, vector, questions, graph, or that of an installed plug-in; "
            "repeatable.",
        ),
    ] = None,
    below: Annotated[
        list[str] | None, typer.Option("--below", metavar="DOC", help="Search only this folder or sitemap; repeatable.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Print the whole text of each result.")] = False,
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Search the documents of a base.

    Example:
        holdfast search "which anchor holds in mud" --base handbook --limit 3
    """
    with context.open() as library:
        found = library.asking.search(
            base, query, limit=limit, channels=channel or None, below=resolve_documents(library, base, below or ())
        )
    context.print_result(
        {"hits": found, "notices": found.notices}, lambda: _print_hits(context, found, base, whole=whole)
    )


def ask(
    context: CommandContext,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")],
    mode: Annotated[Mode, typer.Option("--mode", help="How to find the passages for the answer.")] = "mix",
    base: BaseOption = DEFAULT_BASE,
) -> None:
    """Answer a question from the documents of a base, with citations.

    Example:
        holdfast ask "Which anchor holds in mud?" --base handbook
    """
    with context.open() as library:
        if context.terminal.interactive:
            answer = _print_stream(context, library.asking.stream(base, question, mode=mode))
        else:
            answer = library.asking.ask(base, question, mode=mode)
            context.print_result(answer, lambda: context.terminal.print_text(answer.text) if answer.text else None)
    if not context.terminal.json:
        _print_citations(context, answer, base)


def _print_notices(context: CommandContext, notices: list[Notice]) -> None:
    """Warn about channels that could not be searched."""
    for notice in notices:
        context.terminal.warn(f"The channel {notice.channel!r} could not be searched: {notice.message}")


def _print_hits(context: CommandContext, found: Hits, base: str, *, whole: bool) -> None:
    _print_notices(context, found.notices)
    if not found:
        context.terminal.info(
            f"No results in base {base!r}. Try other words, or list the documents: "
            f"{context.format_command('ls', base=base)}"
        )
    for hit in found:
        path = " > ".join((hit.title or hit.name, *(one for one in hit.headings if one != hit.title)))
        context.terminal.print_heading(f"{hit.rank}. {path}")
        channels = "; ".join(f"{name}: {_format_score(one.rank, one.score)}" for name, one in hit.channels.items())
        context.terminal.print_text(
            f"   document {hit.document}, chunk {hit.chunk}, score {hit.score:.3f} ({channels})"
        )
        text = hit.text if whole or len(hit.text) <= MAX_RESULT_CHARS else f"{hit.text[:MAX_RESULT_CHARS].rstrip()} …"
        context.terminal.print_text("\n".join(f"   {line}" for line in text.strip().splitlines()) + "\n")
    if found:
        show_first = show_command(context, base, found[0].document, found[0].chunk)
        context.terminal.info(f"{format_count(len(found), 'result')}. Show the first in its context: {show_first}")


def _format_score(rank: int, score: float) -> str:
    return f"rank {rank}, score {score:.3f}" if rank else f"score {score:.3f}"


def show_command(context: CommandContext, base: str, document: int, chunk: int) -> str:
    """Return the command line that shows a chunk with the text around it."""
    return context.format_command("show", document, "--chunk", chunk, base=base)


def _print_stream(context: CommandContext, parts: Any) -> Answer:
    """Print an answer while it arrives, and return it."""
    answer: Answer | None = None
    printed = False
    for part in parts:
        if isinstance(part, str):
            context.terminal.print_text(part, end="")
            printed = printed or bool(part)
        else:
            answer = part
    assert answer is not None  # noqa: S101 - the whole answer comes last
    if printed:
        context.terminal.print_text("")
    elif answer.text:
        context.terminal.print_text(answer.text)
    return answer


def _print_citations(context: CommandContext, answer: Answer, base: str) -> None:
    """Print the outcome of an answer and its citations."""
    _print_notices(context, answer.notices)
    if str(answer.outcome) != "answered" or answer.cut:
        context.terminal.info(answer.message)
    if answer.cut:
        context.terminal.info("The answer was cut off, because the language model stopped early.")
    if answer.citations and answer.text:
        context.terminal.print_text("")
    for citation in answer.citations:
        context.terminal.print_row(
            f"[{citation.number}]",
            citation.name,
            f'"{citation.quote}"',
            show_command(context, base, citation.document, citation.chunk),
        )
