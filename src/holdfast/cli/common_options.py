"""The options of every command. They are not in `command.py`, so that `holdfast --help` loads few modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

KEY_VARIABLE = "HOLDFAST_KEY"

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only data and errors.")]
HomeOption = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Folder of the library; default: HOLDFAST_HOME.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="WHERE", help="Folder, database address or server address of the library.")
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--key-file", metavar="FILE", help=f"File with the API key for the server; default: the key in {KEY_VARIABLE}."
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Write a detailed log, and show the trace of an error.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The common options. A user may write them before or after the name of a command."""

    json: JsonOption = False
    quiet: QuietOption = False
    home: HomeOption = None
    at: AtOption = None
    key_file: KeyFileOption = None
    debug: DebugOption = False
