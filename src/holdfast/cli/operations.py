"""`retry`, `cancel`, `rm`, `reindex`, `refresh`: what is done to documents that are there."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Face, command
from holdfast.cli.exit_codes import Exit, answer, together
from holdfast.cli.format import many
from holdfast.cli.options import (
    DEFAULT_BASE,
    Base,
    Deleting,
    Documents,
    Inside,
    Kinds,
    NoWait,
    Priority,
    States,
    Text,
    Yes,
)
from holdfast.cli.resolve import LARGEST_PAGE, find, find_all, is_job
from holdfast.cli.results import ended_as, finish, settle, sum_up, tell
from holdfast.errors import BadRequest, Conflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.cli.options import Kind
    from holdfast.engine import Status
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import Document, Reply, Summary

PANEL = "Changing"
USUAL = 5
TOGETHER = 1_000
A_MOMENT = 0.1
NAMED = 3  # of those that are to be deleted
PATIENCE = 60.0  # seconds that a delete is waited for

All = Annotated[bool, typer.Option("--all", help="All of the base.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, and do nothing.")]


def declare(app: typer.Typer) -> None:
    """Declare the commands."""
    command(app, "retry", panel=PANEL)(retry)
    command(app, "cancel", panel=PANEL)(cancel)
    command(app, "rm", panel=PANEL)(rm)
    command(app, "reindex", panel=PANEL)(reindex)
    command(app, "refresh", panel=PANEL)(refresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which documents are meant, where none is named."""

    states: list[Status] | None = None
    kinds: list[Kind] | None = None
    text: str | None = None
    inside: str | None = None
    deleting: bool = False

    @property
    def said(self) -> bool:
        """Something of it was said."""
        return self != Which()

    def filters(self, library: Holdfast, base: str) -> dict[str, Any]:
        """Return it as lists are filtered."""
        return {
            "parent": find(library, base, self.inside) if self.inside else None,
            "states": self.states or None,
            "kinds": self.kinds or None,
            "text": self.text,
            "deleting": self.deleting,
        }


def retry(
    face: Face,
    documents: Documents = None,
    all_: All = False,
    degraded: Annotated[bool, typer.Option("--degraded", help="With --all: also what lacks something.")] = False,
    state: States = None,
    kind: Kinds = None,
    text: Text = None,
    inside: Inside = None,
    deleting: Deleting = False,
    dry_run: DryRun = False,
    priority: Priority = USUAL,
    base: Base = DEFAULT_BASE,
    no_wait: NoWait = False,
) -> Exit:
    """Build what failed or is lacking, and nothing else.

    Of what is being deleted, try the clean-up again now.
    """
    which = Which(states=state, kinds=kind, text=text, inside=inside, deleting=deleting)
    _either(documents, which, all_=all_, dry_run=dry_run)
    with face.open(work=not no_wait and not dry_run) as library:
        if all_:
            states = ["failed", "degraded"] if degraded else ["failed"]
            failed = {one.id: one.name for one in _all(library, base, states=states)}
            summary = library.jobs.retry_all(base, degraded=degraded, dry_run=dry_run)
            if dry_run or no_wait or not summary.accepted:
                return _summed(face, summary, "to try again")
            face.terminal.say(f"trying again: {many(summary.accepted, 'document')}")
            return _settled(face, library, base, summary, failed)
        if which.said:
            asked = Asked("retry", "to try again", "trying again", priority=priority, dry_run=dry_run, wait=not no_wait)
            return _matching(face, library, base, which, asked)
        replies = _many(library, base, "retry", find_all(library, base, documents or ()), priority)
        tell(face, replies, "trying again")
        if not no_wait and library.works and any(one.accepted and one.status == "deleting" for one in replies):
            _erased(library, base)
        return finish(face, library, base, replies, wait=not no_wait)


def reindex(
    face: Face,
    documents: Documents = None,
    all_: All = False,
    state: States = None,
    kind: Kinds = None,
    text: Text = None,
    inside: Inside = None,
    dry_run: DryRun = False,
    priority: Priority = USUAL,
    base: Base = DEFAULT_BASE,
    no_wait: NoWait = False,
) -> Exit:
    """Build documents again, from the first step.

    What is served stays served until then.
    """
    which = Which(states=state, kinds=kind, text=text, inside=inside)
    _either(documents, which, all_=all_, dry_run=dry_run)
    with face.open(work=not no_wait and not dry_run) as library:
        if which.said or dry_run:
            asked = Asked("reindex", "to reindex", "reindexing", priority=priority, dry_run=dry_run, wait=not no_wait)
            return _matching(face, library, base, which, asked)
        ids = [one.id for one in _all(library, base, parent=0)] if all_ else find_all(library, base, documents or ())
        replies = _many(library, base, "reindex", ids, priority)
        tell(face, replies, "reindexing")
        return finish(face, library, base, replies, wait=not no_wait)


