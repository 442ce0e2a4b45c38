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
    """Complete the name of a base. This reads the database file directly, because importing the library is slow."""
    homes = (context.find_root().params.get("home"), context.params.get("home"))
    with suppress(Exception):  # shell completion must not print errors
        home = next((home for home in reversed(homes) if home), None) or Settings.from_environment().home
        with closing(
            sqlite3.connect(f"{(Path(home) / DATABASE_FILE).absolute().as_uri()}?mode=ro", uri=True)
        ) as database:
            rows = database.execute("SELECT name FROM library_bases WHERE deleting = 0 ORDER BY name").fetchall()
        return [name for (name,) in rows if name.startswith(incomplete)]
    return []


def complete_status(incomplete: str) -> list[str]:
    return [name for name in STATUS_NAMES if name.startswith(incomplete)]


def parse_status(name: str | Status) -> Status:
    """Return the status with this name: as the commands print it (`ready`), or as in JSON (`success`)."""
    try:
        return STATUS_NAMES.get(name) or Status(name)
    except ValueError:
        raise typer.BadParameter(f"{name!r} is not a status. Use one of: {', '.join(STATUS_NAMES)}.") from None


STATUS_NAMES = {"ready" if status is Status.SUCCESS else str(status): status for status in Status}

BaseOption = Annotated[
    str,
    typer.Option("--base", "-b", metavar="NAME", help="Name of the base.", autocompletion=complete_base_name),
]
AnyBaseOption = Annotated[
    str | None,
    typer.Option(
        "--base", "-b", metavar="NAME", help="Only this base; default: all bases.", autocompletion=complete_base_name
    ),
]
BaseArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the base.", autocompletion=complete_base_name)
]
DocumentsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="DOC", help="Documents, by id or name.", show_default=False)
]
StatesOption = Annotated[
    list[Status] | None,
    typer.Option(
        "--status",
        "--state",
        metavar="STATUS",
        help=f"Only documents with this status: {', '.join(STATUS_NAMES)}; repeatable.",
        parser=parse_status,
        autocompletion=complete_status,
    ),
]
KindsOption = Annotated[list[Kind] | None, typer.Option("--kind", help="Only documents of this kind; repeatable.")]
TextOption = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="Only documents with this text in their name.")
]
InsideOption = Annotated[
    str | None, typer.Option("--in", metavar="DOC", help="Only documents in this folder or sitemap.")
]
DeletingOption = Annotated[bool, typer.Option("--deleting", help="Only documents that are being deleted.")]
PriorityOption = Annotated[
    int, typer.Option("--priority", metavar="N", min=0, max=9, help="Priority from 0 (first) to 9 (last).")
]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the result.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="TEXT", help="The next_cursor of the previous page.")
]
