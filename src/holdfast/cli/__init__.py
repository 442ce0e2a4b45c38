"""The command `holdfast`: one module for each group of commands, and nothing heavy loaded before one of them runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    try:
        from holdfast.cli.app import app  # noqa: PLC0415 - whoever imports this package may want a table of it only

        app(args=None if arguments is None else list(arguments), prog_name="holdfast")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    except BrokenPipeError:  # whoever reads our output has gone, as `head` does; the rest is for nobody
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:  # before a command began, or once more while it ended
        return INTERRUPTED
    return 0
