"""The options that every command has. They are apart from `command.py`, so that `holdfast --help` loads little."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

KEY_VARIABLE = "HOLDFAST_KEY"

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but data and errors.")]
HomeOption = Annotated[Path | None, typer.Option("--home", metavar="DIR", help="The folder of the library.")]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="WHERE", help="Where the library is: a folder, a database or a server.")
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help=f"File with the key of the server, else {KEY_VARIABLE}."),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Log what is done, and show where an error comes from.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The command line accepts these before and after the name of a command."""

    json: JsonOption = False
    quiet: QuietOption = False
    home: HomeOption = None
    at: AtOption = None
    key_file: KeyFileOption = None
    debug: DebugOption = False
