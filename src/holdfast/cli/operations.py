"""`retry`, `cancel`, `rm`, `reindex`, `refresh`: operations on existing documents."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.cli.command import CommandContext, command
from holdfast.cli.exit_codes import ExitCode, combine_exit_codes, reply_exit_code
from holdfast.cli.format import format_code, format_count
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
from holdfast.cli.progress import wait_with_progress
from holdfast.cli.resolve import MAX_PAGE_SIZE, is_job_id, resolve_document, resolve_documents
from holdfast.cli.results import (
    VERDICT_LABELS,
    print_replies,
    print_started_job,
    print_totals,
    status_exit_code,
    wait_and_report,
    wait_for_documents,
)
from holdfast.cli.wait_targets import JobTarget
from holdfast.engine import DEFAULT_PRIORITY
from holdfast.errors import BadRequest, Conflict
from holdfast.paging import read_all_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.cli.options import Kind
    from holdfast.engine import Status
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import BulkSummary, Document, Reply

MAX_IDS_PER_CALL = 10_000
BULK_STARTED = "bulk_started"  # the reason of a reply whose job processes many documents
POLL_SECONDS = 0.1
MAX_NAMES_SHOWN = 3  # in the confirmation of a delete
DELETE_TIMEOUT_SECONDS = 60.0  # then another worker finishes the clean-up

AllOption = Annotated[bool, typer.Option("--all", help="All documents of the base.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count the documents without changing them.")]


def declare(app: typer.Typer) -> None:
    command(app, "retry")(retry)
    command(app, "cancel")(cancel)
    command(app, "rm")(rm)
    command(app, "reindex")(reindex)
    command(app, "refresh")(refresh)


class Action(NamedTuple):
    """An action on documents, with the words for its output."""

    name: str
    label: str  # of accepted requests
    participle: str  # in "2 documents would be …"


RETRY = Action("retry", "Retrying", "retried")
REINDEX = Action("reindex", "Reindexing", "reindexed")
REFRESH = Action("refresh", "Refreshing", "refreshed")
CANCEL = Action("cancel", "Cancelled", "cancelled")
DELETE = Action("delete", "Deleted", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFilter:
    """The filter options of a command. They select documents if the command names none."""

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
    all_: Annotated[bool, typer.Option("--all", help="All failed documents of the base.")] = False,
    degraded: Annotated[bool, typer.Option("--degraded", help="With --all: also degraded documents.")] = False,
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
    """Retry failed documents.

    Only the failed or missing parts of a document are built. For a document that is being deleted, the clean-up is
    tried again now.

    Example:
        holdfast retry report.pdf --base handbook
        holdfast retry --all
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside, deleting=deleting)
    _check_selection(documents, which, all_=all_, dry_run=dry_run)
    with context.open(work=not no_wait and not dry_run) as library:
        if all_:
            states = ["failed", "degraded"] if degraded else ["failed"]
            failed = {document.id: document.name for document in _list_all(library, base, states=states)}
            summary = library.jobs.retry_all(base, degraded=degraded, dry_run=dry_run)
            summary = _follow_job(context, library, summary, BulkRequest(RETRY, wait=not no_wait))
            if dry_run or no_wait or not summary.accepted:
                return _print_summary(context, summary, RETRY)
            context.terminal.info(f"{RETRY.label}: {format_count(summary.accepted, 'document')}")
            return _wait_and_summarise(context, library, base, summary, failed)
        if which.is_given:
            request = BulkRequest(RETRY, priority=priority, dry_run=dry_run, wait=not no_wait)
            return _run_on_matching(context, library, base, which, request)
        ids = resolve_documents(library, base, documents or ())
        replies = _run_on_ids(context, library, base, BulkRequest(RETRY, priority=priority, wait=not no_wait), ids)
        print_replies(context, replies, RETRY.label)
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
    """Build all indexes of documents again.

    The old indexes stay searchable until the new ones are complete.

    Example:
        holdfast reindex report.pdf --base handbook
        holdfast reindex --all --dry-run
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside)
    _check_selection(documents, which, all_=all_, dry_run=dry_run)
    with context.open(work=not no_wait and not dry_run) as library:
        if which.is_given or dry_run:
            request = BulkRequest(REINDEX, priority=priority, dry_run=dry_run, wait=not no_wait)
            return _run_on_matching(context, library, base, which, request)
        ids = (
            [document.id for document in _list_all(library, base, parent=0)]
            if all_
            else resolve_documents(library, base, documents or ())
        )
        replies = _run_on_ids(context, library, base, BulkRequest(REINDEX, priority=priority, wait=not no_wait), ids)
        print_replies(context, replies, REINDEX.label)
        return wait_and_report(context, library, base, replies, wait=not no_wait)


def refresh(
    context: CommandContext,
    documents: Annotated[
        list[str] | None,
        typer.Argument(metavar="DOC", help="Folders, sitemaps or web pages, by id or name.", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All folders, sitemaps and web pages of the base.")] = False,
    priority: PriorityOption = DEFAULT_PRIORITY,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Read folders, sitemaps and web pages again, and index what changed.

    An uploaded file or a note has no source to read again, so it is refused.

    Example:
        holdfast refresh docs --base handbook
        holdfast refresh --all
    """
    if not documents and not all_:
        raise BadRequest("no_source_selected")
    if documents and all_:
        raise BadRequest("several_selections")
    with context.open(work=not no_wait) as library:
        ids = resolve_documents(library, base, documents or ())
        if all_:
            ids = [document.id for document in _list_all(library, base, parent=0) if document.source is not None]
        replies = _run_on_ids(context, library, base, BulkRequest(REFRESH, priority=priority, wait=not no_wait), ids)
        print_replies(context, replies, REFRESH.label)
        return wait_and_report(context, library, base, replies, wait=not no_wait)


