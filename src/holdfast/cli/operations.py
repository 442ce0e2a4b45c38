"""`retry`, `cancel`, `rm`, `reindex`, `refresh`: operations on existing documents."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, reply_exit_code
from holdfast.cli.format import format_count
from holdfast.cli.options import (
    DEFAULT_BASE,
    BaseOption,
    DeletingOption,
    DocumentsArgument,
    InsideOption,
    KindsOption,
    NoWaitOption,
    PriorityOption,
    StatesOption,
    TextOption,
    YesOption,
)
from holdfast.cli.resolve import MAX_PAGE_SIZE, is_job_id, resolve_document, resolve_documents
from holdfast.cli.results import print_replies, print_totals, status_exit_code, wait_and_report, wait_for_documents
from holdfast.engine import DEFAULT_PRIORITY
from holdfast.errors import BadRequest, Conflict
from holdfast.paging import read_all_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.cli.options import Kind
    from holdfast.engine import Status
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import BulkSummary, Document, Reply

MAX_IDS_PER_CALL = 1_000
POLL_SECONDS = 0.1
MAX_NAMES_SHOWN = 3  # in the question before a delete
DELETE_TIMEOUT_SECONDS = 60.0  # how long a delete is waited for

AllOption = Annotated[bool, typer.Option("--all", help="All of the base.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count, and do nothing.")]


def declare(app: typer.Typer) -> None:
    command(app, "retry")(retry)
    command(app, "cancel")(cancel)
    command(app, "rm")(rm)
    command(app, "reindex")(reindex)
    command(app, "refresh")(refresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFilter:
    """The filter options of a command, used if no document is named."""

    states: list[Status] | None = None
    kinds: list[Kind] | None = None
    text: str | None = None
    inside: str | None = None
    deleting: bool = False

    @property
    def is_given(self) -> bool:
        return self != DocumentFilter()

    def to_arguments(self, library: Holdfast, base: str) -> dict[str, Any]:
        """Return the filter arguments of `documents.list` and `documents.matching`."""
        return {
            "parent": resolve_document(library, base, self.inside) if self.inside else None,
            "states": self.states or None,
            "kinds": self.kinds or None,
            "text": self.text,
            "deleting": self.deleting,
        }


def retry(
    context: CommandContext,
    documents: DocumentsArgument = None,
    all_: AllOption = False,
    degraded: Annotated[bool, typer.Option("--degraded", help="With --all: also what lacks something.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    inside: InsideOption = None,
    deleting: DeletingOption = False,
    dry_run: DryRunOption = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Build what failed or is lacking, and nothing else.

    Of what is being deleted, try the clean-up again now.
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside, deleting=deleting)
    _check_selection(documents, which, all_=all_, dry_run=dry_run)
    with context.open(work=not no_wait and not dry_run) as library:
        if all_:
            states = ["failed", "degraded"] if degraded else ["failed"]
            failed = {document.id: document.name for document in _list_all(library, base, states=states)}
            summary = library.jobs.retry_all(base, degraded=degraded, dry_run=dry_run)
            if dry_run or no_wait or not summary.accepted:
                return _print_summary(context, summary, "to try again")
            context.terminal.info(f"trying again: {format_count(summary.accepted, 'document')}")
            return _wait_and_summarise(context, library, base, summary, failed)
        if which.is_given:
            asked = BulkAction(
                "retry", "to try again", "trying again", priority=priority, dry_run=dry_run, wait=not no_wait
            )
            return _run_on_matching(context, library, base, which, asked)
        replies = _run_on_ids(library, base, "retry", resolve_documents(library, base, documents or ()), priority)
        print_replies(context, replies, "trying again")
        if not no_wait and library.works and any(reply.accepted and reply.status == "deleting" for reply in replies):
            _wait_until_erased(library, base)
        return wait_and_report(context, library, base, replies, wait=not no_wait)


def reindex(
    context: CommandContext,
    documents: DocumentsArgument = None,
    all_: AllOption = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    inside: InsideOption = None,
    dry_run: DryRunOption = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Build documents again, from the first step.

    What is served stays served until then.
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside)
    _check_selection(documents, which, all_=all_, dry_run=dry_run)
    with context.open(work=not no_wait and not dry_run) as library:
        if which.is_given or dry_run:
            asked = BulkAction(
                "reindex", "to reindex", "reindexing", priority=priority, dry_run=dry_run, wait=not no_wait
            )
            return _run_on_matching(context, library, base, which, asked)
        ids = (
            [document.id for document in _list_all(library, base, parent=0)]
            if all_
            else resolve_documents(library, base, documents or ())
        )
        replies = _run_on_ids(library, base, "reindex", ids, priority)
        print_replies(context, replies, "reindexing")
        return wait_and_report(context, library, base, replies, wait=not no_wait)


def refresh(
    context: CommandContext,
    documents: DocumentsArgument = None,
    all_: Annotated[bool, typer.Option("--all", help="Every folder, sitemap and page of the base.")] = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Look again at folders, sitemaps and pages; index what changed.

    What did not change costs nothing.
    """
    if bool(documents) is all_:
        raise BadRequest("Name folders, sitemaps or pages, or say --all: one of these.")
    with context.open(work=not no_wait) as library:
        ids = resolve_documents(library, base, documents or ())
        if all_:
            ids = [document.id for document in _list_all(library, base, parent=0) if document.source is not None]
        replies = _run_on_ids(library, base, "refresh", ids, priority)
        print_replies(context, replies, "looking again")
        return wait_and_report(context, library, base, replies, wait=not no_wait)


