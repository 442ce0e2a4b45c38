"""The command `holdfast`: one module for each group of commands. Heavy modules are imported when a command runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        from holdfast.cli.app import app  # noqa: PLC0415 - some callers import only the exit codes

        app(args=None if arguments is None else list(arguments), prog_name="holdfast")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    except BrokenPipeError:  # the reader of our output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:  # before the command began, or a second Ctrl-C while it ended
        return INTERRUPTED
    return 0
