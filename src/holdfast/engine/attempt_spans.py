"""Spans of the attempts of a worker. Each continues the trace of the request that its job comes from."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.tracing import NO_SPAN, SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.engine.slot import Ticket
    from holdfast.engine.store.base import Store
    from holdfast.errors import StaleLease
    from holdfast.tracing import Span, Tracer, Value


class AttemptSpans:
    """The spans of one worker. If the tracer is off, it reads and keeps nothing."""

    def __init__(self, tracer: Tracer, store: Store, holder: str) -> None:
        self._tracer = tracer
        self._store = store
        self._holder = holder
        self._parents: dict[str, str] = {}  # by job, of the claimed batch
        self._attempts: dict[Ticket, str | None] = {}  # the places of the attempts whose results are not written yet
        self._refused: set[Ticket] = set()

    def load(self, tickets: Sequence[Ticket]) -> None:
        """Read the traces of a claimed batch. Without them its attempts begin traces of their own."""
        if not self._tracer.enabled:
            return
        self._attempts = {}
        self._parents = self._store.find_traceparents({ticket.job for ticket in tickets})

    def attempt(self, ticket: Ticket) -> Span:
        """Return the span around an attempt on one slot."""
        if not self._tracer.enabled:
            return NO_SPAN
        span = self._tracer.span(
            f"remove {ticket.key.kind}" if ticket.removing else f"build {ticket.key.kind}",
            kind=SpanKind.CONSUMER,
            parent=self._parents.get(ticket.job),
            attributes=self._describe(ticket),
        )
        self._attempts[ticket] = span.traceparent
        return span

    def prepare(self, kind: str, tickets: Sequence[Ticket]) -> Span:
        """Return the span around what an indexer does for a whole batch. It belongs to one trace, or links to all."""
        if not self._tracer.enabled:
            return NO_SPAN
        places = list(dict.fromkeys(self._parents.get(ticket.job) for ticket in tickets))
        attributes: dict[str, Value] = {
            "holdfast.kind": kind,
            "holdfast.slots": len(tickets),
            "holdfast.holder": self._holder,
        }
        if len(places) == 1:
            return self._tracer.span(f"prepare {kind}", parent=places[0], attributes=attributes)
        return self._tracer.span(f"prepare {kind}", links=[place for place in places if place], attributes=attributes)

    def remove_together(self, tickets: Sequence[Ticket]) -> AbstractContextManager[set[int]]:
        """Return the block in which one batch of slots of a kind is removed."""
        shown = tickets if self._tracer.enabled else ()
        spans = [(self._parents.get(ticket.job), self._describe(ticket)) for ticket in shown]
        kind = tickets[0].key.kind if tickets else ""
        return self._tracer.record(f"remove {kind}", spans)

    @contextmanager
    def publish(self, tickets: Sequence[Ticket]) -> Iterator[None]:
        """Record the transactions that write results, below the attempts."""
        if not self._tracer.enabled:
            yield
            return
        shown = [ticket for ticket in tickets if ticket in self._attempts]
        self._refused.clear()
        with self._tracer.record(
            "publish", [(self._attempts.pop(ticket), {"holdfast.job": ticket.job}) for ticket in shown]
        ) as stale:
            yield
            stale.update(place for place, ticket in enumerate(shown) if ticket in self._refused)

    def refuse(self, error: StaleLease) -> None:
        """Mark results as refused, because another claim or request was newer."""
        if self._tracer.enabled:
            self._refused.update(error.tickets)

    def _describe(self, ticket: Ticket) -> dict[str, Value]:
        return {
            "holdfast.base": ticket.key.base,
            "holdfast.owner": ticket.key.owner,
            "holdfast.kind": ticket.key.kind,
            "holdfast.job": ticket.job,
            "holdfast.generation": ticket.generation,
            "holdfast.fence": ticket.fence,
            "holdfast.attempt": ticket.attempt,
            "holdfast.holder": self._holder,
        }
