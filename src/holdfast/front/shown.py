"""Documents as people see them, made of what the shelves tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.url_secrets import masked
from holdfast.errors import NotNow
from holdfast.front.sentences import moment, not_enabled, problem, progress, waiting, when
from holdfast.front.values import Card, Counts, Document, Index, Problem, Standing

if TYPE_CHECKING:
    from holdfast.knowledge.shelves import Counts as Counted
    from holdfast.knowledge.standings import Detail, IndexStanding, Row
    from holdfast.library.catalogue import Item
    from holdfast.library.serving import Served


def standing(row: Row) -> Standing:
    """Return how a document stands."""
    return Standing(**_standing(row))


def document(row: Row, base: str) -> Document:
    """Return a document as a list shows it."""
    return Document(**_document(row, base))


def damage(item: Item) -> NotNow | None:
    """Return why a document cannot be shown as it was stored; None where it can."""
    if item.damage is None:
        return None
    return NotNow(
        "document_damaged",
        f"Document {item.id} cannot be shown: the stored value of {item.damage!r} is not readable, or is nested too "
        "deeply. It was written by an older version or another program. Delete the document and add it again.",
    )


def detailed(detail: Detail, base: str) -> Document:
    """Return a document with all that is known of it; one that is damaged raises an error that says so."""
    damaged = damage(detail.row.item)
    if damaged is not None:
        raise damaged
    return Document(
        **_document(detail.row, base),
        waiting_for=waiting(detail.waits, base),
        chunks=detail.chunks,
        indexes=[index(one) for one in detail.indexes],
        not_enabled=not_enabled(detail.not_enabled),
        jobs=[job.id for job in detail.jobs],
    )


def index(one: IndexStanding) -> Index:
    """Return how one index stands."""
    return Index(
        kind=one.kind,
        state=one.state,
        wanted=one.wanted,
        built=one.built,
        attempts=one.attempts,
        attempts_max=one.attempts_max,
        chunks=one.chunks,
        missing=one.missing,
        made_by=one.recipe,
        error=problem(one.error),
        retry_at=moment(one.retry_at),
        queued_at=when(one.queued_at),
        claimed_at=moment(one.claimed_at),
        progress=progress(one.progress),
    )


def card(place: int, question: str, answer: str, source: Served) -> Card:
    """Return a question with its answer and the passage that both come from."""
    return Card(
        place=place,
        question=question,
        answer=answer,
        document=source.document,
        name=source.name,
        chunk=source.passage.chunk,
        headings=list(source.passage.headings),
        passage=source.passage.text,
    )


def counts(one: Counted) -> Counts:
    """Return how many documents there are."""
    return Counts(documents=one.documents, by_status=dict(one.by_status), containers=one.containers, bytes=one.bytes)


def _standing(row: Row) -> dict[str, Any]:
    one, damaged = row.standing, damage(row.item)
    return {
        "id": one.item,
        "name": row.item.name,
        "kind": row.item.kind,
        "status": one.status,
        "searchable": one.searchable,
        "generation": one.wanted,
        "built": one.built,
        "why": problem(one.why) if damaged is None else Problem(code=damaged.reason, message=str(damaged)),
        "retry_at": moment(one.retry_at),
        "progress": progress(one.progress),
        "priority": one.priority,
        "job": one.job,
        "queue_position": one.ahead,
    }


def _document(row: Row, base: str) -> dict[str, Any]:
    item = row.item
    return _standing(row) | {
        "base": base,
        "parent": item.parent or None,
        "size": item.size,
        "sha256": item.digest,
        "source": None if item.source is None else masked(item.source),
        "every": item.every,
        "metadata": dict(item.metadata),
        "created_at": when(item.created_at),
        "changed_at": when(item.changed_at),
    }
