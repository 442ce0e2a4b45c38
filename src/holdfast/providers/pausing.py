"""A provider that is down for everybody is asked by nobody: one pause for all work, and one question when it is over.

An error alone does not tell whose fault it is: a text may break the provider, and a provider may be down. So unless the
provider itself says when to come back, it is asked something harmless. If that is answered, the failure belongs to
whoever asked, and is counted. If not, nobody asks until the pause is over; all who want to are told so and wait, and
nothing is held against them. Then the same harmless question goes first. Unanswered, it begins a longer pause.

Each process finds out for itself: what it costs is one failed call, and no row that could be out of date.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.core.clock import micros
from holdfast.errors import Paused, Transient, WorkError
from holdfast.providers.base import Completion, Prompt, gather, never
from holdfast.providers.batches import HARMLESS
from holdfast.providers.failures import OF_EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.core.clock import Clock
    from holdfast.core.retry import RetryPolicy
    from holdfast.providers.base import Embedded, Provider

    Ask = Callable[[], None]

log = logging.getLogger("holdfast")

HARMLESS_PROMPT = Prompt(text="Answer with the word yes.", max_tokens=16)
SHORTEST = timedelta(seconds=1)  # a pause, whatever the provider says
PATIENCE_SECONDS = 5.0  # how long others wait while one finds out
WHILE_ASKING = timedelta(seconds=10)  # and when they come again if that was not enough
UNSPREAD = 0.5  # the chance that leaves a delay as it is: in a process there is one pause, and nothing to spread


@dataclass(slots=True)
class _Pause:
    """What one process knows of a provider."""

    why: Transient | None = None  # None: it is asked
    until: float = 0.0  # monotonic
    rounds: int = 0  # pauses without an answer between them
    tokens_in: int = 0  # paid for harmless questions, and on nobody's bill yet
    tokens_out: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)
    asking: threading.Lock = field(default_factory=threading.Lock)  # one harmless question at a time


class Pausing:
    """A provider that is left alone while it is down; `name` is what people call it."""

    def __init__(self, provider: Provider, name: str, *, clock: Clock, policy: RetryPolicy) -> None:
        self._provider = provider
        self._name = name
        self._clock = clock
        self._policy = policy
        self._pauses: dict[int, _Pause] = {}

    @property
    def embedding_model(self) -> str | None:
        """The model that embeds; None where there is none."""
        return self._provider.embedding_model

    @property
    def dimension(self) -> int | None:
        """The length of each vector; None if only the first answer tells."""
        return self._provider.dimension

    @property
    def chat_model(self) -> str | None:
        """The model that completes prompts; None where there is none."""
        return self._provider.chat_model

    @property
    def version(self) -> str:
        """What else an answer depends on."""
        return self._provider.version

    @property
    def paid(self) -> bool:
        """Whether answers are worth keeping."""
        return self._provider.paid

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Embed all texts, in their order; if this raises, answers that arrived before are lost."""
        return gather(self.embed_parts(texts))

    def embed_parts(self, texts: Sequence[str], enough: Callable[[], bool] = never) -> Iterator[Embedded]:
        """Embed all texts and give out each part as it arrives; `Paused` while nobody asks."""
        with self._open(self._embed_harmless):
            for part in self._provider.embed_parts(texts, enough):
                yield replace(part, tokens=part.tokens + self._owed()[0])

    def complete(self, prompt: Prompt) -> Completion:
        """Ask the language model; `Paused` while nobody asks."""
        with self._open(self._say_harmless):
            said = self._provider.complete(prompt)
            read, written = self._owed()
            return replace(said, tokens_in=said.tokens_in + read, tokens_out=said.tokens_out + written)

    def stream(self, prompt: Prompt) -> Iterator[str]:
        """Ask the language model and give out its words as they come; `Paused` while nobody asks."""
        with self._open(self._say_harmless):
            yield from self._provider.stream(prompt)

    def close(self) -> None:
        """Close the connections of this process; the provider can be used again."""
        self._provider.close()

    @contextmanager
    def _open(self, ask: Ask) -> Iterator[None]:
        """Let a call through, unless there is a pause; decide what its failure means for the others."""
        pause = self._pause()
        self._look(pause, ask)
        try:
            yield
        except Transient as error:
            if error.code not in OF_EVERYBODY:
                raise
            raise self._judged(pause, error, ask) from error

    def _look(self, pause: _Pause, ask: Ask) -> None:
        """Return if the provider may be asked; when a pause is over the first who comes finds out."""
        while (why := pause.why) is not None:
            if self._clock.monotonic() < pause.until or not pause.asking.acquire(timeout=PATIENCE_SECONDS):
                raise self._told(pause, why)
            try:
                if pause.why is why:  # and nobody has found out while we waited
                    self._find_out(pause, ask)
            finally:
                pause.asking.release()

    def _find_out(self, pause: _Pause, ask: Ask) -> None:
        """Ask something harmless; end the pause, or begin the next."""
        failure = _unanswered(ask)
        if failure is not None:
            raise self._begun(pause, failure) from failure
        with pause.mutex:
            pause.why, pause.rounds = None, 0

    def _judged(self, pause: _Pause, error: Transient, ask: Ask) -> Transient:
        """Say whose failure this is: everybody's, or of what was asked."""
        with pause.asking:
            if pause.why is not None:  # somebody else found out while this call was under way
                return self._told(pause, pause.why)
            if error.retry_after is not None:
                return self._begun(pause, error)
            failure = _unanswered(ask)
            if failure is not None:
                return self._begun(pause, failure)
        return Transient(error.code, str(error), params=error.params)

    def _begun(self, pause: _Pause, why: Transient) -> Paused:
        """Begin a pause: as long as the provider says, or longer each time."""
        with pause.mutex:
            pause.rounds += 1
            lasts = why.retry_after or self._policy.delay(pause.rounds, UNSPREAD)
            pause.until = self._clock.monotonic() + max(lasts, SHORTEST).total_seconds()
            pause.why = why
        told = self._told(pause, why)
        log.warning("provider.paused name=%s code=%s until=%s", self._name, why.code, told.params["until"])
        return told

    def _told(self, pause: _Pause, why: Transient) -> Paused:
        """Say which provider is not asked, why, and until when."""
        left = timedelta(seconds=pause.until - self._clock.monotonic())
        left = left if left > timedelta() else WHILE_ASKING
        over = datetime.fromtimestamp((self._clock.now() + micros(left)) / 1_000_000, UTC)
        until = over.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"
        params = {name: value for name, value in why.params.items() if name != "message"}
        return Paused(
            why.code,
            f"{self._name} is not asked until {until}. {why}",
            params={**params, "provider": self._name, "until": until},
            retry_after=left,
        )

    def _embed_harmless(self) -> None:
        self._owe(self._provider.embed([HARMLESS]).tokens, 0)

    def _say_harmless(self) -> None:
        said = self._provider.complete(HARMLESS_PROMPT)
        self._owe(said.tokens_in, said.tokens_out)

    def _owe(self, read: int, written: int) -> None:
        """Remember what a harmless question cost; it goes on the next bill."""
        pause = self._pause()
        with pause.mutex:
            pause.tokens_in += read
            pause.tokens_out += written

    def _owed(self) -> tuple[int, int]:
        """Return what harmless questions have cost since the last bill."""
        pause = self._pause()
        if not (pause.tokens_in or pause.tokens_out):
            return 0, 0
        with pause.mutex:
            owed = pause.tokens_in, pause.tokens_out
            pause.tokens_in = pause.tokens_out = 0
        return owed

    def _pause(self) -> _Pause:
        """Find or make what belongs to this process; a lock here might be copied locked by a fork."""
        pid = os.getpid()
        return self._pauses.get(pid) or self._pauses.setdefault(pid, _Pause())


def _unanswered(ask: Ask) -> Transient | None:
    """Ask something harmless; return why there is no answer, None if there is any.

    A refusal is an answer: a key, an account or a model is nothing that waiting helps against.
    """
    try:
        ask()
    except Transient as error:
        return error if error.code in OF_EVERYBODY else None
    except WorkError:
        return None
    return None