def refresh(
    face: Face,
    documents: Documents = None,
    all_: Annotated[bool, typer.Option("--all", help="Every folder, sitemap and page of the base.")] = False,
    priority: Priority = USUAL,
    base: Base = DEFAULT_BASE,
    no_wait: NoWait = False,
) -> Exit:
    """Look again at folders, sitemaps and pages; index what changed.

    What did not change costs nothing.
    """
    if bool(documents) is all_:
        raise BadRequest("Name folders, sitemaps or pages, or say --all: one of these.")
    with face.open(work=not no_wait) as library:
        ids = find_all(library, base, documents or ())
        if all_:
            ids = [one.id for one in _all(library, base, parent=0) if one.source is not None]
        replies = _many(library, base, "refresh", ids, priority)
        tell(face, replies, "looking again")
        return finish(face, library, base, replies, wait=not no_wait)


def cancel(
    face: Face,
    what: Annotated[
        list[str] | None, typer.Argument(metavar="DOC|JOB", help="Documents or jobs.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every active job of the base.")] = False,
    state: States = None,
    kind: Kinds = None,
    text: Text = None,
    inside: Inside = None,
    dry_run: DryRun = False,
    base: Base = DEFAULT_BASE,
) -> Exit:
    """Stop what is active; what was served stays served."""
    which = Which(states=state, kinds=kind, text=text, inside=inside)
    _either(what, which, all_=all_, dry_run=dry_run)
    with face.open() as library:
        if all_:
            return _summed(face, library.jobs.cancel_all(base, dry_run=dry_run), "to cancel")
        if which.said:
            return _matching(face, library, base, which, Asked("cancel", "to cancel", "cancelled", dry_run=dry_run))
        words = what or []
        replies = [_cancelled(library, word) for word in words if is_job(word)]
        numbers = find_all(library, base, (word for word in words if not is_job(word)))
        replies += _many(library, base, "cancel", numbers, USUAL)
    tell(face, replies, "cancelled")
    face.show({"base": base, "replies": replies}, lambda: None)
    return together([answer(str(one.verdict), one.reason) for one in replies])


