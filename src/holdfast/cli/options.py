"""Arguments and options that several commands share.

The allowed values are repeated here, because the enumerations of the library are slow to import; a test compares them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.engine import Status
from holdfast.settings import DATABASE_FILE, Settings

DEFAULT_BASE = "default"

OnDuplicate = Literal["reject", "replace", "rename"]
Order = Literal["active", "name", "size", "changed"]
Mode = Literal["naive", "local", "global", "hybrid", "mix"]
Scope = Literal["read", "write", "admin"]
CardForm = Literal["csv", "json", "anki"]


class Kind(StrEnum):
    FILE = "file"
    NOTE = "note"
    URL = "url"
    DIRECTORY = "directory"
    SITEMAP = "sitemap"


def complete_base_name(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a base. Reads the database file directly, because importing the library takes a second."""
    homes = (context.find_root().params.get("home"), context.params.get("home"))
    with suppress(Exception):  # shell completion must not print errors
        home = next((home for home in reversed(homes) if home), None) or Settings.from_environment().home
        with closing(
            sqlite3.connect(f"{(Path(home) / DATABASE_FILE).absolute().as_uri()}?mode=ro", uri=True)
        ) as database:
            rows = database.execute("SELECT name FROM library_bases WHERE deleting = 0 ORDER BY name").fetchall()
        return [name for (name,) in rows if name.startswith(incomplete)]
    return []


BaseOption = Annotated[
    str,
    typer.Option("--base", "-b", metavar="NAME", help="The base that is meant.", autocompletion=complete_base_name),
]
AnyBaseOption = Annotated[
    str | None,
    typer.Option("--base", "-b", metavar="NAME", help="Only this base.", autocompletion=complete_base_name),
]
BaseArgument = Annotated[str, typer.Argument(metavar="NAME", help="The base.", autocompletion=complete_base_name)]
DocumentsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="DOC", help="Documents, by number or by name.", show_default=False)
]
StatesOption = Annotated[list[Status] | None, typer.Option("--state", help="Only with this status; may be said again.")]
KindsOption = Annotated[list[Kind] | None, typer.Option("--kind", help="Only of this kind; may be said again.")]
TextOption = Annotated[str | None, typer.Option("--text", help="Only with this in the name.")]
InsideOption = Annotated[str | None, typer.Option("--in", metavar="DOC", help="Only what stands in this folder.")]
DeletingOption = Annotated[bool, typer.Option("--deleting", help="What is being deleted, and nothing else.")]
PriorityOption = Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is served first, 9 last.")]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
CursorOption = Annotated[str | None, typer.Option("--cursor", help="Where the page before this one ended.")]
