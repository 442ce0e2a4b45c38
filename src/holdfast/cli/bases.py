"""`base`: lists, creates, changes, clears and deletes bases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.format import format_count, format_documents, format_size, format_value
from holdfast.cli.options import DEFAULT_BASE, BaseArgument, YesOption
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.results import print_started_job
from holdfast.cli.show import format_progress
from holdfast.cli.wait_targets import JobTarget
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Base, DocumentCounts

NewNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the new base.")]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, such as chunk_size=400 or indexes=vector,fulltext."),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until all data is removed, and show the progress.")]
LATER = "The next worker erases the data from the disk."
LIST_SETTINGS = ("indexes", "languages")
TEXT_SETTINGS = ("embedding", "chat")  # `none` is an ordinary value here
NULL_WORDS = ("none", "null", "")


def declare(app: typer.Typer) -> None:
    command(app, "ls")(ls)
    command(app, "create")(create)
    command(app, "show")(show)
    command(app, "set")(change)
    command(app, "rename")(rename)
    command(app, "repair")(repair)
    command(app, "clear")(clear)
    command(app, "delete")(delete)


def ls(context: CommandContext) -> None:
    """List the bases.

    Example:
        holdfast base ls
    """
    with context.open() as library:
        found = library.bases.list()
        counted = {base.name: library.bases.counts(base.name) for base in found} if not context.terminal.json else {}

    def human() -> None:
        context.terminal.print_table(
            ("name", "status", "documents", "size", "indexes"),
            [
                (
                    base.name,
                    base.status,
                    format_documents(counted[base.name]),
                    format_size(counted[base.name].bytes),
                    base.settings.indexes,
                )
                for base in found
            ],
        )
        if not found:
            context.terminal.info(f"No bases yet. Create one: {context.format_command('base', 'create', DEFAULT_BASE)}")

    context.print_result(found, human)


def create(context: CommandContext, name: NewNameArgument, given: SettingsArgument = None) -> None:
    """Create a base.

    Example:
        holdfast base create handbook
        holdfast base create handbook chunk_size=400 indexes=vector,fulltext
    """
    with context.open() as library:
        made = library.bases.create(name, **parse_settings(given or []))
    context.print_result(made, lambda: context.terminal.info(f"Created base {made.name!r}."))


def show(context: CommandContext, name: BaseArgument) -> None:
    """Show the settings of a base and the number of its documents.

    Example:
        holdfast base show handbook
    """
    with context.open() as library:
        found, counts = library.bases.get(name), library.bases.counts(name, exact=True)
    context.print_result({"base": found, "counts": counts}, lambda: _print_base(context, found, counts))


def change(context: CommandContext, name: BaseArgument, given: SettingsArgument = None) -> None:
    """Change settings of a base.

    Its documents are updated in the background. Until then, the old indexes stay searchable.

    Example:
        holdfast base set handbook chunk_size=400
    """
    if not given:
        example = context.format_command("base", "set", name, "chunk_size=400")
        raise BadRequest("no_setting_given", base=name, command=example)
    with context.open() as library:
        changed = library.bases.change(name, **parse_settings(given))
    context.print_result(
        changed, lambda: context.terminal.info(f"Changed {', '.join(parse_settings(given))} of base {changed.name!r}.")
    )
    if changed.rollout_job is not None and not context.terminal.json:
        work = "updates the documents to the new settings when a server, a worker or `holdfast add` runs"
        print_started_job(context, changed.rollout_job, work)


def rename(
    context: CommandContext,
    name: BaseArgument,
    to: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The new name; no other base may have it.")],
) -> None:
    """Rename a base.

    Example:
        holdfast base rename handbook manual
    """
    with context.open() as library:
        renamed = library.bases.rename(name, to)
    context.print_result(renamed, lambda: context.terminal.info(f"Renamed base {name!r} to {to!r}."))


def repair(context: CommandContext, name: BaseArgument) -> None:
    """Repair a failed base, and build its missing indexes.

    Example:
        holdfast base repair handbook
    """
    with context.open() as library:
        found = library.bases.repair(name)
    context.print_result(found, lambda: context.terminal.info(f"Base {name!r} is {found.status}."))


def clear(context: CommandContext, name: BaseArgument, yes: YesOption = False) -> None:
    """Delete all documents of a base, and keep its name and settings.

    Example:
        holdfast base clear handbook
    """
    with context.open() as library:
        what = f"all {_count_documents(library, name)} of base {name!r}"
        context.confirm(f"Delete {what}? This cannot be undone.", yes=yes)
        summary = library.bases.clear(name)

    def human() -> None:
        for job in summary.jobs:
            print_started_job(context, job, f"deletes {what} when a worker runs")
        if not summary.jobs:
            context.terminal.info(f"Deleted {what}. {LATER}")

    context.print_result({"base": name, "cleared": not summary.jobs, "jobs": summary.jobs}, human)


def delete(context: CommandContext, name: BaseArgument, yes: YesOption = False, wait: WaitOption = False) -> None:
    """Delete a base and all its documents.

    Example:
        holdfast base delete handbook
    """
    with context.open(work=wait) as library:
        what = f"base {name!r} with {_count_documents(library, name)}"
        context.confirm(f"Delete {what}? This cannot be undone.", yes=yes)
        reply = library.bases.delete(name)
        if wait and reply.job is not None:
            target = JobTarget(library, reply.job, name)
            wait_with_progress(context, library, target, again=context.format_command("queue", "ls"))
    result = {"base": name, "deleted": True, "job": reply.job}
    ending = "All data is removed." if wait else LATER
    context.print_result(result, lambda: context.terminal.info(f"Deleted {what}. {ending}"))


def _count_documents(library: Holdfast, name: str) -> str:
    return format_count(library.bases.counts(name, exact=True).documents, "document")


def parse_settings(given: list[str]) -> dict[str, Any]:
    """Parse KEY=VALUE arguments.

    >>> parse_settings(["chunk_size=400", "indexes=vector,fulltext", "budget_tokens=none"])
    {'chunk_size': 400, 'indexes': ['vector', 'fulltext'], 'budget_tokens': None}
    """
    settings: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise BadRequest("setting_form", value=word)
        settings[name] = _parse_value(name, text)
    return settings


def _parse_value(name: str, text: str) -> Any:
    if name in LIST_SETTINGS:
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in TEXT_SETTINGS:
        return text
    if text.lower() in NULL_WORDS:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _print_base(context: CommandContext, found: Base, counts: DocumentCounts) -> None:
    from dataclasses import asdict  # noqa: PLC0415 - beside its only use

    context.terminal.print_heading(found.name)
    context.terminal.print_pairs(
        [
            ("status", found.status),
            ("reason", found.problem and found.problem.message),
            ("update to new settings", format_progress(found.rollout)),
            ("documents", counts.documents),
            *((format_value(status), number) for status, number in counts.by_status.items() if number),
            ("size", format_size(counts.bytes)),
            *((name, value) for name, value in asdict(found.settings).items()),
            *((f"{kind} (not enabled)", why.message) for kind, why in found.not_enabled.items()),
        ]
    )
