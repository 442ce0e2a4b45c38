"""The command `holdfast`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.errors import BadSettings, HoldfastError
from holdfast.guard.adopt import Source, adopt
from holdfast.guard.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Sequence

GUARD_HELP = "where the guard of your app is: module:name, for instance shop.tasks:guard"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        code: int = options.run(options)
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast", description="Index once, keep it, never let old work win.")
    groups = parser.add_subparsers(required=True, metavar="command")
    guard = groups.add_parser("guard", help="the guard of an existing pipeline").add_subparsers(
        required=True, metavar="command"
    )

    reconcile = guard.add_parser("reconcile", help="take over from dead workers and send again what a broker lost")
    reconcile.add_argument("guard", help=GUARD_HELP)
    reconcile.add_argument("--once", action="store_true", help="do one pass and end")
    reconcile.set_defaults(run=_reconcile)

    adopting = guard.add_parser("adopt", help="bring the rows of an existing table into the guard")
    adopting.add_argument("guard", help=GUARD_HELP)
    adopting.add_argument("work", help="the name of the guarded work, as in `guarded(name=…)`")
    adopting.add_argument("--source", required=True, help="address of the database that has the table")
    adopting.add_argument("--table", required=True, help="the table")
    adopting.add_argument("--key", default="id", help="its key column (default: %(default)s)")
    adopting.add_argument("--active", default="is_active", help="SQL condition of a done row (default: %(default)s)")
    adopting.add_argument("--dry-run", action="store_true", help="count, and write nothing")
    adopting.set_defaults(run=_adopt)
    return parser


def _reconcile(options: argparse.Namespace) -> int:
    """Go round until a signal comes; a pass that fails is followed by another one."""
    guard = _load(options.guard)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while True:
        pause = guard.settings.period
        try:
            due = guard.reconcile()
            pause = pause if due is None else min(due, pause)
        except HoldfastError as error:
            if options.once:
                raise
            logging.getLogger("holdfast").warning("reconcile.failed error=%s", error)
        if options.once or ended.wait(max(pause.total_seconds(), 0.05)):
            guard.close()
            return 0


def _adopt(options: argparse.Namespace) -> int:
    source = Source(database=options.source, table=options.table, key=options.key, active=options.active)
    guard = _load(options.guard)
    if options.work not in guard.works:
        raise BadSettings(
            f"{options.guard} guards no work {options.work!r}; it guards {', '.join(sorted(guard.works))}."
        )
    found = adopt(guard, options.work, source, dry_run=options.dry_run)
    would = "would be " if options.dry_run else ""
    print(f"{found.success} active rows {would}adopted as success")
    print(f"{found.not_indexed} rows are not active: they stay not indexed")
    print(f"{found.known} active rows were known already and are left as they are")
    guard.close()
    return 0


def _load(where: str) -> Guard:
    """Import the guard, from the current folder too, as Celery does with its app."""
    module, _, name = where.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name or "guard")
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSettings(f"The guard {where!r} cannot be loaded ({error}); write module:name.") from error
    if not isinstance(found, Guard):
        raise BadSettings(f"{where!r} is not a Guard but a {type(found).__name__}; name the Guard of your app.")
    return found


if __name__ == "__main__":
    sys.exit(main())
