"""Texts go to a paid provider in batches, several at a time, and one bad text costs no other its answer.

A batch that the provider rejects is halved until the text at fault stands alone; only that text is refused. A
provider that rejects everything has no quarrel with the texts: before a text is blamed for an unclear rejection, the
same request must have been accepted with some other text. A failure of the key, the account, the model or the network
is everybody's: nothing more is sent, and what is under way is still given out, for it is paid.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
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

EmbedBatch = Callable[[Sequence[str]], "tuple[Matrix, int]"]  # texts -> their vectors, and the tokens paid for

EMPTY_TEXT = "empty_text"  # the code of a text that has no meaning
PROBE_TEXT = "text"  # what no provider has a reason to reject
BYTES_PER_TOKEN = 3  # of UTF-8; English has four, Chinese and Japanese three


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How much goes into one call, and how many calls are under way at once."""

    texts: int = 64
    tokens: int = 100_000  # as estimated; a longer text goes alone
    concurrency: int = 4

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could ever be sent."""
        if min(self.texts, self.tokens, self.concurrency) < 1:
            raise BadSettings("A call to a provider needs room for a text. Set the limits of a batch to 1 or more.")


def split_into_batches(texts: Sequence[str], places: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """Lay the places of texts into batches, in their order."""
    laid: list[list[int]] = []
    room = 0
    for place in places:
        tokens = overestimate_tokens(texts[place])
        if not laid or tokens > room or len(laid[-1]) == limits.texts:
            laid.append([])
            room = limits.tokens
        laid[-1].append(place)
        room -= tokens
    return laid


def overestimate_tokens(text: str) -> int:
    """Guess the tokens of a text, rather too many than too few."""
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1


def embed_in_batches(
    texts: Sequence[str], ask: EmbedBatch, limits: BatchLimits, enough: Callable[[], bool] = lambda: False
) -> Generator[Embeddings, None, None]:
    """Ask for all texts and give out each part as it arrives; then raise the first failure, if there was one."""
    empty = {place: _empty() for place, text in enumerate(texts) if not text.strip()}
    if empty:
        yield _refused_embeddings(empty)
    laid = split_into_batches(texts, [place for place in range(len(texts)) if place not in empty], limits)
    yield from _BatchedCall(texts, ask).results(laid, limits.concurrency, enough)


class _BatchedCall:
    """One call: threads that ask, and a queue on which the answers arrive."""

    def __init__(self, texts: Sequence[str], ask: EmbedBatch) -> None:
        self._texts = texts
        self._ask = ask
        self._todo: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Embeddings | Exception | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._accepted = False  # whether the provider has taken any text in this call

    def results(
        self, laid: Sequence[list[int]], at_once: int, enough: Callable[[], bool] = lambda: False
    ) -> Iterator[Embeddings]:
        """Give out answers as they arrive; a batch is sent when another one is done and its answer was taken.

        So whoever is killed while it stores an answer loses at most the batches under way.
        """
        failure: Exception | None = None
        later = takewhile(lambda _: not enough(), laid)
        try:  # around the start too: threads that did start must end when one does not
            under_way = self._start([*islice(later, at_once)], alone=len(laid) == 1)
            while under_way:
                news = self._results.get()
                if isinstance(news, Embeddings):
                    yield news
                    continue
                failure = failure or news
                under_way += self._send(islice(later, 1)) - 1  # after a failure nobody asks for it
        finally:
            self._stopped.set()
            for _ in range(at_once):
                self._todo.put(None)
        if failure is not None:
            raise failure

    def _start(self, first: Sequence[list[int]], *, alone: bool) -> int:
        """Set a thread to work for each of the first batches; one that is alone is asked for right here."""
        if alone:
            self._results.put(self._try_batch(first[0]))
            return 1
        for _ in first:
            # A daemon: a process that ends shall not wait for an answer that nobody reads.
            threading.Thread(target=self._work, name="holdfast-provider", daemon=True).start()
        return self._send(first)

    def _send(self, some: Iterable[list[int]]) -> int:
        sent = list(some)
        for places in sent:
            self._todo.put(places)
        return len(sent)

    def _work(self) -> None:
        while (places := self._todo.get()) is not None:
            self._results.put(self._try_batch(places))

    def _try_batch(self, places: Sequence[int]) -> Exception | None:
        """Solve one batch and return what went wrong for everybody."""
        try:
            self._embed_batch(places)
        except Exception as error:  # noqa: BLE001 - raised where the answers are read
            self._stopped.set()
            return error
        return None

    def _embed_batch(self, places: Sequence[int]) -> None:
        """Get an answer or a refusal for each of these places."""
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
        """Look for the text at fault in each half of a rejected batch."""
        if len(places) == 1:
            tokens = self._confirm_text_at_fault(refusal)
            self._results.put(_refused_embeddings({places[0]: refusal}, tokens))
            return
        middle = len(places) // 2
        self._embed_batch(places[:middle])
        self._embed_batch(places[middle:])

    def _confirm_text_at_fault(self, refusal: Permanent) -> int:
        """Return what it cost to know that the text is at fault, or raise what is wrong with every request."""
        if self._accepted or refusal.code != "bad_provider_request":
            return 0
        _, tokens = self._ask([PROBE_TEXT])
        self._accepted = True
        return tokens


def _refused_embeddings(refused: dict[int, WorkError], tokens: int = 0) -> Embeddings:
    import numpy as np  # noqa: PLC0415 - slow to import, and an extra

    return Embeddings(positions=(), vectors=np.zeros((0, 0), dtype=np.float32), tokens=tokens, refused=refused)


def _empty() -> WorkError:
    return Permanent(EMPTY_TEXT, "A text without a word has no meaning to embed. Nothing needs to be done.")
