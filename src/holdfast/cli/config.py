"""`config`: shows the settings."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_duration
from holdfast.settings import ENV_PREFIX, Settings

if TYPE_CHECKING:
    import typer


def declare(app: typer.Typer) -> None:
    command(app, "show")(show)


def show(context: CommandContext) -> None:
    """Show every setting with its value and origin.

    Secrets are masked.

    Example:
        holdfast config show
    """
    settings = Settings.from_environment() if context.location is None else context.settings()
    shown = [
        {
            "name": f"{ENV_PREFIX}{setting.name.upper()}",
            "value": setting.value,
            "origin": _find_origin(context, setting.name),
            "meaning": setting.meaning,
        }
        for setting in settings.describe()
    ]

    def human() -> None:
        rows = [(one["name"], _format_setting(one["value"]), one["origin"], one["meaning"]) for one in shown]
        context.terminal.print_table(("setting", "value", "origin", "meaning"), rows)

    context.print_result(shown, human)


def _find_origin(context: CommandContext, setting: str) -> str:
    if context.location is not None and setting in ("home", "database", "data"):
        return "command line"
    return "environment" if f"{ENV_PREFIX}{setting.upper()}" in os.environ else "default"


def _format_setting(value: Any) -> str:
    return (
        format_duration(value.total_seconds()) if isinstance(value, timedelta) else "" if value is None else str(value)
    )
