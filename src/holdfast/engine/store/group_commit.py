"""Requests that wait together are admitted together.

Fifty clients that ask at once would need fifty transactions, each synced to the disk. Instead the first of them waits
for its turn, takes all who came meanwhile along, and answers for them: one transaction, one sync. Nobody waits for
company: who comes alone goes alone.
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
    """One who asked and waits for an answer, or for the lead."""

    request: Request
    gate: threading.Lock = field(default_factory=_make_closed_gate)
    is_leader: bool = False
    result: AdmissionResult | None = None
    error: BaseException | None = None


class GroupCommit:
    """Gathers requests of one process; `admit` answers a batch in one transaction.

    It is handed a function that returns the batch, to be called when its turn has come; until then others join.
    """

    def __init__(self, admit: Callable[[Callable[[], list[Request]]], list[AdmissionResult]]) -> None:
        self._admit = admit
        self._mutex = threading.Lock()
        self._queue: deque[_PendingRequest] = deque()
        self._has_leader = False

    def submit(self, request: Request) -> AdmissionResult:
        """Wait for the answer to one request."""
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
        assert mine.result is not None  # noqa: S101 - an answer or an error, always
        return mine.result

    def _commit_group(self) -> None:
        """Answer for all who have gathered, then hand the lead to the next."""
        taken: list[_PendingRequest] = []

        def take() -> list[Request]:
            if not taken:  # a transaction that is run again keeps its batch
                taken.extend(self._take_batch())
            return [one.request for one in taken]

        try:
            answers = self._admit(take)
            for one, answer in zip(taken, answers, strict=True):
                one.result = answer
        except BaseException as error:  # noqa: BLE001 - each of them raises it
            take()  # if its turn never came, those who waited for it fail with the leader
            for one in taken:
                one.error = error
        finally:
            self._promote_next()
            for one in taken[1:]:
                one.gate.release()

    def _take_batch(self) -> list[_PendingRequest]:
        """Take those who can go together: bounded, and each owner once. The leader is the first."""
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
