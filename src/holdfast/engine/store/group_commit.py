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

    from holdfast.engine.admission import Answer, Request


def _closed() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


@dataclass(slots=True, eq=False)
class _Waiting:
    """One who asked and waits for an answer, or for the lead."""

    request: Request
    gate: threading.Lock = field(default_factory=_closed)
    leads: bool = False
    answer: Answer | None = None
    error: BaseException | None = None


class Gathering:
    """Gathers requests of one process; `admit` answers a batch in one transaction.

    It is handed a function that returns the batch, to be called when its turn has come; until then others join.
    """

    def __init__(self, admit: Callable[[Callable[[], list[Request]]], list[Answer]]) -> None:
        self._admit = admit
        self._mutex = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._led = False

    def ask(self, request: Request) -> Answer:
        """Wait for the answer to one request."""
        mine = _Waiting(request)
        with self._mutex:
            self._queue.append(mine)
            mine.leads = not self._led
            self._led = True
        if not mine.leads:
            mine.gate.acquire()
        if mine.leads:
            self._lead()
        if mine.error is not None:
            raise mine.error
        assert mine.answer is not None  # noqa: S101 - an answer or an error, always
        return mine.answer

    def _lead(self) -> None:
        """Answer for all who have gathered, then hand the lead to the next."""
        taken: list[_Waiting] = []

        def take() -> list[Request]:
            if not taken:  # a transaction that is run again keeps its batch
                taken.extend(self._take())
            return [one.request for one in taken]

        try:
            answers = self._admit(take)
            for one, answer in zip(taken, answers, strict=True):
                one.answer = answer
        except BaseException as error:  # noqa: BLE001 - each of them raises it
            take()  # if its turn never came, those who waited for it fail with the leader
            for one in taken:
                one.error = error
        finally:
            self._pass_on()
            for one in taken[1:]:
                one.gate.release()

    def _take(self) -> list[_Waiting]:
        """Take those who can go together: bounded, and each owner once. The leader is the first."""
        taken: list[_Waiting] = []
        names: set[tuple[str, str]] = set()
        with self._mutex:
            while self._queue and len(taken) < LARGEST_BATCH:
                name = (self._queue[0].request.base, self._queue[0].request.owner)
                if name in names:
                    break
                names.add(name)
                taken.append(self._queue.popleft())
        return taken

    def _pass_on(self) -> None:
        with self._mutex:
            self._led = bool(self._queue)
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].gate.release()