def cancel(
    context: CommandContext,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="DOC|JOB", help="Documents, by id or name, or ids of jobs.", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All active jobs of the base.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    inside: InsideOption = None,
    dry_run: DryRunOption = False,
    base: BaseOption = DEFAULT_BASE,
) -> ExitCode:
    """Cancel queued and running work.

    Documents that are already indexed stay searchable. A delete is never cancelled.

    Example:
        holdfast cancel report.pdf --base handbook
        holdfast cancel --all
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside)
    _check_selection(what, which, all_=all_, dry_run=dry_run)
    with context.open() as library:
        if all_:
            summary = library.jobs.cancel_all(base, dry_run=dry_run)
            summary = _follow_job(context, library, summary, BulkRequest(CANCEL), noun="job")
            return _print_summary(context, summary, CANCEL, noun="job")
        if which.is_given:
            return _run_on_matching(context, library, base, which, BulkRequest(CANCEL, dry_run=dry_run))
        words = what or []
        replies = [_cancel_job(library, word) for word in words if is_job_id(word)]
        ids = resolve_documents(library, base, (word for word in words if not is_job_id(word)))
        replies += _run_on_ids(context, library, base, BulkRequest(CANCEL), ids)
    print_replies(context, replies, CANCEL.label)
    context.print_result({"base": base, "replies": replies}, lambda: None)
    return combine_exit_codes([reply_exit_code(str(reply.verdict), reply.reason) for reply in replies])


def rm(
    context: CommandContext,
    documents: DocumentsArgument = None,
    all_: Annotated[bool, typer.Option("--all", help="All documents of the base.")] = False,
    state: StatesOption = None,
    kind: KindsOption = None,
    text: TextOption = None,
    inside: InsideOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    base: BaseOption = DEFAULT_BASE,
    no_wait: NoWaitOption = False,
) -> ExitCode:
    """Delete documents, and folders with everything in them.

    Deleted documents disappear from search immediately and are erased from the disk. This cannot be undone. With
    --status but without --kind, folders and sitemaps are skipped, because their documents may have another status.

    Example:
        holdfast rm report.pdf --base handbook
        holdfast rm --status failed --dry-run
    """
    which = DocumentFilter(states=state, kinds=kind, text=text, inside=inside)
    _check_selection(documents, which, all_=all_, dry_run=dry_run)
    with context.open(work=not no_wait and not dry_run) as library:
        replies: list[Reply] = []
        if which.is_given:
            return _delete_matching(context, library, base, which, dry_run=dry_run, yes=yes, wait=not no_wait)
        if all_:
            found = library.bases.counts(base, exact=True).documents
            if dry_run:
                context.print_result(
                    {"found": found}, lambda: context.terminal.info(_format_dry_run(found, "document", DELETE))
                )
                return ExitCode.OK
            context.confirm(
                f"Delete all {format_count(found, 'document')} of base {base!r}? This cannot be undone.", yes=yes
            )
            summary = _follow_job(context, library, library.bases.clear(base), BulkRequest(DELETE, wait=not no_wait))
            if not no_wait or not summary.jobs:
                context.terminal.info(f"Deleted {format_count(found, 'document')} of base {base!r}.")
        else:
            ids = resolve_documents(library, base, documents or ())
            names = ", ".join(library.documents.get(base, one).name for one in ids[:MAX_NAMES_SHOWN])
            more = f" and {len(ids) - MAX_NAMES_SHOWN} more" if len(ids) > MAX_NAMES_SHOWN else ""
            context.confirm(f"Delete {names}{more} from base {base!r}? This cannot be undone.", yes=yes)
            replies = _run_on_ids(context, library, base, BulkRequest(DELETE, wait=not no_wait), ids)
            print_replies(context, replies, DELETE.label)
        if not no_wait and library.works:
            _wait_until_erased(library, base)
    context.print_result({"base": base, "replies": replies}, lambda: None)
    return combine_exit_codes([reply_exit_code(str(one.verdict), one.reason) for one in replies])


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """A request for all matching documents."""

    action: Action
    _: KW_ONLY
    priority: int = DEFAULT_PRIORITY
    dry_run: bool = False
    wait: bool = False


def _run_on_matching(
    context: CommandContext, library: Holdfast, base: str, which: DocumentFilter, request: BulkRequest
) -> ExitCode:
    """Run an action on all matching documents, and wait for the result if requested."""
    filters = which.to_arguments(library, base)
    waits = request.wait and not request.dry_run
    names = {document.id: document.name for document in _list_all(library, base, **filters)} if waits else {}
    summary = library.documents.matching(
        base, request.action.name, priority=request.priority, dry_run=request.dry_run, **filters
    )
    summary = _follow_job(context, library, summary, request)
    if not waits or not summary.accepted:
        return _print_summary(context, summary, request.action)
    context.terminal.info(f"{request.action.label}: {format_count(summary.accepted, 'document')}")
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
        return _print_summary(context, counted, DELETE)
    context.confirm(
        f"Delete {format_count(counted.found, 'document')} from base {base!r}? This cannot be undone.", yes=yes
    )
    summary = library.documents.matching(base, "delete", **filters)
    summary = _follow_job(context, library, summary, BulkRequest(DELETE, wait=wait))
    if wait and library.works:
        _wait_until_erased(library, base)
    return _print_summary(context, summary, DELETE)


def _wait_until_erased(library: Holdfast, base: str) -> None:
    """Wait until the deleted documents are cleaned up, or until the timeout."""
    ends = time.monotonic() + DELETE_TIMEOUT_SECONDS
    while library.documents.list(base, deleting=True, size=1).total and time.monotonic() < ends:
        time.sleep(POLL_SECONDS)


def _check_selection(words: list[str] | None, which: DocumentFilter, *, all_: bool, dry_run: bool = False) -> None:
    """Require exactly one of names, `--all` and filters."""
    given = sum((bool(words), all_, which.is_given))
    if not given:
        raise BadRequest("no_document_selected")
    if given > 1:
        raise BadRequest("several_selections")
    if dry_run and words:
        raise BadRequest("dry_run_of_named")


def _run_on_ids(
    context: CommandContext, library: Holdfast, base: str, request: BulkRequest, ids: list[int]
) -> list[Reply]:
    """Run an action on documents, wait for its jobs if requested, and return a reply for each document."""
    from holdfast.engine import Verdict  # noqa: PLC0415 - slow to load
    from holdfast.service.messages import Reply  # noqa: PLC0415 - slow to load

    replies: list[Reply] = []
    for first in range(0, len(ids), MAX_IDS_PER_CALL):
        part = ids[first : first + MAX_IDS_PER_CALL]
        result = library.documents.many(base, request.action.name, part, priority=request.priority)
        if isinstance(result, list):
            _wait_for_jobs(context, library, request, [one.job for one in result if one.reason == BULK_STARTED])
            replies += result
            continue
        summary = _follow_job(context, library, result, request)
        replies += [
            Reply(
                verdict=Verdict.ACCEPTED,
                reason=BULK_STARTED,
                message="",
                name=str(id_),
                document=id_,
                job=summary.jobs[0],
            )
            for id_ in part
        ]
    return replies


def _follow_job(
    context: CommandContext, library: Holdfast, summary: BulkSummary, request: BulkRequest, *, noun: str = "document"
) -> BulkSummary:
    """Wait for the job of a large selection if requested, and return the summary with the answers of the job."""
    if not summary.jobs:
        return summary
    (job,) = summary.jobs  # the selection is of one base
    if not request.wait:
        print_started_job(context, job, f"processes {format_count(summary.found, noun)} when a worker runs")
        return summary
    _wait_for_jobs(context, library, request, [job])
    counted = library.jobs.get(job).bulk
    answers = {} if counted is None else counted.answers
    accepted = sum(number for answer, number in answers.items() if answer.startswith("accepted"))
    return replace(summary, accepted=accepted, answers=answers)


def _wait_for_jobs(
    context: CommandContext, library: Holdfast, request: BulkRequest, jobs: Iterable[str | None]
) -> None:
    for job in jobs if request.wait else ():
        if job is not None:
            target = JobTarget(library, job, request.action.label)
            wait_with_progress(context, library, target, again=context.format_command("queue", "ls"))


def _cancel_job(library: Holdfast, job: str) -> Reply:
    """Cancel a job. A conflict becomes a reply, so that the command continues with the next job."""
    from holdfast.service.messages import make_conflict_reply  # noqa: PLC0415 - slow to load

    try:
        reply: Reply = library.jobs.cancel(job)
    except Conflict as conflict:
        return make_conflict_reply(conflict, job=job)
    return reply


def _list_all(library: Holdfast, base: str, **which: Any) -> Iterator[Document]:
    return read_all_pages(lambda cursor: library.documents.list(base, cursor=cursor, size=MAX_PAGE_SIZE, **which))


def _print_summary(
    context: CommandContext, summary: BulkSummary, action: Action, *, noun: str = "document"
) -> ExitCode:
    def human() -> None:
        if not summary.found:
            context.terminal.info(f"No {noun}s to {action.name}.")
            return
        if summary.dry_run:
            context.terminal.info(_format_dry_run(summary.found, noun, action))
            return
        if summary.jobs and not summary.answers:
            return  # the job has not processed them yet
        context.terminal.info(f"{action.label}: {summary.accepted:,} of {format_count(summary.found, noun)}")
        for answer, number in summary.answers.items():
            verdict, _, reason = answer.partition(": ")
            if verdict in VERDICT_LABELS:
                label = f"{VERDICT_LABELS[verdict]}: {format_count(number, noun)}"
                context.terminal.info(f"{label} ({format_code(reason)})")

    context.print_result(summary, human)
    return ExitCode.OK


def _format_dry_run(found: int, noun: str, action: Action) -> str:
    return f"{format_count(found, noun)} would be {action.participle}. This was a dry run."
