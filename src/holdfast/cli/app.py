"""The table of all commands, and the Typer app that loads the module of a command when the command runs."""

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

SUMMARY = """Index documents once, keep them indexed, and search them.

\b
Example:
    holdfast add report.pdf
    holdfast search "which anchor holds in mud"
    holdfast add --help
"""

# The sections of `holdfast --help`.
ADD = "Add documents"
SEARCH = "Search"
VIEW = "List and show"
CHANGE = "Change documents"
MANAGE = "Manage bases and data"
RUN = "Run a server"


class Entry(NamedTuple):
    """A command, or a group of commands, in the output of `holdfast --help`."""

    module: str  # in this package
    section: str
    summary: str  # a test compares it with the help of the command itself
    group: bool = False


COMMANDS = {
    "add": Entry("add", ADD, "Add files, web pages or notes, and wait until they are indexed."),
    "sync": Entry("add", ADD, "Add a folder to a base, or bring it up to date."),
    "watch": Entry("add", ADD, "Sync a folder now and after every change, until Ctrl-C."),
    "search": Entry("search", SEARCH, "Search the documents of a base."),
    "ask": Entry("search", SEARCH, "Answer a question from the documents of a base, with citations."),
    "cards": Entry("cards", SEARCH, "Generate and export study cards from a base.", group=True),
    "ls": Entry("ls", VIEW, "List the documents of a base."),
    "status": Entry("ls", VIEW, "Show the status of the library, of a document or of a job."),
    "show": Entry("show", VIEW, "Show a document with the state of each index."),
    "retry": Entry("operations", CHANGE, "Retry failed documents."),
    "reindex": Entry("operations", CHANGE, "Build all indexes of documents again."),
    "refresh": Entry("operations", CHANGE, "Read folders, sitemaps and web pages again, and index what changed."),
    "cancel": Entry("operations", CHANGE, "Cancel queued and running work."),
    "rm": Entry("operations", CHANGE, "Delete documents, and folders with everything in them."),
    "base": Entry("bases", MANAGE, "Create, change and delete bases.", group=True),
    "queue": Entry("queue", MANAGE, "List jobs, and pause or resume the queue.", group=True),
    "export": Entry("archives", MANAGE, "Export a base with its documents to a file."),
    "import": Entry("archives", MANAGE, "Create a base from an exported file."),
    "backup": Entry("moving", MANAGE, "Write a backup of the whole library, also while it is in use."),
    "restore": Entry("moving", MANAGE, "Restore a backup into an empty database."),
    "move": Entry("moving", MANAGE, "Move the library to another database, and its files to another place."),
    "doctor": Entry("doctor", MANAGE, "Check the stored data for problems, and fix them with --fix."),
    "config": Entry("config", MANAGE, "Show the settings.", group=True),
    "serve": Entry("serve", RUN, "Serve the web page and the HTTP API, and run workers, until Ctrl-C."),
    "web": Entry("serve", RUN, "Serve the web page and the HTTP API without workers, until Ctrl-C."),
    "worker": Entry("serve", RUN, "Run workers that index queued documents, until Ctrl-C."),
    "reconcile": Entry("serve", RUN, "Send rings to the workers of a scheduler such as Celery, until Ctrl-C."),
    "mcp": Entry("serve", RUN, "Offer the library to language models over MCP."),
    "keys": Entry("keys", RUN, "Create, list and revoke API keys.", group=True),
    "webhooks": Entry("webhooks", RUN, "Create and manage webhooks: URLs that receive events.", group=True),
    "guard": Entry("guard", RUN, "Run the guard of an existing pipeline.", group=True),
}


class LazyCommands(MutableMapping[str, "Command"]):
    """The commands by name. The first lookup of a command builds it."""

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
    """The command `holdfast`. Its help loads no module of a command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - Typer passes it
        """Write the commands in sections."""
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


def _print_version(given: bool) -> None:
    if given:
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
    """Store the common options that precede the name of a command."""
    context.obj = CommonOptions(json=json, quiet=quiet, home=home, at=at, key_file=key_file, debug=debug)
