"""All at a glance: documents, the queue, who works, what was spent, and how jobs ended lately."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import Moment, as_datetime, micros
from holdfast.engine import Outcome, Status
from holdfast.errors import BadRequest
from holdfast.service.jobs import queue_of
from holdfast.service.schemas import Bucket, Counts, Overview

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.engine.store import Overview as Counting
    from holdfast.service.authorization import Authorization

BUCKETS = 24
LONGEST = 24 * 30  # hours
TOLD = frozenset({Outcome.SUCCESS, Outcome.DEGRADED, Outcome.FAILED, Outcome.CANCELLED})


def overview(at: Authorization, hours: int) -> Overview:
    """Return all at a glance; of a caller who is limited to bases, of these alone."""
    if not 1 <= hours <= LONGEST:
        raise BadRequest(f"An overview is of the last 1 to {LONGEST} hours, not {hours}.")
    library, store = at.library, at.library.store
    shelves = at.bases()
    names = {shelf.key: shelf.name for shelf in shelves}
    asked: Sequence[str | None] = [None] if at.caller.bases is None else [*names]
    window = timedelta(hours=hours)
    queue = _joined([store.overview(base, window) for base in asked or [""]])
    counted = library.shelves.counts_of_all()
    paid = library.memos.account_of_all(names)
    return Overview(
        bases=len(shelves),
        documents=_counts(counted[shelf.id] for shelf in shelves if shelf.id in counted),
        queue=queue_of(queue, names),
        workers=store.workers(),
        working=len({holder for base, holder in store.at_work() if None in asked or base in names}),
        tokens_spent=paid.spent.tokens,
        tokens_saved=paid.saved.tokens,
        price_spent=paid.spent.price,
        price_saved=paid.saved.price,
        duplicates=sum(one.times for one in store.count_refusals() if one.base in names),
        series=_series(at, asked, queue.now, window / BUCKETS),
    )


def _series(at: Authorization, bases: Iterable[str | None], now: Moment, width: timedelta) -> list[Bucket]:
    """Count how jobs ended, in steps that begin at the same moments whenever somebody looks."""
    step = micros(width)
    first = now // step * step - (BUCKETS - 1) * step
    counted: Counter[tuple[int, str]] = Counter()
    for base in bases:
        for (begins, outcome), many in at.library.store.ended(base, Moment(first), width).items():
            counted[begins, outcome if outcome in TOLD else "other"] += many
    return [
        Bucket(
            at=as_datetime(Moment(begins)),
            **{name: counted[begins, name] for name in (*map(str, TOLD), "other")},
        )
        for begins in range(first, first + BUCKETS * step, step)
    ]


def _joined(some: Sequence[Counting]) -> Counting:
    """Add up how the queue does in several bases."""
    active: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for one in some:
        active.update(one.active)
        ended.update(one.ended)
    waiting = [one.oldest_queued for one in some if one.oldest_queued is not None]
    return replace(some[0], active=dict(active), ended=dict(ended), oldest_queued=min(waiting, default=None))


def _counts(some: Iterable[Counts]) -> Counts:
    by_status: Counter[Status] = Counter()
    containers = size = 0
    for one in some:
        by_status.update(one.by_status)
        containers += one.containers
        size += one.bytes
    return Counts(
        documents=by_status.total(),
        by_status={status: by_status[status] for status in Status},
        containers=containers,
        bytes=size,
    )
