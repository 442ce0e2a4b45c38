"""`search` and `ask`: what a base knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.format import format_count
from holdfast.cli.options import DEFAULT_BASE, BaseOption, Mode
from holdfast.cli.resolve import resolve_documents

if TYPE_CHECKING:
    from holdfast.service.schemas import Answer, Hits, Notice

PANEL = "Searching"
MAX_PASSAGE_CHARS = 600  # characters of a passage


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "search", panel=PANEL)(search)
    command(app, "ask", panel=PANEL)(ask)


def search(
    face: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Passages, at most.")] = 5,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel",
            metavar="INDEX",
            help="Search only by this index: fulltext, vector, questions, graph, or another that is installed. "
            "May be repeated.",
        ),
    ] = None,
    below: Annotated[
        list[str] | None, typer.Option("--below", metavar="DOC", help="Only what stands in this folder.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Show whole passages.")] = False,
    base: BaseOption = DEFAULT_BASE,
) -> ExitCode:
    """Find the passages that fit best."""
    with face.open() as library:
        found = library.asking.search(
            base, query, limit=limit, channels=channel or None, below=resolve_documents(library, base, below or ())
        )
    face.print_result({"hits": found, "notices": found.notices}, lambda: _print_hits(face, found, base, whole=whole))
    return ExitCode.OK


def ask(
    face: CommandContext,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know.")],
    mode: Annotated[Mode, typer.Option("--mode", help="How the answer's context is gathered.")] = "mix",
    base: BaseOption = DEFAULT_BASE,
) -> ExitCode:
    """Answer a question from the documents of a base, with citations."""
    how: dict[str, Any] = {"mode": _parse_mode(mode)}
    with face.open() as library:
        if face.terminal.interactive:
            answer = _print_stream(face, library.asking.stream(base, question, **how))
        else:
            answer = library.asking.ask(base, question, **how)
            face.print_result(answer, lambda: face.terminal.print_text(answer.text) if answer.text else None)
    if not face.terminal.json:
        _print_citations(face, answer, base)
    return ExitCode.OK


def _parse_mode(mode: str) -> Any:
    from holdfast.service.schemas import Mode as Modes  # noqa: PLC0415 - slow to load

    return Modes(mode)


def _print_notices(face: CommandContext, notices: list[Notice]) -> None:
    """Name the channels that could not be searched."""
    for one in notices:
        face.terminal.warn(f"The channel {one.channel} could not be searched: {one.message}")


def _print_hits(face: CommandContext, found: Hits, base: str, *, whole: bool) -> None:
    _print_notices(face, found.notices)
    if not found:
        face.terminal.info(f"Nothing in base {base!r} fits.")
    for hit in found:
        path = " > ".join((hit.title or hit.name, *(one for one in hit.headings if one != hit.title)))
        face.terminal.print_heading(f"{hit.rank}. {path}")
        channels = ", ".join(f"{name} {_format_score(one.rank, one.score)}" for name, one in hit.channels.items())
        face.terminal.print_text(f"   document {hit.document}, chunk {hit.chunk}, score {hit.score:.3f} ({channels})")
        text = hit.text if whole or len(hit.text) <= MAX_PASSAGE_CHARS else f"{hit.text[:MAX_PASSAGE_CHARS].rstrip()} …"
        face.terminal.print_text("\n".join(f"   {line}" for line in text.strip().splitlines()) + "\n")
    if found:
        first = found[0]
        face.terminal.info(
            f"{format_count(len(found), 'passage')}. Open one: {show_command(face, base, first.document, first.chunk)}"
        )


def _format_score(rank: int, score: float) -> str:
    return f"#{rank} {score:.3f}" if rank else f"{score:.3f}"


def show_command(face: CommandContext, base: str, document: int, chunk: int) -> str:
    """Return the command that opens a passage."""
    return face.format_command("show", document, "--chunk", chunk, base=base)


def _print_stream(face: CommandContext, parts: Any) -> Answer:
    """Print an answer as its words come, and return it."""
    answer: Answer | None = None
    said = False
    for part in parts:
        if isinstance(part, str):
            face.terminal.print_text(part, end="")
            said = said or bool(part)
        else:
            answer = part
    assert answer is not None  # noqa: S101 - the whole answer comes last
    if said:
        face.terminal.print_text("")
    elif answer.text:
        face.terminal.print_text(answer.text)
    return answer


def _print_citations(face: CommandContext, answer: Answer, base: str) -> None:
    """Tell what an answer rests on."""
    _print_notices(face, answer.notices)
    if str(answer.outcome) != "answered" or answer.cut:
        face.terminal.info(answer.message)
    if answer.cut:
        face.terminal.info("The answer was cut off, because the language model stopped early.")
    if answer.citations:
        face.terminal.print_text("")
    for one in answer.citations:
        face.terminal.print_row(
            f"[{one.number}]", one.name, f'"{one.quote}"', show_command(face, base, one.document, one.chunk)
        )
