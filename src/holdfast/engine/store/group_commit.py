"""Group commit: requests that wait at the same time are admitted in one transaction.

Fifty concurrent clients would need fifty transactions with a disk sync each. Instead, the first one becomes the leader.
It waits for the write lock, takes all requests that arrived meanwhile, and admits them in one transaction. A request
never waits for others to arrive.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.engine.store.base import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.admission import AdmissionResult, Request


def _make_closed_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A waiting request. Its thread gets a result, an error, or the lead."""

    request: Request
    gate: threading.Lock = field(default_factory=_make_closed_gate)
    is_leader: bool = False
    result: AdmissionResult | None = None
    error: BaseException | None = None


class GroupCommit:
    """Collects requests of one process.

    `admit` runs one transaction. It receives a function that returns the batch and calls it when the transaction has
    begun; until then, more requests can join.
    """

    def __init__(self, admit: Callable[[Callable[[], list[Request]]], list[AdmissionResult]]) -> None:
        self._admit = admit
        self._mutex = threading.Lock()
        self._queue: deque[_PendingRequest] = deque()
        self._has_leader = False

    def submit(self, request: Request) -> AdmissionResult:
        """Wait for the result of one request."""
        mine = _PendingRequest(request)
        with self._mutex:
            self._queue.append(mine)
            mine.is_leader = not self._has_leader
            self._has_leader = True
        if not mine.is_leader:
            mine.gate.acquire()
        if mine.is_leader:
            self._commit_group()
        if mine.error is not None:
            raise mine.error
        assert mine.result is not None  # noqa: S101 - there is a result or an error
        return mine.result

    def _commit_group(self) -> None:
        """Admit all waiting requests, then pass the lead on."""
        taken: list[_PendingRequest] = []

        def take() -> list[Request]:
            if not taken:  # a repeated transaction keeps its batch
                taken.extend(self._take_batch())
            return [pending.request for pending in taken]

        try:
            answers = self._admit(take)
            for pending, answer in zip(taken, answers, strict=True):
                pending.result = answer
        except BaseException as error:  # noqa: BLE001 - every waiting thread raises it
            take()  # if the transaction never began, the waiting requests fail with the leader
            for pending in taken:
                pending.error = error
        finally:
            self._promote_next()
            for pending in taken[1:]:
                pending.gate.release()

    def _take_batch(self) -> list[_PendingRequest]:
        """Take requests that fit into one transaction: bounded, and each owner once.

        The leader's request is the first.
        """
        taken: list[_PendingRequest] = []
        names: set[tuple[str, str]] = set()
        with self._mutex:
            while self._queue and len(taken) < LARGEST_BATCH:
                name = (self._queue[0].request.base, self._queue[0].request.owner)
                if name in names:
                    break
                names.add(name)
                taken.append(self._queue.popleft())
        return taken

    def _promote_next(self) -> None:
        with self._mutex:
            self._has_leader = bool(self._queue)
            if self._queue:
                self._queue[0].is_leader = True
                self._queue[0].gate.release()
