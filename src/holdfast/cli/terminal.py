"""Prints the output of commands: data on stdout, messages on stderr, tables and colours on a terminal.

Rich loads only on a terminal. A pipe gets lines with tabs between the cells and no escape codes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.cli.format import format_block, format_cell, to_json, to_json_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

COLOURS = {
    "success": "green",
    "ready": "green",
    "degraded": "yellow",
    "failed": "red",
    "indexing": "cyan",
    "running": "cyan",
    "queued": "blue",
    "waiting": "yellow",
    "deleting": "magenta",
    "superseded": "dim",
    "cancelled": "dim",
    "not_indexed": "dim",
}


class Terminal:
    """Prints the output of one command, by the options `--json` and `--quiet`."""

    def __init__(self, *, json: bool, quiet: bool) -> None:
        self.json = json
        self.quiet = quiet
        smart = os.environ.get("TERM") != "dumb"
        self.interactive = not json and smart and sys.stdout.isatty()
        self.shows_progress = not quiet and not json and smart and sys.stderr.isatty()
        self.live_console: Console | None = None  # while progress bars are shown

    def print_json(self, value: Any) -> None:
        print(to_json(value))

    def print_json_line(self, value: Any) -> None:
        print(to_json_line(value), flush=True)

    def print_row(self, *cells: Any) -> None:
        texts = [format_cell(one) for one in cells]
        if self.interactive:
            self._console().print(self._style_row(texts), soft_wrap=True)
        else:
            print("\t".join(texts), flush=True)

    def print_table(self, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows below a header; print nothing if there are no rows. A terminal omits empty columns."""
        texts = [[format_cell(one) for one in row] for row in rows]
        if not texts:
            return
        if not self.interactive:
            for row in (header, *texts):
                print("\t".join(row))
            return
        from rich.table import Table  # noqa: PLC0415 - only on a terminal

        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        shown = [place for place in range(len(header)) if any(row[place] for row in texts)]
        for place in shown:
            table.add_column(header[place], overflow="fold")
        for row in texts:
            table.add_row(*(self._style_cell(row[place]) for place in shown))
        self._console().print(table)

    def print_pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names with their values; skip empty values."""
        texts = [(name, format_cell(value)) for name, value in pairs]
        shown = [(name, text) for name, text in texts if text]
        if not self.interactive:
            for name, text in shown:
                print(f"{name}\t{text}")
            return
        from rich.table import Table  # noqa: PLC0415 - only on a terminal

        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in shown:
            table.add_row(name, self._style_cell(text))
        self._console().print(table)

    def print_text(self, text: str, *, end: str = "\n") -> None:
        """Print a text unchanged; on a terminal, replace control characters."""
        sys.stdout.write((format_block(text) if sys.stdout.isatty() else text) + end)
        sys.stdout.flush()

    def print_heading(self, text: str) -> None:
        if not self.interactive:
            print(format_cell(text))
            return
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        self._console().print(Text(format_cell(text), style="bold"), soft_wrap=True)

    def info(self, text: str) -> None:
        """Print a message on stderr, unless `--quiet` is set."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a message on stderr, even with `--quiet`."""
        if self.live_console is not None:
            self.live_console.print(format_block(text), markup=False, highlight=False, soft_wrap=True)
        else:
            with suppress(OSError):  # a server goes on when its log cannot be written
                print(format_block(text), file=sys.stderr, flush=True)

    def _console(self) -> Console:
        if self.live_console is not None:
            return self.live_console
        from rich.console import Console  # noqa: PLC0415 - only on a terminal

        return Console(markup=False, highlight=False, emoji=False)

    def _style_row(self, texts: Sequence[str]) -> Any:
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        return Text("  ").join(self._style_cell(one) for one in texts if one)

    def _style_cell(self, text: str) -> Any:
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        return Text(text, style=COLOURS.get(text, ""))
