"""How a command is declared and run: the options that all have, the library it opens, and how it ends.

A command is a function whose first parameter is its `Face`; the others are its own arguments and options.
"""

from __future__ import annotations

import inspect
import logging
import shlex
import sys
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.exit_codes import ExitCode, error_to_dict
from holdfast.cli.options import DEFAULT_BASE
from holdfast.cli.terminal import Terminal
from holdfast.errors import BadRequest, BadSettings, HoldfastError
from holdfast.extras import find_missing_extra
from holdfast.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.service.client import Holdfast
    from holdfast.settings import Settings

KEY_VARIABLE = "HOLDFAST_KEY"
UNEXPECTED_ERROR = (
    "Something went wrong that was not foreseen ({error}). Run it again with --debug to see where, and tell us."
)
KEY_HINT = f"A key comes from {KEY_VARIABLE} or from a file that --key-file names."
LIST_COMMANDS = {"unknown_base": ("base", "ls"), "unknown_document": ("ls",), "unknown_job": ("queue", "ls")}

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
    """The options that every command has; on the command line they may stand before its name or behind it."""

    json: bool = False
    quiet: bool = False
    home: Path | None = None
    at: str | None = None
    key_file: Path | None = None
    debug: bool = False


COMMON_OPTIONS: dict[str, Any] = {
    "json": JsonOption,
    "quiet": QuietOption,
    "home": HomeOption,
    "at": AtOption,
    "key_file": KeyFileOption,
    "debug": DebugOption,
}
HIDDEN_OPTIONS = ("home", "at", "key_file", "debug")  # behind a command: they work, and `holdfast --help` tells of them


class CommandContext:
    """What a command sees of the one who typed it."""

    def __init__(self, common: CommonOptions) -> None:
        self.options = common
        self.terminal = Terminal(json=common.json, quiet=common.quiet)

    @property
    def location(self) -> str | None:
        """Where the library is; None: as the settings say."""
        if self.options.at and self.options.home:
            raise BadRequest("--at and --home both say where the library is; use one of them.")
        if self.options.at:
            return self.options.at
        return str(self.options.home) if self.options.home else None

    @property
    def remote(self) -> bool:
        """The library is behind a server."""
        return (self.location or "").startswith(("http://", "https://"))

    def open(self, *, work: bool = False) -> Holdfast:
        """Open the library; `work`: also index in this process, unless others do that there."""
        from holdfast.service.client import Holdfast  # noqa: PLC0415 - slow to load

        return Holdfast(self.location, key=self.key, work=None if work else False)

    def settings(self) -> Settings:
        """Return the settings of a library of this machine."""
        from holdfast.service.opening import settings_for  # noqa: PLC0415 - slow to load

        if self.remote:
            raise BadRequest("This needs a folder or a database, not a server; leave --at away or name another.")
        return settings_for(self.location)

    def format_command(self, *words: object, base: str | None = None) -> str:
        """Return a command that can be typed as it is printed: for the same library and, if one is named, its base."""
        common = {"--home": self.options.home, "--at": self.options.at, "--key-file": self.options.key_file}
        where = [str(word) for option, value in common.items() if value for word in (option, value)]
        of = [] if base in (None, DEFAULT_BASE) else ["--base", str(base)]
        return shlex.join(["holdfast", *where, *map(str, words), *of])

    def print_result(self, value: Any, human: Callable[[], None]) -> None:
        """Print a value as JSON, or for people."""
        if self.terminal.json:
            self.terminal.print_json(value)
        else:
            human()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is lost; where nobody can answer, `--yes` must have been said."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise BadRequest(f"{question} Nobody can be asked here; say --yes if you mean it. Nothing was changed.")
        if not typer.confirm(question, err=True):
            self.terminal.warn("Nothing was changed.")
            raise typer.Exit(ExitCode.FAILED)

    @property
    def key(self) -> str | None:
        """The key of the server, from a file; else it is a setting."""
        if self.options.key_file is None:
            return None
        try:
            return self.options.key_file.read_text().strip()
        except OSError as error:
            raise BadSettings(f"The key cannot be read from {self.options.key_file} ({error.strerror}).") from error


