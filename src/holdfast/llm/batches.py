"""Sends texts to a paid provider in batches, several at a time, and isolates texts that the provider rejects.

A rejected batch is bisected until the text at fault is alone; only that text is refused. A provider that rejects
everything does not object to the texts: before a text is blamed for an unclear rejection, the provider must have
accepted the same request with another text. A failure of the key, the account, the model or the network concerns all
texts: nothing more is sent, and the answers in flight are still returned, because they are paid.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from holdfast.errors import BadSettings, Permanent
from holdfast.llm.base import Embeddings
from holdfast.llm.failures import SINGLE_TEXT_CODES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from holdfast.errors import WorkError
    from holdfast.llm.base import Matrix

EmbedBatch = Callable[[Sequence[str]], "tuple[Matrix, int]"]  # texts -> their vectors and the paid tokens

EMPTY_TEXT = "empty_text"  # error code
PROBE_TEXT = "text"  # no provider has a reason to reject it
BYTES_PER_TOKEN = 3  # of UTF-8; English has four, Chinese and Japanese three


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    texts: int = 64
    tokens: int = 100_000  # estimated; a longer text is sent alone
    concurrency: int = 4  # calls in flight

    def __post_init__(self) -> None:
        if min(self.texts, self.tokens, self.concurrency) < 1:
            raise BadSettings(
                "batch_limits_too_small", texts=self.texts, tokens=self.tokens, concurrency=self.concurrency
            )


def split_into_batches(texts: Sequence[str], places: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """Return batches of positions of texts, in order."""
    batches: list[list[int]] = []
    room = 0
    for place in places:
        tokens = overestimate_tokens(texts[place])
        if not batches or tokens > room or len(batches[-1]) == limits.texts:
            batches.append([])
            room = limits.tokens
        batches[-1].append(place)
        room -= tokens
    return batches


def overestimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low."""
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1


def embed_in_batches(
    texts: Sequence[str], ask: EmbedBatch, limits: BatchLimits, enough: Callable[[], bool] = lambda: False
) -> Generator[Embeddings, None, None]:
    """Embed all texts with `ask` and yield each part as it arrives; then raise the first failure, if any."""
    empty: dict[int, WorkError] = {place: Permanent(EMPTY_TEXT) for place, text in enumerate(texts) if not text.strip()}
    if empty:
        yield _refused_embeddings(empty)
    batches = split_into_batches(texts, [place for place in range(len(texts)) if place not in empty], limits)
    yield from _BatchedCall(texts, ask).results(batches, limits.concurrency, enough)


class _BatchedCall:
    """One call: threads that send batches, and a queue for their results."""

    def __init__(self, texts: Sequence[str], ask: EmbedBatch) -> None:
        self._texts = texts
        self._ask = ask
        self._todo: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Embeddings | Exception | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._accepted = False  # whether the provider has accepted any text in this call

    def results(
        self, batches: Sequence[list[int]], concurrency: int, enough: Callable[[], bool] = lambda: False
    ) -> Iterator[Embeddings]:
        """Yield results as they arrive; send the next batch when another is done and the caller took its result.

        So a process that is killed while it stores a result loses at most the batches in flight.
        """
        failure: Exception | None = None
        later = takewhile(lambda _: not enough(), batches)
        try:  # includes the start: if one thread cannot start, the others must end
            in_flight = self._start([*islice(later, concurrency)], alone=len(batches) == 1)
            while in_flight:
                result = self._results.get()
                if isinstance(result, Embeddings):
                    yield result
                    continue
                failure = failure or result
                in_flight += self._send(islice(later, 1)) - 1  # after a failure the threads skip it
        finally:
            self._stopped.set()
            for _ in range(concurrency):
                self._todo.put(None)
        if failure is not None:
            raise failure

    def _start(self, first: Sequence[list[int]], *, alone: bool) -> int:
        """Start a thread for each of the first batches; a single batch is sent in this thread."""
        if alone:
            self._results.put(self._try_batch(first[0]))
            return 1
        for _ in first:
            # Daemon threads: a process that ends must not wait for an answer that it will not read.
            # Each runs in a copy of the context of this thread, whose log fields and trace belong to these calls.
            threading.Thread(
                target=copy_context().run, args=(self._work,), name="holdfast-provider", daemon=True
            ).start()
        return self._send(first)

    def _send(self, batches: Iterable[list[int]]) -> int:
        sent = list(batches)
        for places in sent:
            self._todo.put(places)
        return len(sent)

    def _work(self) -> None:
        while (places := self._todo.get()) is not None:
            self._results.put(self._try_batch(places))

    def _try_batch(self, places: Sequence[int]) -> Exception | None:
        """Embed one batch; return a failure that concerns all batches."""
        try:
            self._embed_batch(places)
        except Exception as error:  # noqa: BLE001 - `results` raises it
            self._stopped.set()
            return error
        return None

    def _embed_batch(self, places: Sequence[int]) -> None:
        """Put a vector or a refusal for each of these positions on the queue."""
        if self._stopped.is_set():
            return
        try:
            vectors, tokens = self._ask([self._texts[place] for place in places])
        except Permanent as refusal:
            if refusal.code not in SINGLE_TEXT_CODES:
                raise
            self._divide(places, refusal)
        else:
            self._accepted = True
            self._results.put(Embeddings(positions=tuple(places), vectors=vectors, tokens=tokens))

    def _divide(self, places: Sequence[int], refusal: Permanent) -> None:
        """Send each half of a rejected batch, down to the text at fault."""
        if len(places) == 1:
            tokens = self._confirm_text_at_fault(refusal)
            self._results.put(_refused_embeddings({places[0]: refusal}, tokens))
            return
        middle = len(places) // 2
        self._embed_batch(places[:middle])
        self._embed_batch(places[middle:])

    def _confirm_text_at_fault(self, refusal: Permanent) -> int:
        """Return the tokens spent to confirm that the text is at fault, or raise if every request is rejected."""
        if self._accepted or refusal.code != "bad_provider_request":
            return 0
        _, tokens = self._ask([PROBE_TEXT])
        self._accepted = True
        return tokens


def _refused_embeddings(refused: dict[int, WorkError], tokens: int = 0) -> Embeddings:
    import numpy as np  # noqa: PLC0415 - slow to import, and an extra

    return Embeddings(positions=(), vectors=np.zeros((0, 0), dtype=np.float32), tokens=tokens, refused=refused)
