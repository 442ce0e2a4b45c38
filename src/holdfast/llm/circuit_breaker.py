"""A circuit breaker: while a provider is down for everybody, nobody sends it anything but a small probe.

An error alone does not tell whose fault it is: a text may break the provider, and a provider may be down. So unless the
provider itself says when to come back, a probe with a harmless text is sent. If the probe is answered, the failure
belongs to the request, and is counted. If not, no requests are sent until the pause is over; callers get `Paused`,
which is not counted as an attempt. The first request after a pause sends the probe again. An unanswered probe begins
the next pause.

A pause lasts as long as the provider's Retry-After says. Without one it is short at first (a second) and doubles with
each unanswered probe up to a minute, so that work continues soon after the provider is back. A pause by Retry-After
does not lengthen the next one, and an answered probe starts the sequence again.

Each process finds out for itself: what it costs is one failed call, and no row that could be out of date. Probes go
through the meter of the caller like any other request.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.clock import micros
from holdfast.errors import RetryLater, Transient, WorkError
from holdfast.llm.base import DelegatedModelInfo, Prompt, merge_embeddings, never_stop
from holdfast.llm.batches import PROBE_TEXT
from holdfast.llm.failures import BUDGET_SPENT, OUTAGE_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.clock import Clock
    from holdfast.llm.base import Completion, Embeddings, Meter, Provider, UnmeteredProvider

    Probe = Callable[[], object]

log = logging.getLogger("holdfast")

PROBE_PROMPT = Prompt(text="Answer with the word yes.", max_tokens=16)
MIN_PAUSE = timedelta(seconds=1)  # a pause, whatever the provider says
MAX_PAUSE = timedelta(minutes=1)  # a pause, unless the provider asks for more
PROBE_WAIT_SECONDS = 5.0  # how long others wait while one finds out
RETRY_DURING_PROBE = timedelta(seconds=10)  # and when they come again if that was not enough


@dataclass(slots=True)
class _BreakerState:
    """What one process knows of a provider."""

    cause: Transient | None = None  # None: requests are sent
    until: float = 0.0  # monotonic
    failures_in_a_row: int = 0  # probes and requests since the last answer, without those that said when to come back
    mutex: threading.Lock = field(default_factory=threading.Lock)
    probing: threading.Lock = field(default_factory=threading.Lock)  # one probe at a time


class CircuitBreaker(DelegatedModelInfo):
    """A provider that is left alone while it is down; `name` is what people call it."""

    def __init__(self, provider: UnmeteredProvider, name: str, *, clock: Clock) -> None:
        super().__init__(provider)
        self._provider = provider
        self._name = name
        self._clock = clock
        self._states: dict[int, _BreakerState] = {}

    def with_meter(self, meter: Meter) -> Provider:
        """Return what sends requests and probes, and accounts for each by this meter."""
        return _GuardedProvider(self._provider.with_meter(meter), self.guard_request)

    def close(self) -> None:
        """Close the connections of this process; the provider can be used again."""
        self._provider.close()

    @contextmanager
    def guard_request(self, probe: Probe) -> Iterator[None]:
        """Let a request through, unless there is a pause; decide what its failure means for the others."""
        pause = self._process_state()
        self._require_available(pause, probe)
        try:
            yield
        except Transient as error:
            if error.code not in OUTAGE_CODES:
                raise
            raise self._classify_failure(pause, error, probe) from error

    def _require_available(self, pause: _BreakerState, probe: Probe) -> None:
        """Return if requests may be sent; when a pause is over the first caller sends the probe."""
        while (why := pause.cause) is not None:
            if self._clock.monotonic() < pause.until or not pause.probing.acquire(timeout=PROBE_WAIT_SECONDS):
                raise self._build_paused_error(pause, why)
            try:
                if pause.cause is why:  # and nobody has found out while we waited
                    self._send_probe(pause, probe)
            finally:
                pause.probing.release()

    def _send_probe(self, pause: _BreakerState, probe: Probe) -> None:
        """Send the probe; end the pause, or begin the next."""
        failure = _find_probe_failure(probe)
        if failure is not None:
            raise self._begin_pause(pause, failure) from failure
        with pause.mutex:
            pause.cause, pause.failures_in_a_row = None, 0

    def _classify_failure(self, pause: _BreakerState, error: Transient, probe: Probe) -> Transient:
        """Say whose failure this is: everybody's, or of what was asked."""
        with pause.probing:
            if pause.cause is not None:  # somebody else found out while this call was under way
                return self._build_paused_error(pause, pause.cause)
            if error.retry_after is not None:
                return self._begin_pause(pause, error)
            failure = _find_probe_failure(probe)
            if failure is not None:
                return self._begin_pause(pause, failure)
        return Transient(error.code, str(error), params=error.params)

    def _begin_pause(self, pause: _BreakerState, why: Transient) -> RetryLater:
        """Begin a pause: as long as the provider says, or longer after each unanswered probe."""
        with pause.mutex:
            pause.failures_in_a_row += why.retry_after is None
            lasts = why.retry_after or min(MIN_PAUSE * 2 ** min(pause.failures_in_a_row - 1, 30), MAX_PAUSE)
            pause.until = self._clock.monotonic() + max(lasts, MIN_PAUSE).total_seconds()
            pause.cause = why
        told = self._build_paused_error(pause, why)
        log.warning("provider.paused name=%s code=%s until=%s", self._name, why.code, told.params["until"])
        return told

    def _build_paused_error(self, pause: _BreakerState, why: Transient) -> RetryLater:
        """Say which provider is not asked, why, and until when."""
        left = timedelta(seconds=pause.until - self._clock.monotonic())
        left = left if left > timedelta() else RETRY_DURING_PROBE
        over = datetime.fromtimestamp((self._clock.now() + micros(left)) / 1_000_000, UTC)
        until = over.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"
        params = {name: value for name, value in why.params.items() if name != "message"}
        return RetryLater(
            why.code,
            f"{self._name} is not asked until {until}. {why}",
            params={**params, "provider": self._name, "until": until},
            retry_after=left,
        )

    def _process_state(self) -> _BreakerState:
        """Find or make what belongs to this process; a lock here might be copied locked by a fork."""
        pid = os.getpid()
        return self._states.get(pid) or self._states.setdefault(pid, _BreakerState())


