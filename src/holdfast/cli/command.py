"""Declares and runs a command: common options, opening the library, errors and the exit code.

A command is a function. Its first parameter is the `CommandContext`; the others are its own arguments and options. It
returns an exit code, or None for success. Its docstring is the help text and ends with an example:

    def show(context: CommandContext, name: BaseArgument) -> None:
        '''Show a base.

        Example:
            holdfast base show handbook
        '''

    command(app, "show")(show)
"""

from __future__ import annotations

import inspect
import logging
import shlex
import sys
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from holdfast.cli.common_options import KEY_VARIABLE, CommonOptions
from holdfast.cli.exit_codes import ExitCode, error_exit_code, error_to_dict
from holdfast.cli.options import DEFAULT_BASE
from holdfast.cli.terminal import Terminal
from holdfast.errors import BadRequest, BadSettings, Conflict, HoldfastError
from holdfast.extras import find_missing_extra
from holdfast.logs import log_to_stderr

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from typer._click import Context, Parameter

    from holdfast.service.client import Holdfast
    from holdfast.settings import Settings

KEY_HINT = f"Commands read the key from {KEY_VARIABLE}, or from a file with --key-file."
LIST_COMMANDS = {  # by the code of an error: what to list, and the command that lists it
    "unknown_base": ("bases", ("base", "ls")),
    "unknown_document": ("documents", ("ls",)),
    "unknown_job": ("jobs", ("queue", "ls")),
    "unknown_key": ("keys", ("keys", "ls")),
    "unknown_webhook": ("webhooks", ("webhooks", "ls")),
}
EXAMPLE_HEADING = "Example:"
UNWRAPPED = "\b"  # Click does not wrap a paragraph that begins with this line

COMMON_OPTIONS: dict[str, Any] = get_type_hints(CommonOptions, include_extras=True)
HIDDEN_OPTIONS = ("home", "at", "key_file", "debug")  # accepted after a command, but only in `holdfast --help`


class CommandContext:
    """The common options of one command line, the terminal, and the library that the options name."""

    def __init__(self, common: CommonOptions) -> None:
        self.options = common
        self.terminal = Terminal(json=common.json, quiet=common.quiet)

    @property
    def location(self) -> str | None:
        """The folder, database or server of the library; None: the settings decide."""
        if self.options.at and self.options.home:
            raise BadRequest("home_and_at")
        if self.options.at:
            return self.options.at
        return str(self.options.home) if self.options.home else None

    @property
    def remote(self) -> bool:
        return (self.location or "").startswith(("http://", "https://"))

    def open(self, *, work: bool = False) -> Holdfast:
        """Open the library. With `work`, this process also indexes, unless a server uses the same library."""
        from holdfast.service.client import Holdfast  # noqa: PLC0415 - slow to load

        return Holdfast(self.location, key=self.key, work=None if work else False)

    def settings(self) -> Settings:
        """Return the settings of a folder or database. With the address of a server, raise `BadRequest`."""
        from holdfast.service.opening import settings_for  # noqa: PLC0415 - slow to load

        if self.remote:
            raise BadRequest("needs_local_library")
        return settings_for(self.location)

    def format_command(self, *words: object, base: str | None = None) -> str:
        """Return a command line for the same library, quoted for a shell.

        It has `--base` unless the base is the default one.
        """
        common = {"--home": self.options.home, "--at": self.options.at, "--key-file": self.options.key_file}
        where = [str(word) for option, value in common.items() if value for word in (option, value)]
        of = [] if base in (None, DEFAULT_BASE) else ["--base", str(base)]
        return shlex.join(["holdfast", *where, *map(str, words), *of])

    def print_result(self, value: Any, human: Callable[[], None]) -> None:
        """Print a value as JSON with `--json`, else call `human`."""
        if self.terminal.json:
            self.terminal.print_json(value)
        else:
            human()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask the user before data is lost. Without a terminal, `--yes` is required."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            self.terminal.warn(question)
            raise BadRequest("confirmation_needed")
        if not typer.confirm(question, err=True):
            self.terminal.warn("Nothing was changed.")
            raise typer.Exit(ExitCode.FAILED)

    @property
    def key(self) -> str | None:
        """The key in the file of `--key-file`; None: the settings decide."""
        if self.options.key_file is None:
            return None
        try:
            return self.options.key_file.read_text().strip()
        except OSError as error:
            raise BadSettings(
                "key_file_unreadable", path=self.options.key_file, detail=error.strerror or error
            ) from error


