"""Keeps leases alive while work runs, and tells the work when it must stop.

The renewal is one statement for all tickets in hand. A refused ticket is lost. A renewal that does not come
through (database away, thread starved) makes every ticket stop by the worker's own monotonic clock, before the
lease it last renewed can have ended. What was claimed in a batch and has not been begun after a whole heartbeat is
given back: a slow neighbour holds nobody up.
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

PROGRESS_SECONDS = 1.0  # after which progress is written, though no renewal is due: somebody may look on


@dataclass(slots=True)
class _HeldTicket:
    """A ticket in hand."""

    ticket: Ticket
    claimed: float  # monotonic, taken before the claim was sent
    renewed: float  # monotonic, taken before the renewal was sent
    started: bool = False
    started_at: float = 0.0  # monotonic
    progress: Progress = field(default_factory=Progress)
    progressed: bool = False
    lost: bool = False
    recalled: bool = False  # people paused the queue and want what runs to be given back
    publishing: bool = False  # its result is being published: a renewal would come too late


class Heartbeat:
    """The leases of one worker, and that it is there."""

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
        self.stopping = False  # the process goes down: give everything back

    def hold(self, tickets: Iterable[Ticket], since: float) -> None:
        """Take tickets in hand; `since` is the monotonic time before they were claimed."""
        with self._mutex:
            self._held |= {ticket.slot: _HeldTicket(ticket, since, since) for ticket in tickets}

    def begin(self, ticket: Ticket) -> bool:
        """Begin to work on a ticket, unless it was given back meanwhile."""
        with self._mutex:
            hand = self._find(ticket)
            if hand is not None:
                hand.started, hand.started_at = True, self._clock.monotonic()
            return hand is not None

    def stop_renewing(self, tickets: Iterable[Ticket]) -> None:
        """Renew these no more; a beat under way is waited for, so that none is refused for coming late."""
        with self._renewal_lock, self._mutex:
            for ticket in tickets:
                if self._find(ticket) is not None:
                    del self._held[ticket.slot]

    @contextmanager
    def pause_renewal(self, ticket: Ticket) -> Iterator[None]:
        """Publish within: no beat renews the ticket meanwhile, and none afterwards if it was published."""
        self._set_publishing(ticket, silent=True)
        try:
            yield
        except BaseException:
            self._set_publishing(ticket, silent=False)
            raise
        self.stop_renewing([ticket])

    def record_progress(self, ticket: Ticket, progress: Progress) -> None:
        """Remember how far a ticket is, for the next beat."""
        hand = self._find(ticket)
        if hand is not None and progress != hand.progress:
            with self._mutex:
                hand.progress, hand.progressed = progress, True

    def check(self, ticket: Ticket) -> None:
        """Raise `StopWork` if this ticket must not go on."""
        hand = self._find(ticket)
        if hand is None or hand.lost:
            raise StopWork("lease_lost", refund=False)
        if self._clock.monotonic() - hand.renewed >= self._renewal_timeout:
            raise StopWork("lease_not_renewed", refund=False)
        if hand.recalled:
            raise StopWork("paused", refund=True)
        if self.stopping:
            raise StopWork("shutting_down", refund=True)

    def beat(self) -> None:
        """Renew all leases in hand and write their progress; give back what waits too long, or is called back."""
        with self._renewal_lock:
            self._release_unstarted()
            self._renew()
            self._check_recalls()

    def flush_progress(self) -> None:
        """Write the progress of work that takes long and has moved, for whoever looks on, and renew its leases."""
        long_ago = self._clock.monotonic() - PROGRESS_SECONDS
        with self._renewal_lock:
            if not self._renew(lambda hand: hand.progressed and hand.started and hand.started_at <= long_ago):
                self._renew()  # what ended one may have ended the others

    def start(self) -> None:
        """Beat in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and say goodbye."""
        self._stop_event.set()
        if self._thread is not None:
            self._thread.join()
            self._report_presence(self._store.unregister_worker)

    def _find(self, ticket: Ticket) -> _HeldTicket | None:
        """Find a ticket in hand; a later one for the same slot, in another thread, is not it."""
        hand = self._held.get(ticket.slot)
        return hand if hand is not None and hand.ticket.fence == ticket.fence else None

    def _set_publishing(self, ticket: Ticket, *, silent: bool) -> None:
        with self._renewal_lock, self._mutex:
            hand = self._find(ticket)
            if hand is not None:
                hand.publishing = silent

    def _renew(self, chosen: Callable[[_HeldTicket], bool] = lambda _: True) -> bool:
        """Renew leases in hand; return whether none of them was refused."""
        with self._mutex:
            hands = [hand for hand in self._held.values() if not hand.lost and not hand.publishing and chosen(hand)]
            beats = [
                LeaseRenewal(ticket=hand.ticket, progress=hand.progress, progressed=hand.progressed) for hand in hands
            ]
        if not hands:
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
            for hand, beat in zip(hands, beats, strict=True):
                if hand.ticket in refused:
                    hand.lost = True
                    continue
                hand.renewed = sent
                if hand.progress is beat.progress:  # what was noted meanwhile goes with the next beat
                    hand.progressed = False
        return not refused

    def _check_recalls(self) -> None:
        """Learn which of the work in hand a pause calls back."""
        with self._mutex:
            hands = [hand for hand in self._held.values() if not hand.lost]
        if not hands:
            return
        try:
            called = set(self._store.find_recalled([hand.ticket for hand in hands]))
        except StoreError as error:
            log.warning("heartbeat.pause_unknown error=%s", error)
            return
        for hand in hands:
            hand.recalled = hand.ticket in called

    def _release_unstarted(self) -> None:
        """Free what was claimed a whole heartbeat ago and still waits behind a slow neighbour."""
        patient = self._clock.monotonic() - self._rules.heartbeat.total_seconds()
        with self._mutex:
            waiting = [hand.ticket for hand in self._held.values() if not hand.started and hand.claimed <= patient]
            for ticket in waiting:
                del self._held[ticket.slot]
        if waiting:
            try:
                self._store.release([Release(ticket=ticket, refund=True) for ticket in waiting])
            except (StaleLease, StoreError) as error:
                log.warning("heartbeat.give_back error=%s", error)

    def _report_presence(self, word: Callable[[str], None]) -> None:
        """Say that this worker is there, or goes; nothing depends on being heard."""
        try:
            word(self._holder)
        except StoreError as error:
            log.warning("heartbeat.unheard error=%s", error)

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
