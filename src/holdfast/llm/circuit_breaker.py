"""A circuit breaker: while a provider is down, only a small probe is sent to it.

An error alone does not show its cause: a text may break the provider, or the provider may be down. So unless the
provider sends Retry-After, a probe with a harmless text follows. If the probe is answered, the request is at fault, and
the failure counts as an attempt. Otherwise no requests are sent until the pause is over; callers get `RetryLater`,
which does not count as an attempt. The first request after a pause sends the probe again. An unanswered probe begins
the next pause.

A pause lasts as long as Retry-After says. Without it the first pause lasts a second, and each unanswered probe doubles
it up to a minute, so that work continues soon after the provider is back. A pause by Retry-After does not lengthen the
next one, and an answered probe resets the sequence.

Each process has its own state: that costs one failed call per process and avoids rows that could be out of date. Probes
go through the meter of the caller like any other request.
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
from holdfast.messages import format_message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.clock import Clock
    from holdfast.llm.base import Completion, Embeddings, Meter, Provider, UnmeteredProvider

    Probe = Callable[[], object]

log = logging.getLogger("holdfast")

PAUSED = "provider_paused"  # the text that precedes the message of the cause
PROBE_PROMPT = Prompt(text="Answer with the word yes.", max_tokens=16)
MIN_PAUSE = timedelta(seconds=1)  # even if Retry-After is shorter
MAX_PAUSE = timedelta(minutes=1)  # unless Retry-After is longer
PROBE_WAIT_SECONDS = 5.0  # how long other callers wait for a running probe
RETRY_DURING_PROBE = timedelta(seconds=10)  # their retry if the probe takes longer


@dataclass(slots=True)
class _BreakerState:
    """The state of a provider in one process."""

    cause: Transient | None = None  # None: requests are sent
    until: float = 0.0  # monotonic
    failures_in_a_row: int = 0  # since the last answer, without failures with Retry-After
    mutex: threading.Lock = field(default_factory=threading.Lock)
    probing: threading.Lock = field(default_factory=threading.Lock)  # one probe at a time


class CircuitBreaker(DelegatedModelInfo):
    """A provider that is paused while it is down; `name` appears in messages."""

    def __init__(self, provider: UnmeteredProvider, name: str, *, clock: Clock) -> None:
        super().__init__(provider)
        self._provider = provider
        self._name = name
        self._clock = clock
        self._states: dict[int, _BreakerState] = {}

    def with_meter(self, meter: Meter) -> Provider:
        return _GuardedProvider(self._provider.with_meter(meter), self.guard_request)

    def close(self) -> None:
        self._provider.close()

    @contextmanager
    def guard_request(self, probe: Probe) -> Iterator[None]:
        """Run a request unless the provider is paused; begin a pause if the request shows that it is down."""
        pause = self._process_state()
        self._require_available(pause, probe)
        try:
            yield
        except Transient as error:
            if error.code not in OUTAGE_CODES:
                raise
            raise self._classify_failure(pause, error, probe) from error

    def _require_available(self, pause: _BreakerState, probe: Probe) -> None:
        """Raise `RetryLater` during a pause; after a pause the first caller sends the probe."""
        while (why := pause.cause) is not None:
            if self._clock.monotonic() < pause.until or not pause.probing.acquire(timeout=PROBE_WAIT_SECONDS):
                raise self._build_paused_error(pause, why)
            try:
                if pause.cause is why:  # unless another thread ended the pause meanwhile
                    self._send_probe(pause, probe)
            finally:
                pause.probing.release()

    def _send_probe(self, pause: _BreakerState, probe: Probe) -> None:
        failure = _find_probe_failure(probe)
        if failure is not None:
            raise self._begin_pause(pause, failure) from failure
        with pause.mutex:
            pause.cause, pause.failures_in_a_row = None, 0

    def _classify_failure(self, pause: _BreakerState, error: Transient, probe: Probe) -> Transient:
        """Return `RetryLater` if the provider is down, or the failure of this request alone."""
        with pause.probing:
            if pause.cause is not None:  # another thread began a pause during this call
                return self._build_paused_error(pause, pause.cause)
            if error.retry_after is not None:
                return self._begin_pause(pause, error)
            failure = _find_probe_failure(probe)
            if failure is not None:
                return self._begin_pause(pause, failure)
        return Transient(error.code, error.params.get("message", ""), params=error.params)

    def _begin_pause(self, pause: _BreakerState, why: Transient) -> RetryLater:
        with pause.mutex:
            pause.failures_in_a_row += why.retry_after is None
            lasts = why.retry_after or min(MIN_PAUSE * 2 ** min(pause.failures_in_a_row - 1, 30), MAX_PAUSE)
            pause.until = self._clock.monotonic() + max(lasts, MIN_PAUSE).total_seconds()
            pause.cause = why
        error = self._build_paused_error(pause, why)
        log.warning("provider.paused name=%s code=%s until=%s", self._name, why.code, error.params["until"])
        return error

    def _build_paused_error(self, pause: _BreakerState, why: Transient) -> RetryLater:
        left = timedelta(seconds=pause.until - self._clock.monotonic())
        left = left if left > timedelta() else RETRY_DURING_PROBE
        over = datetime.fromtimestamp((self._clock.now() + micros(left)) / 1_000_000, UTC)
        until = over.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"
        params = {name: value for name, value in why.params.items() if name != "message"}
        pause_params = {"provider": self._name, "until": until}
        message = f"{format_message(f'problem.{PAUSED}', pause_params)} {why}"
        return RetryLater(why.code, message, params={**params, **pause_params}, retry_after=left)

    def _process_state(self) -> _BreakerState:
        """Return the state of this process. There is no lock here, because a fork could copy it while it is held."""
        pid = os.getpid()
        return self._states.get(pid) or self._states.setdefault(pid, _BreakerState())


class _GuardedProvider(DelegatedModelInfo):
    """Sends the requests of one caller through the circuit breaker; raises `RetryLater` during a pause."""

    def __init__(self, provider: Provider, open_: Callable[[Probe], AbstractContextManager[None]]) -> None:
        super().__init__(provider)
        self._provider = provider
        self._guard_request = open_

    def embed(self, texts: Sequence[str]) -> Embeddings:
        return merge_embeddings(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never_stop) -> Iterator[Embeddings]:
        with self._guard_request(lambda: self._provider.embed([PROBE_TEXT])):
            yield from self._provider.embed_parts(texts, enough)

    def complete(self, prompt: Prompt) -> Completion:
        with self._guard_request(self._probe_chat_model):
            return self._provider.complete(prompt)

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        with self._guard_request(self._probe_chat_model):
            yield from self._provider.stream(prompt)

    def _probe_chat_model(self) -> object:
        return self._provider.complete(PROBE_PROMPT)


def _find_probe_failure(probe: Probe) -> Transient | None:
    """Send the probe; return the failure if there is no answer, else None.

    A refusal is an answer: waiting does not repair a key, an account or a model. A probe beyond the budget of the base
    shows nothing about the provider; its error is raised.
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
