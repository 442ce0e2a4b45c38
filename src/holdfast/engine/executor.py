"""Claims, works, and reports what came of it. Nothing is retried here: the slot's state says what is next.

A ring is answered by a claim; what cannot be claimed was a duplicate, is stale, or is held by somebody else, and
that proof is all an acknowledgement needs. Quick results are committed together.
"""

from __future__ import annotations

import logging
import random
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar, cast

from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.slot import Fault
from holdfast.engine.store.base import Completion, Failure, Release
from holdfast.engine.task import BatchPreparer, BatchRemover, Task
from holdfast.errors import (
    HoldfastError,
    Outage,
    Permanent,
    RetryLater,
    StaleLease,
    StopWork,
    StoreError,
    StoreFull,
    Transient,
    WorkError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.clock import Clock
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Ring, Ticket
    from holdfast.engine.store.base import Store
    from holdfast.engine.task import Indexer, Publisher

log = logging.getLogger("holdfast")

T = TypeVar("T")


class PlainResult(Enum):
    """Ways to end that leave nothing to write, or only a row to forget."""

    REMOVED = auto()
    PUBLISHED = auto()  # by the work itself, in its own transaction


AttemptResult = Completion | Failure | Release | PlainResult
SMALLEST_BATCH = 2  # fewer than this have nothing to share
FLUSH_SECONDS = 0.05  # a finished result waits no longer than this for its neighbours
FLUSH_ROWS = 500  # nor for more of them than have so many rows to write


def no_failpoint(point: str) -> None:
    """Pass a named point; tests put faults here."""


class Executor:
    """One worker: one slot at a time, claimed alone or in a batch."""

    def __init__(
        self,
        store: Store,
        indexers: Mapping[str, Indexer],
        *,
        holder: str,
        clock: Clock,
        rules: Rules,
        chance: Callable[[], float] = random.random,
        reach: Callable[[str], None] = no_failpoint,
    ) -> None:
        self.store = store
        self.indexers = indexers
        self.holder = holder
        self.heartbeat = Heartbeat(store, clock, rules, holder)
        self._clock = clock
        self._rules = rules
        self._chance = chance
        self._failpoint = reach

    def run(self, ring: Ring) -> bool:
        """Answer a ring; return whether there was anything to do. Returning is the acknowledgement."""
        self._failpoint("received")
        since = self._clock.monotonic()
        tickets = self.store.claim([ring], self.holder)
        if not tickets:
            log.debug("ring.skipped slot=%d generation=%d", ring.slot, ring.generation)
        self._process(tickets, since)
        self._failpoint("done")
        return bool(tickets)

    def run_next(self, limit: int) -> int:
        """Claim the next slots and work on them; return how many there were."""
        since = self._clock.monotonic()
        tickets = self.store.claim_next(tuple(self.indexers), self.holder, limit)
        self._process(tickets, since)
        return len(tickets)

    def stop(self) -> None:
        """Give everything back at the next checkpoint."""
        self.heartbeat.stopping = True

    def _process(self, tickets: Sequence[Ticket], since: float) -> None:
        if not tickets:
            return
        self.heartbeat.hold(tickets, since)
        try:
            self._failpoint("claimed")
            flushed = self._clock.monotonic()
            results: list[tuple[Ticket, AttemptResult]] = []
            rows = 0
            removed = self._remove_together(tickets)
            self._prepare_batch(tickets)
            for ticket in tickets:
                if ticket in removed or not self.heartbeat.begin(ticket):
                    continue
                result = self._attempt(ticket)
                results.append((ticket, result))
                rows += _count_rows(result)
                if rows >= FLUSH_ROWS or self._clock.monotonic() - flushed >= FLUSH_SECONDS:
                    self._write_results(results)
                    flushed, results, rows = self._clock.monotonic(), [], 0
            self._write_results(results)
        finally:
            self.heartbeat.stop_renewing(tickets)

    def _remove_together(self, tickets: Sequence[Ticket]) -> set[Ticket]:
        """Clean up the slots of each kind and base as one set, and write the results; return who is settled.

        A set whose store is away waits as a whole. One that fails in another way is left to be tried slot by slot.
        """
        sets: dict[tuple[str, str], list[Ticket]] = {}
        for ticket in tickets:
            if ticket.removing:
                sets.setdefault((ticket.key.kind, ticket.key.base), []).append(ticket)
        results: list[tuple[Ticket, AttemptResult]] = []
        for (kind, _), some in sets.items():
            indexer = self.indexers[kind]
            if isinstance(indexer, BatchRemover) and len(some) >= SMALLEST_BATCH:
                results += self._remove_set(indexer, [ticket for ticket in some if self.heartbeat.begin(ticket)])
        self._write_results(results)
        return {ticket for ticket, _ in results}

    def _remove_set(self, indexer: BatchRemover, tickets: Sequence[Ticket]) -> list[tuple[Ticket, AttemptResult]]:
        """Clean up one set; return what came of each slot, nothing where they are left to be tried one by one."""
        try:
            for ticket in tickets:
                self.heartbeat.check(ticket)
            indexer.remove_all([self._make_task(ticket) for ticket in tickets])
        except Transient as error:
            log.info("removal.failed slots=%d error=%s", len(tickets), error)
            return [(ticket, self._classify_failure(ticket, error)) for ticket in tickets]
        except (StopWork, StaleLease) as stop:
            log.debug("removal.one_by_one slots=%d reason=%s", len(tickets), stop)
            return []
        except Exception as error:
            log.info("removal.one_by_one slots=%d error=%s", len(tickets), error, exc_info=True)
            return []
        return [(ticket, PlainResult.REMOVED) for ticket in tickets]

    def _prepare_batch(self, tickets: Sequence[Ticket]) -> None:
        """Show a batch to those who do some of their work together; what fails here is done, or fails, one by one."""
        for kind in {ticket.key.kind for ticket in tickets}:
            indexer = self.indexers[kind]
            tasks = [self._make_task(one) for one in tickets if one.key.kind == kind and not one.removing]
            if not isinstance(indexer, BatchPreparer) or len(tasks) < SMALLEST_BATCH:
                continue
            try:
                indexer.begin(tasks)
            except StaleLease as stale:
                self._recheck_leases(stale)
            except (StopWork, HoldfastError) as error:
                log.info("work.begun_in_part kind=%s reason=%s", kind, error)
            except Exception:
                log.exception("work.begun_in_part kind=%s", kind)

    def _make_task(self, ticket: Ticket) -> Task:
        return Task(ticket, self.store, self.heartbeat, self._failpoint)

    def _attempt(self, ticket: Ticket) -> AttemptResult:
        """Build or remove one slot; every way it can end is a result."""
        task = self._make_task(ticket)
        try:
            self.heartbeat.check(ticket)
            indexer = self.indexers[ticket.key.kind]
            if ticket.removing:
                indexer.remove(task)
                return PlainResult.REMOVED
            built = indexer.build(task)
            if task.published:
                return PlainResult.PUBLISHED
            if built is None:
                return Failure(ticket=ticket, fault=Fault("no_result"))
            return Completion(ticket=ticket, built=built)
        except (StopWork, StaleLease) as stop:
            if isinstance(stop, StaleLease):
                self._recheck_leases(stop)
            log.debug("work.stopped key=%s fence=%d reason=%s", ticket.key, ticket.fence, stop)
            return Release(ticket=ticket, refund=isinstance(stop, StopWork) and stop.refund)
        except Exception as error:
            if task.published:  # it stands, whatever came after
                log.exception("work.published_then_failed key=%s fence=%d", ticket.key, ticket.fence)
                return PlainResult.PUBLISHED
            trace = not isinstance(error, WorkError | StoreFull)  # of what an indexer foresaw the sentence says it all
            log.info("work.failed key=%s fence=%d error=%s", ticket.key, ticket.fence, error, exc_info=trace)
            return self._classify_failure(ticket, error)

    def _classify_failure(self, ticket: Ticket, error: Exception) -> Failure:
        """Decide what a failed attempt means: later, or never."""
        retry = self._rules.retry
        if isinstance(error, Permanent):
            fault, delay = Fault(error.code, error.params), None
        elif isinstance(error, Transient):
            fault = Fault(error.code, error.params)
            paused = error.retry_after if isinstance(error, RetryLater) else None
            delay = paused or retry.delay(ticket.attempt, self._chance(), error.retry_after)
        elif isinstance(error, StoreFull):
            fault = Fault("disk_full", {"message": str(error)})
            delay = retry.delay(ticket.attempt, self._chance())
        else:
            fault = Fault("unexpected", {"type": type(error).__name__, "message": str(error)[:500]})
            delay = retry.delay(ticket.attempt, self._chance())
        if isinstance(error, Outage | StoreFull):  # every document fails the same way, so no attempt is counted
            return Failure(ticket=ticket, fault=fault, delay=delay, refund=True)
        if ticket.removing:  # a clean-up is never given up
            return Failure(ticket=ticket, fault=fault, delay=delay or retry.max_delay)
        return Failure(ticket=ticket, fault=fault, delay=None if retry.exhausted(ticket.attempt) else delay)

    def _write_results(self, results: Sequence[tuple[Ticket, AttemptResult]]) -> None:
        """Write the results, a batch for each kind of ending."""
        if not results:
            return
        self._failpoint("settling")
        self.heartbeat.stop_renewing([ticket for ticket, _ in results])
        endings = [one for _, one in results]
        gone = [ticket for ticket, one in results if one is PlainResult.REMOVED]
        self._complete([one for one in endings if isinstance(one, Completion)])
        self._write_batch(self.store.fail, [one for one in endings if isinstance(one, Failure)])
        self._write_batch(self.store.forget, gone)
        self._release([one for one in endings if isinstance(one, Release)])
        self._failpoint("settled")

    def _complete(self, completions: Sequence[Completion]) -> None:
        """Publish results together; where that fails each stands or falls alone."""
        try:
            self._write_batch(lambda batch: self.store.complete(batch, self._add_rows), completions)
        except Exception as error:
            if len(completions) > 1:
                for one in completions:
                    self._complete([one])
            else:
                (one,) = completions
                log.info("work.not_published key=%s fence=%d", one.ticket.key, one.ticket.fence, exc_info=True)
                self._write_batch(self.store.fail, [self._classify_failure(one.ticket, error)])

    def _add_rows(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Let each indexer write what it kept for the transaction that publishes."""
        kept = [one for one in completions if one.built.rows is not None]
        for kind in {one.ticket.key.kind for one in kept}:
            indexer = cast("Publisher", self.indexers[kind])
            indexer.publish(connection, [one for one in kept if one.ticket.key.kind == kind])

    def _write_batch(self, verb: Callable[[Sequence[T]], None], batch: Sequence[T]) -> None:
        """Write one batch; whoever is refused is superseded and frees its slot."""
        if not batch:
            return
        try:
            verb(batch)
        except StaleLease as stale:
            self._release([Release(ticket=ticket) for ticket in stale.tickets])
            self._recheck_leases(stale)
        except StoreError:
            # Whether it was kept is known to the database alone; if not, the lease runs out and the work is redone.
            log.exception("settle.unknown")

    def _recheck_leases(self, stale: StaleLease) -> None:
        """Renew what else is in hand: a delete or cancel rarely concerns one slot, and the others stop at once."""
        self.heartbeat.stop_renewing(stale.tickets)
        self.heartbeat.beat()

    def _release(self, surrenders: Sequence[Release]) -> None:
        """Give slots back; one that somebody else has taken over is free of us already."""
        if not surrenders:
            return
        try:
            self.store.release(surrenders)
        except StaleLease as stale:
            log.debug("release.late slots=%d", len(stale.tickets))
        except StoreError:
            log.exception("release.unknown")


def _count_rows(result: AttemptResult) -> int:
    """Return how many rows are still to be written for a result."""
    return len(result.built.rows) if isinstance(result, Completion) and result.built.rows is not None else 0
