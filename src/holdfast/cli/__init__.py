"""The command `holdfast`: one module for each group of commands. The module of a command loads when it runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Example:
        main(["add", "report.pdf", "--base", "handbook"])
    """
    try:
        from holdfast.cli.app import app  # noqa: PLC0415 - some callers import only the exit codes

        app(args=None if arguments is None else list(arguments), prog_name="holdfast")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    except BrokenPipeError:  # the reader of the output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:  # before the command started, or a second Ctrl-C while it stops
        return INTERRUPTED
    return 0
