"""`search` and `ask`: what a base knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.format import many
from holdfast.cli.options import DEFAULT_BASE, Base, Mode
from holdfast.cli.resolve import find_all

if TYPE_CHECKING:
    from holdfast.service.schemas import Answer, Hits, Notice

PANEL = "Searching"
SHOWN = 600  # characters of a passage


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "search", panel=PANEL)(search)
    command(app, "ask", panel=PANEL)(ask)


def search(
    face: Face,
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
    base: Base = DEFAULT_BASE,
) -> Exit:
    """Find the passages that fit best."""
    with face.open() as library:
        found = library.asking.search(
            base, query, limit=limit, channels=channel or None, below=find_all(library, base, below or ())
        )
    face.show({"hits": found, "notices": found.notices}, lambda: _hits(face, found, base, whole=whole))
    return Exit.OK


def ask(
    face: Face,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know.")],
    mode: Annotated[Mode, typer.Option("--mode", help="How the answer's context is gathered.")] = "mix",
    base: Base = DEFAULT_BASE,
) -> Exit:
    """Answer a question from the documents of a base, with citations."""
    how: dict[str, Any] = {"mode": _mode(mode)}
    with face.open() as library:
        if face.terminal.looked_at:
            answer = _streamed(face, library.asking.stream(base, question, **how))
        else:
            answer = library.asking.ask(base, question, **how)
            face.show(answer, lambda: face.terminal.text(answer.text) if answer.text else None)
    if not face.terminal.json:
        _told(face, answer, base)
    return Exit.OK


def _mode(mode: str) -> Any:
    from holdfast.service.schemas import Mode as Modes  # noqa: PLC0415 - slow to load

    return Modes(mode)


def _warn(face: Face, notices: list[Notice]) -> None:
    """Name the channels that could not be searched."""
    for one in notices:
        face.terminal.warn(f"The channel {one.channel} could not be searched: {one.message}")


def _hits(face: Face, found: Hits, base: str, *, whole: bool) -> None:
    _warn(face, found.notices)
    if not found:
        face.terminal.say(f"Nothing in base {base!r} fits.")
    for hit in found:
        path = " > ".join((hit.title or hit.name, *(one for one in hit.headings if one != hit.title)))
        face.terminal.heading(f"{hit.rank}. {path}")
        channels = ", ".join(f"{name} {_scored(one.rank, one.score)}" for name, one in hit.channels.items())
        face.terminal.text(f"   document {hit.document}, chunk {hit.chunk}, score {hit.score:.3f} ({channels})")
        text = hit.text if whole or len(hit.text) <= SHOWN else f"{hit.text[:SHOWN].rstrip()} …"
        face.terminal.text("\n".join(f"   {line}" for line in text.strip().splitlines()) + "\n")
    if found:
        first = found[0]
        face.terminal.say(
            f"{many(len(found), 'passage')}. Open one: {opening(face, base, first.document, first.chunk)}"
        )


def _scored(rank: int, score: float) -> str:
    return f"#{rank} {score:.3f}" if rank else f"{score:.3f}"


def opening(face: Face, base: str, document: int, chunk: int) -> str:
    """Return the command that opens a passage."""
    return face.hint("show", document, "--chunk", chunk, base=base)


def _streamed(face: Face, parts: Any) -> Answer:
    """Print an answer as its words come, and return it."""
    answer: Answer | None = None
    said = False
    for part in parts:
        if isinstance(part, str):
            face.terminal.text(part, end="")
            said = said or bool(part)
        else:
            answer = part
    assert answer is not None  # noqa: S101 - the whole answer comes last
    if said:
        face.terminal.text("")
    elif answer.text:
        face.terminal.text(answer.text)
    return answer


def _told(face: Face, answer: Answer, base: str) -> None:
    """Tell what an answer rests on."""
    _warn(face, answer.notices)
    if str(answer.outcome) != "answered" or answer.cut:
        face.terminal.say(answer.message)
    if answer.cut:
        face.terminal.say("The answer was cut off, because the language model stopped early.")
    if answer.citations:
        face.terminal.text("")
    for one in answer.citations:
        face.terminal.row(f"[{one.number}]", one.name, f'"{one.quote}"', opening(face, base, one.document, one.chunk))
