"""Claims slots, runs indexers and writes the results. It never retries: the state of the slot determines the next step.

The executor answers a ring with a claim. If the claim fails, the ring was a duplicate, is outdated, or another worker
holds the slot; in each case the ring can be acknowledged. The executor commits the results of quick builds together.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from holdfast.engine.attempt_meter import NOTHING_SPENT, AttemptMeter, PeakMemory, Stopwatch
from holdfast.engine.attempt_spans import AttemptSpans
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
from holdfast.logs import log_fields
from holdfast.tracing import NO_SPAN, NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from holdfast.clock import Clock
    from holdfast.engine.attempt_meter import Spent
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import Ring, Ticket
    from holdfast.engine.store.base import Store
    from holdfast.engine.task import CommitListener, Indexer, Publisher
    from holdfast.engine.usage import Usage
    from holdfast.tracing import Span, Tracer

log = logging.getLogger("holdfast")

T = TypeVar("T")


class Removed(NamedTuple):
    """The indexer removed everything that was built for the slot."""

    usage: Usage


class Published(NamedTuple):
    """The indexer published the result in its own transaction."""


AttemptResult = Completion | Failure | Release | Removed | Published
SMALLEST_BATCH = 2  # tasks from which batch operations of an indexer are used
FLUSH_SECONDS = 0.05  # how long a finished result waits for others
FLUSH_ROWS = 500  # rows that results may collect before they are written
RING_SECONDS = 1.0  # how long an answer to a ring claims more slots
MAX_DETAIL = 500  # characters of the message of an unexpected error that are stored


def no_failpoint(point: str) -> None:
    """Do nothing. Tests inject faults at named points."""


class Executor:
    """One worker. It claims slots alone or in batches and builds them one after the other."""

    def __init__(
        self,
        store: Store,
        indexers: Mapping[str, Indexer],
        *,
        holder: str,
        clock: Clock,
        rules: Rules,
        heartbeat: Heartbeat | None = None,
        chance: Callable[[], float] = random.random,
        reach: Callable[[str], None] = no_failpoint,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.store = store
        self.indexers = indexers
        self.holder = holder
        self.heartbeat = heartbeat or Heartbeat(store, clock, rules, holder)  # executors in threads may share one
        self._clock = clock
        self._rules = rules
        self._chance = chance
        self._failpoint = reach
        self._peak_memory = PeakMemory()
        self._spans = AttemptSpans(tracer, store, holder)
        self._batch = 1  # how many slots the next answer to a ring claims first

    def answer(self, ring: Ring, kinds: Sequence[str], limit: int) -> int:
        """Answer a ring with the next slots of its kind, in the order of the store. Return how many were claimed.

        So priorities that changed after the ring was sent count. For a second the executor goes on with more slots of
        `kinds`, at most `limit` at a time: small documents need few rings, and a large one none beside its own.
        Returning acknowledges the ring.
        """
        self._failpoint("received")
        end = self._clock.monotonic() + RING_SECONDS
        total = claimed = self._run_batch((ring.kind,), limit)
        while claimed and self._clock.monotonic() < end and not self.heartbeat.stopping:
            claimed = self._run_batch(kinds, limit)
            total += claimed
        if not total:
            log.debug("ring.skipped slot=%d generation=%d", ring.slot, ring.generation)
        self._failpoint("done")
        return total

    def _run_batch(self, kinds: Sequence[str], limit: int) -> int:
        """Claim and build a batch. The next one is as large as a second allows, and at most twice as large."""
        size = min(self._batch, limit)
        began = self._clock.monotonic()
        claimed = self.run_next(size, kinds)
        spent = self._clock.monotonic() - began
        if spent > RING_SECONDS:
            self._batch = max(1, int(claimed * RING_SECONDS / spent))
        elif claimed == size:
            self._batch = 2 * size
        return claimed

    def run(self, ring: Ring) -> bool:
        """Claim and build the slot of a ring, and no other. Return whether there was work."""
        self._failpoint("received")
        since = self._clock.monotonic()
        tickets = self.store.claim([ring], self.holder)
        if not tickets:
            log.debug("ring.skipped slot=%d generation=%d", ring.slot, ring.generation)
        self._process(tickets, since)
        self._failpoint("done")
        return bool(tickets)

    def run_next(self, limit: int, kinds: Sequence[str] = ()) -> int:
        """Claim the next slots of some kinds, or of all, and build them. Return how many were claimed."""
        since = self._clock.monotonic()
        tickets = self.store.claim_next(kinds or tuple(self.indexers), self.holder, limit)
        self._process(tickets, since)
        return len(tickets)

    def stop(self) -> None:
        """Release all slots at the next checkpoint."""
        self.heartbeat.stopping = True

    def _process(self, tickets: Sequence[Ticket], claimed_at: float) -> None:
        if not tickets:
            return
        self.heartbeat.hold(tickets, claimed_at)
        try:
            self._failpoint("claimed")
            self._spans.load(tickets)
            flushed = self._clock.monotonic()
            results: list[tuple[Ticket, AttemptResult]] = []
            rows = 0
            self._peak_memory.start_batch()
            removed = self._remove_together(tickets)
            prepared = self._prepare_batch(tickets)
            for ticket in tickets:
                if ticket in removed or not self.heartbeat.begin(ticket):
                    continue
                spent = prepared.get(ticket.key.kind, NOTHING_SPENT)
                with _ticket_fields(ticket, self.holder), self._spans.attempt(ticket) as span:
                    result = self._attempt(ticket, spent, span)
                    _show_result(span, result)
                results.append((ticket, result))
                rows += _count_rows(result)
                if rows >= FLUSH_ROWS or self._clock.monotonic() - flushed >= FLUSH_SECONDS:
                    self._write_results(results)
                    flushed, results, rows = self._clock.monotonic(), [], 0
            self._write_results(results)
        finally:
            self._peak_memory.stop()
            self.heartbeat.stop_renewing(tickets)

    def _remove_together(self, tickets: Sequence[Ticket]) -> set[Ticket]:
        """Clean up the slots of each kind and base as one batch, write the results, and return the tickets done.

        If the indexer raises `Transient`, the whole batch is postponed. After other errors the executor removes the
        slots one by one.
        """
        sets: dict[tuple[str, str], list[Ticket]] = {}
        for ticket in tickets:
            if ticket.removing:
                sets.setdefault((ticket.key.kind, ticket.key.base), []).append(ticket)
        results: list[tuple[Ticket, AttemptResult]] = []
        for (kind, _), batch in sets.items():
            indexer = self.indexers[kind]
            if len(batch) >= SMALLEST_BATCH and isinstance(indexer, BatchRemover):
                results += self._remove_set(indexer, [ticket for ticket in batch if self.heartbeat.begin(ticket)])
        self._write_results(results)
        return {ticket for ticket, _ in results}

    def _remove_set(self, indexer: BatchRemover, tickets: Sequence[Ticket]) -> list[tuple[Ticket, AttemptResult]]:
        """Clean up one batch. Return the results; an empty list means that the slots are removed one by one."""
        stopwatch = Stopwatch(self._clock.monotonic)
        meters = [AttemptMeter(self._clock.monotonic, self._peak_memory) for _ in tickets]

        def read_usages() -> list[Usage]:
            spent = stopwatch.read().divide(len(tickets))
            return [meter.read(ticket.waited_ms, spent) for ticket, meter in zip(tickets, meters, strict=True)]

        try:
            for ticket in tickets:
                self.heartbeat.check(ticket)
            with self._spans.remove_together(tickets):
                indexer.remove_all([self._make_task(*pair) for pair in zip(tickets, meters, strict=True)])
        except Transient as error:
            log.info("removal.failed slots=%d code=%s", len(tickets), error.code)
            return [
                (ticket, self._classify_failure(ticket, error, usage))
                for ticket, usage in zip(tickets, read_usages(), strict=True)
            ]
        except (StopWork, StaleLease) as stop:
            log.debug("removal.one_by_one slots=%d reason=%s", len(tickets), _stop_reason(stop))
            return []
        except Exception as error:
            log.info("removal.one_by_one slots=%d reason=%s", len(tickets), type(error).__name__, exc_info=True)
            return []
        return [(ticket, Removed(usage)) for ticket, usage in zip(tickets, read_usages(), strict=True)]

    def _prepare_batch(self, tickets: Sequence[Ticket]) -> dict[str, Spent]:
        """Let indexers prepare a batch, and return the time that each slot of a kind has its share of.

        An error here is not final: each slot is built, or fails, on its own.
        """
        prepared: dict[str, Spent] = {}
        for kind in {ticket.key.kind for ticket in tickets}:
            indexer = self.indexers[kind]
            tasks = [self._make_task(ticket) for ticket in tickets if ticket.key.kind == kind and not ticket.removing]
            if len(tasks) < SMALLEST_BATCH or not isinstance(indexer, BatchPreparer):
                continue
            stopwatch = Stopwatch(self._clock.monotonic)
            try:
                with self._spans.prepare(kind, [task.ticket for task in tasks]):
                    indexer.begin(tasks)
            except StaleLease as stale:
                self._recheck_leases(stale)
            except StopWork as stop:
                log.info("work.prepare_failed kind=%s reason=%s", kind, stop.reason)
            except HoldfastError as error:
                log.info("work.prepare_failed kind=%s reason=%s", kind, error.code)
            except Exception:
                log.exception("work.prepare_failed kind=%s", kind)
            prepared[kind] = stopwatch.read().divide(len(tasks))
        return prepared

    def _make_task(self, ticket: Ticket, meter: AttemptMeter | None = None, span: Span = NO_SPAN) -> Task:
        return Task(ticket, self.store, self.heartbeat, self._failpoint, meter, span=span)

    def _attempt(self, ticket: Ticket, prepared: Spent, span: Span) -> AttemptResult:
        """Build or remove one slot. Turn every error into a result; never raise."""
        self._peak_memory.start_attempt()
        task = self._make_task(ticket, AttemptMeter(self._clock.monotonic, self._peak_memory, prepared), span)
        try:
            self.heartbeat.check(ticket)
            indexer = self.indexers[ticket.key.kind]
            if ticket.removing:
                indexer.remove(task)
                return Removed(task.read_usage())
            built = indexer.build(task)
            if task.published:
                return Published()
            if built is None:
                return Failure(ticket=ticket, fault=Fault("no_result"), usage=task.read_usage())
            return Completion(ticket=ticket, built=built, usage=task.read_usage())
        except (StopWork, StaleLease) as stop:
            if isinstance(stop, StaleLease):
                self._recheck_leases(stop)
            log.debug("work.stopped key=%s fence=%d reason=%s", ticket.key, ticket.fence, _stop_reason(stop))
            refund = isinstance(stop, StopWork) and stop.refund
            return Release(ticket=ticket, refund=refund, usage=task.read_usage())
        except Exception as error:
            if task.published:  # a later error does not undo it
                log.exception("work.published_then_failed key=%s fence=%d", ticket.key, ticket.fence)
                return Published()
            trace = not isinstance(error, WorkError | StoreFull)  # expected errors need no traceback
            failure = self._classify_failure(ticket, error, task.read_usage())
            # The code only: the message may contain the name of a document.
            log.info(
                "work.failed key=%s fence=%d code=%s", ticket.key, ticket.fence, failure.fault.code, exc_info=trace
            )
            return failure

    def _classify_failure(self, ticket: Ticket, error: Exception, usage: Usage) -> Failure:
        """Decide whether a failed attempt is repeated, when, and whether it counts."""
        retry = self._rules.retry
        if isinstance(error, Permanent):
            fault, delay = Fault(error.code, error.params), None
        elif isinstance(error, Transient):
            fault = Fault(error.code, error.params)
            paused = error.retry_after if isinstance(error, RetryLater) else None
            delay = paused or retry.delay(ticket.attempt, self._chance(), error.retry_after)
        elif isinstance(error, StoreFull):
            fault = Fault(error.code, error.params)
            delay = retry.delay(ticket.attempt, self._chance())
        else:
            fault = Fault("unexpected", {"type": type(error).__name__, "detail": str(error)[:MAX_DETAIL]})
            delay = retry.delay(ticket.attempt, self._chance())
        if isinstance(error, Outage | StoreFull):  # not the fault of this document: do not count the attempt
            return Failure(ticket=ticket, fault=fault, delay=delay, refund=True, usage=usage)
        if ticket.removing:  # a clean-up never fails for good
            return Failure(ticket=ticket, fault=fault, delay=delay or retry.max_delay, usage=usage)
        repeated = not retry.exhausted(ticket.attempt)
        return Failure(ticket=ticket, fault=fault, delay=delay if repeated else None, usage=usage)

    def _write_results(self, results: Sequence[tuple[Ticket, AttemptResult]]) -> None:
        """Write the results, one batch per kind of result."""
        if not results:
            return
        self._failpoint("settling")
        self.heartbeat.stop_renewing([ticket for ticket, _ in results])
        values = [result for _, result in results]
        removed = {ticket: result.usage for ticket, result in results if isinstance(result, Removed)}
        with self._spans.publish([ticket for ticket, _ in results]):
            self._complete([value for value in values if isinstance(value, Completion)])
            self._write_batch(self.store.fail, [value for value in values if isinstance(value, Failure)])
            self._write_batch(lambda batch: self.store.forget(batch, removed), list(removed))
            self._release([value for value in values if isinstance(value, Release)])
        self._failpoint("settled")

    def _complete(self, completions: Sequence[Completion]) -> None:
        """Publish results together. If that fails, publish them one by one."""
        written: list[Completion] = []

        def write(connection: Connection, published: Sequence[Completion]) -> None:
            written[:] = published
            self._add_rows(connection, published)

        try:
            if self._write_batch(lambda batch: self.store.complete(batch, write), completions):
                self._report_commit(written)
        except Exception as error:
            if len(completions) > 1:
                for completion in completions:
                    self._complete([completion])
            else:
                (completion,) = completions
                log.info(
                    "work.not_published key=%s fence=%d", completion.ticket.key, completion.ticket.fence, exc_info=True
                )
                self._write_batch(self.store.fail, [self._classify_failure(completion.ticket, error, completion.usage)])

    def _add_rows(self, connection: Connection, completions: Sequence[Completion]) -> None:
        """Let indexers write their rows in the transaction that publishes."""
        with_rows = [completion for completion in completions if completion.built.rows is not None]
        for kind in {completion.ticket.key.kind for completion in with_rows}:
            indexer = cast("Publisher", self.indexers[kind])
            indexer.publish(connection, [completion for completion in with_rows if completion.ticket.key.kind == kind])

    def _report_commit(self, completions: Sequence[Completion]) -> None:
        """Report results to indexers that wait for their commit."""
        for kind in {completion.ticket.key.kind for completion in completions}:
            indexer: object = self.indexers[kind]
            if hasattr(indexer, "committed"):  # `isinstance` takes 30 µs with a protocol
                mine = [completion for completion in completions if completion.ticket.key.kind == kind]
                cast("CommitListener", indexer).committed(mine)

    def _write_batch(self, verb: Callable[[Sequence[T]], None], batch: Sequence[T]) -> bool:
        """Write one batch. Slots whose write is rejected as stale are released. Return whether it was committed."""
        if not batch:
            return True
        try:
            verb(batch)
        except StaleLease as stale:
            self._spans.refuse(stale)
            self._release([Release(ticket=ticket) for ticket in stale.tickets])
            self._recheck_leases(stale)
        except StoreError:
            # The commit may have succeeded. If not, the lease expires and the work is repeated.
            log.exception("commit.outcome_unknown")
            return False
        return True

    def _recheck_leases(self, stale: StaleLease) -> None:
        """Renew the other leases now: a delete or cancel usually ends several of them, and their work should stop."""
        self.heartbeat.stop_renewing(stale.tickets)
        self.heartbeat.beat()

    def _release(self, releases: Sequence[Release]) -> None:
        """Release slots. A slot that another worker has taken over needs no release."""
        if not releases:
            return
        try:
            self.store.release(releases)
        except StaleLease as stale:
            log.debug("release.stale slots=%d", len(stale.tickets))
        except StoreError:
            log.exception("release.outcome_unknown")


def _ticket_fields(ticket: Ticket, holder: str) -> log_fields:
    key = ticket.key
    return log_fields(
        base=key.base,
        owner=key.owner,
        kind=key.kind,
        job=ticket.job,
        generation=ticket.generation,
        fence=ticket.fence,
        attempt=ticket.attempt,
        holder=holder,
    )


def _show_result(span: Span, result: AttemptResult) -> None:
    """Write the outcome of an attempt on its span, with the code of an error."""
    if isinstance(result, Failure):
        span.fail(result.fault.code)
        span.set({"holdfast.outcome": "failed" if result.delay is None else "retry"})
    elif isinstance(result, Completion):
        span.set({"holdfast.outcome": "built"})
    elif isinstance(result, Release):
        span.set({"holdfast.outcome": "released"})
    else:
        span.set({"holdfast.outcome": "removed" if isinstance(result, Removed) else "published"})


def _stop_reason(stop: StopWork | StaleLease) -> str:
    return stop.reason if isinstance(stop, StopWork) else stop.code


def _count_rows(result: AttemptResult) -> int:
    """Return how many rows of a result are not written yet."""
    return len(result.built.rows) if isinstance(result, Completion) and result.built.rows is not None else 0
