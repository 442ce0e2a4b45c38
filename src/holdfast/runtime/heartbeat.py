"""Keeps leases alive while work runs, and tells the work when it must stop.

The renewal is one statement for all tickets in hand. A refused ticket is lost. A renewal that does not come
through (database away, thread starved) makes every ticket stop by the worker's own monotonic clock, before the
lease it last renewed can have ended.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.slot import Progress
from holdfast.errors import StaleLease, StopWork, StoreError
from holdfast.stores.base import Beat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.clock import Clock
    from holdfast.core.rules import Rules
    from holdfast.core.slot import SlotId, Ticket
    from holdfast.stores.base import Store

log = logging.getLogger("holdfast")


@dataclass(slots=True)
class _Hand:
    """A ticket in hand."""

    ticket: Ticket
    renewed: float  # monotonic, taken before the renewal was sent
    progress: Progress = field(default_factory=Progress)
    moved: bool = False
    lost: bool = False


class Heartbeat:
    """The leases of one worker."""

    def __init__(self, store: Store, clock: Clock, rules: Rules) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._hands: dict[SlotId, _Hand] = {}
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.stopping = False  # the process goes down: give everything back

    def hold(self, tickets: Iterable[Ticket], since: float) -> None:
        """Take tickets in hand; `since` is the monotonic time before they were claimed."""
        with self._mutex:
            self._hands |= {ticket.slot: _Hand(ticket, since) for ticket in tickets}

    def let_go(self, tickets: Iterable[Ticket]) -> None:
        """Renew these no more."""
        with self._mutex:
            for ticket in tickets:
                self._hands.pop(ticket.slot, None)

    def note(self, ticket: Ticket, progress: Progress) -> None:
        """Remember how far a ticket is, for the next beat."""
        hand = self._hands[ticket.slot]
        if progress != hand.progress:
            hand.progress, hand.moved = progress, True

    def check(self, ticket: Ticket) -> None:
        """Raise `StopWork` if this ticket must not go on."""
        hand = self._hands[ticket.slot]
        if hand.lost:
            raise StopWork("lease_lost", refund=False)
        if self._clock.monotonic() - hand.renewed >= self._rules.patience.total_seconds():
            raise StopWork("lease_not_renewed", refund=False)
        if self.stopping:
            raise StopWork("shutting_down", refund=True)

    def beat(self) -> None:
        """Renew all leases in hand and write their progress."""
        with self._mutex:
            hands = [hand for hand in self._hands.values() if not hand.lost]
        if not hands:
            return
        sent = self._clock.monotonic()
        moved = {hand.ticket.slot for hand in hands if hand.moved}
        refused: set[SlotId] = set()
        try:
            self._store.extend([Beat(ticket=hand.ticket, progress=hand.progress, moved=hand.moved) for hand in hands])
        except StaleLease as error:
            refused = {ticket.slot for ticket in error.tickets}
        except StoreError as error:
            log.warning("heartbeat.missed error=%s", error)
            return
        for hand in hands:
            if hand.ticket.slot in refused:
                hand.lost = True
                continue
            hand.renewed = sent
            if hand.ticket.slot in moved:
                hand.moved = False

    def start(self) -> None:
        """Beat in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._rules.heartbeat.total_seconds()):
            try:
                self.beat()
            except Exception:
                log.exception("heartbeat.failed")