def rm(
    face: Face,
    documents: Documents = None,
    all_: Annotated[bool, typer.Option("--all", help="Every document of the base.")] = False,
    state: States = None,
    kind: Kinds = None,
    text: Text = None,
    inside: Inside = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    base: Base = DEFAULT_BASE,
    no_wait: NoWait = False,
) -> Exit:
    """Delete documents with all below them.

    They are found nowhere from now on, and erased from the disk.
    """
    which = Which(states=state, kinds=kind, text=text, inside=inside)
    _either(documents, which, all_=all_, dry_run=dry_run)
    with face.open(work=not no_wait and not dry_run) as library:
        replies: list[Reply] = []
        if which.said:
            return _removed(face, library, base, which, dry_run=dry_run, yes=yes, wait=not no_wait)
        if all_:
            found = library.bases.counts(base).documents
            if dry_run:
                face.show({"found": found}, lambda: face.terminal.say(f"{found:,} to delete. Nothing was done."))
                return Exit.OK
            face.confirm(f"Delete all {many(found, 'document')} of base {base!r}?", yes=yes)
            library.bases.clear(base)
            face.terminal.say(f"Deleted {many(found, 'document')} of base {base!r}.")
        else:
            asked = find_all(library, base, documents or ())
            names = ", ".join(library.documents.get(base, one).name for one in asked[:NAMED])
            more = f" and {len(asked) - NAMED} more" if len(asked) > NAMED else ""
            face.confirm(f"Delete {names}{more} from base {base!r}?", yes=yes)
            replies = _many(library, base, "delete", asked, USUAL)
            tell(face, replies, "deleted")
        if not no_wait and library.works:
            _erased(library, base)
    face.show({"base": base, "replies": replies}, lambda: None)
    return together([answer(str(one.verdict), one.reason) for one in replies])


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of all that fit, and how that is said."""

    action: str
    beforehand: str
    done: str
    _: KW_ONLY
    priority: int = USUAL
    dry_run: bool = False
    wait: bool = False


def _matching(face: Face, library: Holdfast, base: str, which: Which, asked: Asked) -> Exit:
    """Do the same to all that fit, and wait for it where somebody works."""
    filters = which.filters(library, base)
    waits = asked.wait and not asked.dry_run
    names = {one.id: one.name for one in _all(library, base, **filters)} if waits else {}
    summary = library.documents.matching(base, asked.action, priority=asked.priority, dry_run=asked.dry_run, **filters)
    if not waits or not summary.accepted:
        return _summed(face, summary, asked.beforehand)
    face.terminal.say(f"{asked.done}: {many(summary.accepted, 'document')}")
    if which.deleting:
        if library.works:
            _erased(library, base)
        face.show({"base": base, "summary": summary}, lambda: None)
        return Exit.OK
    return _settled(face, library, base, summary, names)


def _settled(face: Face, library: Holdfast, base: str, summary: Summary, names: dict[int, str]) -> Exit:
    standings = settle(face, library, base, names)
    face.show({"base": base, "summary": summary, "documents": standings}, lambda: sum_up(face, base, standings))
    return together([ended_as(one) for one in standings])


def _removed(face: Face, library: Holdfast, base: str, which: Which, *, dry_run: bool, yes: bool, wait: bool) -> Exit:
    """Delete all that fit."""
    filters = which.filters(library, base)
    counted = library.documents.matching(base, "delete", dry_run=True, **filters)
    if dry_run or not counted.found:
        return _summed(face, counted, "to delete")
    face.confirm(f"Delete {many(counted.found, 'document')} from base {base!r}?", yes=yes)
    summary = library.documents.matching(base, "delete", **filters)
    if wait and library.works:
        _erased(library, base)
    return _summed(face, summary, "to delete")


def _erased(library: Holdfast, base: str) -> None:
    """Let this process erase what was deleted; whatever is left is erased by whoever works next."""
    ends = time.monotonic() + PATIENCE
    while library.documents.list(base, deleting=True, size=1).total and time.monotonic() < ends:
        time.sleep(A_MOMENT)


def _either(words: list[str] | None, which: Which, *, all_: bool, dry_run: bool = False) -> None:
    """Refuse what means nothing, or more than one thing."""
    said = sum((bool(words), all_, which.said))
    if not said:
        raise BadRequest("Name documents, or say --all, or which of them by --state, --kind, --text or --in.")
    if said > 1:
        raise BadRequest("Name documents, say --all, or say which of them: one of these, and not several.")
    if dry_run and words:
        raise BadRequest("--dry-run goes with --all, or with --state, --kind, --text or --in.")


def _many(library: Holdfast, base: str, action: str, documents: list[int], priority: int) -> list[Reply]:
    replies: list[Reply] = []
    for first in range(0, len(documents), TOGETHER):
        replies += library.documents.many(base, action, documents[first : first + TOGETHER], priority=priority)
    return replies


def _cancelled(library: Holdfast, job: str) -> Reply:
    """Cancel a job; a conflict becomes an answer beside others."""
    from holdfast.service.schemas import Reply as Replies  # noqa: PLC0415 - slow to load
    from holdfast.service.schemas import Status, Verdict  # noqa: PLC0415

    try:
        reply: Reply = library.jobs.cancel(job)
    except Conflict as error:
        return Replies(
            verdict=Verdict(error.verdict),
            reason=error.reason,
            message=str(error),
            document=error.document,
            job=job,
            status=Status(error.status),
        )
    return reply


def _all(library: Holdfast, base: str, **which: Any) -> Iterator[Document]:
    cursor = None
    while True:
        page = library.documents.list(base, cursor=cursor, size=LARGEST_PAGE, **which)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _summed(face: Face, summary: Summary, what: str) -> Exit:
    told = ", ".join(f"{number:,} {reason}" for reason, number in summary.answers.items())
    end = ". Nothing was done." if summary.dry_run else ""
    face.show(summary, lambda: face.terminal.say(f"{summary.found:,} {what}" + (f": {told}" if told else "") + end))
    return Exit.OK