class _GuardedProvider(DelegatedModelInfo):
    """Sends requests of one caller, as far as the provider is not paused."""

    def __init__(self, provider: Provider, open_: Callable[[Probe], AbstractContextManager[None]]) -> None:
        super().__init__(provider)
        self._provider = provider
        self._guard_request = open_

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed all texts, in their order; if this raises, answers that arrived before are lost."""
        return merge_embeddings(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        """Embed all texts and give out each part as it arrives; `Paused` during a pause."""
        with self._guard_request(lambda: self._provider.embed([PROBE_TEXT])):
            yield from self._provider.embed_parts(texts, enough)

    def complete(self, prompt: Prompt) -> Completion:
        """Ask the language model; `Paused` during a pause."""
        with self._guard_request(self._probe_chat_model):
            return self._provider.complete(prompt)

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        """Ask the language model and yield its words as they come; `Paused` during a pause."""
        with self._guard_request(self._probe_chat_model):
            yield from self._provider.stream(prompt)

    def _probe_chat_model(self) -> object:
        return self._provider.complete(PROBE_PROMPT)


def _find_probe_failure(probe: Probe) -> Transient | None:
    """Send the probe; return why there is no answer, None if there is any.

    A refusal is an answer: a key, an account or a model is nothing that waiting helps against. A probe that the budget
    of the base does not allow says nothing about the provider, and is raised.
    """
    try:
        probe()
    except Transient as error:
        return error if error.code in OUTAGE_CODES else None
    except WorkError as error:
        if error.code == BUDGET_SPENT:
            raise
        return None
    return None
