"""Builds the overview: documents, queue, workers, costs and recent outcomes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.clock import Moment, as_datetime, micros
from holdfast.documents import DocumentCounts
from holdfast.engine import Outcome, Status
from holdfast.errors import BadRequest
from holdfast.service.jobs import QueueStats, queue_to_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.engine.store import QueueOverview
    from holdfast.service.authorization import Authorization

BUCKET_COUNT = 24
MAX_HOURS = 24 * 30
CHARTED_OUTCOMES = frozenset({Outcome.SUCCESS, Outcome.DEGRADED, Outcome.FAILED, Outcome.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeBucket:
    """Outcomes of the jobs that ended within one period."""

    at: datetime  # start of the period
    success: int = 0
    degraded: int = 0
    failed: int = 0
    cancelled: int = 0
    other: int = 0  # superseded or deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Statistics of the bases that the caller sees."""

    bases: int
    documents: DocumentCounts
    queue: QueueStats
    workers: int  # running workers of the whole library
    working: int  # workers with a live lease on work of these bases
    tokens_spent: int  # this and the next four fields: in total, not only within the last hours
    tokens_saved: int
    price_spent: float | None
    price_saved: float | None
    duplicates: int  # requests that started no new work, counted up to 10,000
    series: list[OutcomeBucket]  # oldest first; the last period has not ended


def build_overview(authorization: Authorization, hours: int) -> Overview:
    """Return the overview of the bases that the caller sees."""
    if not 1 <= hours <= MAX_HOURS:
        raise BadRequest("hours_out_of_range", hours=hours, most=MAX_HOURS)
    library, store = authorization.library, authorization.library.store
    visible = authorization.visible_bases()
    names = {base.key: base.name for base in visible}
    keys: Sequence[str | None] = [None] if authorization.caller.bases is None else [*names]
    window = timedelta(hours=hours)
    queue = _merge_queues([store.overview(base, window) for base in keys or [""]])
    counted = library.document_queries.counts_of_many(visible)
    paid = library.paid_cache.summarize_bases(names)
    return Overview(
        bases=len(visible),
        documents=_sum_counts(counted.values()),
        queue=queue_to_schema(queue, names),
        workers=store.count_workers(),
        working=len({holder for base, holder in store.list_active_holders() if None in keys or base in names}),
        tokens_spent=paid.spent.tokens,
        tokens_saved=paid.saved.tokens,
        price_spent=paid.spent.price,
        price_saved=paid.saved.price,
        duplicates=store.count_all_refusals(names),
        series=_count_ended_jobs(authorization, keys, queue.now, window / BUCKET_COUNT),
    )


def _count_ended_jobs(
    authorization: Authorization, bases: Iterable[str | None], now: Moment, width: timedelta
) -> list[OutcomeBucket]:
    """Count ended jobs per period. The bounds of the periods do not depend on the time of the request."""
    step = micros(width)
    first = now // step * step - (BUCKET_COUNT - 1) * step
    counted: Counter[tuple[int, str]] = Counter()
    for base in bases:
        for (begins, outcome), many in authorization.library.store.count_ended(base, Moment(first), width).items():
            counted[begins, outcome if outcome in CHARTED_OUTCOMES else "other"] += many
    return [
        OutcomeBucket(
            at=as_datetime(Moment(begins)),
            **{name: counted[begins, name] for name in (*map(str, CHARTED_OUTCOMES), "other")},
        )
        for begins in range(first, first + BUCKET_COUNT * step, step)
    ]


def _merge_queues(queues: Sequence[QueueOverview]) -> QueueOverview:
    """Add up the numbers of several queues."""
    active: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for queue in queues:
        active.update(queue.active)
        ended.update(queue.ended)
    waiting = [queue.oldest_queued for queue in queues if queue.oldest_queued is not None]
    return replace(
        queues[0],
        active=dict(active),
        active_is_exact=all(queue.active_is_exact for queue in queues),
        ended=dict(ended),
        oldest_queued=min(waiting, default=None),
    )


def _sum_counts(all_counts: Collection[DocumentCounts]) -> DocumentCounts:
    more = {status for counts in all_counts for status in counts.more}
    return DocumentCounts(
        documents=sum(counts.documents for counts in all_counts),
        by_status={status: sum(counts.by_status[status] for counts in all_counts) for status in Status},
        containers=sum(counts.containers for counts in all_counts),
        bytes=None if more else sum(counts.bytes or 0 for counts in all_counts),
        more=[status for status in Status if status in more],
    )