def cancel(
    context: CommandContext,
    what: Annotated[
        list[str] | None, typer.Argument(metavar="DOC|JOB", help="Documents or jobs.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every active job of the base.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    inside: InsideOption = None,
    dry_run: DryRunOption = False,
    base: BaseOption = DEFAULT_BASE,
) -> ExitCode:
    """Stop what is active; what was served stays served."""
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside)
    _check_selection(what, which, all_=all_, dry_run=dry_run)
    with context.open() as library:
        if all_:
            return _print_summary(context, library.jobs.cancel_all(base, dry_run=dry_run), "to cancel")
        if which.is_given:
            return _run_on_matching(
                context, library, base, which, BulkAction("cancel", "to cancel", "cancelled", dry_run=dry_run)
            )
        words = what or []
        replies = [_cancel_job(library, word) for word in words if is_job_id(word)]
        numbers = resolve_documents(library, base, (word for word in words if not is_job_id(word)))
        replies += _run_on_ids(library, base, "cancel", numbers, DEFAULT_PRIORITY)
    print_replies(context, replies, "cancelled")
    context.print_result({"base": base, "replies": replies}, lambda: None)
    return combine_exit_codes([reply_exit_code(str(reply.verdict), reply.reason) for reply in replies])


def rm(
    context: CommandContext,
    documents: DocumentsArgument = None,
    all_: Annotated[bool, typer.Option("--all", help="Every document of the base.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    inside: InsideOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Delete documents with all below them.

    They are found nowhere from now on, and erased from the disk.
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside)
    _check_selection(documents, which, all_=all_, dry_run=dry_run)
    with context.open(work=not no_wait and not dry_run) as library:
        replies: list[Reply] = []
        if which.is_given:
            return _delete_matching(context, library, base, which, dry_run=dry_run, yes=yes, wait=not no_wait)
        if all_:
            found = library.bases.counts(base).documents
            if dry_run:
                context.print_result(
                    {"found": found}, lambda: context.terminal.info(f"{found:,} to delete. Nothing was done.")
                )
                return ExitCode.OK
            context.confirm(f"Delete all {format_count(found, 'document')} of base {base!r}?", yes=yes)
            library.bases.clear(base)
            context.terminal.info(f"Deleted {format_count(found, 'document')} of base {base!r}.")
        else:
            asked = resolve_documents(library, base, documents or ())
            names = ", ".join(library.documents.get(base, one).name for one in asked[:MAX_NAMES_SHOWN])
            more = f" and {len(asked) - MAX_NAMES_SHOWN} more" if len(asked) > MAX_NAMES_SHOWN else ""
            context.confirm(f"Delete {names}{more} from base {base!r}?", yes=yes)
            replies = _run_on_ids(library, base, "delete", asked, DEFAULT_PRIORITY)
            print_replies(context, replies, "deleted")
        if not no_wait and library.works:
            _wait_until_erased(library, base)
    context.print_result({"base": base, "replies": replies}, lambda: None)
    return combine_exit_codes([reply_exit_code(str(one.verdict), one.reason) for one in replies])


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An operation on all matching documents, with the labels of its output."""

    action: str
    summary_label: str
    progress_label: str
    _: KW_ONLY
    priority: int = DEFAULT_PRIORITY
    dry_run: bool = False
    wait: bool = False


def _run_on_matching(
    context: CommandContext, library: Holdfast, base: str, which: DocumentFilter, asked: BulkAction
) -> ExitCode:
    """Run an operation on all matching documents, and wait for the result if requested."""
    filters = which.to_arguments(library, base)
    waits = asked.wait and not asked.dry_run
    names = {document.id: document.name for document in _list_all(library, base, **filters)} if waits else {}
    summary = library.documents.matching(base, asked.action, priority=asked.priority, dry_run=asked.dry_run, **filters)
    if not waits or not summary.accepted:
        return _print_summary(context, summary, asked.summary_label)
    context.terminal.info(f"{asked.progress_label}: {format_count(summary.accepted, 'document')}")
    if which.deleting:
        if library.works:
            _wait_until_erased(library, base)
        context.print_result({"base": base, "summary": summary}, lambda: None)
        return ExitCode.OK
    return _wait_and_summarise(context, library, base, summary, names)


def _wait_and_summarise(
    context: CommandContext, library: Holdfast, base: str, summary: BulkSummary, names: dict[int, str]
) -> ExitCode:
    statuses = wait_for_documents(context, library, base, names)
    context.print_result(
        {"base": base, "summary": summary, "documents": statuses}, lambda: print_totals(context, base, statuses)
    )
    return combine_exit_codes([status_exit_code(document) for document in statuses])


def _delete_matching(
    context: CommandContext,
    library: Holdfast,
    base: str,
    which: DocumentFilter,
    *,
    dry_run: bool,
    yes: bool,
    wait: bool,
) -> ExitCode:
    filters = which.to_arguments(library, base)
    counted = library.documents.matching(base, "delete", dry_run=True, **filters)
    if dry_run or not counted.found:
        return _print_summary(context, counted, "to delete")
    context.confirm(f"Delete {format_count(counted.found, 'document')} from base {base!r}?", yes=yes)
    summary = library.documents.matching(base, "delete", **filters)
    if wait and library.works:
        _wait_until_erased(library, base)
    return _print_summary(context, summary, "to delete")


def _wait_until_erased(library: Holdfast, base: str) -> None:
    """Wait until this process has cleaned up deleted documents. After the timeout, another worker finishes it."""
    ends = time.monotonic() + DELETE_TIMEOUT_SECONDS
    while library.documents.list(base, deleting=True, size=1).total and time.monotonic() < ends:
        time.sleep(POLL_SECONDS)


def _check_selection(words: list[str] | None, which: DocumentFilter, *, all_: bool, dry_run: bool = False) -> None:
    """Require exactly one of names, `--all` and filters."""
    given = sum((bool(words), all_, which.is_given))
    if not given:
        raise BadRequest("Name documents, or say --all, or which of them by --state, --kind, --text or --in.")
    if given > 1:
        raise BadRequest("Name documents, say --all, or say which of them: one of these, and not several.")
    if dry_run and words:
        raise BadRequest("--dry-run goes with --all, or with --state, --kind, --text or --in.")


def _run_on_ids(library: Holdfast, base: str, action: str, documents: list[int], priority: int) -> list[Reply]:
    replies: list[Reply] = []
    for first in range(0, len(documents), MAX_IDS_PER_CALL):
        replies += library.documents.many(base, action, documents[first : first + MAX_IDS_PER_CALL], priority=priority)
    return replies


def _cancel_job(library: Holdfast, job: str) -> Reply:
    """Cancel a job; a conflict becomes a reply, because the command goes on with the next job."""
    from holdfast.service.messages import make_conflict_reply  # noqa: PLC0415 - slow to load

    try:
        reply: Reply = library.jobs.cancel(job)
    except Conflict as conflict:
        return make_conflict_reply(conflict, job=job)
    return reply


def _list_all(library: Holdfast, base: str, **which: Any) -> Iterator[Document]:
    return read_all_pages(lambda cursor: library.documents.list(base, cursor=cursor, size=MAX_PAGE_SIZE, **which))


def _print_summary(context: CommandContext, summary: BulkSummary, what: str) -> ExitCode:
    told = ", ".join(f"{number:,} {reason}" for reason, number in summary.answers.items())
    end = ". Nothing was done." if summary.dry_run else ""
    context.print_result(
        summary, lambda: context.terminal.info(f"{summary.found:,} {what}" + (f": {told}" if told else "") + end)
    )
    return ExitCode.OK
