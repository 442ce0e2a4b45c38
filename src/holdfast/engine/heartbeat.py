"""Renews leases while work runs, and stops work whose lease is lost.

One statement renews all tickets of a worker. If a renewal is rejected, the ticket is lost. If renewals do not get
through (database unavailable, thread starved), every ticket stops by the monotonic clock of the worker, before the
lease that it last renewed can end. Slots of a batch that were not started within one heartbeat are released, so that a
slow slot does not delay the others.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.engine.slot import Progress
from holdfast.engine.store.base import LeaseRenewal, Release
from holdfast.errors import StaleLease, StopWork, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.clock import Clock
    from holdfast.engine.rules import Rules
    from holdfast.engine.slot import SlotId, Ticket
    from holdfast.engine.store.base import Store

log = logging.getLogger("holdfast")

PROGRESS_SECONDS = 1.0  # how often progress is written between renewals


@dataclass(slots=True)
class _HeldTicket:
    """A ticket that this worker holds."""

    ticket: Ticket
    claimed: float  # monotonic, taken before the claim was sent
    renewed: float  # monotonic, taken before the renewal was sent
    started: bool = False
    started_at: float = 0.0  # monotonic
    progress: Progress = field(default_factory=Progress)
    progressed: bool = False
    lost: bool = False
    recalled: bool = False  # a pause requests that running work stops
    publishing: bool = False  # its result is being published; a renewal would be rejected


class Heartbeat:
    """The leases of one worker, and its registration as alive."""

    def __init__(self, store: Store, clock: Clock, rules: Rules, holder: str = "") -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._rules = rules
        self._renewal_timeout = rules.renewal_timeout.total_seconds()
        self._held: dict[SlotId, _HeldTicket] = {}
        self._mutex = threading.Lock()
        self._renewal_lock = threading.Lock()
        self._stop_event = threading.Event()
        self._thread: threading.Thread | None = None
        self.stopping = False  # the process shuts down: release everything

    def hold(self, tickets: Iterable[Ticket], since: float) -> None:
        """Start to renew tickets. `since` is the monotonic time before they were claimed."""
        with self._mutex:
            self._held |= {ticket.slot: _HeldTicket(ticket, since, since) for ticket in tickets}

    def begin(self, ticket: Ticket) -> bool:
        """Mark a ticket as started. Return False if it was released meanwhile."""
        with self._mutex:
            entry = self._find(ticket)
            if entry is not None:
                entry.started, entry.started_at = True, self._clock.monotonic()
            return entry is not None

    def stop_renewing(self, tickets: Iterable[Ticket]) -> None:
        """Stop to renew tickets. Waits for a renewal in progress, so that no later one is rejected."""
        with self._renewal_lock, self._mutex:
            for ticket in tickets:
                if self._find(ticket) is not None:
                    del self._held[ticket.slot]

    @contextmanager
    def pause_renewal(self, ticket: Ticket) -> Iterator[None]:
        """Do not renew the ticket inside the block, nor after it if the block succeeds."""
        self._set_publishing(ticket, silent=True)
        try:
            yield
        except BaseException:
            self._set_publishing(ticket, silent=False)
            raise
        self.stop_renewing([ticket])

    def record_progress(self, ticket: Ticket, progress: Progress) -> None:
        """Store progress for the next renewal."""
        entry = self._find(ticket)
        if entry is not None and progress != entry.progress:
            with self._mutex:
                entry.progress, entry.progressed = progress, True

    def check(self, ticket: Ticket) -> None:
        """Raise `StopWork` if work on this ticket must stop."""
        entry = self._find(ticket)
        if entry is None or entry.lost:
            raise StopWork("lease_lost", refund=False)
        if self._clock.monotonic() - entry.renewed >= self._renewal_timeout:
            raise StopWork("lease_not_renewed", refund=False)
        if entry.recalled:
            raise StopWork("paused", refund=True)
        if self.stopping:
            raise StopWork("shutting_down", refund=True)

    def beat(self) -> None:
        """Renew all leases and write progress. Release slots that were not started, and read which are recalled."""
        with self._renewal_lock:
            self._release_unstarted()
            self._renew()
            self._check_recalls()

    def flush_progress(self) -> None:
        """Renew the leases of started slots with new progress, so that users see it soon."""
        long_ago = self._clock.monotonic() - PROGRESS_SECONDS
        with self._renewal_lock:
            if not self._renew(lambda entry: entry.progressed and entry.started and entry.started_at <= long_ago):
                self._renew()  # what ended one lease may have ended others, too

    def start(self) -> None:
        """Run in a new thread, unless it runs already."""
        with self._mutex:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
            self._thread.start()

    @property
    def holder(self) -> str:
        """The name of the worker whose leases this renews."""
        return self._holder

    def stop(self) -> None:
        """End the thread and unregister the worker."""
        self._stop_event.set()
        if self._thread is not None:
            self._thread.join()
            self._report_presence(self._store.unregister_worker)

    def _find(self, ticket: Ticket) -> _HeldTicket | None:
        """Return the entry of this ticket. A later ticket for the same slot has another fence."""
        entry = self._held.get(ticket.slot)
        return entry if entry is not None and entry.ticket.fence == ticket.fence else None

    def _set_publishing(self, ticket: Ticket, *, silent: bool) -> None:
        with self._renewal_lock, self._mutex:
            entry = self._find(ticket)
            if entry is not None:
                entry.publishing = silent

    def _renew(self, chosen: Callable[[_HeldTicket], bool] = lambda _: True) -> bool:
        """Renew the chosen leases. Return whether none was rejected."""
        with self._mutex:
            entries = [
                entry for entry in self._held.values() if not entry.lost and not entry.publishing and chosen(entry)
            ]
            beats = [
                LeaseRenewal(ticket=entry.ticket, progress=entry.progress, progressed=entry.progressed)
                for entry in entries
            ]
        if not entries:
            return True
        sent = self._clock.monotonic()
        refused: set[Ticket] = set()
        try:
            self._store.extend(beats)
        except StaleLease as error:
            refused = set(error.tickets)
        except StoreError as error:
            log.warning("heartbeat.missed error=%s", error)
            return True
        with self._mutex:
            for entry, beat in zip(entries, beats, strict=True):
                if entry.ticket in refused:
                    entry.lost = True
                    continue
                entry.renewed = sent
                if entry.progress is beat.progress:  # newer progress is written with the next renewal
                    entry.progressed = False
        return not refused

    def _check_recalls(self) -> None:
        with self._mutex:
            entries = [entry for entry in self._held.values() if not entry.lost]
        if not entries:
            return
        try:
            called = set(self._store.find_recalled([entry.ticket for entry in entries]))
        except StoreError as error:
            log.warning("heartbeat.recall_check_failed error=%s", error)
            return
        for entry in entries:
            entry.recalled = entry.ticket in called

    def _release_unstarted(self) -> None:
        """Release slots that were claimed a whole heartbeat ago and are not started."""
        deadline = self._clock.monotonic() - self._rules.heartbeat.total_seconds()
        with self._mutex:
            waiting = [entry.ticket for entry in self._held.values() if not entry.started and entry.claimed <= deadline]
            for ticket in waiting:
                del self._held[ticket.slot]
        if waiting:
            try:
                self._store.release([Release(ticket=ticket, refund=True) for ticket in waiting])
            except (StaleLease, StoreError) as error:
                log.warning("heartbeat.release_failed error=%s", error)

    def _report_presence(self, report: Callable[[str], None]) -> None:
        """Register or unregister this worker. Errors are only logged."""
        try:
            report(self._holder)
        except StoreError as error:
            log.warning("worker.not_registered error=%s", error)

    def _run(self) -> None:
        period = self._rules.heartbeat.total_seconds()
        tick = min(PROGRESS_SECONDS, period)
        beaten = time.monotonic()
        self._report_presence(self._store.register_worker)
        while not self._stop_event.wait(tick):
            due = time.monotonic() - beaten >= period - tick / 2
            try:
                if due:
                    beaten = time.monotonic()
                    self.beat()
                    self._report_presence(self._store.register_worker)
                else:
                    self.flush_progress()
            except Exception:
                log.exception("heartbeat.failed")
