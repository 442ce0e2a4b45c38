"""Moves a library, and kills itself before a statement.

    python -m tests.support.killed_move SOURCE TARGET FILES NUMBER

The statement with this number, of all statements of this process on any database, is not executed.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from holdfast.db.database import Transaction
from holdfast.moving.move import Move, MoveOptions
from holdfast.settings import Settings
from holdfast.wiring import open_installation

if TYPE_CHECKING:
    from collections.abc import Callable

VERBS = ("run", "run_sql", "run_sql_many", "copy_rows", "copy_in")


def kill_before(number: int) -> None:
    left = [number]

    def counted(verb: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return verb(*given, **named)

        return run

    for name in VERBS:
        setattr(Transaction, name, counted(getattr(Transaction, name)))


def main() -> None:
    source, target, files, number = sys.argv[1:]
    settings = Settings.from_environment()
    kill_before(int(number))
    ends = [open_installation(settings, source, settings.data), open_installation(settings, target, files)]
    move = Move(ends[0], ends[1], MoveOptions())
    move.run()
    move.finish()


if __name__ == "__main__":
    main()
