"""`guard spending` and `quota`: what the works of a guard have spent, and what they may spend on a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.guard_app import GuardArgument, load_guard, load_work, run_with_exit_code, show_rows
from holdfast.engine import QuotaScope, QuotaUnit
from holdfast.errors import BadRequest
from holdfast.guard.spending import SpendingGroup, list_quotas, total_spending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.guard import Guard, Plain

MAX_DAYS = 3660


def spending(
    context: CommandContext,
    guard: GuardArgument,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, max=MAX_DAYS, help="Days to sum, today included.")
    ] = 30,
    by: Annotated[SpendingGroup | None, typer.Option("--by", help="Add up the lines of each.")] = None,
) -> ExitCode:
    """Show what works have spent.

    Each line is what one requester and project have spent in one work on one day (UTC), newest day first.

    Example:
        holdfast guard spending shop.tasks:guard --by requester
    """

    def read(opened: Guard) -> Sequence[Plain]:
        lines = opened.spending(days)
        return lines if by is None else total_spending(lines, by)

    return show_rows(context, guard, read)


def quota(
    context: CommandContext,
    guard: GuardArgument,
    work: Annotated[str | None, typer.Argument(metavar="WORK", help="Name of the guarded work.")] = None,
    per_day: Annotated[
        float | None, typer.Argument(metavar="PER_DAY", help="Set this limit for a day.", show_default=False)
    ] = None,
    unit: Annotated[QuotaUnit, typer.Option("--unit", help="What is counted.")] = QuotaUnit.JOBS,
    scope: Annotated[
        QuotaScope, typer.Option("--scope", help="Limit the whole work, or each key, requester or project.")
    ] = QuotaScope.WORK,
    remove: Annotated[bool, typer.Option("--remove", help="Remove this quota.")] = False,
) -> ExitCode:
    """List, set or remove the daily quotas of works.

    The list also shows what is used today (UTC), and the key, requester or project that has used most.

    Example:
        holdfast guard quota shop.tasks:guard cards 5 --scope project
    """
    if per_day is None and not remove:
        return show_rows(context, guard, lambda opened: _list_quotas(opened, guard, work))

    def change() -> None:
        if work is None or (remove and per_day is not None):
            raise BadRequest("work_quota_incomplete")
        opened = load_guard(guard)
        load_work(opened, guard, work).set_quota(per_day, unit=unit, scope=scope)
        rows = [one.as_dict() for one in list_quotas(opened, work)]
        opened.close()
        done = "was removed" if remove else f"is now {per_day:g}"
        context.print_result(rows, lambda: print(f"The daily quota of {unit} per {scope} for '{work}' {done}."))

    return run_with_exit_code(context, change)


def _list_quotas(guard: Guard, where: str, work: str | None) -> Sequence[Plain]:
    if work is not None:
        load_work(guard, where, work)
    return list_quotas(guard, work)
