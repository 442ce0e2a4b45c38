"""`guard status`, `jobs`, `refusals`, `retry`, `cancel`: what a guard does, and requests for its works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import CommandContext
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.guard_app import GuardArgument, load_guard, load_work, run_with_exit_code, show_rows
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.guard import Admission, Guard, Plain, Work

WorkArgument = Annotated[str, typer.Argument(metavar="WORK", help="Name of the guarded work.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Key of the work.")]
WorkOption = Annotated[str | None, typer.Option("--work", metavar="WORK", help="Only this work.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="Rows at most.")]
RequesterOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Requester to record.")]


def status(context: CommandContext, guard: GuardArgument) -> ExitCode:
    """Show the works of a guard.

    It shows jobs now, jobs of the last 24 hours, and refused requests.

    Example:
        holdfast guard status shop.tasks:guard
    """

    def read(opened: Guard) -> Sequence[Plain]:
        from holdfast.guard.overview import summarise_works  # noqa: PLC0415 - slow to load

        return summarise_works(opened)

    return show_rows(context, guard, read)


def jobs(
    context: CommandContext,
    guard: GuardArgument,
    work: WorkOption = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="Only jobs that are queued, running, succeeded, failed or cancelled."
        ),
    ] = None,
    limit: LimitOption = 50,
) -> ExitCode:
    """List jobs.

    Active ones come first, in the order of the queue, then ended ones, newest first.

    Example:
        holdfast guard jobs shop.tasks:guard --state failed
    """

    def read(opened: Guard) -> Sequence[Plain]:
        from holdfast.guard.overview import list_jobs  # noqa: PLC0415 - slow to load

        return list_jobs(opened, work, state, limit)

    return show_rows(context, guard, read)


def refusals(
    context: CommandContext,
    guard: GuardArgument,
    work: WorkOption = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only this key; needs --work.")] = None,
    limit: LimitOption = 50,
) -> ExitCode:
    """List requests that started no work, newest first.

    Example:
        holdfast guard refusals shop.tasks:guard --work index
    """

    def read(opened: Guard) -> Sequence[Plain]:
        from holdfast.guard.overview import list_refusals  # noqa: PLC0415 - slow to load

        if key is not None and work is None:
            raise BadRequest("key_without_work", key=key)
        return list_refusals(opened, work, key, limit)

    return show_rows(context, guard, read)


def retry(
    context: CommandContext,
    guard: GuardArgument,
    work: WorkArgument,
    key: KeyArgument,
    requester: RequesterOption = None,
) -> ExitCode:
    """Repeat work that failed or was cancelled.

    It gets the arguments of its newest job.

    Example:
        holdfast guard retry shop.tasks:guard index 42
    """
    return _request(context, guard, work, lambda found: found.retry(key, requester=requester or ""))


def cancel(
    context: CommandContext,
    guard: GuardArgument,
    work: WorkArgument,
    key: KeyArgument,
    requester: RequesterOption = None,
) -> ExitCode:
    """Cancel the active job of a key. Running work stops at its next checkpoint.

    Example:
        holdfast guard cancel shop.tasks:guard index 42
    """
    return _request(context, guard, work, lambda found: found.cancel(key, requester=requester or ""))


def _request(context: CommandContext, where: str, name: str, ask: Callable[[Work], Admission]) -> ExitCode:
    refused = False

    def run() -> None:
        nonlocal refused
        guard = load_guard(where)
        admission = ask(load_work(guard, where, name))
        guard.close()
        refused = not admission.accepted
        context.print_result(admission.body(), lambda: print(admission.message))

    code = run_with_exit_code(context, run)
    return ExitCode.FAILED if refused else code
