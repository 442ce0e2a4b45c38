"""`config`: shows the settings."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_duration
from holdfast.settings import ENV_PREFIX, FROM_DEFAULT, Settings, read_given_values

if TYPE_CHECKING:
    import typer


def declare(app: typer.Typer) -> None:
    command(app, "show")(show)


def show(context: CommandContext) -> None:
    """Show every setting with its value and origin.

    The origin is `default`, `environment`, `command line`, or the file that HOLDFAST_CONFIG names. Secrets are masked.

    Example:
        holdfast config show
    """
    settings = Settings.from_environment() if context.location is None else context.settings()
    origins = {name: value.origin for name, value in read_given_values(os.environ).items()}
    if context.location is not None:
        origins |= dict.fromkeys(("home", "database", "data"), "command line")
    shown = [
        {
            "name": f"{ENV_PREFIX}{setting.name.upper()}",
            "value": setting.value,
            "origin": origins.get(setting.name, FROM_DEFAULT),
            "meaning": setting.meaning,
        }
        for setting in settings.describe()
    ]

    def human() -> None:
        rows = [(one["name"], _format_setting(one["value"]), one["origin"], one["meaning"]) for one in shown]
        context.terminal.print_table(("setting", "value", "origin", "meaning"), rows)

    context.print_result(shown, human)


def _format_setting(value: Any) -> str:
    return (
        format_duration(value.total_seconds()) if isinstance(value, timedelta) else "" if value is None else str(value)
    )
