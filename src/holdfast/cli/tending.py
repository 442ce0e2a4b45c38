"""`doctor` and `config`: whether all is as it should be, and what is set."""

from __future__ import annotations

import os
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.exits import Exit
from holdfast.cli.plain import lasting
from holdfast.cli.running import Face, command
from holdfast.core.url_secrets import MASK, masked
from holdfast.settings import PREFIX, Settings

if TYPE_CHECKING:
    from holdfast.front.values import Finding

PANEL = "Tending"


def declare(app: typer.Typer, config: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "doctor", panel=PANEL)(doctor)
    command(config, "show")(show)


def doctor(
    face: Face,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also read every file.")] = False,
) -> Exit:
    """Compare every store with what should be there.

    Ends with 1 while something is wrong.
    """
    with face.open() as library:
        found = library.accounts.doctor(fix=fix, deep=deep)
    face.show(found, lambda: _findings(face, found, fix=fix))
    return Exit.FAILED if any(one.fixed < one.count for one in found) else Exit.OK


def _findings(face: Face, found: list[Finding], *, fix: bool) -> None:
    for one in found:
        state = "repaired" if one.fixed >= one.count else "can be repaired" if one.fixable else "for people"
        face.terminal.row(one.code, state, one.sentence)
        for example in one.examples:
            face.terminal.row("", example)
    if not found:
        face.terminal.say("All is as it should be.")
    elif not fix and any(one.fixable for one in found):
        face.terminal.say(f"Repair what can be repaired: {face.hint('doctor', '--fix')}")


def show(face: Face) -> Exit:
    """Show every setting with its value and origin.

    Secrets are masked.
    """
    settings = Settings.from_environment() if face.where is None else face.settings()
    found = [_setting(face, settings, one) for one in fields(Settings)]

    def human() -> None:
        rows = [(one["name"], _written(one["value"]), one["origin"], one["meaning"]) for one in found]
        face.terminal.table(("setting", "value", "from", "meaning"), rows)

    face.show(found, human)
    return Exit.OK


def _setting(face: Face, settings: Settings, one: Any) -> dict[str, Any]:
    value = getattr(settings, one.name)
    name = f"{PREFIX}{one.name.upper()}"
    origin = "environment" if name in os.environ else "default"
    if face.where is not None and one.name in ("home", "database", "data"):
        origin = "command line"
    if not one.repr and value:
        value = MASK
    if isinstance(value, str):
        value = masked(value)
    return {"name": name, "value": value, "origin": origin, "meaning": one.metadata["meaning"]}


def _written(value: Any) -> str:
    return lasting(value.total_seconds()) if isinstance(value, timedelta) else "" if value is None else str(value)
