"""The table of all commands, and the Typer app that loads the module of a command when it is called."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from holdfast import __version__
from holdfast.cli.common_options import (
    AtOption,
    CommonOptions,
    DebugOption,
    HomeOption,
    JsonOption,
    KeyFileOption,
    QuietOption,
)

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

SUMMARY = "Index every document once, keep it, and search and ask it."


class Entry(NamedTuple):
    """A command, or a group of commands, in the output of `holdfast --help`."""

    module: str  # in this package
    section: str
    summary: str  # a test compares it with the help of the command itself
    group: bool = False


COMMANDS = {
    "add": Entry("add", "Putting in", "Add files, pages or notes, and wait until they are indexed."),
    "sync": Entry("add", "Putting in", "Bring a folder up to date."),
    "watch": Entry("add", "Putting in", "Keep a folder in step until Ctrl-C."),
    "search": Entry("search", "Searching", "Find the passages that fit best."),
    "ask": Entry("search", "Searching", "Answer a question from the documents of a base, with citations."),
    "cards": Entry("cards", "Searching", "Study cards made from a base.", group=True),
    "ls": Entry("ls", "Looking", "List documents."),
    "status": Entry("ls", "Looking", "Tell how a job, a document or everything stands."),
    "show": Entry("show", "Looking", "Show a document: how it stands, each of its indexes, and why."),
    "retry": Entry("operations", "Changing", "Build what failed or is lacking, and nothing else."),
    "cancel": Entry("operations", "Changing", "Stop what is active; what was served stays served."),
    "rm": Entry("operations", "Changing", "Delete documents with all below them."),
    "reindex": Entry("operations", "Changing", "Build documents again, from the first step."),
    "refresh": Entry("operations", "Changing", "Look again at folders, sitemaps and pages; index what changed."),
    "queue": Entry("queue", "Changing", "The queue: its jobs, their order, pauses.", group=True),
    "export": Entry("archives", "Tending", "Write a base with its documents into a file."),
    "import": Entry("archives", "Tending", "Make a base from a file that `export` wrote."),
    "doctor": Entry("doctor", "Tending", "Compare every store with what should be there."),
    "config": Entry("config", "Tending", "What is set.", group=True),
    "base": Entry("bases", "Tending", "The bases: made, set, emptied, deleted.", group=True),
    "serve": Entry("serve", "Serving", "Serve HTTP, with workers beside it, until Ctrl-C."),
    "worker": Entry("serve", "Serving", "Only work: index what others ask for, until Ctrl-C."),
    "mcp": Entry("serve", "Serving", "Offer the library to language models, by MCP."),
    "keys": Entry("keys", "Serving", "Who may ask a server.", group=True),
    "webhooks": Entry("webhooks", "Serving", "Webhooks: URLs that receive events.", group=True),
    "guard": Entry("guard", "Serving", "The guard of an existing pipeline.", group=True),
}


class LazyCommands(MutableMapping[str, "Command"]):
    """The commands by name. A command is built when it is looked up."""

    def __init__(self) -> None:
        self._built: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            entry = COMMANDS[name]
            app = _make_typer(entry.summary if entry.group else None)
            import_module(f"holdfast.cli.{entry.module}").declare(app)
            group = get_group(app)
            self._built |= {name: group} if entry.group else group.commands
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __setitem__(self, name: str, command: Command) -> None:
        raise TypeError("Add commands to the table COMMANDS.")

    def __delitem__(self, name: str) -> None:
        raise TypeError("Remove commands from the table COMMANDS.")


class LazyGroup(TyperGroup):
    """`holdfast` itself. It loads no module of a command to show its help."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - Typer passes it
        """Write the commands below the title of their section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in COMMANDS.items():
            sections.setdefault(entry.section, []).append((name, entry.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)


def _make_typer(summary: str | None, group_class: type[TyperGroup] = TyperGroup) -> typer.Typer:
    return typer.Typer(
        help=summary,
        cls=group_class,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def _print_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


app = _make_typer(SUMMARY, LazyGroup)


@app.callback()
def set_common_options(
    context: typer.Context,
    home: HomeOption = None,
    at: AtOption = None,
    key_file: KeyFileOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    debug: DebugOption = False,
    version: Annotated[  # noqa: ARG001 - its callback ends the program
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Keep the common options that come before the name of a command."""
    context.obj = CommonOptions(json=json, quiet=quiet, home=home, at=at, key_file=key_file, debug=debug)