def command(app: typer.Typer, name: str, *, panel: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Declare a command of an app."""

    def declare(function: Callable[..., Any]) -> Any:
        app.command(name, rich_help_panel=panel)(_adapt_for_typer(function))
        return function

    return declare


def _adapt_for_typer(function: Callable[..., Any]) -> Callable[..., None]:
    """Return the function as Typer sees it: without its face, with the options that all have."""

    @wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        before = context.find_root().obj or CommonOptions()
        mine = {name: given.pop(name) for name in COMMON_OPTIONS}
        run_command(replace(before, **{name: value for name, value in mine.items() if value}), function, given)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    everywhere = [
        inspect.Parameter(name, keyword, default=False if _is_flag(name) else None, annotation=_command_option(name))
        for name in COMMON_OPTIONS
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(one.replace(kind=keyword) for one in own), *everywhere]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    del run.__wrapped__  # else its signature would be looked at
    return run


def run_command(common: CommonOptions, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Run a command and end with its exit code."""
    if common.debug:
        log_to_stderr(logging.DEBUG, "%(asctime)s %(levelname)s %(name)s %(message)s")
    face = CommandContext(common)
    try:
        code = function(face, **given)
    except KeyboardInterrupt:
        face.terminal.warn("\nInterrupted.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except typer.Abort:  # Ctrl-C or the end of the input, where something was asked
        face.terminal.warn("\nNothing was changed.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        if common.debug:
            raise
        raise typer.Exit(_print_error(face, error, given.get("base"))) from None
    if code:
        raise typer.Exit(code)


def _print_error(face: CommandContext, error: Exception, base: object) -> int:
    """Tell what went wrong, and return the exit code."""
    if isinstance(error, ModuleNotFoundError):
        error = find_missing_extra(error) or error
    if not isinstance(error, HoldfastError):
        error = HoldfastError(UNEXPECTED_ERROR.format(error=f"{type(error).__name__}: {error}"))
    said = error_to_dict(error)
    face.terminal.warn(f"holdfast: {error}")
    stands = {name: said["error"].get(name) for name in ("document", "job", "status")}
    if any((stands["document"], stands["job"])):
        face.terminal.warn("  " + ", ".join(f"{name} {value}" for name, value in stands.items() if value))
    for hint in _suggest_commands(face, said["error"]["code"], base):
        face.terminal.info(f"  {hint}")
    if said["error"]["exit"] == ExitCode.DENIED:
        face.terminal.info(f"  {KEY_HINT}")
    if face.terminal.json:
        face.terminal.print_json(said)
    return int(said["error"]["exit"])


def _suggest_commands(face: CommandContext, code: str, base: object) -> Iterator[str]:
    """Say what can be typed next; `base` is the one that the command was about, if it is one."""
    named = base if isinstance(base, str) else None
    if code in LIST_COMMANDS:
        listing = face.format_command(*LIST_COMMANDS[code], base=None if code == "unknown_base" else named)
        yield f"See which there are: {listing}"
    if code == "unknown_base" and named is not None:
        yield f"Make it: {face.format_command('base', 'create', named)}"
    if code == "database_busy":
        yield "Try again in a moment."


def _is_flag(name: str) -> bool:
    return isinstance(getattr(CommonOptions(), name), bool)


def _command_option(name: str) -> Any:
    """Return an option as a command has it."""
    kind, option = COMMON_OPTIONS[name].__origin__, COMMON_OPTIONS[name].__metadata__[0]
    if name not in HIDDEN_OPTIONS:
        return COMMON_OPTIONS[name]
    return Annotated[kind, typer.Option(option.default, *(option.param_decls or ()), hidden=True)]
