"""The paid provider of a run: it records every call with its texts, and answers prompts as a language model."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.support.disk import speak
from tests.support.paid_provider import Fault, PaidProvider, texts_of

if TYPE_CHECKING:
    from tests.chaos.history import History

EMBEDDING, CHAT = "/v1/embeddings", "/v1/chat/completions"


class RecordedProvider(PaidProvider):
    """Writes a line for each call that it charges for: when it began, the texts, and how its answer was damaged."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.reply = speak
        self._history = history
        self._call = threading.local()
        self.failed = 0  # calls that met a fault

    def arrive(self, request: dict[str, Any]) -> Fault | None:
        self._call.began = self._history.now
        fault = self._call.fault = super().arrive(request)
        if fault is not None:
            self.failed += 1
        return fault

    def forget(self) -> None:
        """Let no more calls fail."""
        with self._changed:
            self._next.clear()
        self.always(None)
        self.release()

    def embeddings(self, request: dict[str, Any]) -> dict[str, Any]:
        self._record(EMBEDDING, texts_of(EMBEDDING, request))
        return super().embeddings(request)

    def completion(self, request: dict[str, Any]) -> dict[str, Any]:
        self._record(CHAT, texts_of(CHAT, request)[-1:])
        return super().completion(request)

    def _record(self, path: str, texts: list[str]) -> None:
        fault = self._call.fault
        self._history.write(
            "call",
            path=path,
            began=self._call.began,
            ended=self._history.now,
            texts=texts,
            damaged=fault.twist if fault else "",
        )