class DocumentedCommand(TyperCommand):
    """A command with a conventional usage line: `holdfast rm [OPTIONS] [DOC]...`, `holdfast show [OPTIONS] DOC`."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        arguments = (one for one in self.get_params(ctx) if one.param_type_name == "argument")
        return [self.options_metavar or "", *map(format_argument, arguments)]


def format_argument(argument: Parameter) -> str:
    """Return an argument as in a usage line: optional ones in brackets, repeatable ones with dots."""
    name = f"{argument.metavar}" if argument.required else f"[{argument.metavar}]"
    return name if argument.nargs == 1 else f"{name}..."


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that adds a function to an app as a command."""

    def declare(function: Callable[..., Any]) -> Any:
        app.command(name, cls=DocumentedCommand, help=format_help(function))(_adapt_for_typer(function))
        return function

    return declare


def format_help(function: Callable[..., Any]) -> str:
    """Return the docstring of a command as help text, in which Click keeps the lines of the example apart."""
    text = inspect.getdoc(function) or ""
    return text.replace(f"\n{EXAMPLE_HEADING}\n", f"\n{UNWRAPPED}\n{EXAMPLE_HEADING}\n")


def _adapt_for_typer(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function with the signature for Typer: without the context, with the common options."""

    @wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        before_command = context.find_root().obj or CommonOptions()
        after_command = {name: value for name in COMMON_OPTIONS if (value := given.pop(name))}
        run_command(replace(before_command, **after_command), function, given)

    own_parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    common_parameters = [
        inspect.Parameter(name, keyword, default=getattr(CommonOptions(), name), annotation=_command_option(name))
        for name in COMMON_OPTIONS
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(parameter.replace(kind=keyword) for parameter in own_parameters), *common_parameters]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # else Typer would read the signature of the function
    return run


def run_command(common: CommonOptions, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Run a command. Raise `typer.Exit` with its exit code, unless it succeeds."""
    if common.debug:
        log_to_stderr(logging.DEBUG, "%(asctime)s %(levelname)s %(name)s %(message)s")
    context = CommandContext(common)
    try:
        code = function(context, **given)
    except KeyboardInterrupt:
        context.terminal.warn("\nInterrupted.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except typer.Abort:  # Ctrl-C or end of input at a question
        context.terminal.warn("\nNothing was changed.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        if common.debug:
            raise
        raise typer.Exit(_print_error(context, error, given.get("base"))) from None
    if code:
        raise typer.Exit(code)


def _print_error(context: CommandContext, error: Exception, base: object) -> int:
    """Print an error with hints, and return its exit code."""
    if isinstance(error, ModuleNotFoundError):
        error = find_missing_extra(error) or error
    if not isinstance(error, HoldfastError):
        error = HoldfastError("command_crashed", type=type(error).__name__, detail=error)
    context.terminal.warn(f"holdfast: {error}")
    if isinstance(error, Conflict) and (error.document or error.job):
        details = {"document": error.document, "job": error.job, "status": error.status}
        context.terminal.warn("  " + ", ".join(f"{name} {value}" for name, value in details.items() if value))
    for hint in _suggest_commands(context, error.code, base):
        context.terminal.info(f"  {hint}")
    exit_code = error_exit_code(error)
    if exit_code == ExitCode.DENIED:
        context.terminal.info(f"  {KEY_HINT}")
    if context.terminal.json:
        context.terminal.print_json(error_to_dict(error))
    return exit_code


def stop_on_signal() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    import signal  # noqa: PLC0415 - only for commands that run until they are stopped
    import threading  # noqa: PLC0415

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def _suggest_commands(context: CommandContext, code: str, base: object) -> Iterator[str]:
    """Suggest commands to run next. `base` is the option `--base` of the failed command."""
    named = base if isinstance(base, str) else None
    if code in LIST_COMMANDS:
        what, words = LIST_COMMANDS[code]
        yield f"List the {what}: {context.format_command(*words, base=named if code == 'unknown_document' else None)}"
    if code == "unknown_base" and named is not None:
        yield f"Create the base: {context.format_command('base', 'create', named)}"


def _command_option(name: str) -> Any:
    kind, option = COMMON_OPTIONS[name].__origin__, COMMON_OPTIONS[name].__metadata__[0]
    if name not in HIDDEN_OPTIONS:
        return COMMON_OPTIONS[name]
    return Annotated[kind, typer.Option(option.default, *(option.param_decls or ()), hidden=True)]
