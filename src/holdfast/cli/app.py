"""Builds the Typer app with all commands. This imports Typer and no heavy module of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli import (
    add,
    archives,
    bases,
    cards,
    doctor,
    guard,
    keys,
    ls,
    operations,
    queue,
    search,
    serve,
    show,
    webhooks,
)
from holdfast.cli.command import (
    AtOption,
    CommonOptions,
    DebugOption,
    HomeOption,
    JsonOption,
    KeyFileOption,
    QuietOption,
)

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

COMMAND_GROUPS = {
    "queue": (queue, "Changing", "The queue: its jobs, their order, pauses."),
    "base": (bases, "Tending", "The bases: made, set, emptied, deleted."),
    "cards": (cards, "Searching", "Study cards made from a base."),
    "keys": (keys, "Serving", "Who may ask a server."),
    "webhooks": (webhooks, "Serving", "Addresses that are told what happens."),
    "guard": (guard, "Serving", "The guard of an existing pipeline."),
}


class SectionedGroup(TyperGroup):
    """Shows the commands in sections, without Rich, because Rich takes longer to import than everything else."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands below the title of their section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        room = formatter.width - 6 - max(map(len, self.commands))
        for name in self.list_commands(ctx):
            command = self.commands[name]
            section = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(section, []).append((name, command.get_short_help_str(room)))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)


def make_app() -> typer.Typer:
    app = _make_typer("Index every document once, keep it, and search and ask it.")
    app.callback()(set_common_options)
    add.declare(app)
    search.declare(app)
    ls.declare(app)
    show.declare(app)
    operations.declare(app)
    archives.declare(app)
    config = _make_typer("What is set.")
    doctor.declare(app, config)
    serve.declare(app)
    app.add_typer(config, name="config", rich_help_panel="Tending")
    for name, (module, panel, meaning) in COMMAND_GROUPS.items():
        group = _make_typer(meaning)
        module.declare(group)
        app.add_typer(group, name=name, rich_help_panel=panel)
    return app


def _make_typer(meaning: str) -> typer.Typer:
    return typer.Typer(
        help=meaning,
        cls=SectionedGroup,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def _print_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


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
    """Index every document once, keep it, and search and ask it.

    The options here may also stand behind a command.
    """
    context.obj = CommonOptions(json=json, quiet=quiet, home=home, at=at, key_file=key_file, debug=debug)


app = make_app()
