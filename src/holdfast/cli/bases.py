"""`base`: the bases, made, set, emptied and deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit
from holdfast.cli.format import many, size, worded
from holdfast.cli.options import DEFAULT_BASE, BaseName, Yes
from holdfast.cli.show import far
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from holdfast.service.schemas import Base, Counts

NewName = Annotated[str, typer.Argument(metavar="NAME", help="A name that is free.")]
Given = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, as in: chunk_size=400 indexes=vector,fulltext"),
]
LISTS = ("indexes", "languages")
WORDS = ("embedding", "chat")  # where none is a word like others
NOTHING = ("none", "null", "")


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "ls")(ls)
    command(app, "create")(create)
    command(app, "show")(show)
    command(app, "set")(change)
    command(app, "rename")(rename)
    command(app, "repair")(repair)
    command(app, "clear")(clear)
    command(app, "delete")(delete)


def ls(face: Face) -> Exit:
    """List the bases."""
    with face.open() as library:
        found = library.bases.list()
        counted = {one.name: library.bases.counts(one.name) for one in found} if not face.terminal.json else {}

    def human() -> None:
        face.terminal.table(
            ("name", "status", "documents", "size", "indexes"),
            [
                (one.name, one.status, counted[one.name].documents, size(counted[one.name].bytes), one.settings.indexes)
                for one in found
            ],
        )
        if not found:
            face.terminal.say(f"There is no base yet; make one with: {face.hint('base', 'create', DEFAULT_BASE)}")

    face.show(found, human)
    return Exit.OK


def create(face: Face, name: NewName, given: Given = None) -> Exit:
    """Make a base."""
    with face.open() as library:
        made = library.bases.create(name, **read(given or []))
    face.show(made, lambda: face.terminal.say(f"Made the base {made.name!r}."))
    return Exit.OK


def show(face: Face, name: BaseName) -> Exit:
    """Show a base with its settings and how many documents it has."""
    with face.open() as library:
        found, counts = library.bases.get(name), library.bases.counts(name)
    face.show({"base": found, "counts": counts}, lambda: _shown(face, found, counts))
    return Exit.OK


def change(face: Face, name: BaseName, given: Given = None) -> Exit:
    """Set a base otherwise.

    Its documents follow in the background while the old index serves.
    """
    if not given:
        raise BadRequest(f"Say what to set, as in: {face.hint('base', 'set', name, 'chunk_size=400')}")
    with face.open() as library:
        changed = library.bases.change(name, **read(given))
    face.show(changed, lambda: face.terminal.say(f"Set {', '.join(read(given))} of base {changed.name!r}."))
    if changed.rollout is not None and not face.terminal.json:
        face.terminal.say("Its documents follow when somebody works: a server, a worker, or the next `holdfast add`.")
    return Exit.OK


def rename(face: Face, name: BaseName, to: NewName) -> Exit:
    """Give a base another name."""
    with face.open() as library:
        renamed = library.bases.rename(name, to)
    face.show(renamed, lambda: face.terminal.say(f"The base {name!r} is called {to!r} now."))
    return Exit.OK


def repair(face: Face, name: BaseName) -> Exit:
    """Try again what made a base fail, and build what is missing."""
    with face.open() as library:
        found = library.bases.repair(name)
    face.show(found, lambda: face.terminal.say(f"The base {name!r} is {found.status}."))
    return Exit.OK


def clear(face: Face, name: BaseName, yes: Yes = False) -> Exit:
    """Delete all documents of a base; name and settings stay."""
    return _emptied(face, name, yes=yes, whole=False)


def delete(face: Face, name: BaseName, yes: Yes = False) -> Exit:
    """Delete a base with all that is in it."""
    return _emptied(face, name, yes=yes, whole=True)


def _emptied(face: Face, name: str, *, yes: bool, whole: bool) -> Exit:
    with face.open() as library:
        documents = many(library.bases.counts(name).documents, "document")
        what = f"base {name!r} with {documents}" if whole else f"all {documents} of base {name!r}"
        face.confirm(f"Delete {what}?", yes=yes)
        (library.bases.delete if whole else library.bases.clear)(name)
    told = {"base": name, "deleted" if whole else "cleared": True}
    face.show(told, lambda: face.terminal.say(f"Deleted {what}; what is left on the disk is erased by whoever works."))
    return Exit.OK


def read(given: list[str]) -> dict[str, Any]:
    """Read settings as people write them."""
    found: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise BadRequest(f"{word!r} is no setting; write it as KEY=VALUE.")
        found[name] = _value(name, text)
    return found


def _value(name: str, text: str) -> Any:
    if name in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in WORDS:
        return text
    if text.lower() in NOTHING:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _shown(face: Face, found: Base, counts: Counts) -> None:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    face.terminal.heading(found.name)
    face.terminal.pairs(
        [
            ("status", found.status),
            ("why", found.problem and found.problem.message),
            ("follows its settings", far(found.rollout)),
            ("documents", counts.documents),
            *((worded(status), number) for status, number in counts.by_status.items() if number),
            ("size", size(counts.bytes)),
            *((name, value) for name, value in asdict(found.settings).items()),
            *((f"no {kind}", why.message) for kind, why in found.not_enabled.items()),
        ]
    )
